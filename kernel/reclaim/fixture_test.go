package reclaim

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	guest61  = "testdata/qemu-6.1"
	guest612 = "testdata/qemu-6.12"
	epyc     = "testdata/epyc-6.18-hybrid"
)

func TestCapturedStat(t *testing.T) {
	for _, tree := range []string{guest61, guest612} {
		var s Stat
		if err := parseStat(read(t, tree+"/sys/fs/cgroup/meter/memory.stat"), true, &s); err != nil {
			t.Fatal(tree, err)
		}
		if s.Anon.Bytes < 16*mib || s.File.Bytes < 12*mib || s.Shmem != (Gauge{0, true}) || !s.SlabReclaimable.OK || !s.RefaultFile.OK ||
			!s.PgScanDirect.OK || s.PgStealProactive.OK || s.Swap.OK || s.ZswpWb.OK != (tree == guest612) {
			t.Errorf("%s: %+v", tree, s)
		}
		if err := parseStat(read(t, tree+"/sys/fs/cgroup/zswap/memory.stat"), true, &s); err != nil || s.Zswapped.Bytes < 8*mib || s.Zswap.Bytes >= s.Zswapped.Bytes {
			t.Errorf("%s, zswap: %+v, %v", tree, s, err)
		}
		events, err := parseSwapEvents(read(t, tree+"/sys/fs/cgroup/zram/memory.swap.events"))
		if err != nil || !events.High.OK {
			t.Errorf("%s: %+v, %v", tree, events, err)
		}
	}
	m := &Memory{fs: hostfs.NewRoot(epyc), mount: "/sys/fs/cgroup/memory"}
	mt, err := m.OpenMeter("/task")
	if err != nil {
		t.Fatal(err)
	}
	var s Stat
	if err := mt.Stat(&s); err != nil || s.File.Bytes != 4304896 || s.Anon.Bytes != 114688 || s.PgSteal.OK || s.Zswap.OK || !s.Swap.OK {
		t.Errorf("%+v, %v", s, err)
	}
	if n, err := mt.Current(); err != nil || n != 4997120 {
		t.Errorf("Current = %d, %v", n, err)
	}
	if swap, err := mt.Swap(); err != nil || swap.OK {
		t.Errorf("Swap = %+v, %v", swap, err)
	}
	if err := mt.Close(); err != nil {
		t.Error(err)
	}
	for _, err := range []error{func() error { _, err := m.ReadSwapLimits("/task"); return err }(),
		func() error { _, err := m.ReadSwapEvents("/task"); return err }()} {
		if err != nil {
			t.Errorf("v1 has no such limits, which is no error: %v", err)
		}
	}
	if room, err := m.Room("/task"); err == nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Room = %+v, %v; the tree has no vm.swappiness", room, err)
	}
}

func TestCapturedSwap(t *testing.T) {
	for tree, compressor := range map[string]string{guest61: "lz4", guest612: "lz4"} {
		root := hostfs.NewRoot(tree)
		areas, err := ReadSwaps(root)
		if err != nil || len(areas) != 1 || areas[0].Zram() != "zram0" || areas[0].UsedBytes < 8*mib {
			t.Errorf("%s: %+v, %v", tree, areas, err)
		}
		if z, err := ReadZram(root, "zram0"); err != nil || z.OrigBytes < 8*mib || z.UsedBytes >= z.OrigBytes {
			t.Errorf("%s: %+v, %v", tree, z, err)
		}
		z, err := ReadZswap(root)
		if err != nil || !z.Enabled || z.Compressor != compressor || z.Pool.Bytes == 0 || z.Stored.Bytes < 8*mib ||
			z.WrittenBack.OK != (tree == guest612) || z.PoolLimitHit != (Counter{0, true}) {
			t.Errorf("%s: %+v, %v", tree, z, err)
		}
	}
	root := hostfs.NewRoot(epyc)
	if areas, err := ReadSwaps(root); err != nil || len(areas) != 0 {
		t.Errorf("%+v, %v", areas, err)
	}
	if _, err := ReadZswap(root); !errors.Is(err, cgroup.ErrUnsupported) {
		t.Errorf("ReadZswap without zswap: %v", err)
	}
	if _, err := ReadZram(root, "zram0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadZram without zram: %v", err)
	}
}

// upFor is a host that has run for some seconds.
type upFor struct {
	hostfs.FS
	sec string
}

func (u upFor) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == "/proc/uptime" {
		return append(buf[:0], u.sec+" 1.00\n"...), nil
	}
	return u.FS.ReadFile(path, buf)
}

