package model

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
)

func sample(num TaskNum, usage, run, delay, cycles, instructions uint64) TaskSample {
	return TaskSample{Num: num, C: [NumTaskCounters]Counter{
		CountUsage: Read(usage), CountThrottled: Read(0), CountRun: Read(run), CountDelay: Read(delay),
		CountCycles: Read(cycles), CountRefCycles: Read(cycles), CountInstructions: Read(instructions), CountLLCMisses: Read(0),
	}}
}

func TestObserve(t *testing.T) {
	prev := &Snapshot{MonoNsec: 0, Node: NodeSample{CPUs: 4, C: [NumNodeCounters]Counter{Read(0), Read(0)}},
		Tasks: []TaskSample{sample(1, 0, 0, 0, 0, 0), sample(2, 5e9, 0, 0, 0, 0), sample(7, 0, 0, 0, 0, 0)}}
	cur := &Snapshot{MonoNsec: 10e9, WallNsec: 5, Node: NodeSample{CPUs: 4, C: [NumNodeCounters]Counter{Read(20e9), Read(1e9)}},
		Tasks: []TaskSample{sample(1, 10e9, 10e9, 5e9, 30e9, 15e9), sample(2, 4e9, 1, 0, 1, 1), sample(3, 1, 1, 1, 1, 1)}}
	cur.Tasks[0].C[CountLLCMisses], cur.Tasks[0].C[CountThrottled] = Read(15e6), Read(2)
	var o Observation
	Observe(prev, cur, &o)
	if o.Busy != Known(2) || o.Steal != Known(0.1) || o.Managed != Known(1) || o.Unmanaged != Known(1) || len(o.Tasks) != 3 {
		t.Fatalf("%+v", o)
	}
	a := o.Tasks[0]
	if a.CPU != Known(1) || a.Signals[SourceCPI] != Known(2) || a.Raw[SourceSlowdown] != Known(1.5) || a.MPKI != Known(1) || !a.Throttled || !a.ThrottledKnown {
		t.Errorf("%+v", a)
	}
	if b := o.Tasks[1]; b.CPU != Missing(GoneBackwards) {
		t.Errorf("a counter that went back: %+v", b)
	}
	if c := o.Tasks[2]; c.CPU != Missing(Fresh) || c.Signals[SourceCPI] != Missing(Fresh) || c.ThrottledKnown {
		t.Errorf("a new task: %+v", c)
	}
	Observe(cur, cur, &o)
	if o.ElapsedNsec != 0 || len(o.Tasks) != 0 {
		t.Errorf("a window of no time: %+v", o)
	}
}

