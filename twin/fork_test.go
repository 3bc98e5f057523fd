package twin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// A fork of a host is told of the same tasks and goes on alike; what is done to one does
// not reach the other.
func TestForkOfAHost(t *testing.T) {
	s := newScene(t)
	s.disturb(t)
	hold := model.Change{Seq: 1, Target: model.OfTask(s.antagonist), Kind: model.Hold, Value: model.Bandwidth(model.CPUMax{QuotaUsec: 25_000, PeriodUsec: 250_000})}
	node.Do(s.host, hold)
	f := s.host.Fork()
	read := func(played bool) (a, b model.Snapshot) {
		t.Helper()
		if played {
			s.host.Machine().Advance(3e9)
			f.Machine().Advance(3e9)
		}
		if err := s.host.Observe(model.WindowStart, &a); err != nil {
			t.Fatal(err)
		}
		if err := f.Observe(model.WindowStart, &b); err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	for _, played := range []bool{false, true} {
		if a, b := read(played); !cmp.Equal(a, b) {
			t.Errorf("played %v: the fork reads otherwise (-original +fork):\n%s", played, cmp.Diff(a, b))
		}
	}
	level := model.Change{Seq: 2, Target: model.OfClass(model.ClassBE, 0), Kind: model.Hold, Value: model.Level(35)}
	if res := node.Do(s.host, level); len(res) != 1 || res[0].Now != model.Level(40) {
		t.Errorf("a level between two steps: %+v", res)
	}
	f = s.host.Fork()
	level.Kind = model.Release
	if res := node.Do(f, level); len(res) != 1 || res[0].Kind != model.Applied || res[0].Now != model.Level(100) {
		t.Errorf("the fork releases a level: %+v", res)
	}
	if k := s.host.Knobs(nil); len(k) != 2 || k[1].Value != model.Level(40) {
		t.Errorf("the original's knobs: %+v", k)
	}
	level.Kind = model.Hold
	s.host.Apply([]model.Change{level})
	if f.Apply([]model.Change{level}); len(f.Results(nil)) != 1 || len(s.host.Fork().Results(nil)) != 1 || len(s.host.Results(nil)) != 1 {
		t.Error("results are shared")
	}
	node.Do(s.host, model.Change{Seq: 3, Target: level.Target, Kind: model.Release, Value: model.Level(0)})
	hold.Kind = model.Release
	if res := node.Do(f, hold); len(res) != 1 || res[0].Kind != model.Applied || res[0].Now.QuotaUsec != -1 {
		t.Errorf("the fork releases: %+v", res)
	}
	if err := f.Stop(s.bystander); err != nil {
		t.Fatal(err)
	}
	a, b := read(true)
	if len(a.Tasks) != len(b.Tasks)+1 || len(b.Removed) != 1 || len(a.Removed) != 0 {
		t.Errorf("%d and %d tasks, %d and %d removed", len(a.Tasks), len(b.Tasks), len(a.Removed), len(b.Removed))
	}
	if k := s.host.Knobs(nil); len(k) != 1 || k[0].Value.QuotaUsec != 25_000 {
		t.Errorf("the original's knobs: %+v", k)
	}
}
