package machine

import (
	"math"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A move reads each byte where it was and writes it where it goes, takes as long as its rate allows, or as the kernel and a core do, with a rest as long; pages that are on their way are told
// where they go, and are felt where they are. Who works beside it on the memory, or on all CPUs, gets less done. What the world says of pages moves nothing.
func TestMovePages(t *testing.T) {
	for _, test := range []struct{ nsec, least, most float64 }{ // seconds for a gigabyte
		{0, 7.8, 8.3},
		{1, 7.8, 8.3},    // huge pages
		{40e3, 21, 22.5}, // 41 us a page, and rests
	} {
		cfg := Skylake()
		cfg.ThreadsPerCore, cfg.CoresPerSocket, cfg.MemPeakBytes, cfg.MoveNsec = 1, 4, 40e9, test.nsec
		m := newMachine(t, cfg)
		idle, beside, spins := stream(1), stream(3), spinner(5)
		idle.Pages, idle.Memory = []float64{1, 0}, []Heat{{Bytes: 4 << 30}}
		beside.CPUs, spins.CPUs = model.FullSet(3), model.FullSet(8).Without(model.FullSet(3))
		for _, c := range []TaskConfig{idle, beside, spins} {
			if _, err := m.Add(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.SetFrozen(0, true); err != nil {
			t.Fatal(err)
		}
		m.Advance(1e9)
		free := m.Fork()
		to := []float64{0.75, 0.25}
		if err := free.SetPages(0, to); err != nil {
			t.Fatal(err)
		}
		if err := m.MovePages(0, to); err != nil {
			t.Fatal(err)
		}
		if told, _ := m.Pages(0); !slices.Equal(told, to) || m.tasks[0].pages[0] != 1 {
			t.Errorf("told %v, there %v", told, m.tasks[0].pages)
		}
		seconds, bytes := 0.0, 0.0
		for left := 1.0; left > 0 && seconds < 30; seconds += 0.01 {
			m.Advance(10e6)
			bytes += 0.01 * m.Memory(1).BytesPerSecond
			left, _ = m.Copying(0)
		}
		if !(seconds > test.least && seconds < test.most) || math.Abs(bytes/(1<<30)-1) > 1e-6 || !slices.Equal(m.tasks[0].pages, to) {
			t.Errorf("%v ns: after %.2f s %.6g bytes were written, pages %v", test.nsec, seconds, bytes, m.tasks[0].pages)
		}
		free.Advance(m.NowNsec() - free.NowNsec())
		for num := 1; num <= 2; num++ {
			with, _ := m.Counters(num)
			without, _ := free.Counters(num)
			if with.Instructions >= without.Instructions {
				t.Errorf("%v ns: task %d does %d with pages moved and %d without", test.nsec, num, with.Instructions, without.Instructions)
			}
		}
		if left, err := free.Copying(0); left != 0 || err != nil {
			t.Errorf("the world's word copies %v bytes, %v", left, err)
		}
	}
}
