package cgrouptest

import (
	"strconv"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// testWriteRefills: a write of a quota gives a fresh one at once, also one that changes
// nothing (tg_set_cfs_bandwidth). Who writes often undoes the quota.
func testWriteRefills(t *testing.T, b Bed) {
	d := driver(t, b)
	top := ownGroup(t, b, d, "refill")
	const quotaUsec, periodUsec, writes = 20_000, 1_000_000, 20
	must(t, d.WriteCPUMax(top, limit(quotaUsec, periodUsec, 0)))
	g := open(t, d, top)
	start(t, b, d, top, "spin")
	stat := func() (uint64, cgroup.CPUStat) {
		t.Helper()
		nsec, own, err := g.UsageAndStat()
		must(t, err)
		return nsec, own
	}
	eventually(t, b, "the quota throttles", func() bool { _, own := stat(); return own.NrThrottled > 0 })
	file, text := "cpu.cfs_quota_us", strconv.Itoa(quotaUsec)
	m := mounts(t, b)
	dir := m.V1[cgroup.CPU]
	if m.Layout == cgroup.LayoutV2 {
		dir, file = m.Unified, "cpu.max"
	}
	used, before := stat()
	for range writes {
		must(t, b.FS().WriteFile(dir+top+"/"+file, []byte(text)))
		b.Sleep(50 * time.Millisecond)
	}
	now, after := stat()
	got := time.Duration(now - used)
	periods := after.NrPeriods - before.NrPeriods
	if periods > writes/4 {
		t.Skipf("%d writes took %d periods of %d us: too slow to tell", writes, periods, periodUsec)
	}
	if least := writes / 2 * quotaUsec * time.Microsecond; got < least {
		t.Errorf("with %d writes in %d periods it used %s, expected at least %s", writes, periods, got, least)
	}
}