func TestSlowdownNeedsCoverage(t *testing.T) {
	p := sample(1, 0, 0, 0, 0, 0)
	tests := []struct {
		name string
		c    TaskSample
		want Value
	}{
		{"half of the usage was followed", sample(1, 10, 5, 5, 0, 0), Known(2)},
		{"less than half", sample(1, 11, 5, 5, 0, 0), Missing(Unavailable)},
		{"did not run", sample(1, 0, 0, 0, 0, 0), Missing(Absent)},
	}
	for _, tt := range tests {
		if got := slowdown(&p, &tt.c, 1); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestDiscount(t *testing.T) {
	tests := []struct {
		name           string
		raw, cpu, busy float64
		cpus, node     int
		want           float64
	}{
		{"alone on the node", 2, 1, 1, 0, 4, 1},
		{"two spinners on one CPU of its own", 2, 1, 4, 1, 4, 1},
		{"others took as much", 3, 1, 2, 0, 4, 2},
		{"others took three times as much", 5, 1, 4, 0, 4, 4},
		{"more CPUs than the node has", 3, 1, 2, 99, 4, 2},
		{"busy below its own usage", 3, 2, 1, 0, 4, 1},
	}
	for _, tt := range tests {
		o := TaskObservation{CPU: Known(tt.cpu)}
		o.Raw[SourceSlowdown] = Known(tt.raw)
		o.Signals = o.Raw
		o.Discount(&Observation{Busy: Known(tt.busy), CPUs: tt.node}, tt.cpus)
		if got := o.Signals[SourceSlowdown]; got.Outcome != OK || math.Abs(got.V-tt.want) > 1e-12 {
			t.Errorf("%s: %+v, want %v", tt.name, got, tt.want)
		}
	}
}

// Whatever the kernel says, an observation holds finite numbers that are not negative and
// a slowdown of at least 1.
func TestObserveAdversarial(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	odd := []uint64{0, 1, 2, 1e9, 1e18, math.MaxInt64, math.MaxUint64 - 1, math.MaxUint64}
	counter := func() Counter {
		c := Counter{Value: odd[rng.IntN(len(odd))], Outcome: Outcome(rng.IntN(5))}
		if rng.IntN(3) > 0 {
			c.Outcome = OK
		}
		return c
	}
	snap := func(mono int64) *Snapshot {
		s := &Snapshot{MonoNsec: mono, Node: NodeSample{CPUs: rng.IntN(3) - 1, C: [NumNodeCounters]Counter{counter(), counter()}}}
		for n := range TaskNum(4) {
			if rng.IntN(4) > 0 {
				t := TaskSample{Num: n}
				for k := range t.C {
					t.C[k] = counter()
				}
				s.Tasks = append(s.Tasks, t)
			}
		}
		return s
	}
	var o Observation
	ok := func(v Value, least float64) bool {
		return v.Outcome != OK && v.V == 0 || v.Outcome == OK && v.V >= least && !math.IsInf(v.V, 0)
	}
	for run := range 20000 {
		p := snap(int64(rng.IntN(3)))
		Observe(p, snap(p.MonoNsec+int64(rng.IntN(3))), &o)
		for i := range o.Tasks {
			x := &o.Tasks[i]
			x.Discount(&o, rng.IntN(4)-1)
			if !ok(x.CPU, 0) || !ok(x.MPKI, 0) || !ok(x.Signals[SourceCPI], 0) || !ok(x.Raw[SourceSlowdown], 1) || !ok(x.Signals[SourceSlowdown], 1) {
				t.Fatalf("run %d: %+v", run, x)
			}
		}
		if !ok(o.Busy, 0) || !ok(o.Managed, 0) || !ok(o.Unmanaged, 0) || !ok(o.Steal, 0) {
			t.Fatalf("run %d: %+v", run, o)
		}
		if _, err := json.Marshal(&o); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	p, c := &Snapshot{Node: NodeSample{CPUs: 8, C: [NumNodeCounters]Counter{Read(0)}}}, &Snapshot{MonoNsec: 1e9, Node: NodeSample{CPUs: 8, C: [NumNodeCounters]Counter{Read(8e9)}}}
	for n := range TaskNum(150) {
		p.Tasks = append(p.Tasks, sample(n, 0, 0, 0, 0, 0))
		c.Tasks = append(c.Tasks, sample(n, 1e7, 1e7, 1e6, 1e7, 1e7))
	}
	var o Observation
	Observe(p, c, &o)
	if n := testing.AllocsPerRun(100, func() { Observe(p, c, &o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every name reads back as what it was written from, and nothing else is taken.
func TestNamesReadBack(t *testing.T) {
	for i := range uint8(8) {
		for _, pair := range []struct {
			from interface{ MarshalText() ([]byte, error) }
			to   interface {
				UnmarshalText([]byte) error
			}
			same func() bool
			n    int
		}{
			name(Outcome(i), len(outcomeNames)), name(Class(i), len(classNames)), name(Importance(i), len(importanceNames)),
			name(Source(i), len(SourceNames())), name(Mode(i), len(modeNames)), name(Owner(i), len(ownerNames)),
			name(ChangeKind(i), len(changeNames)), name(ResultKind(i), len(resultNames)),
			name(SuspectKind(i), len(suspectNames)), name(IncidentState(i), len(stateNames)),
		} {
			text, err := pair.from.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			err = pair.to.UnmarshalText(text)
			if known := int(i) < pair.n; known != (err == nil) || (known && !pair.same()) {
				t.Errorf("%T(%d): %q: %v", pair.from, i, text, err)
			}
		}
	}
}

func name[T interface {
	comparable
	MarshalText() ([]byte, error)
}, P interface {
	*T
	UnmarshalText([]byte) error
}](v T, n int) (r struct {
	from interface{ MarshalText() ([]byte, error) }
	to   interface {
		UnmarshalText([]byte) error
	}
	same func() bool
	n    int
}) {
	p := P(new(T))
	r.from, r.to, r.n = v, p, n
	r.same = func() bool { return *p == v }
	return r
}

func TestTaskTable(t *testing.T) {
	var tt TaskTable
	for _, n := range []TaskNum{5, 1, 9, 5} {
		tt.Add(Task{Num: n, Path: "/" + string(rune('a'+n))})
	}
	if len(tt.Tasks) != 3 || tt.Get(5) == nil || tt.Get(4) != nil || tt.ByPath("/b").Num != 1 || tt.ByPath("/x") != nil {
		t.Fatalf("%+v", tt)
	}
	if !tt.Remove(5) || tt.Remove(5) || tt.Name(5) != "(gone task 5)" || tt.Name(NumSteal) != "(steal)" || tt.Name(1) != "/b" {
		t.Errorf("%+v", tt)
	}
}

// Of the waits that the scheduler's events tell of, exactly the others' share stays; of the rest it is a guess by CPU time.
func TestDiscountOfMeasuredWaits(t *testing.T) {
	counts := func(waited, foreign, p99 uint64) (s TaskSample) {
		s.Num = 1
		s.C[CountUsage], s.C[CountWaited], s.C[CountWaitedForeign], s.C[CountWaitP99] = Read(0), Read(waited), Read(foreign), Read(p99)
		return s
	}
	for _, tt := range []struct {
		name           string
		before, now    TaskSample
		raw, signal    float64
		outcomeMissing bool
	}{
		{"a quarter was its own", counts(0, 0, 0), counts(40e6, 30e6, 8e6), 8, 6, false},
		{"all was its own", counts(100, 50, 3e6), counts(40e6, 50, 8e6), 8, 0, false},
		{"nobody waited", counts(40e6, 30e6, 8e6), counts(40e6, 30e6, 0), 0, 0, false},
		{"not measured", TaskSample{Num: 1}, TaskSample{Num: 1}, 0, 0, true},
	} {
		var o Observation
		Observe(&Snapshot{Tasks: []TaskSample{tt.before}}, &Snapshot{MonoNsec: 1e9, Tasks: []TaskSample{tt.now}}, &o)
		task := &o.Tasks[0]
		task.Discount(&o, 0)
		got := task.Signals[SourceWait]
		if tt.outcomeMissing {
			if got.Outcome == OK {
				t.Errorf("%s: %+v", tt.name, got)
			}
			continue
		}
		if task.Raw[SourceWait].V != tt.raw || got.Outcome != OK || got.V != tt.signal {
			t.Errorf("%s: raw %+v, signal %+v, want %g and %g", tt.name, task.Raw[SourceWait], got, tt.raw, tt.signal)
		}
	}
}

// What there is of memory is told as it is at the window's end, waiting for it and what came back as shares and rates;
// what nobody read is missing, not zero.
func TestObserveInUse(t *testing.T) {
	p, c := &Snapshot{Tasks: []TaskSample{{Num: 1}, {Num: 2}}}, &Snapshot{MonoNsec: 2e9, Tasks: []TaskSample{{Num: 1}, {Num: 2}}}
	p.Node.C[CountMemorySome], p.Node.C[CountMemoryFull] = Read(1e9), Read(5e8)
	c.Node.C[CountMemorySome], c.Node.C[CountMemoryFull] = Read(2e9), Read(4e8)
	c.Node.C[CountMemoryTotal], c.Node.C[CountMemoryAvailable] = Read(100), Read(0)
	p.Tasks[0].C[CountMemory], c.Tasks[0].C[CountMemory], c.Tasks[0].C[CountMemoryAnon] = Read(90), Read(40), Read(30)
	p.Tasks[0].C[CountRefaults], c.Tasks[0].C[CountRefaults] = Read(10), Read(30)
	var o Observation
	Observe(p, c, &o)
	if want := (Room{Total: Known(100), Available: Known(0), SwapFree: Missing(Unavailable), Some: Known(0.5), Full: Missing(GoneBackwards)}); o.Room != want {
		t.Errorf("%+v, want %+v", o.Room, want)
	}
	if t1 := o.Tasks[0]; t1.InUse != Known(40) || t1.Anon != Known(30) || t1.File != Missing(Unavailable) || t1.Refaults != Known(10) {
		t.Errorf("%+v", t1)
	}
	if t2 := o.Tasks[1]; t2.InUse != Missing(Unavailable) || t2.Refaults != Missing(Unavailable) {
		t.Errorf("%+v", t2)
	}
}
