package reclaim

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
)

// A meter tells anonymous memory from page cache, and stays with the group it was opened on.
func TestMeter(t *testing.T) {
	h := live(t)
	group := h.group(t, "meter")
	mt := h.meter(t, group)
	empty := current(t, mt)
	w := h.worker(t, group)
	w.do("anon a 16")
	w.do("write %s 12", file(t))
	eventually(t, "16 MiB of anonymous memory and 12 of file memory", func() bool {
		s := stat(t, mt)
		return s.Anon.Bytes >= 16*mib && s.File.Bytes >= 8*mib
	})
	s := stat(t, mt)
	t.Logf("anon %d, file %d, inactive file %d, current %d", s.Anon.Bytes, s.File.Bytes, s.InactiveFile.Bytes, current(t, mt))
	if s.Anon.Bytes > 60*mib || s.File.Bytes > 60*mib {
		t.Errorf("more than was asked for: %+v", s)
	}
	if n := current(t, mt); n < empty+24*mib {
		t.Errorf("current = %d, was %d", n, empty)
	}
	if !s.PgFault.OK || s.PgFault.N == 0 || !s.InactiveAnon.OK || !s.Unevictable.OK {
		t.Errorf("figures that every kernel has are missing: %+v", s)
	}
	if h.m.V2() != s.PgSteal.OK || h.m.V2() == s.Swap.OK {
		t.Errorf("v2 %v, but pgsteal %+v and swap %+v", h.m.V2(), s.PgSteal, s.Swap)
	}
	if swap, err := mt.Swap(); err != nil || swap.OK != h.m.V2() {
		t.Errorf("Swap = %+v, %v", swap, err)
	}
	keep(t, h.m.mount+group+"/memory.stat")
	w.End()
	if err := h.rmdir(group); err != nil {
		t.Fatal(err)
	}
	h.mkdir(t, group)
	if _, err := mt.Current(); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("Current of the group's successor: %v, want ErrVanished", err)
	}
	if err := mt.Stat(&s); !errors.Is(err, cgroup.ErrVanished) || !errors.Is(err, unix.ENODEV) {
		t.Errorf("Stat of the group's successor: %v, want ErrVanished", err)
	}
}

