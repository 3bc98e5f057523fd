package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/headroom"
)

// Headroom is what schedulers are told: the last forecast of the policy headroom, and how far that may go.
type Headroom struct {
	Mode model.Mode `json:"mode"` // as configured
	GPU  string     `json:"gpu"`  // why there is no figure of GPUs
	headroom.Report
}

// gpus says why there is no figure of GPUs and their memory: which drivers are here is seen by their device files.
func gpus(fs hostfs.FS) string {
	var found []string
	for _, dir := range []string{"/dev", "/dev/dri"} {
		list, err := fs.ReadDir(dir)
		if errors.Is(err, unix.ENOENT) && dir != "/dev" {
			continue
		}
		if err != nil {
			return fmt.Sprintf("not known: whether there are any cannot be seen: %v", err)
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name, "nvidia") && !e.IsDir || e.Name == "kfd" || strings.HasPrefix(e.Name, "renderD") {
				found = append(found, dir+"/"+e.Name)
			}
		}
	}
	if len(found) == 0 {
		return "absent: no driver's device file is here (/dev/nvidia*, /dev/kfd, /dev/dri/renderD*)"
	}
	slices.Sort(found)
	return fmt.Sprintf("not read: %s is here, and this version has no NVML: what GPUs and their memory do is in no figure", found[0])
}

// headroom is called in the loop.
func (a *Agent) headroom() *Headroom {
	e := a.core.Engine
	none := "not known: nobody looks on a simulated machine"
	if a.fs != nil {
		none = gpus(a.fs)
	}
	return &Headroom{Mode: e.Params.CPU.HeadroomMode, GPU: none, Report: e.State.CPU.Headroom.Report().Clone()}
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
