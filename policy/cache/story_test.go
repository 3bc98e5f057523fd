package cache_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/policy/outlier"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// node is a service and two BE tasks on two CPUs with two caches of 11 ways, under the policy in a mode.
func node(mode model.Mode, have *model.Classes) *enginetest.Node {
	p := enginetest.Params()
	p.CPU.CacheMode, p.CPU.Cache = mode, cache.Defaults()
	p.CPU.Cache.PatienceNsec = 0
	p.Hardcap.DurationNsec = 20 * enginetest.Sec
	machine := enginetest.Flat(2)
	machine.Classes = have
	return enginetest.New(p, machine, enginetest.NewTask(1, model.LC), enginetest.NewTask(2, model.BE), enginetest.NewTask(3, model.BE))
}

func skylake() *model.Classes {
	return &model.Classes{Caches: []int32{0, 1}, Ways: 11, Least: 1, Memory: []int32{0, 1}, LeastLevel: 10, MostLevel: 100}
}

func run(n *enginetest.Node, seconds int) {
	for range seconds {
		n.Beat(enginetest.Sec)
	}
}

func class(n *enginetest.Node, task model.TaskNum) model.Setting {
	return n.Task(task).Knobs[model.ServiceClass].Value
}

var inBE, asFound = model.InClass(model.ClassBE), model.InClass(model.ClassFound)

