package memory_test

import (
	"flag"
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/memory"
	"github.com/commensal-io/commensal/policy/outlier"
)

// wishes are reused from step to step, as the engine does.
var wishes policy.Wishes

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

const mib = 1 << 20

// mem is a task's memory: what it uses, and what it took and uses no more, which reclaim takes for good.
// again is how often it misses in a second what it lacks, beyond once.
// It cannot have more than its own limit, if it has one.
type mem struct {
	uses, idle, faults, again, limit float64
	unread, untold                   bool // what it has; its limit
	hot                              bool // what is taken of it comes back at once
}

// world is a machine of 16 GiB with a service of 8 GiB and batch work. What is too much for it everybody lacks in proportion to what he uses: it
// comes back again and again, and pushes out others.
type world struct {
	*enginetest.Node
	mem     map[model.TaskNum]*mem
	service model.TaskNum
	stalled float64 // ns, of the service
	whole   float64
	leaks   float64 // bytes a second, of /t3
	seconds int
	blind   bool
	eases   int     // seconds for which the service lacks nothing after memory of a hot task was taken
	eased   int     // until then
	keeps   float64 // of what the service lacks, from one second to the next: its pages come back slowly
	lacks   float64
}

func newWorld(mode model.Mode, batch ...float64) *world {
	p := enginetest.Params()
	p.HistoryWindows, p.Outlier, p.Spec = 60, outlier.Defaults(), localspec.Defaults()
	p.Spec.MinTasks, p.Spec.MinSamplesPerTask, p.Spec.RecalculateNsec = 1, 10, 1e15
	p.Outlier.WindowNsec = 10e9
	p.Hardcap.Antagonist[model.SourceMemory] = antagonist.Defaults(model.SourceMemory)
	p.CPU.MemoryMode = mode
	w := &world{mem: map[model.TaskNum]*mem{}, service: 1, whole: 16384 * mib}
	w.Node = enginetest.New(p, enginetest.Flat(2))
	w.start(1, model.LC, 8192)
	for i, m := range batch {
		w.start(i+2, model.BE, m)
	}
	return w
}

func (w *world) start(num int, class model.Class, uses float64) {
	w.add(enginetest.NewTask(num, class), uses)
}

func (w *world) add(t *enginetest.Task, uses float64) {
	t.Importance = model.BestEffort
	m := &mem{uses: uses * mib}
	t.Knobs[model.MemoryReclaim].Did = func(v model.Setting) int64 {
		if m.hot {
			w.eased = w.seconds + w.eases
			return v.Amount
		}
		got := min(m.idle, float64(v.Amount))
		m.idle -= got
		return int64(got)
	}
	w.Add(t)
	w.mem[t.Num] = m
}

func (w *world) params() *memory.Params { return &w.Engine.Params.CPU.Memory }

// wants is what a task would have, under its limit.
func (w *world) wants(t *enginetest.Task) float64 {
	m := w.mem[t.Num]
	return min(m.uses+m.idle, float64(t.Knobs[model.MemoryHigh].Value.Amount))
}

// beyond is the share of what a task uses that its own limit leaves no room for.
func (m *mem) beyond() float64 {
	if m.limit == 0 {
		return 0
	}
	return max(0, 1-m.limit/m.uses)
}

// thrash has the service wait for memory by itself, which no figure but its signal shows.
func (w *world) thrash() { w.mem[1].limit, w.mem[1].uses, w.mem[1].untold = 8192*mib, 9000*mib, true }

