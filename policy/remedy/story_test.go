package remedy_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/balm"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
	"github.com/commensal-io/commensal/policy/remedy"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

func xeon(ids int) *model.Classes {
	return &model.Classes{
		Caches: []int32{0}, Ways: 11, Least: 1, Memory: []int32{0}, LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: model.LevelPercent, IDs: ids, Taken: 1,
	}
}

const service = model.TaskNum(1)

// harm is what a BE task adds to the service's CPI with all ways and no limit; a share of it goes with its ways, its level, its pages, or its CPU time.
// core goes with how much of its CPUs are threads of the service's cores; far is what its own CPI has more with all pages far away, from the half of them on.
type harm struct{ ways, level, pages, cpu, misses, far, core float64 }

// world is a service with a target of 1 ms and three BE tasks, of one socket.
type world struct {
	*enginetest.Node
	harms     map[model.TaskNum]harm
	gone      map[model.TaskNum]float64 // of their pages, from the service's memory
	own       float64                   // that the service's CPI has for a reason of its own
	silent    bool
	uncounted bool          // nobody tells what memory moves
	copying   model.TaskNum // its pages are on their way, in step
	ends      bool          // they can be ended, and what came of them
	came      []model.Result
	second    int
	count     map[model.TaskNum]*[3]float64 // reference cycles, instructions, misses
	clock     float64                       // of the cores, times the reference clock; 0: that
	clocked   [10]float64                   // cycles by that, by task
	moved     float64
	sample    []model.TaskSample
	last      []float64 // ms
	// counts is what resctrl counts of a task: its lines in the cache, and what it moves a second, in bytes.
	counts  map[model.TaskNum][2]float64
	away    map[model.TaskNum]float64 // of who is counted on the second socket: the share of that which goes to the first one's memory; negative: not told
	total   map[model.TaskNum]uint64  // that it moved
	homes   []model.PageHomes
	fetched map[model.TaskNum]float64 // bytes a second, without a miss
	beside  float64                   // ms, of task 4, where that is another service with the same target
	red     int
	queue   queue
}

func newWorld(mode model.Mode, have *model.Classes) *world {
	p := enginetest.Params()
	p.HistoryWindows, p.Outlier, p.Spec = 10, outlier.Defaults(), localspec.Defaults()
	p.CPU.RemedyMode, p.CPU.Remedy = mode, remedy.Defaults()
	return newWorldOf(p, have)
}

func newWorldOf(p engine.Params, have *model.Classes) *world {
	machine := enginetest.Flat(8)
	machine.Classes = have
	w := &world{harms: map[model.TaskNum]harm{2: {misses: 100}, 3: {misses: 50}, 4: {misses: 1}}, total: map[model.TaskNum]uint64{}, count: map[model.TaskNum]*[3]float64{}}
	tasks := []*enginetest.Task{enginetest.NewTask(1, model.LC)}
	for num := 2; num <= 4; num++ {
		tasks = append(tasks, enginetest.NewTask(num, model.BE))
	}
	for _, t := range tasks {
		w.count[t.Num] = new([3]float64)
	}
	w.Node = enginetest.New(p, machine, tasks...)
	return w
}

func (w *world) params() *remedy.Params { return &w.Engine.Params.CPU.Remedy }
func (w *world) state() *remedy.State   { return &w.Engine.State.CPU.Remedy }

// has is what a task's class has, full where it is in none.
func (w *world) has(num model.TaskNum, kind model.KnobKind, full float64) float64 {
	class := model.TaskNum(w.Task(num).Knobs[model.ServiceClass].Value.Amount)
	for _, k := range w.Wide {
		if class != model.ClassFound && k.Target == model.OfClass(class, 0) && k.Value.Knob == kind {
			return min(full, float64(k.Value.Amount))
		}
	}
	return full
}