func TestMeterDoesNotAllocate(t *testing.T) {
	h := live(t)
	mt := h.meter(t, h.group(t, "allocs"))
	var s Stat
	if n := testing.AllocsPerRun(100, func() {
		if err := mt.Stat(&s); err != nil {
			t.Fatal(err)
		}
		if _, err := mt.Current(); err != nil {
			t.Fatal(err)
		}
		if _, err := mt.Swap(); err != nil {
			t.Fatal(err)
		}
		if _, err := mt.Zswap(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("one reading allocates %v times", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	h := live(t)
	for path, want := range map[string]error{
		"/": cgroup.ErrRootGroup, "/commensal-test-none": cgroup.ErrVanished,
	} {
		if _, err := h.m.OpenMeter(path); !errors.Is(err, want) {
			t.Errorf("OpenMeter(%s): %v, want %v", path, err, want)
		}
		if _, err := h.m.Room(path); !errors.Is(err, want) && path == "/" {
			t.Errorf("Room(%s): %v, want %v", path, err, want)
		}
	}
	if _, err := h.m.OpenMeter("/a/../b"); err == nil {
		t.Error("OpenMeter(/a/../b) succeeded")
	}
}

// Page cache is reclaimed in steps; v1 says that it cannot.
func TestReclaimPageCache(t *testing.T) {
	h := live(t)
	group := h.group(t, "cache")
	if !h.m.V2() {
		_, err := h.m.OpenReclaimer(group)
		if !errors.Is(err, ErrNoReclaim) || !errors.Is(err, cgroup.ErrUnsupported) || !strings.Contains(err.Error(), "force_empty") {
			t.Errorf("on v1: %v, want ErrNoReclaim that names memory.force_empty", err)
		}
		return
	}
	h = needReclaim(t)
	r := h.reclaimer(t, group)
	w := h.worker(t, group)
	w.do("write %s 32", file(t))
	before := current(t, r.Meter)
	out, err := r.Reclaim(background(t), Ask{Bytes: 16 * mib, StepBytes: 4 * mib})
	t.Logf("of %d MiB: %+v, %v", before/mib, out, err)
	if err != nil || out.AckedBytes > 16*mib || out.Steps < 2 || out.Steps > 4 {
		t.Errorf("Reclaim = %+v, %v; want 16 MiB in up to 4 steps", out, err)
	}
	if out.FellBytes < 12*mib || out.FellBytes > 24*mib {
		t.Errorf("memory.current fell by %d, want about 16 MiB", out.FellBytes)
	}
	if !out.Stolen.OK || out.Took <= 0 {
		t.Errorf("not measured: %+v", out)
	}
	var late Stat
	eventually(t, "pgsteal of 3000 pages", func() bool { late = stat(t, r.Meter); return late.PgSteal.N > 3000 })
	t.Logf("pgsteal right after: %d, in the end: %d", out.Stolen.N, late.PgSteal.N)
}

// A request for more than there is takes what there is and says so.
func TestReclaimShort(t *testing.T) {
	h := needReclaim(t)
	group := h.group(t, "short")
	r := h.reclaimer(t, group)
	w := h.worker(t, group)
	w.do("write %s 24", file(t))
	before := current(t, r.Meter)
	out, err := r.Reclaim(background(t), Ask{Bytes: 1 << 30, StepBytes: 8 * mib})
	t.Logf("of %d MiB: %+v, %v", before/mib, out, err)
	if !errors.Is(err, ErrShort) || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("Reclaim: %v, want ErrShort", err)
	}
	if out.FellBytes < 20*mib || out.AckedBytes > before || uint64(out.FellBytes) < out.AckedBytes/2 {
		t.Errorf("Reclaim = %+v of %d", out, before)
	}
}

func TestReclaimRefuses(t *testing.T) {
	h := needReclaim(t)
	group := h.group(t, "refuse")
	r := h.reclaimer(t, group)
	for _, ask := range []Ask{{}, {Bytes: MaxAskBytes + 1}, {Bytes: math.MaxUint64}, {Bytes: 1, StepBytes: MaxStepBytes + 1}, {Bytes: 1, Swappiness: 9}} {
		if out, err := r.Reclaim(background(t), ask); !errors.Is(err, ErrBadAsk) || out.Steps != 0 {
			t.Errorf("Reclaim(%+v) = %+v, %v; want ErrBadAsk", ask, out, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Reclaim(ctx, Ask{Bytes: mib}); !errors.Is(err, context.Canceled) {
		t.Errorf("Reclaim, cancelled: %v", err)
	}
	if err := h.rmdir(group); err != nil {
		t.Fatal(err)
	}
	h.mkdir(t, group)
	if err := r.write(background(t), 0, KernelsChoice); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("write to the group's successor: %v, want ErrVanished", err)
	}
	if _, err := r.Reclaim(background(t), Ask{Bytes: mib}); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("Reclaim from the group's successor: %v, want ErrVanished", err)
	}
}

// swappiness= came with 6.9; without it nothing is reclaimed, rather than the wrong kind.
func TestReclaimSwappiness(t *testing.T) {
	h := needReclaim(t)
	group := h.group(t, "swappiness")
	r := h.reclaimer(t, group)
	takes, err := r.TakesSwappiness(background(t))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{"6.1": false, "6.12": true}; rigtest.Inside() && takes != want[rigtest.Kernel()] {
		t.Errorf("TakesSwappiness = %v on %s", takes, rigtest.Kernel())
	}
	w := h.worker(t, group)
	w.do("write %s 16", file(t))
	before := current(t, r.Meter)
	out, err := r.Reclaim(background(t), Ask{Bytes: 4 * mib, Swappiness: FileOnly})
	t.Logf("swappiness=0: %v, %+v, %v", takes, out, err)
	if takes && (err != nil || out.FellBytes < 2*mib) {
		t.Errorf("FileOnly: %+v, %v", out, err)
	}
	if !takes && (!errors.Is(err, ErrNoSwappiness) || current(t, r.Meter)+2*mib < before) {
		t.Errorf("FileOnly: %+v, %v; want ErrNoSwappiness, and nothing reclaimed", out, err)
	}
	if areas, err := ReadSwaps(h.fs); err == nil && len(areas) == 0 {
		if _, err := r.Reclaim(background(t), Ask{Bytes: mib, Swappiness: FavourAnon}); !errors.Is(err, ErrNoRoom) {
			t.Errorf("FavourAnon without swap: %v, want ErrNoRoom", err)
		}
	}
}

// Room without swap says so, on every layout.
func TestRoomWithoutSwap(t *testing.T) {
	h := live(t)
	if data, err := os.ReadFile(swapsPath); err != nil || strings.Count(string(data), "\n") > 1 {
		t.Skip("this machine has swap, or a kernel without it")
	}
	room, err := h.m.Room(h.group(t, "room"))
	if err != nil || room.AnonBytes != 0 || room.KeptRatio >= 0 || !strings.HasPrefix(room.Why, "no swap") {
		t.Errorf("Room = %+v, %v", room, err)
	}
}
