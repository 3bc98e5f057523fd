package blockio_test

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
	"github.com/commensal-io/commensal/policy/blockio"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// wishes are reused from step to step, as the engine does.
var wishes policy.Wishes

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

const (
	mb   = 1e6
	disk = model.Device(254 << 20)
)

// reads is what a task reads a second, in operations of 256 KiB, as far as its limit lets it.
type reads struct {
	bytes, done, ops float64
	writes           bool // it writes instead
}

// world is a node with a disk that moves 500 MB a second: a service that reads 10 MB a second in operations of 8 KiB, and batch work. The service waits 5 %
// of its time while the disk is idle, and as queues do the more the busier it is.
type world struct {
	*enginetest.Node
	io      map[model.TaskNum]*reads
	waited  float64 // ns, of the service
	speed   float64 // of the disk, bytes a second
	seconds int
	blind   bool // nobody says how long the service waits
}

func newWorld(mode model.Mode, batch ...float64) *world {
	p := enginetest.Params()
	p.HistoryWindows, p.Outlier, p.Spec = 60, outlier.Defaults(), localspec.Defaults()
	p.Spec.MinTasks, p.Spec.MinSamplesPerTask, p.Spec.RecalculateNsec = 1, 10, 1e15
	p.Outlier.WindowNsec = 10e9
	p.Hardcap.Antagonist[model.SourceIO] = antagonist.Defaults(model.SourceIO)
	p.CPU.IOMode = mode
	w := &world{io: map[model.TaskNum]*reads{}, speed: 500 * mb}
	w.Node = enginetest.New(p, enginetest.Flat(2))
	w.start(1, model.LC, 10*mb)
	for i, bytes := range batch {
		w.start(i+2, model.BE, bytes)
	}
	return w
}

func (w *world) start(num int, class model.Class, bytes float64) {
	t := enginetest.NewTask(num, class)
	t.Importance = model.BestEffort
	w.Add(t)
	w.io[t.Num] = &reads{bytes: bytes}
}

func (w *world) params() *blockio.Params { return &w.Engine.Params.CPU.IO }

// rate is what a task reads a second under its limit.
func (w *world) rate(t *enginetest.Task) float64 {
	want := w.io[t.Num].bytes
	limits, _ := t.Knobs[model.IOMaxKnob].Value.IO.Limits()
	for _, l := range limits {
		if most := map[bool]uint64{false: l.ReadBPS, true: l.WriteBPS}[w.io[t.Num].writes]; l.Device == disk && most > 0 {
			want = min(want, float64(most))
		}
	}
	return want
}

// second plays one: everybody reads, and a window closes.
func (w *world) second() {
	w.seconds++
	s, busy := w.Snapshot(), 0.0
	s.Mark, s.Tasks, s.IO = model.WindowStart|model.WindowEnd, nil, nil
	for _, t := range w.Tasks {
		busy += w.rate(t) / w.speed
	}
	w.waited += 1e9 * min(1, (0.05+0.005*math.Sin(float64(w.seconds)))/max(0.02, 1-busy))
	for _, t := range w.Tasks {
		r, per := w.io[t.Num], float64(256<<10)
		if t.Class == model.LC {
			per = 8 << 10
		}
		r.done += w.rate(t)
		r.ops += w.rate(t) / per
		x := model.TaskSample{Num: t.Num}
		x.C[model.CountUsage], x.C[model.CountThrottled] = model.Read(uint64(w.seconds)*1e7), model.Read(0)
		x.C[model.CountIOBytes] = model.Read(uint64(r.done))
		if t.Class == model.LC && !w.blind {
			x.C[model.CountIODelay] = model.Read(uint64(w.waited))
		}
		s.Tasks = append(s.Tasks, x)
		io := model.IOSample{Num: t.Num, Device: disk, Read: uint64(r.done), Reads: uint64(r.ops)}
		if r.writes { // all that it ever did: the other direction counts back, which says nothing for one window
			io = model.IOSample{Num: t.Num, Device: disk, Wrote: uint64(r.done), Writes: uint64(r.ops)}
		}
		s.IO = append(s.IO, io)
	}
	w.Beat(enginetest.Sec)
}