// bandwidth is the share of what a task would move that its level leaves.
func (w *world) bandwidth(num model.TaskNum) float64 {
	if have := w.Topology.Classes; have != nil && have.LevelBytes() > 0 {
		return min(1, w.has(num, model.MemoryBandwidth, math.MaxUint32)*have.LevelBytes()/(w.harms[num].misses*64e6))
	}
	return w.has(num, model.MemoryBandwidth, 100) / 100
}

// cpus is what a BE task runs, of two.
func (w *world) cpus(num model.TaskNum) float64 {
	if n, ok := w.queue.uses[num]; ok {
		return n
	}
	if q := w.Task(num).Knobs[model.CPUBandwidth].Value.CPUMax; q.QuotaUsec >= 0 {
		return min(2, q.Ratio())
	}
	return 2
}

// play plays a second.
func (w *world) play() {
	w.second++
	cpi, missed := 1+w.own, 0.0
	for _, t := range w.Tasks {
		if t.Class != model.BE {
			continue
		}
		h := w.harms[t.Num]
		share := w.cpus(t.Num) / 2
		cpi += share*(h.ways*(w.has(t.Num, model.CacheWays, 11)-2)/9+h.level*(1-w.gone[t.Num])*w.bandwidth(t.Num)) + h.cpu*share + share*h.pages*(1-w.gone[t.Num]) + share*h.core*w.on(t.Num, true)
		missed += share * max(0, h.ways)
		w.add(t.Num, w.cpus(t.Num)*1e9, w.cpus(t.Num)*1e9/(1+2*h.far*max(0, w.gone[t.Num]-0.5)), share*h.misses*1e6)
		w.moved += share*h.misses*64e6 + w.fetched[t.Num]
	}
	cpi *= 1 + 0.01*float64(w.second%3-1)
	w.add(1, 2e9, 2e9/cpi, 2e9/cpi/1000*(2+10*missed))
	s := w.Snapshot()
	p99 := 0.6*cpi*cpi + w.wait(s)
	w.last = append(w.last[max(0, len(w.last)-2):], p99)
	w.SLO = append(w.SLO, w.reading())
	if w.beside > 0 {
		figure := w.beside * (1 + 0.01*float64(w.second%3-1))
		l := model.Latency{Job: "t4", Target: 1e-3, Quantile: 0.99, Figure: model.Known(figure / 1e3), State: model.LatencyGrey}
		if figure > 1 {
			l.State = model.LatencyRed
		}
		w.SLO = append(w.SLO, l)
	}
	s.Mark = model.WindowStart | model.WindowEnd
	m := model.MemorySample{MonoNsec: w.NowNsec + enginetest.Sec}
	m.C[model.CountMemTotal], m.C[model.CountMemLocal] = model.Read(uint64(w.moved)), model.Read(uint64(w.moved))
	s.Memory, s.Homes = []model.MemorySample{m}, w.homes
	if w.uncounted {
		s.Memory = nil
	}
	w.sample = w.sample[:0]
	for _, t := range w.Tasks {
		if c, ok := w.counts[t.Num]; ok {
			w.total[t.Num] += uint64(c[1])
			d := model.DomainSample{Num: t.Num, SinceNsec: 1, MonoNsec: w.NowNsec + enginetest.Sec}
			d.C[model.CountOccupancy], d.C[model.CountMovedTotal] = model.Read(uint64(c[0])), model.Read(w.total[t.Num])
			if away, ok := w.away[t.Num]; ok {
				if d.Domain = 1; away >= 0 {
					d.C[model.CountMovedLocal] = model.Read(uint64((1 - away) * float64(w.total[t.Num])))
				}
			}
			s.Domains = append(s.Domains, d)
		}
	}
	for _, t := range w.Tasks {
		c, x := w.count[t.Num], model.TaskSample{Num: t.Num}
		x.C[model.CountThrottled] = model.Read(0)
		x.C[model.CountRun], x.C[model.CountDelay] = model.Read(uint64(c[0])), model.Read(uint64(w.queue.delay[t.Num]))
		if x.C[model.CountUsage] = model.Read(uint64(c[0])); w.queue.poor {
			w.sample = append(w.sample, x)
			continue
		}
		x.C[model.CountUsage], x.C[model.CountLLCMisses] = model.Read(uint64(c[0])), model.Read(uint64(c[2]))
		x.C[model.CountCycles], x.C[model.CountRefCycles], x.C[model.CountInstructions] = model.Read(uint64(w.clocked[t.Num])), model.Read(uint64(c[0])), model.Read(uint64(c[1]))
		w.sample = append(w.sample, x)
	}
	s.Tasks = w.sample
	w.Beat(enginetest.Sec)
}

