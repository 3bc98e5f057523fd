package schedwait

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
)

// Who keeps the CPUs busy is named, and not the bystander, whatever their weights; each reading has its own window.
func TestNamesWhoRuns(t *testing.T) {
	for _, weight := range []int{100, 1, 800} {
		t.Run(fmt.Sprintf("weight %d", weight), func(t *testing.T) {
			b := newBed(t)
			s := b.open(Options{})
			lc, antagonist, bystander := b.group("lc"), b.group("antagonist"), b.group("bystander")
			b.weigh(antagonist, weight)
			b.start(lc, "nap 2 200us 2ms")
			loud, quiet := b.start(antagonist, "spin 4"), b.start(bystander, "nap 1 100us 50ms")
			must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 7, Watched: true}, {Cgroup: b.id(antagonist), Task: 8}, {Cgroup: b.id(bystander), Task: 9}}))
			must(t, s.Start())
			var r Reading
			must(t, s.Read(&r, monotonic()))
			// Where threads have a CPU as soon as they wake up a second has microseconds of waiting, of which whoever was there has most; and a
			// guest's virtual CPU stands still for long, whoever has it at that moment: one second of three has to be right.
			times, tries := int64(3), 3
			if rigtest.Inside() {
				times = 1
			}
			var w *Waits
			for try := 1; ; try++ {
				loud0, _ := used(t, loud.PID())
				quiet0, _ := used(t, quiet.PID())
				time.Sleep(time.Second)
				must(t, s.Read(&r, monotonic()))
				loud1, _ := used(t, loud.PID())
				quiet1, _ := used(t, quiet.PID())
				w = taskOf(t, &r, 7)
				of := func(task int) int64 { return sum(w, func(p Party) bool { return p == TaskParty(task) }) }
				// The least weight beside a busy host runs next to nothing, and then delays nobody.
				if ran := (loud1 - loud0) / max(quiet1-quiet0, 1); ran < 20 || of(8) >= times*of(9) && of(8) > 0 {
					break
				}
				if try == tries {
					t.Fatalf("the antagonist is charged with %d ns, the bystander with %d: %+v", of(8), of(9), w.Shares)
				}
			}
			if first := w.Shares[0].Nsec; w.Count[AfterWakeup] == 0 || w.LongestNsec == 0 || first > w.Nsec[0]+w.Nsec[1] {
				t.Errorf("%+v", w)
			}
		})
	}
}

// A CPU that nobody else wants makes nobody wait for another.
func TestOwnThreads(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "spin 8")
	must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 0, Watched: true}}))
	must(t, s.Start())
	time.Sleep(time.Second)
	var r Reading
	must(t, s.Read(&r, monotonic()))
	w := taskOf(t, &r, 0)
	own := sum(w, func(p Party) bool { return p == TaskParty(0) })
	tasks := sum(w, func(p Party) bool { return p >= firstTask })
	if own != tasks || own < 500e6 {
		t.Errorf("eight threads that burn are charged with %d ns, all tasks with %d: %+v", own, tasks, w.Shares)
	}
}

// With too little room what was measured is still whole, and what was not is counted.
func TestTooLittleRoom(t *testing.T) {
	for _, test := range []struct {
		name string
		o    Options
		lost func(Lost) int64
	}{
		{"threads", Options{Threads: 2}, func(l Lost) int64 { return l.Waits }},
		{"rows", Options{Rows: 2}, func(l Lost) int64 { return l.Rows }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(t)
			s := b.open(test.o)
			lc, be := b.group("lc"), b.group("be")
			b.start(lc, "nap 6 300us 500us")
			b.start(be, "spin 2")
			must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 0, Watched: true}, {Cgroup: b.id(be), Task: 1}}))
			must(t, s.Start())
			time.Sleep(500 * time.Millisecond)
			must(t, s.Stop())
			time.Sleep(50 * time.Millisecond)
			var r Reading
			must(t, s.Read(&r, monotonic()))
			w := taskOf(t, &r, 0)
			if test.lost(r.Lost) == 0 {
				t.Errorf("lost nothing: %+v", r.Lost)
			}
			if all, want := sum(w, func(Party) bool { return true }), w.Nsec[0]+w.Nsec[1]; all != want || want == 0 {
				t.Errorf("charged %d ns of %d that were waited: %+v", all, want, w.Shares)
			}
		})
	}
}

