package cpupool

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// still is a node with 150 tasks of which every third is raised, and a pulse to step with.
func still(tb testing.TB) *server {
	tb.Helper()
	var list []*service
	for i := range 150 {
		list = append(list, newService(model.TaskNum(i+1), 2*period, even(40_000)))
	}
	h := newServer(Defaults(), 300, list...)
	h.run(100, 10)
	for i := range h.s.Tasks {
		if i%3 == 0 {
			h.s.Tasks[i].WantUsec, h.s.Tasks[i].QuietNsec, h.s.Tasks[i].Why = 250_000, h.now, "throttled"
		}
	}
	h.run(50, 10)
	return h
}

// pulse steps the policy once, so much later.
func (h *server) repeat(later int64, detail bool) {
	h.now += later
	h.v.NowNsec, h.pulse.MonoNsec = h.now, h.now
	tasks := h.pulse.Tasks
	if !detail {
		h.pulse.Tasks = nil
	}
	h.w.Reset()
	h.s.Step(&h.p, &h.v, &h.w)
	h.pulse.Tasks = tasks
}

func TestNoAllocations(t *testing.T) {
	h := still(t)
	h.p.EarlyUtilisation = 0.9
	h.step(true)
	for name, f := range map[string]func(){
		"pulse":             func() { h.repeat(50e6, false) },
		"pulse with detail": func() { h.repeat(50e6, true) },
		"period":            func() { h.repeat(5e9, true) },
		"changed":           func() { h.v.Changed = true; h.repeat(50e6, false); h.v.Changed = false },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	if len(h.w.Decisions) != 0 {
		h.dump(t)
	}
}

func BenchmarkPulse(b *testing.B) {
	h := still(b)
	h.step(true)
	for b.Loop() {
		h.repeat(50, false)
	}
}

func BenchmarkPulseWithDetail(b *testing.B) {
	h := still(b)
	h.step(true)
	for b.Loop() {
		h.repeat(50, true)
	}
}

func BenchmarkPeriod(b *testing.B) {
	h := still(b)
	h.step(true)
	for b.Loop() {
		h.repeat(5e9, true)
		for i := range h.s.Tasks {
			h.s.Tasks[i].QuietNsec = h.now
		}
	}
}

func BenchmarkChanged(b *testing.B) {
	h := still(b)
	h.step(true)
	for b.Loop() {
		h.v.Changed = true
		h.repeat(50, false)
	}
}