func (w *world) add(num model.TaskNum, cycles, instructions, misses float64) {
	c := w.count[num]
	c[0], c[1], c[2] = c[0]+cycles, c[1]+instructions, c[2]+misses
	w.clocked[num] += cycles * cmp.Or(w.clock, 1)
}

func (w *world) reading() model.Latency {
	p99 := slices.Max(w.last)
	l := model.Latency{Job: "t1", Target: 1e-3, Quantile: 0.99, Figure: model.Known(p99 / 1e3), State: model.LatencyGrey}
	switch {
	case w.silent:
		l.Figure, l.Why = model.Missing(model.Unavailable), "too few requests"
	case p99 > 1:
		l.State = model.LatencyRed
		w.red++
	case p99 > 0.95:
		l.State = model.LatencyYellow
	case p99 <= 0.8:
		l.State = model.LatencyGreen
	}
	return l
}

func (w *world) seconds(n int) {
	for range n {
		w.play()
	}
}

// holds says what BE tasks have: ways, level, CPUs.
func (w *world) holds() string {
	var list []string
	for _, t := range w.Tasks {
		if t.Class == model.BE {
			list = append(list, fmt.Sprintf("%.0f/%.0f/%.3g", w.has(t.Num, model.CacheWays, 11), w.has(t.Num, model.MemoryBandwidth, 100), w.cpus(t.Num)))
		}
	}
	return strings.Join(list, " ")
}

func (w *world) expect(t *testing.T, when, want string) {
	t.Helper()
	if got := w.holds(); got != want {
		t.Errorf("%s: %s, expected %s", when, got, want)
	}
}

const free = "11/100/2 11/100/2 11/100/2"

// What is beyond noise and next to nothing is no help: the step is taken back, and says so.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		least      float64
		kept, back int
	}{{0, 1, 0}, {0.05, 0, 1}} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.params().Least = c.least
		w.seconds(10)
		w.harms[2] = harm{ways: 0.05, cpu: 0.8, misses: 100}
		for w.seconds(10); w.Count(model.DecideKept)+w.Count(model.DecideTakenBack) == 0; w.seconds(1) {
		}
		said := slices.ContainsFunc(w.Said, func(d model.Decision) bool { return strings.HasSuffix(d.Reason, ", which is less than 5 %") })
		if kept, back := w.Count(model.DecideKept), w.Count(model.DecideTakenBack); kept != c.kept || back != c.back || said != (back > 0) {
			t.Errorf("%v at least: %d kept, %d taken back, said: %t\n%+v", c.least, kept, back, said, w.Said)
		}
	}
}