// A wait that is longer than a CPU remembers is charged in full all the same: its beginning to nobody that is known, and said.
func TestLongerThanARing(t *testing.T) {
	b := newBed(t)
	// An emulated CPU goes from group to group too seldom for a wait of as many times as are kept.
	s := b.open(Options{segments: 16})
	lc := b.group("lc")
	b.weigh(lc, 1)
	slow := b.start(lc, "spin 1")
	slow.Pin(0)
	must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 2, Watched: true}}))
	must(t, s.Start()) // before anybody is in its way: of a wait that has begun before, nothing is known
	var r Reading
	var charged, waited, unknown int64
	read := func() {
		must(t, s.Read(&r, monotonic()))
		w := taskOf(t, &r, 2)
		charged, waited = charged+sum(w, func(Party) bool { return true }), waited+w.Nsec[0]+w.Nsec[1]
		unknown += sum(w, func(p Party) bool { return p == Unknown })
	}
	time.Sleep(200 * time.Millisecond)
	read()
	unknown = 0 // it may have waited as the measurement began
	var busy []*testchild.Child
	for i := range 8 { // the CPU goes from group to group, a few ten thousand times a second
		c := b.start(b.group(fmt.Sprint("busy", i)), "nap 4 20us 20us")
		c.Pin(0)
		busy = append(busy, c)
	}
	long := false
	for i := 0; i < 150 && !long; i++ { // a wait is charged when it ends
		time.Sleep(200 * time.Millisecond)
		if i == 100 { // on an emulated CPU it may not end in a minute: nobody is in its way then
			for _, c := range busy {
				c.End()
			}
		}
		read()
		long = r.Lost.Long > 0 && unknown > 0
	}
	must(t, s.Stop())
	time.Sleep(50 * time.Millisecond)
	read()
	if !long {
		t.Errorf("no wait was longer than is kept: %+v", r)
	}
	if charged != waited || waited == 0 {
		t.Errorf("charged %d ns of %d", charged, waited)
	}
}

// Waits that find no room are told as whose they are: a task whose threads had theirs before loses next to nothing, by threads
// that come later.
func TestWhoseWaitsAreNotTaken(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{Threads: 16})
	first, crowd := b.group("first"), b.group("crowd")
	groups := []Group{{Cgroup: b.id(first), Task: 4, Watched: true}, {Cgroup: b.id(crowd), Task: 7, Watched: true}}
	b.start(first, "nap 2 300us 500us")
	must(t, s.SetGroups(groups[:1]))
	must(t, s.Start())
	time.Sleep(200 * time.Millisecond)
	var r Reading
	must(t, s.Read(&r, monotonic()))
	b.start(crowd, "nap 120 100us 5ms")
	must(t, s.SetGroups(groups))
	for range 60 { // until that many wait at once
		time.Sleep(500 * time.Millisecond)
		must(t, s.Read(&r, monotonic()))
		one, many := taskOf(t, &r, 4), taskOf(t, &r, 7)
		if ended := one.Count[0] + one.Count[1]; ended == 0 || 10*one.NotTaken > ended || r.Lost.Waits != one.NotTaken+many.NotTaken {
			t.Fatalf("%d waits of %v were not taken, and %d of %v; %+v", one.NotTaken, one.Count, many.NotTaken, many.Count, r.Lost)
		}
		if many.NotTaken > one.NotTaken {
			return
		}
	}
	t.Errorf("no wait of the crowd found no room: %+v", r)
}

