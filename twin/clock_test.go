package twin_test

import (
	"math"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// A neighbour that only computes wakes the other cores of the socket and takes turbo away:
// the service gets less done in its time. Reference cycles per instruction say so, core
// cycles do not (CPI² §3.1 has the reference clock).
func TestCPIIsOfTheReferenceClock(t *testing.T) {
	c := machine.Skylake()
	c.Sockets, c.ThreadsPerCore = 1, 1
	for cores := range c.CoresPerSocket {
		c.Turbo = append(c.Turbo, 3.7e9-float64(cores)*0.05e9)
	}
	m, err := machine.New(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	h := twin.NewHost(m, true)
	none := machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}
	start := func(path string, threads int) model.TaskNum {
		n, err := h.Start(model.Task{Path: path}, machine.TaskConfig{Name: path, Threads: threads, CPI: 1, Overlap: 1, Curve: none, Work: &machine.Work{}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	web := start("/web", 1)
	window := func() (cpi, core, cpus float64) {
		t.Helper()
		var from, to model.Snapshot
		var o model.Observation
		for _, s := range []*model.Snapshot{&from, &to} {
			if err := h.Observe(model.WindowStart, s); err != nil {
				t.Fatal(err)
			}
			m.Advance(10e9)
		}
		model.Observe(&from, &to, &o)
		for i := range o.Tasks {
			if o := &o.Tasks[i]; o.Num == web {
				return o.Signals[model.SourceCPI].V, o.CoreCPI.V, o.CPU.V
			}
		}
		t.Fatal("no window")
		return
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %.4f, want %.4f", what, got, want)
		}
	}
	cpi, core, _ := window()
	about("CPI alone", cpi, 2.6/3.7)
	about("core CPI alone", core, 1)
	start("/batch", 11)
	cpi, core, cpus := window()
	about("CPU time beside a neighbour", cpus, 1)
	about("CPI beside a neighbour", cpi, 2.6/(3.7-11*0.05))
	about("core CPI beside a neighbour", core, 1)

	c.Turbo = []float64{3e9, 3.1e9}
	if err := c.Check(); err == nil {
		t.Error("a clock that rises with the load was taken")
	}
	c.Turbo = []float64{2e9}
	if err := c.Check(); err == nil {
		t.Error("a turbo below the reference clock was taken")
	}
}
