package uncore

import (
	"errors"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// The way from sysfs to a number, on the running kernel: of a PMU that it numbers and describes itself (the time stamp counter), else of
// its software events. No machine of ours has uncore counters.
func TestKernelCounts(t *testing.T) {
	files := hostfs.NewRoot("/")
	name, events := "msr", []perf.Raw(nil)
	if p, err := ReadPMU(files, name); err == nil {
		e, err := p.Event("tsc")
		if err != nil {
			t.Fatal(err)
		}
		events = []perf.Raw{e, e}
	} else {
		t.Log(err)
		p, err := ReadPMU(files, "software")
		if err != nil {
			t.Skipf("no PMU here: %v", err)
		}
		clock := perf.Raw{Name: "cpu-clock", Type: p.Type}
		name, events = "software", []perf.Raw{clock, clock}
	}
	c, err := Perf(perftest.Online(t)[0], events)
	if errors.Is(err, perf.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	values := make([]uint64, 2)
	if _, running, ended, err := c.Read(values); err != nil || ended || running != 0 || values[0] != 0 {
		t.Fatalf("before it counts: %v, %d ns, %v, %v", values, running, ended, err)
	}
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	enabled, running, ended, err := c.Read(values)
	t.Logf("%s: %v in %d ns (%d enabled)", name, values, running, enabled)
	if err != nil || ended || running < 20e6 || running > enabled || values[0] < running/20 || values[1] < running/20 {
		t.Errorf("%v, %d of %d ns, %v, %v", values, running, enabled, ended, err)
	}
	if _, err := Perf(100_000, events); err == nil {
		t.Error("opened on a CPU that does not exist")
	}
	if _, err := Perf(0, []perf.Raw{{Name: "none", Type: 1 << 30}}); !errors.Is(err, perf.ErrNotSupported) {
		t.Errorf("a PMU that is not there: %v", err)
	}
}

// Whatever this machine is, it has a latency or a reason.
func TestKernelSays(t *testing.T) {
	m, err := NewMeter(hostfs.NewRoot("/"), Perf)
	if err == nil {
		t.Log(m)
		defer m.Close()
		err = m.Start()
	}
	switch {
	case err == nil:
		for cache := range m.dies {
			nsec, err := m.Read(cache)
			t.Logf("cache %d: %d ns, %v", cache, nsec, err)
		}
	case errors.Is(err, ErrUnknownCPU), errors.Is(err, ErrNoPMU), errors.Is(err, perf.ErrPermission):
		t.Log(err)
	default:
		t.Error(err)
	}
}