func (w *world) run(seconds int) {
	for range seconds {
		w.second()
	}
}

func (w *world) held(num model.TaskNum) bool {
	return w.Task(num).Knobs[model.IOMaxKnob].Value.IO != ""
}

// TestStory: a task reads the disk empty beside a service; another program meddles; the kill switch ends it.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeEnforce, 20*mb, 0)
	w.Log = &text
	w.Chapter("/t2 reads 20 MB a second, /t3 nothing; the disk has 500")
	w.run(40)
	w.Chapter("/t3 reads as much as it can")
	w.io[3].bytes = 470 * mb
	w.run(20)
	if !w.held(3) || w.held(2) {
		t.Errorf("held: /t2 %v, /t3 %v", w.held(2), w.held(3))
	}
	w.run(100)
	w.Chapter("the disk is another, four times as fast: step by step /t3 has all of it back")
	w.speed *= 4
	w.run(200)
	if w.held(3) {
		t.Error("with room it is still held")
	}
	w.Chapter("it rests, reads four times as much, and another program limits it, too, once it is held")
	w.io[3].bytes = 0
	w.run(80)
	w.io[3].bytes = 1900 * mb
	w.run(6)
	w.Stranger(3, model.LimitIO(model.IOMaxOf([]model.IOLimit{{Device: disk, ReadBPS: 400 * mb}})))
	w.run(5)
	w.Chapter("an operator frees it; then the kill switch")
	w.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	w.run(30)
	w.Kill = true
	w.run(2)
	story := enginetest.Story{
		About: "/t1 is a service that waits for the disk 5 % of its time, /t2 and /t3 are best-effort; times since the agent began",
		Want: []string{
			"spec", "as much as it can", "anomaly     /t1", "cap         /t3", "-> hold io.max of /t3: applied, now 254:0 rbps=93", "verified    /t1", "step        /t3", "another, four times as fast",
			"loosened to", "given back", "-> release io.max of /t3: applied, now no limit", "another program limits", "-> hold io.max of /t3", "foreign     /t3", "the kill switch",
		},
		Never: []string{"io.max of /t1", "io.max of /t2"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// Nobody is held where the disk itself is slow, where the service makes itself wait, where another service does it, where the policy only
// observes, or is off; and what is said is why.
func TestNobodyIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		mode model.Mode
		play func(w *world)
		kind model.DecisionKind
	}{
		"slow by itself": {model.ModeEnforce, func(w *world) { w.speed = 85 * mb }, model.DecideCannotFix},
		"its own reads":  {model.ModeEnforce, func(w *world) { w.io[1].bytes = 430 * mb }, model.DecideCannotFix},
		"a service does it": {model.ModeEnforce, func(w *world) {
			w.start(4, model.LC, 400*mb)
		}, model.DecideCannotFix},
		"observed": {model.ModeObserve, func(w *world) { w.io[3].bytes = 420 * mb }, model.DecideCap},
		"off":      {model.ModeOff, func(w *world) { w.io[3].bytes = 420 * mb }, model.DecideNothing},
	} {
		w := newWorld(c.mode, 20*mb, 40*mb)
		w.run(40)
		c.play(w)
		w.run(100)
		if w.Writes > 0 || w.held(2) || w.held(3) {
			t.Errorf("%s: %d writes", name, w.Writes)
		}
		if c.kind != model.DecideNothing && w.Count(c.kind) == 0 {
			t.Errorf("%s: no %s was decided", name, c.kind)
		}
		if c.kind != model.DecideCap && w.Count(model.DecideCap) > 0 {
			t.Errorf("%s: somebody is accused", name)
		}
	}
}

