package reclaim

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// numaBalancing moves pages that are in use between nodes, at a price that the rig's CPUs
// cannot pay beside a test.
const numaBalancing = "/proc/sys/kernel/numa_balancing"

// zram makes a compressed swap device of 64 MiB until the test ends.
func zram(t *testing.T) {
	t.Helper()
	const dir = "/sys/block/zram0/"
	if err := os.WriteFile(dir+"disksize", []byte("64M"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(dir+"reset", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	rigtest.SwapOn(t, "/dev/zram0", 64*mib)
}

// Anonymous memory goes to compressed memory, as far as the group may.
func TestReclaimToZram(t *testing.T) {
	rigtest.Only(t, "swapon")
	h := needReclaim(t)
	group := h.group(t, "zram")
	r := h.reclaimer(t, group)
	w := h.worker(t, group)
	w.do("anon a 32")
	if out, err := r.Reclaim(background(t), Ask{Bytes: 8 * mib}); !errors.Is(err, ErrShort) || out.FellBytes > 8*mib {
		t.Errorf("anonymous memory without swap: %+v, %v; want ErrShort", out, err)
	}
	zram(t)
	room, err := h.m.Room(group)
	t.Logf("room: %+v, %v", room, err)
	if err != nil || room.AnonBytes < 60*mib || !room.Compressed || room.KeptRatio >= 0 || len(room.Areas) != 1 || room.Areas[0].Zram() != "zram0" {
		t.Errorf("Room = %+v, %v", room, err)
	}
	out, err := r.Reclaim(background(t), Ask{Bytes: 12 * mib, StepBytes: 4 * mib})
	t.Logf("to zram: %+v, %v", out, err)
	if err != nil || out.FellBytes < 10*mib || !out.SwappedBytes.OK || out.SwappedBytes.Bytes < 8*mib || out.KeptBytes < mib || out.KeptBytes > out.TakenBytes*3/4 {
		t.Errorf("Reclaim = %+v, %v", out, err)
	}
	z, err := ReadZram(h.fs, "zram0")
	t.Logf("zram: %+v, %v", z, err)
	if err != nil || z.OrigBytes < 8*mib || z.CompressedBytes >= z.OrigBytes || z.UsedBytes < z.CompressedBytes {
		t.Errorf("ReadZram = %+v, %v", z, err)
	}
	if room, err = h.m.Room(group); err != nil || room.KeptRatio < 0.2 || room.KeptRatio > 0.9 || room.AnonBytes > 56*mib {
		t.Errorf("Room, then = %+v, %v; half of the data compresses away", room, err)
	}
	keep(t, swapsPath, "/sys/block/zram0/mm_stat", h.m.mount+group+"/memory.swap.current")
	h.swapLimit(t, r, group)
}

// swapLimit meets memory.swap.max.
func (h host) swapLimit(t *testing.T, r *Reclaimer, group string) {
	swap, err := r.Swap()
	if err != nil || !swap.OK {
		t.Fatalf("Swap = %+v, %v", swap, err)
	}
	h.put(t, group, "memory.swap.max", "20M")
	room, err := h.m.Room(group)
	t.Logf("room under the limit: %+v, %v", room, err)
	if err != nil || room.AnonBytes > 20*mib-swap.Bytes+mib || room.AnonBytes < mib {
		t.Errorf("Room = %+v, %v; want 20 MiB less %d bytes", room, err, swap.Bytes)
	}
	out, err := r.Reclaim(background(t), Ask{Bytes: 32 * mib})
	if !errors.Is(err, ErrShort) {
		t.Errorf("Reclaim beyond memory.swap.max: %+v, %v; want ErrShort", out, err)
	}
	events, err := h.m.ReadSwapEvents(group)
	// 6.1 tries and counts; 6.12 sees before it tries that the group has no room left.
	t.Logf("beyond the limit: %+v, %v; swap events: %+v", out, err, events)
	if err != nil || !events.High.OK || !events.Max.OK || !events.Fail.OK {
		t.Errorf("swap events: %+v, %v", events, err)
	}
	keep(t, h.m.mount+group+"/memory.swap.events", h.m.mount+group+"/memory.swap.max")
}

// A request that is cancelled stops between steps, and what was done is told.
func TestReclaimCancel(t *testing.T) {
	rigtest.Only(t, "swapon")
	h := needReclaim(t)
	group := h.group(t, "cancel")
	zram(t)
	r := h.reclaimer(t, group)
	watch := h.meter(t, group)
	w := h.worker(t, group)
	w.do("anon a 40")
	before := current(t, watch)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for {
			n, err := watch.Current()
			if err != nil || n+4*mib < before {
				cancel()
				return
			}
		}
	}()
	out, err := r.Reclaim(ctx, Ask{Bytes: 40 * mib, StepBytes: 2 * mib})
	<-stop
	t.Logf("cancelled after 4 MiB: %+v, %v", out, err)
	if !errors.Is(err, context.Canceled) || out.FellBytes < 3*mib || out.FellBytes > 30*mib {
		t.Errorf("Reclaim = %+v, %v; want some MiB and context.Canceled", out, err)
	}
}

// Anonymous memory goes to zswap, in front of a disk.
func TestReclaimToZswap(t *testing.T) {
	rigtest.Only(t, "swapon, zswap")
	h := needReclaim(t)
	group := h.group(t, "zswap")
	z, err := ReadZswap(h.fs)
	if err != nil || z.Enabled || z.Compressor == "" || z.MaxPoolPercent == 0 {
		t.Fatalf("ReadZswap = %+v, %v", z, err)
	}
	rigtest.SwapOn(t, rigtest.SwapDevice, rigtest.SwapBytes)
	rigtest.Set(t, zswapParameters+"compressor", "lz4")
	rigtest.Set(t, zswapParameters+"enabled", "Y")
	r := h.reclaimer(t, group)
	w := h.worker(t, group)
	w.do("anon a 24")
	out, err := r.Reclaim(background(t), Ask{Bytes: 10 * mib, StepBytes: 5 * mib})
	t.Logf("to zswap: %+v, %v", out, err)
	// What is asked for counts whatever the kernel takes of the group, slab and files among it: of 10 MiB once less than eight were pages that went to swap.
	if err != nil || !out.SwappedBytes.OK || out.SwappedBytes.Bytes < 6*mib || out.TakenBytes < 8*mib || out.TakenBytes < out.SwappedBytes.Bytes || out.KeptBytes == 0 || out.KeptBytes > out.TakenBytes*3/4 {
		t.Errorf("Reclaim = %+v, %v", out, err)
	}
	var s Stat
	eventually(t, "zswapped memory", func() bool { s = stat(t, r.Meter); return s.Zswapped.Bytes > 4*mib })
	held, err := r.Zswap()
	t.Logf("zswap %+v, zswapped %+v, zswpout %+v, memory.zswap.current %+v, %v", s.Zswap, s.Zswapped, s.ZswpOut, held, err)
	if err != nil || !held.OK || held.Bytes == 0 || s.Zswap.Bytes >= s.Zswapped.Bytes || !s.ZswpOut.OK || s.ZswpOut.N == 0 {
		t.Errorf("zswap of the group: %+v, %+v, %v", held, s, err)
	}
	if z, err = ReadZswap(h.fs); err != nil || !z.Enabled || z.Compressor != "lz4" || !z.Pool.OK || z.Pool.Bytes == 0 || z.Stored.Bytes < 4*mib ||
		!z.PoolLimitHit.OK || z.WrittenBack.OK == (rigtest.Kernel() == "6.1") {
		t.Errorf("ReadZswap = %+v, %v", z, err)
	}
	t.Logf("zswap: %+v", z)
	keep(t, h.m.mount+group+"/memory.stat", zswapParameters+"enabled", zswapParameters+"compressor",
		zswapParameters+"max_pool_percent", meminfoPath, vmstatPath, zswapLimitHit)
	if room, err := h.m.Room(group); err != nil || room.KeptRatio < 0.2 || room.KeptRatio > 1.1 {
		t.Errorf("Room = %+v, %v; half of the data compresses away", room, err)
	}
	if _, err := os.Stat(h.m.mount + group + "/memory.zswap.writeback"); err == nil {
		h.put(t, group, "memory.zswap.writeback", "0")
		if room, err := h.m.Room(group); err != nil || !room.NoWriteback || !room.Compressed {
			t.Errorf("Room = %+v, %v; want NoWriteback", room, err)
		}
	} else if rigtest.Kernel() != "6.1" {
		t.Errorf("no memory.zswap.writeback: %v", err)
	}
}