// Of more groups than a source was opened for those that come first fit, and the others are counted; what goes makes room.
func TestMoreThanFit(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{Groups: 3, Watched: 1})
	one, two := Group{Cgroup: 1001, Task: 1, Watched: true}, Group{Cgroup: 1002, Task: 2, Watched: true}
	more := []Group{{Cgroup: 1003, Task: 3}, {Cgroup: 1004, Task: 4}, {Cgroup: 1005, Task: 5}}
	for _, test := range []struct {
		name    string
		groups  []Group
		watched int
		unfit   Unfit
	}{
		{"one", []Group{one}, 1, Unfit{}},
		{"a second one to watch", []Group{one, two}, 1, Unfit{Watched: 1}},
		{"the first one is gone", []Group{two}, 2, Unfit{}},
		{"the first one is back, and first", []Group{one, two}, 1, Unfit{Watched: 1}},
		{"two groups too many", append([]Group{two, one}, more...), 2, Unfit{Groups: 2, Watched: 1}},
		{"none", nil, -1, Unfit{}},
	} {
		must(t, s.SetGroups(test.groups))
		var r Reading
		must(t, s.Read(&r, monotonic()))
		if r.Unfit != test.unfit || len(r.Tasks) != len(test.groups[:min(1, len(test.groups))]) || len(r.Tasks) == 1 && r.Tasks[0].Task != test.watched {
			t.Errorf("%s: %+v, %+v; want task %d and %+v", test.name, r.Tasks, r.Unfit, test.watched, test.unfit)
		}
		s.checkTable(t)
	}
}

// checkTable holds the programs' table of groups to what the source takes it for: each slot has one owner or is free.
func (s *Source) checkTable(t *testing.T) {
	t.Helper()
	owners := map[uint32]int{}
	for task, slot := range s.slots {
		owners[slot] = task
	}
	if len(owners) != len(s.slots) || len(s.slots)+len(s.free) != s.opt.Watched {
		t.Errorf("slots %v, free %v, of %d", s.slots, s.free, s.opt.Watched)
	}
	for _, slot := range s.free {
		if task, ok := owners[slot]; ok {
			t.Errorf("slot %d is free, and task %d's", slot, task)
		}
	}
	var id uint64
	var g group
	n := 0
	for at := s.maps.Groups.Iterate(); at.Next(&id, &g); n++ {
		want := s.groups[id]
		if g.Party != uint32(TaskParty(want.Task)) || (g.Slot != 0) != want.Watched || want.Watched && owners[g.Slot] != want.Task {
			t.Errorf("cgroup %d: %+v, want %+v", id, g, want)
		}
	}
	if n != len(s.groups) {
		t.Errorf("%d groups in the kernel, %d known: %v", n, len(s.groups), s.groups)
	}
}

// What the kernel refuses halfway leaves nobody with another's counts, and the same call does the rest later.
func TestRefusedHalfway(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{Groups: 4, Watched: 2})
	lc := b.group("lc")
	const threads = 6
	b.start(lc, fmt.Sprintf("nap %d 300us 500us", threads))
	must(t, s.Start())
	before := []Group{{Cgroup: b.id(lc), Task: 0, Watched: true}, {Cgroup: 1001, Task: 1, Watched: true}}
	after := []Group{{Cgroup: 1002, Task: 2, Watched: true}, {Cgroup: 1003, Task: 3, Watched: true}}
	for _, table := range []struct {
		name string
		at   **ebpf.Map
	}{{"groups", &s.maps.Groups}, {"controls", &s.maps.Controls}, {"waits", &s.maps.Waits}, {"rows", &s.maps.Rows}} {
		must(t, s.SetGroups(before))
		time.Sleep(100 * time.Millisecond) // nobody reads what is counted meanwhile
		whole := *table.at
		broken, err := whole.Clone()
		must(t, err)
		must(t, broken.Close())
		*table.at = broken
		if err := s.SetGroups(after); err == nil {
			t.Errorf("%s: a table that is closed was written", table.name)
		}
		*table.at = whole
		s.checkTable(t)
		must(t, s.SetGroups(after))
		s.checkTable(t)
		var r Reading
		must(t, s.Read(&r, monotonic()))
		for i := range r.Tasks {
			// A thread that stands in line while its slot changes hands may end that one wait in it, as in
			// TestSlotUsedAgain. What was counted before are some hundreds.
			if w := &r.Tasks[i]; w.Count[AfterWakeup]+w.Count[AfterPreemption] > threads {
				t.Errorf("%s: task %d inherited %+v", table.name, w.Task, w)
			}
		}
	}
}

