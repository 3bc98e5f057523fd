package schedwait

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
)

// traced is an event of bpf/schedwait.bpf.c.
type traced struct {
	At, Cgroup               uint64
	IRQ, Steal, Throttled    uint64
	IRQTo, ThrottledNext     uint64
	Kind, CPU, PID, Next     uint32
	Party, Slot, NextSlot, _ uint32
}

const (
	tracedWake = iota
	tracedSwitch
	tracedMigrate
)

// readTrace returns all events, in the order of their times.
func readTrace(t *testing.T, rd *ringbuf.Reader) []traced {
	t.Helper()
	rd.SetDeadline(time.Now())
	var all []traced
	for {
		rec, err := rd.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		must(t, err)
		var e traced
		must(t, binary.Read(bytes.NewReader(rec.RawSample), binary.LittleEndian, &e))
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b traced) int { return int(int64(a.At) - int64(b.At)) })
	return all
}

// ran is who had a CPU from when on, in a reference that keeps everything.
type ran struct {
	start, irq, steal, cgroup uint64
	party                     uint32
}

type waiting struct {
	since, from, irq, steal, throttled uint64
	cpu, slot                          uint32
	kind                               int
}

// ring is how many segments the programs keep of a CPU.
const ring = 1024

// reference charges the waits of a trace: it keeps the whole timeline of each CPU and lays each stretch of a wait over
// it.
type reference struct {
	cpus    map[uint32][]ran
	waiting map[uint32]*waiting
	rows    map[rowKey]uint64
	waits   map[uint32]*waits
}

func refer(events []traced) *reference {
	r := &reference{map[uint32][]ran{}, map[uint32]*waiting{}, map[rowKey]uint64{}, map[uint32]*waits{}}
	for _, e := range events {
		switch e.Kind {
		case tracedWake:
			r.waiting[e.PID] = &waiting{e.At, e.At, e.IRQ, e.Steal, e.Throttled, e.CPU, e.Slot, AfterWakeup}
		case tracedMigrate:
			w := r.waiting[e.PID]
			r.stretch(w, e.At, e.IRQ, e.Throttled, e.Steal)
			w.from, w.cpu, w.irq, w.steal, w.throttled = e.At, e.CPU, e.IRQTo, 1<<64-1, 1<<64-1
		case tracedSwitch:
			if w := r.waiting[e.Next]; w != nil && e.Next != 0 {
				if e.NextSlot != 0 { // else it was moved while it waited, and nobody looks at it any more
					r.stretch(w, e.At, e.IRQ, e.ThrottledNext, e.Steal)
					r.end(w, e.At)
				}
				delete(r.waiting, e.Next)
			}
			r.cpus[e.CPU] = append(r.cpus[e.CPU], ran{e.At, e.IRQ, e.Steal, e.Cgroup, e.Party})
			if e.Slot != 0 && e.PID != 0 {
				r.waiting[e.PID] = &waiting{e.At, e.At, e.IRQ, e.Steal, e.Throttled, e.CPU, e.Slot, AfterPreemption}
			}
		}
	}
	return r
}

func (r *reference) of(slot uint32) *waits {
	if r.waits[slot] == nil {
		r.waits[slot] = &waits{}
	}
	return r.waits[slot]
}

func (r *reference) end(w *waiting, now uint64) {
	sum := r.of(w.slot)
	sum.Count[w.kind]++
	sum.Buckets[w.kind][bucketOf(now-w.since)]++
}

func (r *reference) charge(slot uint32, party Party, cgroup, nsec uint64) {
	if nsec > 0 {
		if party != Unmanaged {
			cgroup = 0
		}
		r.rows[rowKey{slot, uint32(party), cgroup}] += nsec
	}
}

func (r *reference) stretch(w *waiting, to, irq, throttled, steal uint64) {
	r.of(w.slot).Nsec[w.kind] += to - w.from
	own := min(sinceOf(throttled, w.throttled), to-w.from)
	r.charge(w.slot, Throttled, 0, own)
	from := w.from + own
	left := to - from
	line := r.cpus[w.cpu]
	for known, i := 0, len(line); i > 0 && known < ring; known++ {
		// Threads of one party and group one after the other are one segment.
		next := i
		for i--; i > 0 && line[i-1].party == line[i].party && line[i-1].cgroup == line[i].cgroup; i-- {
		}
		begin, end := max(line[i].start, from), to
		irq0, steal0, irq1, steal1 := line[i].irq, line[i].steal, irq, steal
		if line[i].start <= from {
			irq0, steal0 = w.irq, w.steal
		}
		if next < len(line) {
			end, irq1, steal1 = line[next].start, line[next].irq, line[next].steal
		}
		if begin < end {
			n := end - begin
			left -= n
			soft := min(sinceOf(irq1, irq0), n)
			stolen := min(sinceOf(steal1, steal0), n-soft)
			r.charge(w.slot, SoftIRQ, 0, soft)
			r.charge(w.slot, Steal, 0, stolen)
			r.charge(w.slot, Party(line[i].party), line[i].cgroup, n-soft-stolen)
		}
		if line[i].start <= from {
			break
		}
	}
	r.charge(w.slot, Unknown, 0, left)
}

