package agent

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/policy/headroom"
)

// Headroom is what schedulers are told: the last forecast of the policy headroom, and how far that may go.
type Headroom struct {
	Mode model.Mode `json:"mode"` // as configured
	// NoGPU is why there is no figure of GPUs, or of which there is none; "": GPUs has all.
	NoGPU string `json:"gpu"`
	headroom.Report
}

// headroom is called in the loop.
func (a *Agent) headroom() *Headroom {
	e := a.core.Engine
	h := &Headroom{Mode: e.Params.CPU.HeadroomMode, Report: e.State.CPU.Headroom.Report().Clone()}
	if h.GPU.Why != "" || len(h.GPU.GPUs) > 0 {
		h.NoGPU = h.GPU.Why
		return h
	}
	switch host, ok := a.core.Host.(*linux.Host); {
	case !ok:
		h.NoGPU = "not known: nobody looks on a simulated machine"
	case host.NoGPUs() != "":
		h.NoGPU = "not read: " + host.NoGPUs()
	default:
		h.NoGPU = "not read yet"
	}
	return h
}

func (a *Agent) handleHeadroom(w http.ResponseWriter, r *http.Request) {
	var h *Headroom
	if err := a.ask(r.Context(), func() { h = a.headroom() }); err != nil {
		reply(w, http.StatusServiceUnavailable, Answer{Error: err.Error()})
		return
	}
	reply(w, http.StatusOK, h)
}

// publisher writes each new forecast into a file for schedulers, beside the loop, which never waits for it.
type publisher struct {
	agent    *Agent
	path     string
	wallNsec int64 // of the forecast that was handed in last
	in       chan *Headroom
	done     chan struct{}
}

// publish starts a publisher; nil where the configuration names no file. A name that is no path is one below
// the state directory.
func (a *Agent) publish(stateDir string) *publisher {
	path := a.cfg.Agent.HeadroomFile
	if path == "" || a.cfg.Policies.CPU.HeadroomMode == model.ModeOff {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(stateDir, path)
	}
	p := &publisher{agent: a, path: path, in: make(chan *Headroom, 1), done: make(chan struct{})}
	go p.run(a.log)
	return p
}

// look hands in a forecast that is new; while the one before waits for a slow disk the next one is.
func (p *publisher) look() {
	if p == nil {
		return
	}
	at := p.agent.core.Engine.State.CPU.Headroom.Report().WallNsec
	if at == p.wallNsec {
		return
	}
	select {
	case p.in <- p.agent.headroom():
		p.wallNsec = at
	default:
	}
}

// close removes the file: an agent that is gone takes nothing back, and so promises nothing.
func (p *publisher) close() {
	if p == nil {
		return
	}
	close(p.in)
	select {
	case <-p.done:
	case <-time.After(time.Second): // the disk hangs; readers see by the file's time that it is old
	}
}

func (p *publisher) run(log *slog.Logger) {
	defer close(p.done)
	failing := false
	for h := range p.in {
		b, err := json.MarshalIndent(h, "", " ")
		if err == nil {
			err = learned.Replace(p.path, append(b, '\n'), 0o644)
		}
		if err != nil && !failing {
			log.Error("the headroom cannot be written; it is tried again each minute", "file", p.path, "error", err)
		}
		failing = err != nil
	}
	_ = os.Remove(p.path) // it may never have been there
}
