package kernfs_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Through descriptors of hardware counters, too, CPI is of reference cycles: a neighbour that takes turbo away shows
// in it, and not in core cycles (CPI² §3.1; TestCPIIsOfTheReferenceClock has the other seam).
func TestCPIThroughFilesIsOfTheReferenceClock(t *testing.T) {
	c := machine.Skylake()
	c.Sockets, c.ThreadsPerCore = 1, 1
	for cores := range c.CoresPerSocket {
		c.Turbo = append(c.Turbo, 3.7e9-float64(cores)*0.05e9)
	}
	m, err := machine.New(c, 3)
	must(t, err)
	k := newKernel(t, m, cgroup.LayoutV2)
	start := func(path string, threads int) {
		started(t, k, path, machine.TaskConfig{
			Name: path, Threads: threads, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
		})
	}
	start("/a-web-0", 1)
	h := openNode(t, k, filepath.Join(t.TempDir(), "journal"))
	window := func() (cpi, core float64) {
		t.Helper()
		var from, to model.Snapshot
		var o model.Observation
		must(t, h.Observe(model.WindowStart, &from))
		k.Advance(10e9)
		must(t, h.Observe(model.WindowEnd, &to))
		model.Observe(&from, &to, &o)
		return o.Tasks[0].Signals[model.SourceCPI].V, o.Tasks[0].CoreCPI.V
	}
	about := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01*want {
			t.Errorf("%s: %.4f, want %.4f", what, got, want)
		}
	}
	cpi, core := window()
	about("CPI alone", cpi, 2.6/3.7)
	about("core CPI alone", core, 1)
	start("/c-batch", 11)
	cpi, core = window()
	about("CPI beside a neighbour", cpi, 2.6/(3.7-11*0.05))
	about("core CPI beside a neighbour", core, 1)
}
