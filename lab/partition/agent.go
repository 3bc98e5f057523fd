package partition

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// placeWait is how long the agent may take until it has placed both tasks.
const placeWait = 15 * time.Second

// startAgent starts the agent and waits until it has placed both tasks.
func startAgent(ctx context.Context, h *host, number int) (*stage.Agent, error) {
	a, err := h.stage.StartAgent(ctx, h.opt.Agent, "agent-"+strconv.Itoa(number), hostConfig(h.service, h.batch, h.opt.Defaults))
	if err != nil {
		return nil, err
	}
	cg := h.stage.Cgroups()
	for deadline := time.Now().Add(placeWait); time.Now().Before(deadline); {
		service, err1 := cg.ReadCPUs(h.service)
		batch, err2 := cg.ReadCPUs(h.batch)
		if err := errors.Join(err1, err2); err != nil {
			return nil, errors.Join(err, a.Finish())
		}
		if service != batch {
			return a, nil
		}
		if err := stage.Sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(err, a.Finish())
		}
	}
	return nil, errors.Join(errors.New("the agent does not part the CPUs"), a.Finish())
}

// hostConfig is the agent's configuration: of all policies only the partition is on. With two
// CPUs LC's lower load must fit on one of them, a step must show in a pulse of which it has
// but a part, and a core that is handed back at each of many steps must not be kept for that. With
// defaults none of this is said: on two CPUs each side then has one, and nothing moves.
func hostConfig(service, batch string, defaults bool) *config.Config {
	c := stage.AgentConfig()
	c.Policies.Mode, c.Policies.CPU.CPUPoolMode, c.Policies.CPU.BurstMode = model.ModeOff, model.ModeOff, model.ModeOff
	c.Tasks = []config.Task{
		{Match: service, Job: "service", Class: "LC", Production: true},
		{Match: batch, Job: "batch", Class: "BE", Importance: "best-effort"},
	}
	c.Policies.CPU.CPUSetMode = model.ModeEnforce
	if defaults {
		return c
	}
	s := &c.Policies.CPU.CPUSet
	s.FloorCores, s.FloorShare, s.Wait = 0, 0, 0.3
	s.FullUtilisation, s.FallNsec, s.ReturnsPerMin = 0.7, (500 * time.Millisecond).Nanoseconds(), 60
	return c
}

// writes is what the agent wrote to the knobs of the two tasks, each ordered by time.
type writes struct{ service, batch []write }

// readWrites reads them from the agent's record.
func readWrites(recordPath, service, batch string) (*writes, error) {
	w := &writes{}
	paths := map[model.TaskNum]string{}
	err := record.Walk(recordPath, func(t *record.Tick) {
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
			switch paths[r.Task()] {
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