func TestCapturedGenerations(t *testing.T) {
	for _, tree := range []string{guest61, guest612} {
		g := NewLRUGen(upFor{hostfs.NewRoot(tree), "58.62"}) // as long as the oldest generations there
		if bits, err := g.Enabled(); err != nil || bits != LRUGenCore|LRUGenMMWalk {
			t.Errorf("%s: %v, %v", tree, bits, err)
		}
		if ttl, err := g.MinTTL(); err != nil || ttl != 0 {
			t.Errorf("%s: %v, %v", tree, ttl, err)
		}
		var hot, cold string
		if err := g.Scan(func(l *LRUNode) error {
			if path := string(l.Path); strings.HasSuffix(path, "-hot") {
				hot = path
			} else if strings.HasSuffix(path, "-cold") {
				cold = path
			}
			return nil
		}); err != nil {
			t.Fatal(tree, err)
		}
		durations := []time.Duration{200 * time.Millisecond, time.Hour}
		ah, errHot := g.Ages(context.Background(), hot, durations)
		ac, errCold := g.Ages(context.Background(), cold, durations)
		if errHot != nil || errCold != nil || ah.Anon[0].AtLeastBytes > 4*mib || ac.Anon[0].AtLeastBytes < 14*mib {
			t.Errorf("%s: hot %+v, %v; cold %+v, %v", tree, ah, errHot, ac, errCold)
		}
		if _, err := g.Ages(context.Background(), "/none", durations); !errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v", tree, err)
		}
	}
}

func TestCapturedProcess(t *testing.T) {
	for _, tree := range []string{guest61, guest612} {
		root := hostfs.NewRoot(tree)
		list, err := readMappings(root, 4711)
		var rss uint64
		for _, m := range list {
			rss += m.rssBytes
		}
		if err != nil || rss < 24*mib || rss > 64*mib {
			t.Errorf("%s: %d bytes in %d mappings, %v", tree, rss, len(list), err)
		}
	}
}

// The tree holds a session of ours at work; its mark is that of TestDAMONAges.
func TestCapturedDAMON(t *testing.T) {
	d := NewDAMON(hostfs.NewRoot(guest612))
	claim := Claim{Mark: NewMark(1234), Kdamonds: 2}
	for c, want := range map[Claim]Owner{claim: Ours, {}: Another, {Mark: NewMark(1235), Kdamonds: 2}: Another, {Mark: claim.Mark, Kdamonds: 1}: Another} {
		if s, err := d.Look(c); err != nil || s.Owner != want || s.Kdamonds != 2 || s.Running != 2 {
			t.Errorf("Look(%+v) = %+v, %v; want %v", c, s, err, want)
		}
	}
	s := &DAMONSession{d: d, claim: claim, config: quick}
	list, err := s.readRegions(1)
	if err != nil || len(list) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	var total uint64
	for i, r := range list {
		if i > 0 && r.Start < list[i-1].End || r.Accesses != 0 || r.Idle%quick.Aggregate != 0 {
			t.Errorf("region %d: %+v", i, r)
		}
		total += r.End - r.Start
	}
	if total < 20*mib {
		t.Errorf("%d bytes in %d regions", total, len(list))
	}

	foreign := NewDAMON(hostfs.NewRoot(epyc))
	state, err := foreign.Look(claim)
	if want := (DAMONState{Owner: Another, Kdamonds: 1, Running: 1, Why: damonCount + ": 1, on: 1, with our mark: 0"}); err != nil || cmp.Diff(want, state) != "" {
		t.Errorf("%+v, %v", state, err)
	}
	if _, err := NewDAMON(hostfs.NewRoot(guest61)).Look(claim); !errors.Is(err, ErrNoDAMON) {
		t.Errorf("without DAMON: %v", err)
	}
}

// What left a group is told from what came free: copies in zswap are charged, and those in zram are nobody's.
func TestTakenAndKept(t *testing.T) {
	ok := func(n uint64) Gauge { return Gauge{n, true} }
	for _, c := range []struct {
		what   string
		a, b   reading
		want   uint64
		zswaps uint64
	}{
		{"no swap", reading{current: 9}, reading{current: 5}, 4, 0},
		{"it grew", reading{current: 9}, reading{current: 12}, 0, 0},
		{"to zswap", reading{current: 100, swap: ok(0), zswap: ok(1)}, reading{current: 70, swap: ok(50), zswap: ok(21)}, 50, 20},
		{"nothing compresses", reading{current: 100, swap: ok(0), zswap: ok(0)}, reading{current: 100, swap: ok(50), zswap: ok(50)}, 50, 50},
		{"it grew meanwhile", reading{current: 100, swap: ok(8), zswap: ok(1)}, reading{current: 110, swap: ok(58), zswap: ok(21)}, 50, 20},
		{"file pages too", reading{current: 100, swap: ok(0), zswap: ok(0)}, reading{current: 30, swap: ok(50), zswap: ok(20)}, 90, 20},
		{"it came back", reading{current: 70, swap: ok(50), zswap: ok(20)}, reading{current: 100, swap: ok(0), zswap: ok(0)}, 0, 0},
		{"swap was switched off", reading{current: 70, swap: ok(50), zswap: ok(20)}, reading{current: 60}, 10, 0},
	} {
		if got, kept := c.b.taken(&c.a), c.b.zswap.above(c.a.zswap); got != c.want || kept != c.zswaps {
			t.Errorf("%s: %d taken, %d in zswap; want %d, %d", c.what, got, kept, c.want, c.zswaps)
		}
	}
	for tree, want := range map[string]Gauge{guest612: ok(5959680), epyc: ok(0), "testdata": {}} {
		if got := zramUsed(hostfs.NewRoot(tree)); got != want {
			t.Errorf("%s: %+v, want %+v", tree, got, want)
		}
	}
}