// TestStory: the ladder, rung by rung, and the way back.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeObserve, xeon(8))
	w.Log = &text
	w.Chapter("mode observe: the service is well, then task 2 fills the cache")
	w.seconds(20)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(10)
	if w.Writes > 0 {
		t.Errorf("%d writes in mode observe", w.Writes)
	}
	w.Chapter("mode enforce: task 2 has two ways; that is verified, and enough")
	w.Engine.Params.CPU.RemedyMode = model.ModeEnforce
	w.seconds(15)
	w.expect(t, "two ways", "2/100/2 11/100/2 11/100/2")
	w.Chapter("the cache is not contended any more: back by steps")
	w.harms[2] = harm{misses: 100}
	w.seconds(400)
	w.expect(t, "well", free)
	w.Chapter("task 3 lives in its cache, and hurts through memory when it has fewer ways: ways of task 2 do not help, nor those of task 3; a level does")
	w.harms[3] = harm{ways: -0.2, level: 0.6, misses: 50}
	w.seconds(40)
	w.expect(t, "a level", "11/100/2 11/10/2 11/100/2")
	w.Chapter("batch work is done: everything is given back")
	w.harms[3] = harm{misses: 50}
	w.seconds(500)
	w.expect(t, "done", free)
	w.Chapter("task 3 again: what helped these jobs is tried first")
	w.harms[3] = harm{ways: -0.2, level: 0.6, misses: 50}
	w.seconds(9)
	w.expect(t, "known", "11/100/2 11/10/2 11/100/2")
	w.harms[3] = harm{misses: 50}
	w.seconds(500)
	w.Chapter("task 2 hurts by what it computes: neither ways nor bandwidth help, CPU time does")
	w.harms[2] = harm{cpu: 0.8, misses: 100}
	w.seconds(120)
	w.expect(t, "a cap", "11/100/0.5 11/100/2 11/100/2")
	w.Chapter("the service is late for a reason of its own: nothing helps, and it is said")
	w.harms[2] = harm{misses: 100}
	w.seconds(600)
	w.state().Tried = nil
	w.own = 0.5
	w.seconds(120)
	w.expect(t, "cannot fix", free)
	if !w.state().CannotFix || w.state().Working() {
		t.Errorf("%+v", w.state())
	}
	w.reckoned(t, 2, 2, 1, 1, 0.5, 0.5, 1, 1.5, 2, 1, 2)
	w.Chapter("the kill switch, while task 2 has two ways")
	w.own, w.state().Tried, w.harms[2] = 0, nil, harm{ways: 0.5, misses: 100}
	w.seconds(20)
	if w.holds() == free {
		t.Error("nothing is held")
	}
	w.Kill = true
	w.seconds(3)
	w.expect(t, "killed", free)
	story := enginetest.Story{
		About: "/t1 is a service with a target of 1 ms, /t2 to /t4 are batch work beside it; times since the agent began",
		Want: []string{
			"mode observe", "2 ways of the cache, had 11", "mode enforce", "-> set resctrl.tasks of /t2", "kept", "not contended any more", "ways of the cache, had 2", "lives in its cache", "taken-back",
			"level 10 of memory bandwidth, had 100", "everything is given back", "tried first", "it helped these jobs before", "by what it computes", "0.5 CPU, had 1", "a reason of its own", "cannot-fix", "the kill switch",
		},
		Never: []string{"resctrl.tasks of /t1"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// reckoned: what is said of a task's caps has what it used before the first, and what it has from then on, also where a step is taken back.
func (w *world) reckoned(t *testing.T, task model.TaskNum, usage float64, want ...float64) {
	t.Helper()
	var caps []float64
	for i := range w.Said {
		d := &w.Said[i]
		if limit, ok := d.Fact(model.FactCap); ok && d.Task == task {
			if used, _ := d.Fact(model.FactUsage); used != usage || strings.Count(fmt.Sprint(d.Facts), model.FactUsage.String()) != 1 {
				t.Errorf("%s: %+v, expected a usage of %g", d.Kind, d.Facts, usage)
			}
			caps = append(caps, limit)
		}
	}
	if !slices.Equal(caps, want) {
		t.Errorf("caps %v, expected %v", caps, want)
	}
}

// Where no class is left for one task the next rung is CPU time, on a machine with one memory.
func TestClassesRunOut(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(3))
	w.seconds(10)
	w.harms[2] = harm{ways: 0.5, cpu: 0.1, misses: 100}
	w.seconds(90)
	if w.has(2, model.CacheWays, 11) != 11 || w.cpus(2) >= 2 {
		t.Errorf("%s", w.holds())
	}
	if !slices.ContainsFunc(w.Said, func(d model.Decision) bool { return strings.Contains(d.Reason, "no class of service is left") }) {
		t.Error("it is not said")
	}
}

// A class that is refused, a stranger's, a task that an operator freed, or that another policy caps: it is the next one's turn.
func TestHindered(t *testing.T) {
	for name, hinder := range map[string]func(w *world){
		"refused": func(w *world) { w.Task(2).Refuse(model.ServiceClass, "no") },
		"a stranger's ways": func(w *world) {
			w.seconds(6)
			for _, k := range w.Wide {
				k.Value = model.Ways(5)
				w.Foreign(k)
			}
		},
		"freed": func(w *world) {
			w.seconds(6)
			w.Tell(model.Command{Kind: model.CommandUncap, Task: 2})
		},
	} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.seconds(10)
		w.harms[2], w.harms[3] = harm{ways: 0.25, misses: 100}, harm{ways: 0.25, misses: 50}
		hinder(w)
		if w.seconds(30); w.has(3, model.CacheWays, 11) != 2 || w.Count(model.DecideLeftAlone) == 0 && name != "freed" {
			t.Errorf("%s: %s; said %d times who is left alone", name, w.holds(), w.Count(model.DecideLeftAlone))
		}
	}
	w := newWorld(model.ModeEnforce, &model.Classes{})
	if w.seconds(20); w.Writes > 0 || w.Count(model.DecideLeftAlone) != 1 {
		t.Errorf("without resctrl: %d writes, said %d times", w.Writes, w.Count(model.DecideLeftAlone))
	}
}

