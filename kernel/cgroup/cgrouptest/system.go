package cgrouptest

import (
	"errors"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/psi"
)

// What the drivers read beside the groups: pressure, /proc and /sys.

// testV2PressureSwitchedOff: without accounting a group has no pressure, and a descriptor
// from before stays dead.
func testV2PressureSwitchedOff(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	dir, err := d.Dir(ownGroup(t, b, d, "pressure"))
	must(t, err)
	g := psi.OfGroup(b.FS(), dir)
	if on, err := g.ReadAccounting(); errors.Is(err, psi.ErrUnsupported) {
		t.Skipf("no cgroup.pressure (before Linux 6.1): %v", err)
	} else if err != nil || !on {
		t.Fatalf("a new group's accounting is on: %v, %v", on, err)
	}
	r, err := g.Open(psi.CPU)
	must(t, err)
	defer r.Close() //nolint:errcheck // reading only
	for _, resource := range []psi.Resource{psi.CPU, psi.Memory, psi.IO} {
		if p, err := g.Read(resource); err != nil || !p.HasFull || p.Some.TotalUsec != 0 {
			t.Errorf("%s of a new group: %+v, %v", resource, p, err)
		}
	}
	must(t, g.WriteAccounting(false))
	if on, err := g.ReadAccounting(); err != nil || on {
		t.Errorf("switched off it is on: %v, %v", on, err)
	}
	for _, on := range []bool{false, true} {
		if on {
			must(t, g.WriteAccounting(true))
		}
		if _, err := g.Read(psi.CPU); (err == nil) != on || !on && !errors.Is(err, psi.ErrSwitchedOff) {
			t.Errorf("accounting %v: %v", on, err)
		}
		if _, err := r.Totals(); !errors.Is(err, psi.ErrSwitchedOff) || errors.Is(err, psi.ErrGroupGone) {
			t.Errorf("accounting %v, the old reader: %v", on, err)
		}
	}
}

// testV2PressureGone removes a group, and makes another in its place.
func testV2PressureGone(t *testing.T, b Bed) {
	d := v2Driver(t, b)
	top := ownGroup(t, b, d, "pressure-gone")
	dir, err := d.Dir(top)
	must(t, err)
	g := psi.OfGroup(b.FS(), dir)
	r, err := g.Open(psi.Memory)
	must(t, err)
	defer r.Close() //nolint:errcheck // reading only
	removeGroup(t, b, d, top)
	for _, again := range []bool{false, true} {
		if again {
			must(t, d.Mkdir(top))
		}
		if _, err := r.Totals(); !errors.Is(err, psi.ErrGroupGone) || errors.Is(err, psi.ErrSwitchedOff) {
			t.Errorf("totals of a removed group, made again %v: %v", again, err)
		}
		if _, err := g.Read(psi.CPU); again {
			break
		} else if !errors.Is(err, psi.ErrGroupGone) || errors.Is(err, psi.ErrUnsupported) {
			t.Errorf("reading a removed group: %v", err)
		}
	}
}

// testSystemPressure: the machine's totals only grow, and are read without allocation.
func testSystemPressure(t *testing.T, b Bed) {
	for _, resource := range []psi.Resource{psi.CPU, psi.Memory, psi.IO} {
		r, err := psi.Open(b.FS(), resource.Path())
		if errors.Is(err, psi.ErrUnsupported) {
			t.Skipf("no PSI here: %v", err)
		}
		must(t, err)
		defer r.Close() //nolint:errcheck // reading only
		before, err := r.Totals()
		must(t, err)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := r.Totals(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: totals allocate %v times", resource, n)
		}
		b.Sleep(50 * time.Millisecond)
		after, err := r.Totals()
		if err != nil || after.SomeUsec < before.SomeUsec || after.FullUsec > after.SomeUsec {
			t.Errorf("%s: %+v, then %+v, %v", resource, before, after, err)
		}
	}
}

// testMachine: what a host says of itself as a whole agrees with itself.
func testMachine(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "machine")
	stat, err := procstat.Open(b.FS())
	must(t, err)
	defer stat.Close() //nolint:errcheck // reading only
	before, err := stat.Read()
	must(t, err)
	online, err := cputopology.ReadOnline(b.FS())
	if err != nil || len(online) != before.CPUs {
		t.Errorf("%v are online, %v, and /proc/stat has %d CPUs", online, err, before.CPUs)
	}
	topology, err := cputopology.Read(b.FS())
	if err != nil || len(topology.CPUs) != len(online) {
		t.Errorf("topology: %+v, %v", topology, err)
	}
	start(t, b, d, top, "spin")
	g := open(t, d, top)
	eventually(t, b, "the group has used 200 ms", func() bool { return usage(t, g) > 200e6 })
	after, err := stat.Read()
	must(t, err)
	// Ticks round, and an emulated machine loses some.
	if n := after.Total.BusyTicks() - before.Total.BusyTicks(); n < 10 {
		t.Errorf("the machine was busy for %d ticks while a group on it used 20", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := stat.Read(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("reading /proc/stat allocates %v times", n)
	}
	for name, f := range map[string]func() (string, error){
		"boot id":        func() (string, error) { return procstat.ReadBootID(b.FS()) },
		"kernel release": func() (string, error) { return procstat.ReadKernelRelease(b.FS()) },
		"platform":       func() (string, error) { return procstat.ReadPlatform(b.FS()) },
	} {
		first, err := f()
		must(t, err)
		if again, err := f(); err != nil || first == "" || again != first {
			t.Errorf("%s is %q, then %q, %v", name, first, again, err)
		}
	}
}
