package twin_test

import (
	"fmt"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// scene is a job of five services, an antagonist that streams through memory in bursts,
// and a bystander that computes in registers.
type scene struct {
	host                  *twin.Host
	services              []model.TaskNum
	antagonist, bystander model.TaskNum
	incidents             map[string]*model.Incident
	held, heldOthers      bool
	seq                   uint64
	results               []model.Result
}

func newScene(t *testing.T) *scene {
	t.Helper()
	c := machine.Skylake()
	c.Sockets = 1
	m, err := machine.New(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{host: twin.NewHost(m, true), incidents: map[string]*model.Incident{}}
	start := func(task model.Task, cfg machine.TaskConfig) model.TaskNum {
		t.Helper()
		cfg.Name = task.Path
		n, err := s.host.Start(task, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range 5 {
		s.services = append(s.services, start(
			model.Task{Path: fmt.Sprintf("/web/%d", i), Job: "web", Class: model.LC, Production: true},
			machine.TaskConfig{
				Threads: 4, CPI: 1, APKI: 12, Overlap: 2, WriteShare: 0.2, Spread: 0.04, SpreadNsec: 1e9,
				Curve:    machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{6, 3, 2, 1.5, 1.2, 1}},
				Requests: &machine.Requests{PerSecond: 2000, Instructions: 500e3, Variation: 1},
			}))
	}
	be := model.Task{Path: "/batch/registers", Job: "registers", Class: model.BE, Importance: model.BestEffort}
	s.bystander = start(be, machine.TaskConfig{
		Threads: 2, CPI: 0.8, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
	})
	return s
}

// disturb starts the antagonist.
func (s *scene) disturb(t *testing.T) {
	t.Helper()
	task := model.Task{Path: "/batch/stream", Job: "stream", Class: model.BE, Importance: model.BestEffort}
	n, err := s.host.Start(task, machine.TaskConfig{
		Name: "stream", Threads: 12, CPI: 0.6, APKI: 40, Overlap: 10, WriteShare: 0.3,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{40, 39, 38}},
		Work:  &machine.Work{Phases: []machine.Phase{{Nsec: 8e9, Jitter: 0.2, CPUs: 12}, {Nsec: 4e9, Jitter: 0.2, CPUs: 0.1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.antagonist = n
}

// play runs the agent's policies on the scene, one window a second.
func (s *scene) play(t *testing.T, e *engine.Engine, seconds int) {
	t.Helper()
	var snap model.Snapshot
	for range seconds {
		if err := s.host.Observe(model.WindowStart|model.WindowEnd, &snap); err != nil {
			t.Fatal(err)
		}
		s.seq++
		in := engine.Input{
			Seq: s.seq, MonoNsec: snap.MonoNsec, WallNsec: snap.WallNsec, Snapshot: &snap,
			Results: s.results, Knobs: s.host.Knobs(nil),
		}
		out := e.Step(&in)
		s.results = node.Do(s.host, out.Changes...)
		for _, c := range out.Changes {
			if c.Kind == model.Hold && c.Task() != s.antagonist {
				s.heldOthers = true
			}
			s.held = s.held || c.Kind == model.Hold
		}
		for _, inc := range out.Incidents {
			s.incidents[inc.ID] = inc
		}
		s.host.Machine().Advance(1e9)
	}
}

// The engine on a simulated machine names, holds and verifies as on a real one: only the
// antagonist is held, the victim recovers, and at the end every limit is as it was found.
func TestEngineOnTheTwin(t *testing.T) {
	s := newScene(t)
	c, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		t.Fatal("no profile single-node")
	}
	c.Policies.Mode = model.ModeEnforce
	e := engine.New(c.Params("skylake"))
	s.play(t, e, 300) // what is normal is learnt in peace
	if len(s.incidents) > 0 {
		t.Errorf("%d incidents on a quiet machine", len(s.incidents))
	}
	s.disturb(t)
	s.play(t, e, 600)
	recovered := 0
	for _, inc := range s.incidents {
		for _, r := range inc.Rounds {
			if r.Chosen != nil && *r.Chosen != s.antagonist {
				t.Errorf("%s: held %s", inc.ID, r.ChosenPath)
			}
		}
		if inc.State == model.Recovered {
			recovered++
		}
	}
	if !s.held || s.heldOthers || recovered == 0 {
		t.Errorf("held %v, held others %v, %d incidents, %d recovered", s.held, s.heldOthers, len(s.incidents), recovered)
	}
	rep, err := s.host.Restore()
	if err != nil || !rep.Complete() {
		t.Errorf("restore: %+v, %v", rep, err)
	}
	if n, err := s.host.Physical(s.antagonist); err != nil {
		t.Error(err)
	} else if v, err := s.host.Machine().CPUMax(n); err != nil || v.QuotaUsec != -1 {
		t.Errorf("the antagonist is left with %+v, %v", v, err)
	}
}

// A stranger's value is reported and left, by a change and by a restore.
func TestStranger(t *testing.T) {
	s := newScene(t)
	s.disturb(t)
	var snap model.Snapshot
	if err := s.host.Observe(0, &snap); err != nil {
		t.Fatal(err)
	}
	hold := model.Change{Seq: 1, Target: model.OfTask(s.antagonist), Kind: model.Hold, Value: model.Bandwidth(model.CPUMax{QuotaUsec: 10_000, PeriodUsec: 100_000})}
	if res := node.Do(s.host, hold); len(res) != 1 || res[0].Kind != model.Applied || res[0].Now != hold.Value {
		t.Fatalf("hold: %+v", res)
	}
	strange := model.Bandwidth(model.CPUMax{QuotaUsec: 70_000, PeriodUsec: 100_000})
	if err := s.host.Stranger(s.antagonist, strange); err != nil {
		t.Fatal(err)
	}
	hold.Kind = model.Release
	if res := node.Do(s.host, hold); len(res) != 1 || res[0].Kind != model.Foreign || res[0].Now != strange {
		t.Errorf("release over a stranger's value: %+v", res)
	}
	rep, err := s.host.Restore()
	if err != nil || rep.Count(node.LeftForeign) != 1 {
		t.Errorf("restore: %+v, %v", rep, err)
	}
	if err := s.host.Stop(s.antagonist); err != nil {
		t.Fatal(err)
	}
	if res := node.Do(s.host, hold); len(res) != 1 || res[0].Kind != model.Vanished {
		t.Errorf("a task that is gone: %+v", res)
	}
}
