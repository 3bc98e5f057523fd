package fleet

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// real are agents of this host, each with cgroups of its own in which a little runs.
type real struct {
	stage *stage.Stage
	names []string
}

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
	seed, err := hub.Enrol(f.dir, name, time.Now())
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.seedFile(name), seed, 0o600); err != nil {
		return err
	}
	cfg := stage.AgentConfig()
	cfg.Fleet.Hub, cfg.Fleet.Node, cfg.Fleet.SeedFile, cfg.Fleet.Every = f.hub.NodesURL(), name, f.seedFile(name), 5*time.Second
	for _, task := range []struct{ name, class string }{{"service", model.LC.String()}, {"batch", model.BE.String()}} {
		path, err := r.stage.Group(name + "-" + task.name)
		if err != nil {
			return err
		}
		if _, err := r.stage.Start(path, name+"-"+task.name, "stress-ng", "--quiet", "--cpu", "1", "--cpu-load", "5"); err != nil {
			return err
		}
		cfg.Tasks = append(cfg.Tasks, config.Task{Match: path, Job: "host-" + task.name, Class: task.class})
	}
	if _, err := r.stage.StartAgent(ctx, o.Agent, name, cfg); err != nil {
		return err
	}
	r.names = append(r.names, name)
	return nil
}

func (r *real) close() { _ = r.stage.Close() } // what it could not remove it says