// TestStory: what it does in which mode, and what a stranger, an operator, a task that comes and the kill switch
// change about it.
func TestStory(t *testing.T) {
	var text strings.Builder
	n := node(model.ModeObserve, skylake())
	n.Log = &text
	n.Chapter("mode observe: it says what it would do")
	run(n, 3)
	if n.Writes > 0 {
		t.Errorf("%d writes in mode observe", n.Writes)
	}
	n.Chapter("mode enforce, with a level of memory bandwidth")
	n.Engine.Params.CPU.CacheMode, n.Engine.Params.CPU.Cache.Level = model.ModeEnforce, 40
	run(n, 90) // claims are renewed meanwhile
	if class(n, 1) != asFound || class(n, 2) != inBE || class(n, 3) != inBE || len(n.Wide) != 4 {
		t.Errorf("classes %s, %s, %s; %d knobs of the class", class(n, 1), class(n, 2), class(n, 3), len(n.Wide))
	}
	for _, w := range n.Wide {
		if want := map[model.KnobKind]model.Setting{model.CacheWays: model.Ways(2), model.MemoryBandwidth: model.Level(40)}[w.Value.Knob]; w.Value != want {
			t.Errorf("%s of %s is %s", w.Value.Knob, w.Name(), w.Value)
		}
	}
	n.Chapter("another program takes a task away; it keeps it")
	n.Stranger(3, asFound)
	run(n, 3)
	n.Chapter("an operator frees the task; 20 s later it is in the class again")
	n.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
	run(n, 25)
	n.Chapter("a new task comes")
	n.Add(enginetest.NewTask(5, model.BE))
	run(n, 3)
	n.Chapter("the kill switch")
	n.Kill = true
	run(n, 3)
	for _, task := range n.Tasks {
		if now := class(n, task.Num); now != asFound {
			t.Errorf("task %d is left in %s", task.Num, now)
		}
	}
	for _, w := range n.Wide {
		if w.Ours || w.Value.Amount != 100 {
			t.Errorf("%s of %s is left at %s", w.Value.Knob, w.Name(), w.Value)
		}
	}
	story := enginetest.Story{
		About: "/t1 is a service, /t2 and /t3 are batch work on a machine with two caches of 11 ways; times since the agent began",
		Want: []string{
			"mode observe", "best-effort work gets 2 of 11 ways", "mode enforce", "and level 40 of memory bandwidth",
			"-> set resctrl.tasks of /t2: applied, now class be", "-> set resctrl.tasks of /t3",
			"-> hold schemata.L3 of class be, domain 0: applied, now 2 ways", "-> hold schemata.MB of class be, domain 1: applied, now level 40",
			"another program", "foreign     /t3", "left-alone  /t3", "an operator frees", "-> set resctrl.tasks of /t3",
			"a new task", "-> set resctrl.tasks of /t5", "the kill switch", "-> release resctrl.tasks of /t2", "-> release schemata.L3 of class be, domain 0",
		},
		Never: []string{"resctrl.tasks of /t1"},
		Once:  []string{"foreign     /t3"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// BE has a few ways of the L2s by one knob, where the machine has such and somebody says so, and of its own those alone where there are no
// others; it is compared and given back like the rest.
func TestL2(t *testing.T) {
	for name, tt := range map[string]struct {
		l2Ways, l3Ways, asked int
		want                  int64
		note                  string
	}{
		"asked for":     {16, 11, 3, 3, "2 of 2 BE tasks have 2 of 11 ways of each last-level cache, and 3 of 16 ways of each L2"},
		"nothing else":  {16, 2, 3, 3, "2 of 2 BE tasks have 3 of 16 ways of each L2"},
		"not asked for": {16, 11, 0, -1, "2 of 2 BE tasks have 2 of 11 ways of each last-level cache"},
		"none there":    {0, 11, 3, -1, "2 of 2 BE tasks have 2 of 11 ways of each last-level cache"},
		"no more":       {3, 11, 3, -1, "2 of 2 BE tasks have 2 of 11 ways of each last-level cache"},
	} {
		have := skylake()
		have.Ways, have.L2Ways, have.L2Least = tt.l3Ways, tt.l2Ways, 1
		n := node(model.ModeEnforce, have)
		n.Engine.Params.CPU.Cache.L2Ways = tt.asked
		run(n, 30)
		got := int64(-1)
		for _, w := range n.Wide {
			if w.Value.Knob == model.L2Ways && w.Ours {
				got = w.Value.Amount
			}
		}
		if note := n.Engine.State.CPU.Cache.Note(model.ModeEnforce); got != tt.want || note != tt.note {
			t.Errorf("%s: %d ways of the L2s; %s", name, got, note)
		}
	}
	b := newBench(1)
	b.v.Topology.Classes.L2Ways, b.p.L2Ways, b.p.Ways = 16, 3, 64
	for range 100 {
		b.window(1)
	}
	if len(b.said) != 1 || b.said[0].Kind != model.DecideTakenBack || !strings.Contains(b.said[0].Reason, "with 3 of 16 ways of each L2 for") || b.divided() {
		t.Errorf("of no use: %+v", b.said)
	}
	if _, why := (&cache.Params{L2Ways: 1}).Check(); why == "" {
		t.Error("one way is taken")
	}
}

// Where there is nothing to divide it is said once, and nothing is claimed.
func TestNothingToDivide(t *testing.T) {
	few := skylake()
	few.Ways, few.Memory = 2, nil
	for name, have := range map[string]*model.Classes{"no resctrl": {}, "not asked yet": nil, "two ways": few} {
		n := node(model.ModeEnforce, have)
		run(n, 30)
		if n.Writes+n.Claims() > 0 || n.Count(model.DecideLeftAlone) != 1 {
			t.Errorf("%s: %d writes, %d claims, said %d times", name, n.Writes, n.Claims(), n.Count(model.DecideLeftAlone))
		}
	}
}

// bench is the policy by itself: windows in which LC's CPI is what a test says.
type bench struct {
	p     cache.Params
	s     cache.State
	v     policy.View
	w     policy.Wishes
	said  []model.Decision
	noise *rand.Rand
	mask  policy.KnobView // what becomes of the class's ways

	observed *model.Observation
}

func newBench(seed uint64) *bench {
	b := &bench{p: cache.Defaults(), noise: rand.New(rand.NewPCG(seed, 1)), mask: policy.KnobView{Ours: true}}
	b.v = policy.View{Mode: model.ModeEnforce, Topology: &model.Topology{Classes: skylake()}, Changed: true}
	for num, class := range []model.Class{model.LC, model.LC, model.BE} {
		b.v.Tasks = append(b.v.Tasks, policy.TaskView{Task: model.Task{Num: model.TaskNum(num + 1), Class: class}})
	}
	return b
}

// window plays a window in which each service's CPI is so much of what is normal of it, 0: not known, and does what
// is wished.
func (b *bench) window(of float64) { b.windowOf([2]float64{of, of}) }

// windowOf is such a window in which the two fare differently.
func (b *bench) windowOf(of [2]float64) {
	b.v.NowNsec += 10e9
	b.v.Window = policy.Window{Closed: true, LengthNsec: 10e9, Observation: b.observed}
	for i, mean := range []float64{0.8, 2.5} {
		if of[i] == 0 {
			break // nobody can tell
		}
		cpi := mean * of[i] * math.Exp(0.03*b.noise.NormFloat64())
		b.v.Window.Victims = append(b.v.Window.Victims, policy.Victim{
			Num: model.TaskNum(i + 1), Source: model.SourceCPI, Verdict: outlier.Good, Signal: cpi, Spec: &model.Spec{Mean: mean},
		})
	}
	b.w.Reset()
	b.s.Step(&b.p, &b.v, &b.w)
	b.said = append(b.said, b.w.Decisions...)
	if b.v.Changed = false; b.w.AsBefore {
		return
	}
	was := b.placed()
	for i := range b.v.Tasks {
		b.v.Tasks[i].Knobs[model.ServiceClass].Ours = false
	}
	b.v.Classes = b.v.Classes[:0]
	for i := range b.w.Claims {
		switch c := &b.w.Claims[i]; c.Scope {
		case model.ScopeCLOS:
			mask := b.mask
			mask.Now = model.Setting{Knob: c.Value.Knob, Amount: int64(c.Cap)}
			b.v.Classes = append(b.v.Classes, policy.ClassView{Target: c.Target, Kind: c.Value.Knob, KnobView: mask})
		case model.ScopeTask:
			b.v.Tasks[c.Num-1].Knobs[model.ServiceClass].Ours = true
		}
	}
	b.v.Changed = b.placed() != was
}

// placed counts the tasks that are in a class.
func (b *bench) placed() (n int) {
	for i := range b.v.Tasks {
		n += policy.One(b.v.Tasks[i].Knobs[model.ServiceClass].Ours)
	}
	return n
}

func (b *bench) divided() bool { return b.v.Tasks[2].Knobs[model.ServiceClass].Ours }

// It waits until it knows how LC does without, keeps the division where LC is better off, else gives it back for an
// hour, and then tries once more. That a spec is learned anew meanwhile changes nothing.
func TestComparesBeforeAndAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		with float64
		kept bool
	}{"better": {0.9, true}, "as before": {1, false}, "worse": {1.15, false}} {
		wrong := 0
		for seed := range uint64(100) {
			b := newBench(seed)
			for n := range 200 {
				with := 1.0
				if b.divided() {
					with = tt.with
				}
				if b.window(with); n < b.p.Windows-1 && b.divided() {
					t.Fatalf("%s: divided after %d windows", name, n+1)
				}
			}
			wrong += len(b.said) - 1
			if kind := b.said[0].Kind; (kind == model.DecideKept) != tt.kept || b.divided() != tt.kept {
				wrong++
			}
			for range 300 { // an hour is 360 windows
				b.window(1)
			}
			if !tt.kept && len(b.said) < 2 {
				t.Errorf("%s, seed %d: an hour later it is not tried again", name, seed)
			}
		}
		if wrong > 3 { // of 100, by chance
			t.Errorf("%s: wrong in %d of 100", name, wrong)
		}
	}
}

// A CPI that fell is not put down to the division where services miss the cache more, or as often while batch work fills as much of it; with a level
// of memory bandwidth, where nobody counts, and where an operator says so, the CPI alone counts. Both figures are told.
func TestMissesAndOccupancyHaveTheirSay(t *testing.T) {
	type is struct{ misses, lines float64 }
	for name, c := range map[string]struct {
		with  is
		level int
		alone bool
		kept  bool
		says  string
	}{
		"fewer misses":                 {is{0.7, 0.3}, 0, false, true, "services miss the cache 0."},
		"fewer lines":                  {is{1, 0.3}, 0, false, true, "and fills 0."},
		"nothing moved":                {is{1, 1}, 0, false, false, "as often and best-effort work fills as much"},
		"more misses":                  {is{1.4, 0.3}, 0, false, false, "services miss the cache more"},
		"nothing moved but the level":  {is{1, 1}, 40, false, true, ""},
		"nobody counts":                {is{}, 0, false, true, ""},
		"the CPI alone, by the switch": {is{1, 1}, 0, true, true, ""},
	} {
		wrong := 0
		for seed := range uint64(50) {
			b := newBench(seed)
			b.p.Level, b.p.Counted = c.level, !c.alone
			for range 60 {
				with, now := 1.0, is{1, 1}
				if b.divided() {
					with, now = 0.9, c.with
				}
				if c.with.lines > 0 {
					b.observed = b.counted(now.misses, now.lines)
				}
				b.window(with)
			}
			if b.divided() != c.kept || !strings.Contains(b.said[0].Reason, c.says) {
				wrong++
				t.Log(name, seed, b.said)
			}
		}
		if wrong > 5 { // by chance: two figures
			t.Errorf("%s: wrong in %d of 50", name, wrong)
		}
	}
}

// counted is what counters say of a window in which services miss, and batch work fills, so much of what is normal.
func (b *bench) counted(misses, lines float64) *model.Observation {
	about := func(x float64) model.Value { return model.Known(x * math.Exp(0.03*b.noise.NormFloat64())) }
	return &model.Observation{
		// The first misses next to nothing, and more of it where the other misses less.
		Tasks: []model.TaskObservation{{Num: 1, MPKI: about(0.01 / misses)}, {Num: 2, MPKI: about(9 * misses)}, {Num: 3, MPKI: about(20)}},
		Domains: []model.DomainObservation{
			{Num: 3, Domain: 0, Occupancy: about(1e7 * lines), Total: about(1e9)}, {Num: 3, Domain: 1, Occupancy: about(2e7 * lines), Total: about(1e9)},
		},
	}
}

// Tasks in the class are no division: where its ways are refused, or another program's, nothing is judged.
func TestOnlyWhatStandsIsJudged(t *testing.T) {
	for name, mask := range map[string]policy.KnobView{
		"refused": {Refused: true, Why: "invalid argument"}, "another program's": {Void: true, Why: "found 3 ways"}, "on its way": {Pending: true},
	} {
		b := newBench(1)
		b.mask = mask
		for range 100 {
			b.window(1.3)
		}
		if len(b.said) > 0 || b.s.Stands > 0 || b.s.After.Windows > 0 || !b.divided() {
			t.Errorf("%s: %d tasks stand, %d windows after, %+v", name, b.s.Stands, b.s.After.Windows, b.said)
		}
		b.mask = policy.KnobView{Ours: true}
		b.v.Changed = true
		for range 30 {
			b.window(1.3)
		}
		if len(b.said) != 1 || b.said[0].Kind != model.DecideKept && b.said[0].Kind != model.DecideTakenBack {
			t.Errorf("%s, and then it stands: %+v", name, b.said)
		}
	}
}

// While policy remedy is at work, or balm has something on trial, no window counts, and no patience is lost: nothing is divided in the midst of trials, unlooked at.
func TestPatienceWhileRemedying(t *testing.T) {
	for _, balm := range []bool{false, true} {
		patience(t, balm)
	}
}

func patience(t *testing.T, balm bool) {
	b := newBench(1)
	if b.v.Remedying = !balm; balm {
		b.v.OnTrial = []policy.OnTrial{{Task: 2, Policy: model.PolicyBalm, Domains: b.v.Topology.Classes.Memory[:1]}}
	}
	for from := b.v.NowNsec; b.v.NowNsec < from+2*b.p.PatienceNsec; {
		if b.window(1); b.divided() {
			t.Fatalf("divided after %d s of trials", (b.v.NowNsec-from)/1e9)
		}
	}
	b.v.Remedying, b.v.OnTrial = false, nil
	for range b.p.Windows + 2 {
		b.window(1)
	}
	if !b.divided() {
		t.Error("not divided with as many windows as it takes")
	}
}

// Where no counters tell of LC it divides after a while, and judges nothing.
func TestWithoutCounters(t *testing.T) {
	b := newBench(1)
	for b.v.NowNsec < b.p.PatienceNsec-20e9 {
		b.window(0)
	}
	if b.divided() {
		t.Error("divided before its patience was over")
	}
	for range 100 {
		b.window(0)
	}
	if !b.divided() || len(b.said) > 0 {
		t.Errorf("divided: %t; %+v", b.divided(), b.said)
	}
}

// A step in which nothing is new costs no allocation.
func TestSteadyStep(t *testing.T) {
	n := node(model.ModeEnforce, skylake())
	run(n, 5)
	v := n.View(model.ModeEnforce)
	state, params := &n.Engine.State.CPU.Cache, &n.Engine.Params.CPU.Cache
	w := new(policy.Wishes)
	if a := testing.AllocsPerRun(100, func() { w.Reset(); state.Step(params, v, w) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !w.AsBefore {
		t.Error("it wishes anew although nothing changed")
	}
}
