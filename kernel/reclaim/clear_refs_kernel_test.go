package reclaim

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"
)

// What a process used since its accessed bits were cleared is told from what it did not.
func TestReferences(t *testing.T) {
	h := live(t)
	w := h.worker(t, h.group(t, "references"))
	w.do("anon a 24")
	smaps := "/proc/" + strconv.Itoa(int(w.pid())) + "/smaps"
	if data, err := os.ReadFile(smaps); err == nil {
		keepAs(t, "/proc/4711/smaps", data)
	}
	if err := ForgetReferences(h.fs, w.pid()); err != nil {
		t.Fatal(err)
	}
	idle, err := ReadReferences(h.fs, w.pid())
	if err != nil {
		t.Fatal(err)
	}
	w.do("touch a 8")
	used, err := ReadReferences(h.fs, w.pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cleared: %+v, idle %d; then 8 MiB used: %+v, idle %d", idle, idle.IdleBytes(), used, used.IdleBytes())
	if data, err := os.ReadFile(smaps + "_rollup"); err == nil {
		keepAs(t, "/proc/4711/smaps_rollup", data)
	}
	if idle.IdleBytes() < 20*mib || idle.AnonymousBytes < 24*mib || idle.RssBytes < idle.AnonymousBytes {
		t.Errorf("cleared, and %+v", idle)
	}
	if n := used.ReferencedBytes - idle.ReferencedBytes; n < 7*mib || n > 14*mib {
		t.Errorf("8 MiB were used, and %d bytes referenced", n)
	}
	w.End()
	if _, err := ReadReferences(h.fs, w.pid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadReferences of a process that has ended: %v, want fs.ErrNotExist", err)
	}
	if _, err := readMappings(h.fs, w.pid()); !errors.Is(err, ErrNotWatching) {
		t.Errorf("readMappings of a process that has ended: %v, want ErrNotWatching", err)
	}
	if err := ForgetReferences(h.fs, w.pid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ForgetReferences of a process that has ended: %v, want fs.ErrNotExist", err)
	}
}

// The ranges that DAMON is to watch are the memory, without the holes of a reservation.
func TestDenseRanges(t *testing.T) {
	h := live(t)
	w := h.worker(t, h.group(t, "dense"))
	w.do("anon a 16")
	w.do("reserve r 4096 6")
	list, err := denseRanges(background(t), h.fs, w.pid(), 50)
	if err != nil {
		t.Fatal(err)
	}
	var total uint64
	for i, r := range list {
		total += r.End - r.Start
		if r.End <= r.Start || i > 0 && r.Start < list[i-1].End {
			t.Errorf("ranges are out of order: %x", list)
		}
	}
	t.Logf("%d ranges, %d MiB: %x", len(list), total/mib, list)
	if total < 21*mib || total > 64*mib {
		t.Errorf("%d MiB in ranges, want the 16 MiB and 6 of 4096 reserved", total/mib)
	}
	largest, err := denseRanges(background(t), h.fs, w.pid(), 1)
	if err != nil || len(largest) != 1 || largest[0].End-largest[0].Start < 15*mib {
		t.Errorf("the largest range: %x, %v", largest, err)
	}
}
