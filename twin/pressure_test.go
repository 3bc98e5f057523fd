package twin_test

import (
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// With pressure as its only signal the engine finds who takes the CPU away, holds it, and sees
// the victim recover.
func TestPressureAlone(t *testing.T) {
	mc := machine.Skylake()
	mc.Sockets, mc.CoresPerSocket, mc.ThreadsPerCore = 1, 4, 1
	m, err := machine.New(mc, 5)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{host: twin.NewHost(m, false), incidents: map[string]*model.Incident{}}
	none := machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}
	start := func(task model.Task, cfg machine.TaskConfig) model.TaskNum {
		cfg.Name, cfg.CPI, cfg.Overlap, cfg.Curve = task.Path, 1, 1, none
		n, err := s.host.Start(task, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	start(model.Task{Path: "/web", Job: "web", Class: model.LC, Production: true}, machine.TaskConfig{
		Threads: 4, Requests: &machine.Requests{PerSecond: 1000, Instructions: 2.6e6, Variation: 1},
	})
	start(model.Task{Path: "/batch/calm", Job: "calm", Class: model.BE}, machine.TaskConfig{Threads: 1, Work: &machine.Work{
		Phases: []machine.Phase{{Nsec: 5e9, Jitter: 0.3, CPUs: 0.3}, {Nsec: 5e9, Jitter: 0.3, CPUs: 0.1}},
	}})
	c, _ := config.Defaults(config.ProfileSingleNode)
	c.Policies.Mode, c.Signals = model.ModeEnforce, []string{model.SourcePressure.String()}
	e := engine.New(c.Params("skylake"))
	s.play(t, e, 200)
	if sp := e.State.Specs.Lookup("web", model.SourcePressure); sp == nil || len(s.incidents) > 0 {
		t.Fatalf("in peace: spec %+v, %d incidents", sp, len(s.incidents))
	}
	s.antagonist = start(model.Task{Path: "/batch/spin", Job: "spin", Class: model.BE, Importance: model.BestEffort}, machine.TaskConfig{
		Threads: 12, Work: &machine.Work{Phases: []machine.Phase{{Nsec: 12e9, Jitter: 0.2, CPUs: 12}, {Nsec: 4e9, Jitter: 0.2, CPUs: 0.1}}},
	})
	s.play(t, e, 200)
	recovered := false
	for _, inc := range s.incidents {
		if inc.Source != model.SourcePressure {
			t.Errorf("%s is of %s", inc.ID, inc.Source)
		}
		recovered = recovered || inc.State == model.Recovered && *inc.Rounds[len(inc.Rounds)-1].Chosen == s.antagonist
	}
	if !recovered || !s.held || s.heldOthers {
		t.Errorf("recovered %v, held %v, held others %v: %d incidents", recovered, s.held, s.heldOthers, len(s.incidents))
	}
}
