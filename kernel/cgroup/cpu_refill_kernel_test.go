package cgroup

import (
	"testing"
	"time"
)

// TestKernelWriteRefills: each write of a limit hands the group a whole quota at once, also
// one that changes nothing. So a spinner under a tenth of a CPU uses a multiple of it while
// somebody writes that very limit again and again; the burst is where it is bounded.
func TestKernelWriteRefills(t *testing.T) {
	d := liveDriver(t)
	top := ownGroup(t, d, "refill")
	const quota, period = 10_000, 100_000
	held := CPUMax{quota, period, 0}
	must(t, d.WriteCPUMax(top, held))
	start(t, d, top, "spin")
	g := open(t, d, top)
	usage := func() uint64 {
		n, err := g.UsageNsec()
		must(t, err)
		return n
	}
	window := func(write bool) (ratio float64, writes int) {
		from, at := usage(), time.Now()
		for time.Since(at) < 1500*time.Millisecond {
			time.Sleep(20 * time.Millisecond)
			if write {
				must(t, rewrite(d, top, held))
				writes++
			}
		}
		return float64(usage()-from) / float64(time.Since(at).Nanoseconds()), writes
	}
	var alone, beside float64
	for range 5 { // a machine that is busy elsewhere may not give the spinner that much
		var writes int
		alone, _ = window(false)
		beside, writes = window(true)
		t.Logf("under %s: %.3f CPU left alone, %.3f CPU with %d writes of the same limit", held, alone, beside, writes)
		if alone <= 0.2 && beside >= 1.5*alone {
			return
		}
	}
	t.Errorf("%.3f CPU left alone, %.3f CPU with the writes: they refill nothing", alone, beside)
}

// rewrite writes a quota that stands there already.
func rewrite(d Driver, path string, v CPUMax) error {
	switch d := d.(type) {
	case *V1:
		return d.writeInt(CPU, path, quotaFile, v.QuotaUsec)
	case *V2:
		return carryOut(path, planCPUMaxV2(CPUMax{-1, v.PeriodUsec, v.BurstUsec}, v), func(s textStep) error { return d.write(path, s.file, s.value) })
	}
	return ErrUnsupported
}