// second plays one, and a window closes.
func (w *world) second() {
	w.seconds++
	if w.leaks > 0 {
		w.mem[3].uses += w.leaks
	}
	s, all := w.Snapshot(), 0.0
	s.Mark, s.Tasks = model.WindowStart|model.WindowEnd, nil
	for _, t := range w.Tasks {
		all += w.wants(t)
	}
	short := max(0, 1-w.whole/all)
	w.lacks = max(short, w.mem[w.service].beyond(), w.keeps*w.lacks)
	if w.seconds <= w.eased {
		w.lacks = 0
	}
	w.stalled += 1e9 * min(1, 0.02+0.002*math.Sin(float64(w.seconds))+5*w.lacks)
	for _, t := range w.Tasks {
		m := w.mem[t.Num]
		lack := max(short, m.beyond())
		if t.Num == w.service {
			lack = w.lacks
		}
		m.faults += lack * m.uses * (1 + m.again) / 4096
		x := model.TaskSample{Num: t.Num}
		x.C[model.CountUsage], x.C[model.CountThrottled] = model.Read(uint64(w.seconds)*1e7), model.Read(0)
		x.C[model.CountMemory], x.C[model.CountRefaults] = model.Read(uint64((1-lack)*w.wants(t))), model.Read(uint64(m.faults))
		if m.limit > 0 {
			x.C[model.CountMemory] = model.Read(uint64(min((1-short)*w.wants(t), m.limit)))
			if !m.untold {
				x.C[model.CountMemoryLimit] = model.Read(uint64(m.limit))
			}
		}
		if m.unread {
			x.C[model.CountMemory], x.C[model.CountRefaults] = model.Counter{}, model.Counter{}
		}
		if t.Class == model.LC && !w.blind && (w.service == 1 || t.Num == w.service) {
			x.C[model.CountMemoryStall] = model.Read(uint64(w.stalled))
		}
		s.Tasks = append(s.Tasks, x)
	}
	w.Beat(enginetest.Sec)
}

func (w *world) run(seconds int) {
	for range seconds {
		w.second()
	}
}

// high is a task's limit in MiB; 0: none.
func (w *world) high(num model.TaskNum) float64 {
	n := w.Task(num).Knobs[model.MemoryHigh].Value.Amount
	if n == model.NoMemoryHigh {
		return 0
	}
	return float64(n) / mib
}

