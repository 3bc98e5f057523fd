package reclaim

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// The ranges that DAMON is to watch are the memory, without the holes of a reservation.
func TestDenseRanges(t *testing.T) {
	h := live(t)
	w := h.worker(t, h.group(t, "dense"))
	w.do("anon a 24")
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", w.pid())); err == nil {
		keepAs(t, "/proc/4711/smaps", data)
	}
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
	if total < 29*mib || total > 72*mib {
		t.Errorf("%d MiB in ranges, want the 24 MiB and 6 of 4096 reserved", total/mib)
	}
	largest, err := denseRanges(background(t), h.fs, w.pid(), 1)
	if err != nil || len(largest) != 1 || largest[0].End-largest[0].Start < 23*mib {
		t.Errorf("the largest range: %x, %v", largest, err)
	}
	w.End()
	if _, err := readMappings(h.fs, w.pid()); !errors.Is(err, ErrNotWatching) {
		t.Errorf("readMappings of a process that has ended: %v, want ErrNotWatching", err)
	}
}
