package hardcap

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// TestExperimentsAreBounded: what one experiment and all of a day may take leaves the least likely suspects out, then all of them.
func TestExperimentsAreBounded(t *testing.T) {
	p := Defaults()
	p.Coded.MaxLostNsec, p.Coded.MaxLostDayNsec = 60e9, 600e9
	in := &policy.View{NowNsec: dayNsec, History: antagonist.NewHistory(10), Table: &model.TaskTable{}}
	var suspects []model.Member
	for i := range 10 {
		num := model.TaskNum(i + 1)
		in.Table.Tasks = append(in.Table.Tasks, model.Task{Num: num, Class: model.BE})
		in.History.Ensure(num)
		suspects = append(suspects, model.Member{Task: num, Usage: 1, Cap: 0.1})
	}
	for range badBefore {
		in.History.Begin(in.NowNsec)
		for i := range 10 {
			in.History.Put(model.TaskNum(i+1), 1, antagonist.NoEvidence)
		}
		in.History.End()
	}
	inc := &Incident{Incident: model.Incident{Victim: 99}}
	s := &State{}
	total := 0.0
	for range 100 {
		in.NowNsec += 1e9
		inc.Victim++
		rest, lost := s.affordable(&p, in, inc, suspects, 60e9)
		if len(rest) == 0 {
			break
		}
		if len(rest) == 1 || lost > 60 || len(rest) >= 7 {
			t.Fatalf("%d suspects lose %v s of all work", len(rest), lost)
		}
		total += lost
		s.Encoded = append(s.Encoded, Encoded{inc.Victim, in.NowNsec, lost})
		if again, _ := s.affordable(&p, in, inc, suspects, 60e9); again != nil {
			t.Fatal("a second experiment for the same victim at once")
		}
	}
	if total > 600 || total < 500 {
		t.Errorf("a day's experiments take %.0f s of all work", total)
	}
	in.NowNsec += dayNsec
	if rest, _ := s.affordable(&p, in, inc, suspects, 60e9); len(rest) == 0 || len(s.Encoded) != 0 {
		t.Error("the next day has no experiments")
	}
	for name, list := range map[string][]model.Member{"none": nil, "one": suspects[:1]} {
		if rest, _ := s.affordable(&p, in, inc, list, 60e9); rest != nil {
			t.Errorf("%s: %d suspects", name, len(rest))
		}
	}
	idle := &policy.View{NowNsec: in.NowNsec, History: antagonist.NewHistory(10), Table: in.Table}
	if rest, _ := s.affordable(&p, idle, inc, suspects, 60e9); rest != nil {
		t.Error("nobody uses anything, and an experiment begins")
	}
}

// TestExperimentHears: services that are gone or silent do not count, and nobody at all says nothing.
func TestExperimentHears(t *testing.T) {
	in := &policy.View{History: antagonist.NewHistory(4)}
	in.History.Ensure(1)
	in.History.Ensure(2)
	in.History.Begin(1)
	in.History.Put(1, 1, 1.5)
	in.History.End()
	x := &Experiment{Noise: 2, Before: []Before{{1, 2.5, 0.1}, {2, 2, 0.1}, {3, 2, 0.1}}}
	if got := x.fell(in); got != 4 {
		t.Errorf("one service fell by ten deviations: %v", got)
	}
	if got := (&Experiment{Noise: 1}).fell(in); got != 0 {
		t.Errorf("nobody is asked: %v", got)
	}
}