// What a task waited before it had the slot is not its successor's, whether anybody had read it or not.
func TestSlotUsedAgain(t *testing.T) {
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprintf("read %t", read), func(t *testing.T) {
			b := newBed(t)
			s := b.open(Options{Watched: 1})
			lc, idle := b.group("lc"), b.group("idle")
			b.start(lc, "nap 6 300us 500us")
			must(t, s.Start())
			must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 0, Watched: true}}))
			time.Sleep(300 * time.Millisecond)
			var r Reading
			if read {
				must(t, s.Read(&r, monotonic()))
				if w := taskOf(t, &r, 0); w.Count[AfterWakeup] == 0 {
					t.Errorf("no waits: %+v", w)
				}
			}
			must(t, s.SetGroups([]Group{{Cgroup: b.id(idle), Task: 1, Watched: true}}))
			time.Sleep(300 * time.Millisecond)
			must(t, s.Read(&r, monotonic()))
			w := taskOf(t, &r, 1)
			// A thread that stands in line while its slot changes hands may end that one wait in it. Sums and shares are
			// two tables, which nothing changes at once: what ends between them may be in one of the two, and is not yet the longest.
			ended := w.Count[AfterWakeup] + w.Count[AfterPreemption]
			longest := max(w.LongestNsec, (w.Nsec[0]+w.Nsec[1])/max(1, ended))
			apart := sum(w, func(Party) bool { return true }) - w.Nsec[0] - w.Nsec[1]
			if ended > int64(w.Open)+6 || max(apart, -apart) > ended*longest {
				t.Errorf("an empty group waited: %+v", w)
			}
			s.checkTable(t)
		})
	}
}

// A cgroup whose number is used again, by a task that came after, counts as that task from then on.
func TestCgroupNumberUsedAgain(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "nap 6 300us 500us")
	b.start(b.group("be"), "spin 2")
	must(t, s.Start())
	var r Reading
	for task := range 3 {
		must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: task, Watched: true}}))
		for range 2 { // who ran before the change ran as the task before
			time.Sleep(200 * time.Millisecond)
			must(t, s.Read(&r, monotonic()))
		}
		w := taskOf(t, &r, task)
		if len(r.Tasks) != 1 || w.Count[AfterWakeup] == 0 {
			t.Errorf("task %d: %+v", task, r.Tasks)
		}
		if own := sum(w, func(p Party) bool { return p >= firstTask && p != TaskParty(task) }); own != 0 {
			t.Errorf("task %d is delayed for %d ns by one that had its cgroup before", task, own)
		}
		s.checkTable(t)
	}
}

// A thread that waits while nobody measures is not counted when somebody does again.
func TestBetweenMeasurements(t *testing.T) {
	b := newBed(t)
	s := b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "nap 4 1ms 1ms")
	b.start(b.group("be"), "spin 4")
	must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 0, Watched: true}}))
	must(t, s.Start())
	time.Sleep(200 * time.Millisecond)
	must(t, s.Stop())
	var r Reading
	time.Sleep(50 * time.Millisecond)
	must(t, s.Read(&r, monotonic()))
	time.Sleep(time.Second)
	must(t, s.Read(&r, monotonic()))
	if w := taskOf(t, &r, 0); w.Count[0]+w.Count[1] != 0 || r.Switches != 0 {
		t.Errorf("switched off: %+v, %d switches", w, r.Switches)
	}
	began := monotonic()
	must(t, s.Start())
	for {
		time.Sleep(200 * time.Millisecond)
		now := monotonic()
		must(t, s.Read(&r, now))
		w := taskOf(t, &r, 0)
		if w.LongestNsec > now-began {
			t.Fatalf("a wait from before was counted: %+v", w)
		}
		if w.Count[0]+w.Count[1] > 0 {
			return
		}
		if now-began > 20e9 {
			t.Fatalf("switched on again, nothing is counted: %+v", w)
		}
	}
}

