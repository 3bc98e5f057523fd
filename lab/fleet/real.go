package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// real are agents of this host, each with cgroups of its own in which a little runs. A nil real has none.
type real struct {
	stage *stage.Stage
	hosts []*host
}

// host is one of them.
type host struct {
	Host
	agent *stage.Agent
	batch string // path of the task that an operator holds
	found cgroup.CPUMax
}

// Host is what became of a real agent.
type Host struct {
	Node    string `json:"node"`
	Samples uint64 `json:"samples"` // that the hub has of it
	Tasks   int    `json:"tasks"`   // that the hub has heard of last
	Capped  bool   `json:"capped"`  // an operator's cap was in force in the kernel,
	Freed   bool   `json:"freed"`   // the kill switch put back what was found there,
	On      bool   `json:"on"`      // and the agent went on after it
}

// why says what is wrong with it; "": nothing.
func (h *Host) why() string {
	if h.Samples > 0 && h.Tasks == len(hostTasks) && h.Capped && h.Freed && h.On {
		return ""
	}
	return fmt.Sprintf("the real agent %s: %d samples, %d of %d tasks; capped %v, freed by the kill switch %v, on again %v", h.Node, h.Samples, h.Tasks, len(hostTasks), h.Capped, h.Freed, h.On)
}

// hostTasks are what runs beside each.
var hostTasks = []struct {
	name  string
	class model.Class
}{{"service", model.LC}, {"batch", model.BE}}

const realAgents = 2

// startReal starts them.
func startReal(ctx context.Context, o *Options, f *field) (*real, error) {
	s, err := stage.Open(os.Stderr)
	if err != nil {
		return nil, err
	}
	r := &real{stage: s}
	for i := range realAgents {
		if err := r.start(ctx, o, f, i); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *real) start(ctx context.Context, o *Options, f *field, i int) error {
	name := fmt.Sprintf("host-%d", i)
	if err := f.let(name); err != nil {
		return err
	}
	h := &host{Host: Host{Node: name}}
	cfg := stage.AgentConfig()
	cfg.Fleet.Hub, cfg.Fleet.Node, cfg.Fleet.SeedFile, cfg.Fleet.Every = f.hub.NodesURL(), name, f.seedFile(name), 5*time.Second
	for _, task := range hostTasks {
		path, err := r.stage.Group(name + "-" + task.name)
		if err != nil {
			return err
		}
		if _, err := r.stage.Start(path, name+"-"+task.name, "stress-ng", "--quiet", "--cpu", "1", "--cpu-load", "5"); err != nil {
			return err
		}
		cfg.Tasks = append(cfg.Tasks, config.Task{Match: path, Job: "host-" + task.name, Class: task.class.String()})
		h.batch = path // the last of them
	}
	var err error
	if h.found, err = r.stage.Cgroups().ReadCPUMax(h.batch); err != nil {
		return err
	}
	if h.agent, err = r.stage.StartAgent(ctx, o.Agent, name, cfg); err != nil {
		return err
	}
	r.hosts = append(r.hosts, h)
	return nil
}

// hostWait is how long it may take until what an operator says is in force, as for the kill switch on simulated nodes.
const hostWait = 10 * time.Second

// each waits on every host until something is so of it, and notes whether it was.
func (r *real) each(ctx context.Context, noted func(h *host) *bool, f func(h *host) bool) error {
	if r == nil {
		return nil
	}
	for _, h := range r.hosts {
		for end := time.Now().Add(hostWait); !*noted(h) && time.Now().Before(end); {
			if *noted(h) = f(h); !*noted(h) {
				if err := stage.Sleep(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const hostCap = 0.2 // CPU-sec/sec

// capped has an operator hold a task of each, and looks whether the kernel does.
func (r *real) capped(ctx context.Context, c *client.Client) error {
	if r == nil {
		return nil
	}
	for _, h := range r.hosts {
		var refused *client.Refused
		err := c.Do(ctx, "/v1/command", map[string]any{"node": h.Node, "kind": "cap", "task": h.batch, "cap": hostCap, "duration_seconds": 600, "why": "the demo"}, &wire.Answer{})
		if err != nil && !errors.As(err, &refused) { // one that is not connected the verdict tells of
			return err
		}
	}
	return r.each(ctx, func(h *host) *bool { return &h.Capped }, func(h *host) bool {
		now, err := r.stage.Cgroups().ReadCPUMax(h.batch)
		return err == nil && math.Abs(now.Ratio()-hostCap) < 1e-9
	})
}

// freed looks whether the kill switch put back what was found.
func (r *real) freed(ctx context.Context) error {
	return r.each(ctx, func(h *host) *bool { return &h.Freed }, func(h *host) bool {
		now, err := r.stage.Cgroups().ReadCPUMax(h.batch)
		return err == nil && now == h.found && h.Capped
	})
}

// on looks whether they went on after it.
func (r *real) on(ctx context.Context) error {
	return r.each(ctx, func(h *host) *bool { return &h.On }, func(h *host) bool {
		st, err := h.agent.Client.Brief(ctx)
		return err == nil && !st.KillSwitch && st.Fleet != nil && st.Fleet.Connected
	})
}

// count asks the hub what it has of each, which after a short run comes in a few seconds, and returns it all.
func (r *real) count(ctx context.Context, c *client.Client) (list []Host, err error) {
	if r == nil {
		return nil, nil
	}
	var heard bool
	err = r.each(ctx, func(*host) *bool { return &heard }, func(*host) bool {
		var page hub.NodePage
		if c.Do(ctx, "/v1/nodes?match=host-", nil, &page) != nil {
			return false
		}
		list = nil
		for _, h := range r.hosts {
			for _, n := range page.Nodes {
				if n.Name == h.Node {
					h.Samples, h.Tasks = n.Samples, n.Tasks
				}
			}
			list = append(list, h.Host)
		}
		return !slices.ContainsFunc(list, func(h Host) bool { return h.Samples == 0 })
	})
	return list, err
}

func (r *real) close() { _ = r.stage.Close() } // what it could not remove it says
