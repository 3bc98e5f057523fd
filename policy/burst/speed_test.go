package burst_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/burst"
)

// still is a node with 150 tasks that have their bursts, every third of them raised, and a view
// to step the policy alone with.
type still struct {
	*host
	v *policy.View
	w policy.Wishes
}

func newStill(tb testing.TB) *still {
	tb.Helper()
	var groups []*group
	for i := range 150 {
		groups = append(groups, newGroup(i+1, 200_000, 100_000))
	}
	h := &still{host: newHost(burst.Defaults(), 1, groups...)}
	h.run(20_000, every(50), every(3), func(int64, *group) float64 { return 200 })
	for i := range h.s.Tasks {
		if t := &h.s.Tasks[i]; i%3 == 0 {
			t.RaisedUsec, t.BaseUsec, t.HotNsec, t.Level = 400_000, 200_000, h.ms*1e6, t.Capacity(h.p)
			h.s.Raised++
		}
	}
	h.look(true)
	h.v = h.View(model.ModeEnforce)
	h.changed(50e6)
	return h
}

// repeat steps the policy once, so much later; what was used meanwhile is little.
func (h *still) repeat(later int64, detail bool) {
	h.v.NowNsec += later
	h.pulse.MonoNsec = h.v.NowNsec
	tasks := h.pulse.Tasks
	if !detail {
		h.pulse.Tasks = nil
	}
	h.w.Reset()
	h.s.Step(h.p, h.v, &h.w)
	h.pulse.Tasks = tasks
}

// changed does so after something changed.
func (h *still) changed(later int64) {
	h.v.Changed = true
	h.repeat(later, true)
	h.v.Changed = false
}

// keep keeps a third of the tasks bursting.
func (h *still) keep() {
	for i := 0; i < len(h.s.Tasks); i += 3 {
		h.s.Tasks[i].HotNsec = h.v.NowNsec
	}
}

func TestNoAllocations(t *testing.T) {
	h := newStill(t)
	for name, f := range map[string]func(){
		"pulse":             func() { h.keep(); h.repeat(1e6, false) },
		"pulse with detail": func() { h.keep(); h.repeat(50e6, true) },
		"changed":           func() { h.keep(); h.changed(50e6) },
	} {
		h.repeat(50e6, true)
		f()
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
		if h.w.AsBefore != (name != "changed") || len(h.w.Decisions)+len(h.w.Notes) != 0 {
			t.Errorf("%s: not steady: %+v", name, h.w)
		}
	}
	if h.s.Raised != 50 {
		t.Errorf("%d tasks are raised: this is not the steady state that was meant", h.s.Raised)
	}
}

func BenchmarkPulse(b *testing.B) {
	h := newStill(b)
	h.repeat(50e6, true)
	h.s.RenewNsec = 1 << 62
	for b.Loop() {
		h.repeat(1, false)
	}
}

func BenchmarkPulseNothingRaised(b *testing.B) {
	h := newStill(b)
	h.repeat(50e6, true)
	for i := range h.s.Tasks {
		h.s.Tasks[i].RaisedUsec = 0
	}
	h.s.RenewNsec, h.s.Raised = 1<<62, 0
	for b.Loop() {
		h.repeat(1, false)
	}
}

func BenchmarkPulseWithDetail(b *testing.B) {
	h := newStill(b)
	for b.Loop() {
		h.keep()
		h.repeat(50e6, true)
	}
}

func BenchmarkChanged(b *testing.B) {
	h := newStill(b)
	b.ReportAllocs()
	for b.Loop() {
		h.changed(1)
	}
}
