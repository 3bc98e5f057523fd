package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// startWait is how long the agent may take until it has placed both tasks.
const startWait = 15 * time.Second

// agentRun is the agent for one block: it is not there in the blocks of the other arms.
type agentRun struct {
	dir  string
	log  string
	proc *stage.Proc
}

// startAgent starts the agent and waits until it has placed both tasks.
func startAgent(ctx context.Context, h *host, number int) (*agentRun, error) {
	base := filepath.Join(h.stage.Dir, "agent-"+strconv.Itoa(number))
	a := &agentRun{dir: base, log: base + ".log"}
	cfg := base + ".yaml"
	if err := os.WriteFile(cfg, hostConfig(base, h.service, h.batch), 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(a.log)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has its own
	cmd := exec.Command(h.opt.Agent, "agent", "--config", cfg)
	cmd.Stdout, cmd.Stderr = out, out
	if a.proc, err = h.stage.StartCmd(cmd, "agent"); err != nil {
		return nil, err
	}
	cg := h.stage.Cgroups()
	for deadline := time.Now().Add(startWait); time.Now().Before(deadline) && !a.proc.Ended(); {
		service, err1 := cg.ReadCPUs(h.service)
		batch, err2 := cg.ReadCPUs(h.batch)
		if err := errors.Join(err1, err2); err != nil {
			return nil, errors.Join(err, a.stop())
		}
		if service != batch {
			return a, nil
		}
		if err := stage.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(err, a.stop())
		}
	}
	text, _ := os.ReadFile(a.log)
	return nil, errors.Join(fmt.Errorf("the agent does not part the CPUs\n%s", text), a.stop())
}

// hostConfig is the agent's configuration: of all policies only the partition is on. With two
// CPUs LC's lower load must fit on one of them, a step must show in a pulse of which it has
// but a part, and a core that is handed back at each of many steps must not be kept for that.
func hostConfig(base, service, batch string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "profile: single-node\nmode: off\ntasks:\n")
	fmt.Fprintf(&b, "  - {match: %s, job: service, class: LC, production: true}\n", service)
	fmt.Fprintf(&b, "  - {match: %s, job: batch, class: BE, importance: best-effort}\n", batch)
	fmt.Fprintf(&b, "cpuset: {mode: enforce, floor_cores: 0, floor_share: 0, wait: 0.3, full_utilisation: 0.7, fall: 500ms, returns_per_min: 60}\n")
	fmt.Fprintf(&b, "agent:\n  state_dir: %s\n  socket: %s.sock\n  kill_switch: %s.off\n  metrics_listen: \"\"\n  discover_every: 1s\n", base, base, base)
	return b.Bytes()
}

// stop ends the agent, which puts everything back and leaves its record.
func (a *agentRun) stop() error {
	if a.proc == nil {
		return nil
	}
	a.proc.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	if err := a.proc.Wait(ctx); err != nil {
		text, _ := os.ReadFile(a.log)
		return fmt.Errorf("the agent: %w\n%s", err, text)
	}
	return nil
}

// keep copies what the agent recorded, and its log, to a folder.
func (a *agentRun) keep(dir string) error {
	if err := os.CopyFS(dir, os.DirFS(agent.RecordPath(a.dir))); err != nil {
		return fmt.Errorf("keep the record: %w", err)
	}
	text, err := os.ReadFile(a.log)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "agent.log"), text, 0o600)
}

// writes is what the agent wrote to the knobs of the two tasks, each ordered by time.
type writes struct{ service, batch []write }

// writes reads the agent's record.
func (a *agentRun) writes(service, batch string) (*writes, error) {
	w := &writes{}
	paths := map[model.TaskNum]string{}
	err := record.Walk(agent.RecordPath(a.dir), func(t *record.Tick) {
		if s := t.Input.Snapshot; s != nil {
			for i := range s.Added {
				paths[s.Added[i].Num] = s.Added[i].Path
			}
		}
		for i := range t.Input.Results {
			r := &t.Input.Results[i]
			if r.Kind != model.Applied {
				continue
			}
			switch paths[r.Task] {
			case service:
				w.service = append(w.service, write{r.MonoNsec, r.Now})
			case batch:
				w.batch = append(w.batch, write{r.MonoNsec, r.Now})
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if len(w.service) == 0 {
		return nil, errors.New("the agent's record has no write to the service's CPUs")
	}
	return w, nil
}

// resizes counts how often the service's CPUs became others within a time.
func (w *writes) resizes(from, to int64) int {
	n := 0
	place := placeAt(w.service, from)
	for i := range w.service {
		v := &w.service[i]
		if v.nsec <= from || v.nsec > to || v.value.Knob != model.CPUPlace || v.value.CPUs == place {
			continue
		}
		place = v.value.CPUs
		n++
	}
	return n
}