// A limit that does not help is taken back, one that the kernel refuses is told, and in both cases the search goes on without that suspect.
func TestTakenBackAndRefused(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 0)
	w.run(40)
	w.io[3].bytes, w.speed = 300*mb, 25*mb // it comes as the disk breaks: to hold it does not help
	w.run(60)
	if w.Count(model.DecideTakenBack) == 0 || w.held(3) {
		t.Errorf("taken back %d times, held %v", w.Count(model.DecideTakenBack), w.held(3))
	}
	w = newWorld(model.ModeEnforce, 20*mb, 0)
	w.Task(3).Refuse(model.IOMaxKnob, "no such device")
	w.run(40)
	w.io[3].bytes = 470 * mb
	w.run(60)
	if w.Writes > 0 || w.Count(model.DecideRefused) != 1 || w.Count(model.DecideCannotFix) == 0 {
		t.Errorf("%d writes, refused %d times, given up %d times", w.Writes, w.Count(model.DecideRefused), w.Count(model.DecideCannotFix))
	}
}

// A limit that helps much is kept where nothing brings the victim under its threshold; once it waits less for another reason the task has more
// again.
func TestKeptThoughNotEnough(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 0)
	w.run(40)
	w.io[1].bytes, w.io[3].bytes = 330*mb, 470*mb // the service itself keeps the disk busy
	w.run(60)
	if !w.held(3) || w.held(2) || w.Count(model.DecideTakenBack) > 0 || w.Count(model.DecideVerified) != 1 {
		t.Errorf("held: /t2 %v, /t3 %v; taken back %d times, verified %d", w.held(2), w.held(3), w.Count(model.DecideTakenBack), w.Count(model.DecideVerified))
	}
	tight := w.rate(w.Task(3))
	if tight > 0.11*470*mb {
		t.Errorf("it may read %.0f MB a second", tight/mb)
	}
	w.io[1].bytes = 10 * mb
	w.run(120)
	if got := w.rate(w.Task(3)); got < 4*tight {
		t.Errorf("with room it may read %.0f MB a second, %.0f before", got/mb, tight/mb)
	}
}

// A limit is given back whatever becomes of what it rests on: in time, and for a reason that is told.
func TestGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		then func(w *world)
		in   int // seconds
		kind model.DecisionKind
	}{
		"the victim is gone":             {func(w *world) { w.Remove(1) }, 3, model.DecideGone},
		"the held task is gone":          {func(w *world) { w.Remove(3) }, 3, model.DecideGone},
		"the policy is off":              {func(w *world) { w.Engine.Params.CPU.IOMode = model.ModeOff }, 3, model.DecideCap},
		"it only observes":               {func(w *world) { w.Engine.Params.CPU.IOMode = model.ModeObserve }, 3, model.DecideRelease},
		"nothing says how the victim is": {func(w *world) { w.blind = true }, 32, model.DecideRelease},
		"its time is over":               {func(w *world) { w.params().MaxDurationNsec = 40e9 }, 45, model.DecideRelease},
		"its time is over, nothing said": {func(w *world) { w.params().MaxDurationNsec, w.blind = 10e9, true }, 15, model.DecideRelease},
	} {
		w := newWorld(model.ModeEnforce, 20*mb, 0)
		w.run(40)
		w.io[3].bytes = 470 * mb
		w.run(4)
		if !w.held(3) {
			t.Fatalf("%s: it is not held", name)
		}
		held := w.Task(3)
		c.then(w)
		if w.run(c.in); w.Count(c.kind) == 0 || w.Claims() > 0 {
			t.Errorf("%s: %d decisions %s, %d claims", name, w.Count(c.kind), c.kind, w.Claims())
		}
		if w.Task(3) == held && held.Knobs[model.IOMaxKnob].Value.IO != "" {
			t.Errorf("%s: it is still held: %s", name, held.Knobs[model.IOMaxKnob].Value.IO)
		}
	}
}

