package cpupool_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/cpupool"
)

// still is a node with 150 tasks of which every third is raised, and a view to step the policy
// alone with.
type still struct {
	*server
	v *policy.View
	w policy.Wishes
}

func newStill(tb testing.TB) *still {
	tb.Helper()
	var list []*service
	for i := range 150 {
		list = append(list, newService(i+1, 2*period, even(40_000)))
	}
	h := &still{server: newServer(cpupool.Defaults(), 300, list...)}
	h.run(100, 10)
	for i := range h.s.Tasks {
		if i%3 == 0 {
			h.s.Tasks[i].WantUsec, h.s.Tasks[i].QuietNsec, h.s.Tasks[i].Why = 250_000, h.NowNsec, "throttled"
		}
	}
	h.List(2)
	h.run(50, 10)
	h.step(true)
	if h.Claims() != 50 {
		tb.Fatalf("%d tasks are raised", h.Claims())
	}
	h.v = h.View(model.ModeEnforce)
	h.changed(0)
	return h
}

// repeat steps the policy once, so much later.
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
	h.repeat(later, false)
	h.v.Changed = false
}

func TestNoAllocations(t *testing.T) {
	h := newStill(t)
	h.p.EarlyUtilisation = 0.9
	for name, f := range map[string]func(){
		"pulse":             func() { h.repeat(50e6, false) },
		"pulse with detail": func() { h.repeat(50e6, true) },
		"period":            func() { h.repeat(5e9, true) },
		"changed":           func() { h.changed(50e6) },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
		if h.w.AsBefore != (name != "changed") || len(h.w.Decisions)+len(h.w.Notes) != 0 {
			t.Errorf("%s: not steady: %+v", name, h.w)
		}
	}
}

func BenchmarkPulse(b *testing.B) {
	h := newStill(b)
	for b.Loop() {
		h.repeat(50, false)
	}
}

func BenchmarkPulseWithDetail(b *testing.B) {
	h := newStill(b)
	for b.Loop() {
		h.repeat(50, true)
	}
}

func BenchmarkPeriod(b *testing.B) {
	h := newStill(b)
	for b.Loop() {
		h.repeat(5e9, true)
		for i := range h.s.Tasks {
			h.s.Tasks[i].QuietNsec = h.v.NowNsec
		}
	}
}

func BenchmarkChanged(b *testing.B) {
	h := newStill(b)
	for b.Loop() {
		h.changed(50)
	}
}