// TestStory: a task pushes a service out of memory: what it does not need is taken back, then it is held; another program meddles.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.Log = &text
	w.Chapter("the service has 8 GiB of 16, /t2 4, /t3 half of one")
	w.run(40)
	w.Chapter("/t3 reads 4 GiB that it does not need")
	w.mem[3].idle = 4096 * mib
	w.run(30)
	if w.high(3) > 0 || w.Count(model.DecideCap) > 0 || w.Count(model.DecideReclaim) == 0 || w.Count(model.DecideVerified) != 1 {
		t.Errorf("limit %.0f, %d caps, %d reclaims, verified %d times", w.high(3), w.Count(model.DecideCap), w.Count(model.DecideReclaim), w.Count(model.DecideVerified))
	}
	w.Chapter("soon it uses as much")
	w.mem[3].uses = 6000 * mib
	w.run(36)
	if h := w.high(3); h <= 512 || h >= 6000 || w.high(2) > 0 || w.high(1) > 0 {
		t.Errorf("limits: /t3 %.0f, /t2 %.0f, /t1 %.0f MiB", w.high(3), w.high(2), w.high(1))
	}
	w.run(60)
	w.Chapter("there is more memory: step by step it has all back")
	w.whole *= 2
	w.run(150)
	if w.high(3) > 0 {
		t.Error("with room it is still held")
	}
	w.Chapter("it rests, comes again, and another program limits it once it is held")
	w.whole /= 2
	w.mem[3].uses, w.mem[3].idle = 512*mib, 0
	w.run(80)
	w.mem[3].uses = 7000 * mib
	w.run(10)
	w.Stranger(3, model.HighMemory(3000*mib))
	w.run(5)
	w.Chapter("an operator frees it; then the kill switch")
	w.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	w.run(30)
	w.Kill = true
	w.run(2)
	story := enginetest.Story{
		About: "/t1 is a service that waits for memory 2 % of its time, /t2 and /t3 are best-effort; times since the agent began",
		Want: []string{
			"spec", "does not need", "anomaly     /t1", "reclaim     /t3", "-> run memory.reclaim of /t3: applied", "verified    /t1", "soon it uses", "cap         /t3", "-> hold memory.high of /t3: applied, now", "verified    /t1",
			"there is more memory", "loosened to", "given back", "-> release memory.high of /t3: applied, now no limit", "another program limits", "foreign     /t3", "the kill switch",
		},
		Never: []string{"memory.high of /t1", "memory.high of /t2", "memory.reclaim of /t2"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// Nobody is held where the service itself grew, where another service did, where the machine shrank, where the one that thrashes has no more than before,
// where the policy only observes, or is off.
func TestNobodyIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		mode model.Mode
		play func(w *world)
		kind model.DecisionKind
	}{
		"it grew itself":      {model.ModeEnforce, func(w *world) { w.mem[1].uses *= 1.7 }, model.DecideCannotFix},
		"too small a machine": {model.ModeEnforce, func(w *world) { w.whole *= 0.7 }, model.DecideCannotFix},
		"a service did it":    {model.ModeEnforce, func(w *world) { w.start(4, model.LC, 6000) }, model.DecideCannotFix},
		"at its own limit, a neighbour leaks 10 MiB a minute": {model.ModeEnforce, func(w *world) {
			w.mem[1].limit, w.mem[1].uses = 8192*mib, 9000*mib
			w.leaks = 10 * mib / 60.0
		}, model.DecideCannotFix},
		"a large one came while it was well": {model.ModeEnforce, func(w *world) {
			w.start(4, model.BE, 2048)
			w.run(4)
			w.thrash()
		}, model.DecideCannotFix},
		"it grew itself, and a neighbour a little": {model.ModeEnforce, func(w *world) { w.mem[1].uses *= 1.7; w.mem[3].uses += 500 * mib }, model.DecideCannotFix},
		"observed": {model.ModeObserve, func(w *world) { w.mem[3].uses += 6000 * mib }, model.DecideReclaim},
		"off":      {model.ModeOff, func(w *world) { w.mem[3].uses += 6000 * mib }, model.DecideNothing},
	} {
		w := newWorld(c.mode, 4096, 1024)
		w.run(40)
		c.play(w)
		w.run(100)
		if w.Writes > 0 || w.high(2) > 0 || w.high(3) > 0 {
			t.Errorf("%s: %d writes", name, w.Writes)
		}
		if c.kind != model.DecideNothing && w.Count(c.kind) == 0 {
			t.Errorf("%s: no %s was decided", name, c.kind)
		}
		if c.kind != model.DecideReclaim && w.Count(model.DecideCap)+w.Count(model.DecideReclaim) > 0 {
			t.Errorf("%s: somebody is accused", name)
		}
	}
}

// Who comes and pushes the service out is held, though he never had less.
func TestWhoCame(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096)
	w.run(40)
	w.start(3, model.BE, 6000)
	w.run(60)
	if w.high(3) == 0 || w.high(2) > 0 {
		t.Errorf("limits: /t3 %.0f, /t2 %.0f MiB", w.high(3), w.high(2))
	}
}

// Whose memory is in use has what was taken of it back at once: that the service was well for two windows is no recovery, and nothing more is asked; it is
// held as soon as the service suffers again, and given up where it does not.
func TestRegained(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.mem[3].hot, w.eases = true, 5
	w.run(40)
	w.mem[3].uses = 6000 * mib
	w.run(20)
	if w.high(3) == 0 || w.Count(model.DecideReclaim) != 1 || w.Count(model.DecideAnomaly) != 1 {
		t.Errorf("limit %.0f after %d reclaims and %d anomalies", w.high(3), w.Count(model.DecideReclaim), w.Count(model.DecideAnomaly))
	}
	w = newWorld(model.ModeEnforce, 4096, 512)
	w.mem[3].hot, w.eases = true, 100
	w.run(40)
	w.mem[3].uses = 6000 * mib
	w.run(14)
	if w.Count(model.DecideReclaim) != 1 || w.Count(model.DecideVerified) > 0 {
		t.Errorf("%d reclaims, and verified %d times too soon", w.Count(model.DecideReclaim), w.Count(model.DecideVerified))
	}
	if w.run(20); w.high(3) > 0 || w.Count(model.DecideVerified) != 1 {
		t.Errorf("limit %.0f, verified %d times", w.high(3), w.Count(model.DecideVerified))
	}
}