// Without a figure and without counters nothing is taken, and what was taken is given back after a while.
func TestBlind(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(15)
	w.silent = true
	w.seconds(100)
	w.expect(t, "for a while", "2/100/2 11/100/2 11/100/2")
	w.seconds(100)
	w.expect(t, "for long", free)
}

// step is a handmade view in which a service without a target has a CPI beside its threshold.
func step(w *world, s *remedy.State, cpi float64, holding bool) *policy.Wishes {
	v := w.View(model.ModeEnforce)
	if w.copying != 0 {
		v.Tasks[w.copying-1].Knobs[model.MemoryPages].Pending = true
	}
	w.NowNsec += enginetest.Sec
	v.EndsRuns, v.Results = w.ends, w.came
	v.Table, v.History, v.Holding = &w.Engine.State.Tasks, w.Engine.State.History, holding
	verdict := outlier.Good
	if cpi > 2 {
		verdict = outlier.Outlier
	}
	o := model.TaskObservation{Num: service}
	o.Raw[model.SourceCPI] = model.Known(cpi)
	v.Window = policy.Window{
		Closed: true, StartNsec: v.NowNsec - enginetest.Sec, LengthNsec: enginetest.Sec, Observation: &model.Observation{Tasks: []model.TaskObservation{o}},
		Victims: []policy.Victim{{Num: service, Source: model.SourceCPI, Verdict: verdict, Signal: cpi, Threshold: 2, Anomalous: cpi > 2, Protected: true}},
	}
	wishes := new(policy.Wishes)
	s.Step(w.params(), v, wishes)
	return wishes
}