// Two services suffer from one task, and another began with it: the one that is held is all that is tried until it is known what comes of that. A service
// that was never seen well has nobody accused.
func TestOneAtATime(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 0, 0)
	w.start(5, model.LC, 10*mb)
	w.run(40)
	w.io[3].bytes, w.io[4].bytes = 440*mb, 60*mb
	w.run(8)
	if !w.held(3) || w.held(2) || w.held(4) || w.Count(model.DecideCap) != 1 {
		t.Errorf("held: /t3 %v, /t2 %v, /t4 %v; %d caps", w.held(3), w.held(2), w.held(4), w.Count(model.DecideCap))
	}
	w = newWorld(model.ModeEnforce, 20*mb, 0)
	w.run(40)
	w.Engine.Params.CPU.IOMode = model.ModeOff
	w.run(2)
	w.io[3].bytes = 470 * mb
	w.run(2)
	w.Engine.Params.CPU.IOMode = model.ModeEnforce
	w.run(60)
	if w.Writes > 0 || w.Count(model.DecideCannotFix) == 0 {
		t.Errorf("never seen well: %d writes, given up %d times", w.Writes, w.Count(model.DecideCannotFix))
	}
}

// A victim little above its threshold gives nobody the correlation that is asked for: who comes half of the way to what one would that used the device
// in bad windows alone is held, and stays so where that helps. With no trial the task does as it likes.
func TestLittleAbove(t *testing.T) {
	for _, trial := range []float64{0, 0.5} {
		w := newWorld(model.ModeEnforce, 20*mb, 0)
		w.params().Trial = trial
		w.run(40)
		w.io[3].bytes = 340 * mb
		w.run(60)
		if held := trial > 0; w.held(3) != held || w.held(2) || w.Count(model.DecideVerified) > 0 != held || w.Count(model.DecideAnomaly) == 0 {
			t.Errorf("trial %g: held /t3 %v, /t2 %v; verified %d times, %d anomalies", trial, w.held(3), w.held(2), w.Count(model.DecideVerified), w.Count(model.DecideAnomaly))
		}
	}
}

// Who reads and writes next may do no more of that.
func TestChangesDirection(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 0)
	w.run(40)
	w.io[3].bytes = 470 * mb
	w.run(8)
	before := w.rate(w.Task(3))
	w.io[3].writes = true
	if after := w.rate(w.Task(3)); !w.held(3) || after != before {
		t.Errorf("held %v: it may read %.0f MB a second, and write %.0f", w.held(3), before/mb, after/mb)
	}
	w.run(60)
	if w.Count(model.DecideTakenBack) > 0 || w.Count(model.DecideRelapse) > 0 || !w.held(3) {
		t.Errorf("held %v, taken back %d times, relapsed %d", w.held(3), w.Count(model.DecideTakenBack), w.Count(model.DecideRelapse))
	}
}

// The limit says what the task did times the share, in the directions that it uses, and never less than the least.
func TestLimit(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 0)
	w.params().Share, w.params().LeastBytes, w.params().LeastOps = 0.01, 8<<20, 100
	w.run(40)
	w.io[3].bytes = 470 * mb
	w.run(5)
	limits, err := w.Task(3).Knobs[model.IOMaxKnob].Value.IO.Limits()
	if err != nil || len(limits) != 1 || limits[0] != (model.IOLimit{Device: disk, ReadBPS: 8 << 20, ReadIOPS: 100, WriteBPS: 8 << 20, WriteIOPS: 100}) {
		t.Errorf("%+v, %v", limits, err)
	}
}

// A step in which nothing is wrong allocates nothing once the windows are filled.
func TestSteadyStepDoesNotAllocate(t *testing.T) {
	w := newWorld(model.ModeEnforce, 20*mb, 40*mb)
	w.run(80)
	s, in := w.Engine.State.CPU.IO, beside.Input{Correlation: &w.Engine.Params.Hardcap.Antagonist[model.SourceIO]}
	v := w.View(model.ModeEnforce)
	v.Table, v.History, v.Window.Closed, v.Window.Observation = &w.Engine.State.Tasks, w.Engine.State.History, true, w.Engine.Window()
	if n := testing.AllocsPerRun(20, func() { wishes.Reset(); s.Step(w.params(), in, v, &wishes) }); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}