// Under a limit that had helped new trouble is no coincidence yet, however great: the limit is halved.
func TestHalvedBeforeACoincidence(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.params().ReclaimBytes = 0
	w.run(40)
	w.mem[3].uses = 6000 * mib
	for w.Count(model.DecideVerified) == 0 {
		if w.run(1); w.seconds > 100 {
			t.Fatal("it is not held, or that does not help")
		}
	}
	was := w.high(3)
	w.whole = 13900 * mib
	w.run(40)
	if w.Count(model.DecideRelapse) > 0 || w.high(3) == 0 || w.high(3) > 0.8*was {
		t.Errorf("limit %.0f, was %.0f, %d relapses", w.high(3), was, w.Count(model.DecideRelapse))
	}
}

// Who grows slowly, for as long as there is room, is found as soon as one that grows at once: that nobody suffered on the way does not speak for him.
func TestGrowsSlowly(t *testing.T) {
	w := newWorld(model.ModeEnforce, 2048, 512)
	w.run(20)
	w.leaks = 130 * mib
	w.run(54)
	w.leaks = 0
	w.run(8)
	if w.high(3)+float64(w.Count(model.DecideReclaim)) == 0 || w.high(2) > 0 {
		t.Errorf("limits: /t3 %.0f, /t2 %.0f MiB", w.high(3), w.high(2))
	}
}

// While the service's pages come back it is not concluded that a limit does not help, however long that takes; nor that it is not tight enough.
func TestComesBackSlowly(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.run(40)
	w.keeps = 0.97
	w.mem[3].uses = 7000 * mib
	w.run(10)
	high := w.high(3)
	w.run(90)
	if w.Count(model.DecideTakenBack) > 0 || w.Count(model.DecideVerified) != 1 || high == 0 || w.high(3) < high {
		t.Errorf("limit %.0f, now %.0f, taken back %d times, verified %d times, %d steps", high, w.high(3), w.Count(model.DecideTakenBack), w.Count(model.DecideVerified), w.Count(model.DecideStep))
	}
}

// A reading that fails once does not make all that a task has what it took, beside which who did it hardly counts.
func TestUnread(t *testing.T) {
	w := newWorld(model.ModeEnforce, 32768, 1024)
	w.whole = (8192 + 32768 + 1024) * mib
	w.run(20)
	w.mem[2].unread = true
	w.run(1)
	w.mem[2].unread = false
	w.run(20)
	w.mem[3].uses += 1500 * mib
	w.run(60)
	if w.high(3) == 0 || w.high(2) > 0 {
		t.Errorf("limits: /t3 %.0f, /t2 %.0f MiB", w.high(3), w.high(2))
	}
}

// Who thrashes most, and has less memory than before, is a second victim: the one that grew is named.
func TestSecondVictim(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.mem[2].again = 60
	w.run(25)
	w.mem[3].uses = 3000 * mib // there is room for that, which speaks for it
	w.run(10)
	w.mem[3].uses = 7000 * mib
	w.run(30)
	if w.high(3) == 0 || w.high(2) > 0 {
		t.Errorf("limits: /t3 %.0f, /t2 %.0f MiB", w.high(3), w.high(2))
	}
}