// Who fills the cache and lives in it misses less than others, and is found first all the same where resctrl counts each task's lines; and so is
// who moves most by a prefetcher, whose lines nobody misses. Without counts others are tried first, in vain.
func TestWhoIsCounted(t *testing.T) {
	for _, counted := range []bool{false, true} {
		for _, tt := range []struct {
			hurts     harm
			right, of string // the first step with counts, and without
			lines     float64
			moved     float64
			fact      model.FactKind
			value     float64
		}{
			{harm{ways: 0.5, misses: 2}, "11/100/2 11/100/2 2/100/2", "2/100/2 11/100/2 11/100/2", 30e6, 0.1e9, model.FactOccupancy, 30e6},
			{harm{level: 0.5, misses: 2}, "11/100/2 11/100/2 11/10/2", "11/10/2 11/100/2 11/100/2", 1e6, 9e9, model.FactMoved, 9e9},
		} {
			w := newWorld(model.ModeEnforce, xeon(8))
			counts := map[model.TaskNum][2]float64{2: {2e6, 6.4e9}, 3: {4e6, 3.2e9}, 4: {1e6, 0.1e9}}
			if counted {
				w.counts = counts
			}
			w.seconds(20)
			w.harms[4], counts[4] = tt.hurts, [2]float64{tt.lines, tt.moved}
			if tt.hurts.level > 0 {
				w.fetched = map[model.TaskNum]float64{4: tt.moved}
			}
			for range 30 {
				if w.play(); w.holds() != free {
					break
				}
			}
			w.expect(t, fmt.Sprintf("counted %v", counted), map[bool]string{true: tt.right, false: tt.of}[counted])
			i := slices.IndexFunc(w.Said, func(d model.Decision) bool { return d.Kind == model.DecideDivide || d.Kind == model.DecideLevel })
			if i < 0 {
				t.Fatalf("%+v", w.Said)
			}
			if v, ok := w.Said[i].Fact(tt.fact); ok != counted || counted && math.Abs(v-tt.value) > 0.2*tt.value {
				t.Errorf("counted %v: %+v", counted, w.Said[i].Facts)
			}
		}
	}
}

// A service without a target is helped by its CPI, and nothing begins while the hard cap looks what came of a hold.
func TestByCPI(t *testing.T) {
	w := newWorld(model.ModeObserve, xeon(8))
	w.seconds(8)
	s := new(remedy.State)
	for range 8 {
		if step(w, s, 3, true); len(s.Holds) > 0 || !s.Working() {
			t.Fatalf("beside the hard cap: %+v", s)
		}
	}
	out := step(w, s, 3, false)
	if len(s.Holds) != 1 || s.Holds[0].Task != 2 || s.Holds[0].Means != remedy.Ways || len(out.Claims) == 0 {
		t.Fatalf("%+v", s)
	}
	for i := range out.Claims {
		if c := &out.Claims[i]; c.Num == service {
			t.Errorf("%+v", c)
		}
	}
}

// A step that is taken anew for another service is judged by that one.
func TestAnotherVictim(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.Add(enginetest.NewTask(5, model.LC))
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.count[5] = new([3]float64)
	for i := 0; i < 60 && (len(w.state().Holds) == 0 || w.state().Holds[0].Amount <= 2 || w.state().Trial != nil); i++ {
		w.play()
	}
	if h := w.state().Holds; len(h) != 1 || h[0].Victim != service || h[0].Amount <= 2 {
		t.Fatalf("%+v", h)
	}
	bad := model.Latency{Job: "t5", Target: 1e-3, Quantile: 0.99, Figure: model.Known(2e-3), State: model.LatencyRed}
	for range 30 {
		w.SLO = append(w.SLO, bad)
		w.play()
		if h := w.state().Holds; len(h) == 1 && h[0].Victim == 5 && w.state().Trial != nil && !w.state().Trial.Back {
			return
		}
	}
	t.Errorf("%+v", w.state())
}