//go:embed bpf
var sources embed.FS

// The object is of the sources beside it.
func TestBuiltFromTheseSources(t *testing.T) {
	sum := sha256.New()
	for _, name := range []string{"bpf/kernel.h", "bpf/schedwait.bpf.c"} {
		b, err := sources.ReadFile(name)
		must(t, err)
		sum.Write(b)
	}
	want, err := sources.ReadFile("bpf/built-from")
	must(t, err)
	if got := hex.EncodeToString(sum.Sum(nil)); got != strings.TrimSpace(string(want)) {
		t.Errorf("the sources are %s, the object was built from %s: run `make bpf`", got, want)
	}
}

// CPUs that go and come lose no wait.
func TestHotplug(t *testing.T) {
	rigtest.Only(t, "takes CPUs offline")
	b := newBed(t)
	s := b.open(Options{})
	lc := b.group("lc")
	b.start(lc, "nap 8 500us 1ms")
	b.start(b.group("be"), "spin 4")
	must(t, s.SetGroups([]Group{{Cgroup: b.id(lc), Task: 0, Watched: true}}))
	must(t, s.Start())
	for range 3 {
		for _, on := range []string{"0", "1"} {
			must(t, os.WriteFile("/sys/devices/system/cpu/cpu3/online", []byte(on), 0))
			time.Sleep(200 * time.Millisecond)
		}
	}
	must(t, s.Stop())
	time.Sleep(100 * time.Millisecond)
	var r Reading
	must(t, s.Read(&r, monotonic()))
	w := taskOf(t, &r, 0)
	if all, want := sum(w, func(Party) bool { return true }), w.Nsec[0]+w.Nsec[1]; all != want || want == 0 {
		t.Errorf("charged %d ns of %d that were waited: %+v", all, want, w.Shares)
	}
}

// The lengths' classes join without a gap, and the programs' class of a length is the one that begins at or below it.
func TestBuckets(t *testing.T) {
	for i := range Buckets - 4 {
		if BucketNsec(i) >= BucketNsec(i+1) {
			t.Errorf("class %d begins at %d ns, the next at %d", i, BucketNsec(i), BucketNsec(i+1))
		}
		if got := bucketOf(uint64(BucketNsec(i))); got != i {
			t.Errorf("%d ns is in class %d, want %d", BucketNsec(i), got, i)
		}
		if got := bucketOf(uint64(BucketNsec(i+1) - 1)); got != i {
			t.Errorf("%d ns is in class %d, want %d", BucketNsec(i+1)-1, got, i)
		}
	}
	var d Distribution
	for i := range 100 {
		d[bucketOf(uint64(i+1)*1e6)]++
	}
	for q, want := range map[float64]int64{0.5: 50e6, 0.99: 99e6, 1: 100e6} {
		if got := d.Quantile(q); got < want || float64(got) > 1.26*float64(want) {
			t.Errorf("quantile %g: %d ns, want %d to a quarter more", q, got, want)
		}
	}
	if got := (&Distribution{}).Quantile(0.99); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

// bucketOf is the programs' own class of a length; the test holds the two together.
func bucketOf(nsec uint64) int {
	v := nsec >> 10
	switch {
	case v >= 1<<24:
		return Buckets - 4
	case v < 4:
		return int(v)
	}
	e := bits.Len64(v) - 1
	return (e-1)*4 + int(v>>(e-2)&3)
}