// A limit that does not help is taken back; one that the kernel refuses, or reclaim that it refuses, is told, and the search goes on.
func TestTakenBackAndRefused(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.run(40)
	w.mem[3].uses, w.whole = 6000*mib, 9000*mib // it comes as half of the machine goes
	w.run(60)
	if w.Count(model.DecideTakenBack) == 0 || w.high(3) > 0 {
		t.Errorf("taken back %d times, limit %.0f", w.Count(model.DecideTakenBack), w.high(3))
	}
	w = newWorld(model.ModeEnforce, 4096, 512)
	w.Task(3).Refuse(model.MemoryHigh, "not permitted").Refuse(model.MemoryReclaim, "not permitted")
	w.run(40)
	w.mem[3].uses = 6000 * mib
	w.run(80)
	if w.high(3) > 0 || w.Count(model.DecideRefused) < 2 || w.Count(model.DecideCannotFix) == 0 {
		t.Errorf("limit %.0f, refused %d times, given up %d times", w.high(3), w.Count(model.DecideRefused), w.Count(model.DecideCannotFix))
	}
}

// Without reclaim the task is held at once, at its share of what it took; never below what it had while the service was well, nor the least.
func TestLimit(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 1024)
	w.params().ReclaimBytes = 0
	w.run(40)
	w.mem[3].uses = 7168 * mib
	w.run(4)
	if h := w.high(3); w.Count(model.DecideReclaim) > 0 || h < 1024+0.3*6144 || h > 1024+0.5*6144 { // it has less than it would
		t.Errorf("%.0f MiB, %d reclaims", h, w.Count(model.DecideReclaim))
	}
	w = newWorld(model.ModeEnforce, 4096, 1024)
	w.params().ReclaimBytes, w.params().LeastBytes = 0, 6000*mib
	w.run(40)
	w.mem[3].uses = 7168 * mib
	w.run(4)
	if h := w.high(3); h != 6000 {
		t.Errorf("%.0f MiB", h)
	}
}

// A limit is given back whatever becomes of what it rests on.
func TestGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		then func(w *world)
		in   int // seconds
		kind model.DecisionKind
	}{
		"the victim is gone":             {func(w *world) { w.Remove(1) }, 3, model.DecideGone},
		"the held task is gone":          {func(w *world) { w.Remove(3) }, 3, model.DecideGone},
		"the policy is off":              {func(w *world) { w.Engine.Params.CPU.MemoryMode = model.ModeOff }, 3, model.DecideCap},
		"it only observes":               {func(w *world) { w.Engine.Params.CPU.MemoryMode = model.ModeObserve }, 3, model.DecideRelease},
		"nothing says how the victim is": {func(w *world) { w.blind = true }, 32, model.DecideRelease},
		"its time is over":               {func(w *world) { w.params().MaxDurationNsec = 40e9 }, 39, model.DecideRelease},
	} {
		w := newWorld(model.ModeEnforce, 4096, 512)
		w.run(40)
		w.mem[3].uses = 6000 * mib
		w.run(12)
		if w.high(3) == 0 {
			t.Fatalf("%s: it is not held", name)
		}
		held := w.Task(3)
		c.then(w)
		if w.run(c.in); w.Count(c.kind) == 0 || w.Claims() > 0 {
			t.Errorf("%s: %d decisions %s, %d claims", name, w.Count(c.kind), c.kind, w.Claims())
		}
		if w.Task(3) == held && w.high(3) > 0 {
			t.Errorf("%s: it is still held: %.0f", name, w.high(3))
		}
	}
}

// A step in which nothing is wrong allocates nothing once the windows are filled.
func TestSteadyStepDoesNotAllocate(t *testing.T) {
	w := newWorld(model.ModeEnforce, 4096, 512)
	w.run(80)
	s, in := w.Engine.State.CPU.Memory, beside.Input{Correlation: &w.Engine.Params.Hardcap.Antagonist[model.SourceMemory]}
	v := w.View(model.ModeEnforce)
	v.Table, v.History, v.Window.Closed, v.Window.Observation = &w.Engine.State.Tasks, w.Engine.State.History, true, w.Engine.Window()
	if n := testing.AllocsPerRun(20, func() { wishes.Reset(); s.Step(w.params(), in, v, &wishes) }); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}