// Whatever is read, no service is held, ways and levels are the machine's, and what is remembered can be written.
func TestAdversarialReadings(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, 1e300, 1e-3, 2e-3, 1}
	states := []string{model.LatencyRed, model.LatencyYellow, model.LatencyGrey, model.LatencyGreen, "", "blue"}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func() float64 { return odd[rng.IntN(len(odd))] }
		w := newWorld(model.ModeObserve, xeon(rng.IntN(9)))
		p, s, h := remedy.Defaults(), remedy.State{}, antagonist.NewHistory(4)
		p.Windows, p.QuietNsec, p.RetryNsec, p.SettleNsec = 2, 2e9, 5e9, 0
		w.seconds(1)
		v := w.View(model.ModeEnforce)
		v.Table, v.History, v.Changed = &w.Engine.State.Tasks, h, true
		for num := range model.TaskNum(4) {
			h.Ensure(num + 1)
		}
		out := new(policy.Wishes)
		for range 200 {
			v.NowNsec += rng.Int64N(3e9)
			h.Begin(v.NowNsec)
			obs := model.Observation{Memory: []model.MemoryObservation{{Domain: int32(rng.IntN(2)), Node: model.Known(pick())}}}
			for i := range 4 {
				h.PutAt(i, pick(), pick())
				h.PutMisses(i, pick())
				o := model.TaskObservation{Num: model.TaskNum(i + 1), MPKI: model.Known(pick())}
				o.Raw[model.SourceCPI], o.CPU, o.Signals[model.SourceSlowdown] = model.Known(pick()), model.Known(pick()), model.Known(pick())
				obs.Tasks = append(obs.Tasks, o)
			}
			h.End()
			waited := []int64{math.MinInt64, -1, 0, 1, 1e6, 1e9, math.MaxInt64}
			var waiting []model.Waiting
			if rng.IntN(2) == 0 {
				waiting = append(waiting, model.Waiting{Num: service, Nsec: waited[rng.IntN(7)], LongestNsec: waited[rng.IntN(7)]})
				for num := range model.TaskNum(5) {
					waiting[0].Shares = append(waiting[0].Shares, model.WaitShare{Task: num, Nsec: waited[rng.IntN(7)]})
				}
			}
			v.Window = policy.Window{Closed: rng.IntN(2) == 0, StartNsec: v.NowNsec - 1e9, LengthNsec: 1e9, Observation: &obs, Waiting: waiting}
			v.SLO = []model.Latency{{Job: "t1", Target: pick(), Figure: model.Value{V: pick(), Outcome: model.Outcome(rng.IntN(3))}, State: states[rng.IntN(len(states))]}}
			out.Reset()
			s.Step(&p, v, out)
			if _, err := json.Marshal(&s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			grant(t, seed, v, out)
		}
	}
}

// grant lets what is wished for stand at once.
func grant(t *testing.T, seed uint64, v *policy.View, w *policy.Wishes) {
	t.Helper()
	if w.AsBefore {
		return
	}
	v.Classes = v.Classes[:0]
	for i := range v.Tasks {
		v.Tasks[i].Knobs = [model.NumKnobs]policy.KnobView{}
	}
	for i := range w.Claims {
		c := &w.Claims[i]
		bound := map[model.KnobKind][2]float64{model.CacheWays: {2, 11}, model.MemoryBandwidth: {10, 100}, model.CPUBandwidth: {math.SmallestNonzeroFloat64, 1e12}, model.CPUWeight: {model.WeightIdle, model.WeightIdle}}[c.Value.Knob]
		switch {
		case c.Kind == model.ClaimCap && !(c.Cap >= bound[0] && c.Cap <= bound[1]):
			t.Fatalf("seed %d: %+v", seed, c)
		case c.Scope == model.ScopeCLOS:
			v.Classes = append(v.Classes, policy.ClassView{Target: c.Target, Kind: c.Value.Knob, KnobView: policy.KnobView{Ours: true}})
		case c.Num == service:
			t.Fatalf("seed %d: a service is held", seed)
		default:
			v.Tasks[c.Num-1].Knobs[c.Value.Knob] = policy.KnobView{Ours: true, Now: c.Value}
		}
	}
}