func sinceOf(now, then uint64) uint64 {
	if now < then {
		return 0
	}
	return now - then
}

// few says whether these are too few waits to show anything.
func (w *waits) few() bool {
	return w.Count[AfterWakeup] < 10 || w.Count[AfterPreemption] < 10 || w.Count[AfterWakeup]+w.Count[AfterPreemption] < 100
}

// What is charged while threads wake, are put off, migrate, fork, exit, move between cgroups and are throttled is what
// a whole trace of the same events says.
func TestTrace(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{trace: true, Rows: 4096})
	lc, twin, sub := b.group("lc"), b.group("twin"), b.group("lc/sub")
	be, hog := b.group("be"), b.group("be/hog")
	b.start(lc, "nap 3 300us 1ms")
	b.start(sub, "nap 2 100us 500us")
	b.start(lc, "fork")
	b.start(twin, "nap 4 2ms 1ms")
	b.start(hog, "spin 2")
	b.start(be, "nap 2 1ms 3ms")
	mover := b.start(lc, "nap 2 400us 600us")
	b.throttle(twin, 5_000, 50_000)
	must(t, s.SetGroups([]Group{
		{Cgroup: b.id(lc), Task: 0, Watched: true}, {Cgroup: b.id(twin), Task: 1, Watched: true}, {Cgroup: b.id(be), Task: 2},
	}))
	trace, err := ringbuf.NewReader(s.maps.Trace)
	must(t, err)
	defer trace.Close() //nolint:errcheck // reading only
	must(t, s.Start())
	// A busy host would fill the buffer, and what finds no room there cannot be told from what was never traced.
	// An emulated CPU may bring few waits in the time that is usual.
	shortOf := func() bool {
		for _, slot := range s.slots {
			var now waits
			must(t, s.maps.Waits.Lookup(slot, &now))
			if now.few() {
				return true
			}
		}
		return false
	}
	for moves := 0; (moves < 15 || moves < 60 && shortOf()) && trace.AvailableBytes() < trace.BufferSize()/2; moves++ {
		mover.Move(sub)
		time.Sleep(70 * time.Millisecond)
		mover.Move(hog)
		time.Sleep(30 * time.Millisecond)
	}
	must(t, s.Stop())
	time.Sleep(50 * time.Millisecond) // what was on its way is written
	var r Reading
	must(t, s.Read(&r, monotonic()))
	if trace.AvailableBytes() > trace.BufferSize()*9/10 {
		t.Fatal("the trace is full: too much is switched on this host to tell")
	}
	events := readTrace(t, trace)
	t.Logf("%d switches, %d events, lost %+v", r.Switches, len(events), r.Lost)
	ref := refer(events)

	rows := map[rowKey]uint64{}
	must(t, each(s.maps.Rows, &s.buffers.keys, &s.buffers.rows, func(k rowKey, v row) {
		if v.Nsec > 0 {
			rows[k] = v.Nsec
		}
	}))
	for k := range maps.Keys(ref.rows) {
		if _, ok := rows[k]; !ok {
			rows[k] = 0
		}
	}
	// On Linux 6.18, in one run of seven, one wait of some fifty thousand differs: the thread was last seen on another CPU
	// than it goes on on, or ran without a switch that was told. Why is not known; so one in a thousand may, and charges
	// may differ by the longest waits there were.
	const allowed = 1e-3
	longest := map[uint32]int64{}
	for i := range r.Tasks {
		longest[s.slots[r.Tasks[i].Task]] = r.Tasks[i].LongestNsec
	}
	differ := 0
	for k, got := range rows {
		want := ref.rows[k]
		if got == want {
			continue
		}
		differ++
		if d := math.Abs(float64(got) - float64(want)); d > 2*float64(longest[k.Slot]) {
			t.Errorf("%v of cgroup %d while slot %d waits: %d ns, a trace says %d", Party(k.Party), k.Cgroup, k.Slot, got, want)
		}
	}
	t.Logf("%d of %d charges differ from the trace's", differ, len(rows))
	for task, slot := range s.slots {
		var got waits
		must(t, s.maps.Waits.Lookup(slot, &got))
		if got.few() {
			t.Errorf("task %d: only %v waits: the test shows little", task, got.Count)
		}
		want := ref.of(slot)
		for kind := range kinds {
			if d := math.Abs(float64(got.Count[kind]) - float64(want.Count[kind])); d > 1+allowed*float64(want.Count[kind]) {
				t.Errorf("task %d: %v waits; a trace says %v", task, got.Count, want.Count)
			}
			if differ == 0 && got.Buckets[kind] != want.Buckets[kind] {
				t.Errorf("task %d: lengths %v; a trace says %v", task, got.Buckets[kind], want.Buckets[kind])
			}
		}
	}
	if float64(r.Lost.Strays) > 1+allowed*float64(r.Switches) || r.Lost.Waits != 0 || r.Lost.Rows != 0 {
		t.Errorf("lost: %+v", r.Lost)
	}
	if ref.rows[rowKey{s.slots[1], uint32(Throttled), 0}] == 0 {
		t.Error("no wait was charged to the task's own quota, although it has a small one")
	}
}