// A checkpoint between any two steps changes nothing.
func TestCheckpoints(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.Shadow(t, 7)
	w.seconds(10)
	w.harms[2], w.harms[3] = harm{ways: 0.3, level: 0.1, misses: 100}, harm{ways: -0.1, level: 0.3, misses: 50}
	w.seconds(300)
	if w.Count(model.DecideKept) == 0 || w.Count(model.DecideTakenBack) == 0 {
		w.Dump(t)
	}
}

// A step in which nothing is new costs no allocation.
func TestSteadyStep(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.seconds(10)
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(20)
	v := w.View(model.ModeEnforce)
	for _, k := range w.Wide {
		v.Classes = append(v.Classes, policy.ClassView{Target: k.Target, Kind: k.Value.Knob, KnobView: policy.KnobView{Ours: true, Now: k.Value}})
	}
	v.Table, v.History, v.SLO = &w.Engine.State.Tasks, w.Engine.State.History, []model.Latency{w.reading()}
	state, params, wishes := w.state(), w.params(), new(policy.Wishes)
	if a := testing.AllocsPerRun(100, func() { wishes.Reset(); state.Step(params, v, wishes) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !wishes.AsBefore || len(state.Holds) != 1 {
		t.Errorf("as before: %v, %+v", wishes.AsBefore, state.Holds)
	}
}

// While it enforces balm only observes, whatever its mode, and acts again once this policy does not.
func TestBalmObserves(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.Engine.Params.CPU.BalmMode, w.Engine.Params.CPU.Balm = model.ModeEnforce, balm.Defaults()
	w.harms[2] = harm{ways: 0.5, misses: 100}
	both := func() (ladder, other bool) {
		for range 15 {
			w.play()
			ladder = ladder || w.Claim(model.PolicyRemedy, 2, model.ServiceClass) != nil
			other = other || w.Claim(model.PolicyBalm, 2, model.ServiceClass) != nil
		}
		return ladder, other
	}
	if ladder, other := both(); !ladder || other {
		t.Errorf("remedy acts: %v, balm: %v", ladder, other)
	}
	w.Engine.Params.CPU.RemedyMode = model.ModeOff
	if ladder, other := both(); ladder || !other {
		t.Errorf("remedy is off and acts: %v; balm: %v", ladder, other)
	}
}

// What helped outlives a restart; what makes no sense does not.
func TestKnownOutlivesARestart(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(8))
	w.seconds(10)
	before := w.state().Mark()
	w.harms[2] = harm{ways: 0.5, misses: 100}
	w.seconds(12)
	kept := slices.Clone(w.state().Known)
	if len(kept) != 1 || kept[0].Victim != "t1" || kept[0].Job != "t2" || kept[0].Means != remedy.Ways || w.state().Mark() == before {
		t.Fatalf("%+v", kept)
	}
	s := new(remedy.State)
	s.Restore(append(kept, remedy.Known{Victim: "t1", Job: "t3", Means: "prayer", Effect: 1}, remedy.Known{Victim: "t1", Job: "t3", Means: remedy.CPU, Effect: 1e9}))
	if !slices.Equal(s.Known, kept) || s.Mark() != w.state().Mark() {
		t.Errorf("%+v", s.Known)
	}
}

// CPU time is taken after fewer than fifteen readings where a target is missed in all of them, and after as many where the figure swings about it.
func TestOftenIsSoonKnown(t *testing.T) {
	for swing, soon := range map[float64]bool{0: true, 0.7: false} {
		w := newWorld(model.ModeEnforce, xeon(8))
		w.params().Demote, w.params().Pool = false, false
		w.seconds(10)
		w.harms[2] = harm{cpu: 0.8, misses: 100}
		for w.second < 400 && w.Count(model.DecideCap) == 0 {
			if w.own = 0; w.second%6 < 3 {
				w.own = -swing
			}
			w.play()
		}
		if trial := w.state().Trial; trial == nil || trial.Figure.N < 15 != soon {
			t.Errorf("swing %g: second %d: %+v", swing, w.second, trial)
		}
	}
}
