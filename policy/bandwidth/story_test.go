package bandwidth_test

import (
	"flag"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/bandwidth"
	"github.com/commensal-io/commensal/policy/cache"
	"github.com/commensal-io/commensal/policy/outlier"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

func skylake() *model.Classes {
	return &model.Classes{Caches: []int32{0, 1}, Ways: 11, Least: 1, Memory: []int32{0, 1}, LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: model.LevelPercent}
}

// world is a service and two BE tasks on two sockets under the policy. What BE asks of memory is a test's; windows of
// ten seconds are read as node/linux does, a window late.
type world struct {
	*enginetest.Node
	lc, be  [2]float64 // GB/s that they would move
	latency bool       // it is known
	blind   bool       // nothing can be read
	mem     [2]model.MemorySample
	read    []model.MemorySample
}

func newWorld(mode model.Mode, have *model.Classes) *world {
	p := enginetest.Params()
	p.CPU.BandwidthMode, p.CPU.Bandwidth = mode, bandwidth.Defaults()
	p.CPU.Bandwidth.Peak = 100
	p.Hardcap.DurationNsec = 20 * enginetest.Sec
	machine := enginetest.Flat(2)
	machine.Classes = have
	w := &world{Node: enginetest.New(p, machine, enginetest.NewTask(1, model.LC), enginetest.NewTask(2, model.BE), enginetest.NewTask(3, model.BE)), latency: true}
	w.lc = [2]float64{10, 10}
	return w
}

// level is what the class has in a domain.
func (w *world) level(domain int32) int64 {
	for _, k := range w.Wide {
		if k.Target == model.OfClass(model.ClassBE, domain) && k.Value.Knob == model.MemoryBandwidth {
			return k.Value.Amount
		}
	}
	return 100
}

// moves is what BE moves in a domain: the response to levels is steep, and memory delivers no more than its peak.
func (w *world) moves(d int) (be, node, latency float64) {
	be = min(w.be[d], 2.6*float64(w.level(int32(d))))
	node = min(100, w.lc[d]+be)
	be = node - w.lc[d]
	return be, node, 130 * (1 + math.Pow(node/100, 6))
}

// window plays a window.
func (w *world) window() {
	for range 10 {
		for d := range w.mem {
			be, node, latency := w.moves(d)
			m := &w.mem[d]
			m.Domain, m.MonoNsec = int32(d), w.NowNsec+enginetest.Sec
			add := func(c model.MemoryCounter, v float64) { m.C[c] = model.Read(m.C[c].Value + uint64(v*1e9)) }
			add(model.CountMemTotal, node)
			add(model.CountMemLocal, node)
			add(model.CountMemBE, be)
			if m.C[model.CountMemLatency] = (model.Counter{}); w.latency {
				m.C[model.CountMemLatency] = model.Read(uint64(latency))
			}
		}
		if w.NowNsec%(10*enginetest.Sec) == 9*enginetest.Sec {
			s := w.Snapshot()
			s.Mark, s.Memory = model.WindowStart|model.WindowEnd, w.read
			if w.read = append([]model.MemorySample(nil), w.mem[:]...); w.blind {
				w.read = nil
			}
		}
		w.Beat(enginetest.Sec)
	}
}

func (w *world) windows(n int) {
	for range n {
		w.window()
	}
}

func (w *world) params() *bandwidth.Params { return &w.Engine.Params.CPU.Bandwidth }

// TestStory: what it does in which mode, while BE comes and goes, and what a stranger, cache and the kill switch change
// about it.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeObserve, skylake())
	w.Log = &text
	w.Chapter("mode observe: memory 0 is busy and slow")
	w.be = [2]float64{200, 5}
	w.windows(4)
	if w.Writes > 0 {
		t.Errorf("%d writes in mode observe", w.Writes)
	}
	w.Chapter("mode enforce: down at once, up by one step")
	w.Engine.Params.CPU.BandwidthMode = model.ModeEnforce
	w.windows(12)
	if w.level(0) == 100 || w.level(1) != 100 {
		t.Errorf("levels %d and %d", w.level(0), w.level(1))
	}
	w.Chapter("nothing can be read for a while: it stays as it is")
	w.blind = true
	w.windows(2) // what was read before is told yet
	at := w.level(0)
	w.windows(5)
	if w.level(0) != at {
		t.Errorf("level %d, was %d", w.level(0), at)
	}
	w.blind = false
	w.Chapter("batch work is done: the limit goes step by step")
	w.be = [2]float64{3, 5}
	w.windows(24)
	if w.level(0) != 100 {
		t.Errorf("level %d is left", w.level(0))
	}
	w.Chapter("cache begins to compare: this policy rests, although memory is slow")
	w.Engine.Params.CPU.CacheMode, w.Engine.Params.CPU.Cache = model.ModeEnforce, cache.Defaults()
	w.be = [2]float64{200, 5}
	w.windows(6)
	if w.level(0) != 100 {
		t.Errorf("level %d while cache compares", w.level(0))
	}
	w.Chapter("cache is off again")
	w.Engine.Params.CPU.CacheMode = model.ModeOff
	w.windows(4)
	if w.level(0) == 100 {
		t.Error("no limit after the rest")
	}
	w.Chapter("the kill switch")
	w.Kill = true
	w.windows(1)
	for _, k := range w.Wide {
		if k.Ours || k.Value.Amount != 100 {
			t.Errorf("%s is left at %s", k.Name(), k.Value)
		}
	}
	story := enginetest.Story{
		About: "/t1 is a service, /t2 and /t3 are batch work on a machine with two memories of 100 GB/s; times since the agent began",
		Want: []string{
			"mode observe", "memory bandwidth is divided by utilisation and latency", "P 20; level 20", "mode enforce", "-> set resctrl.tasks of /t2",
			"-> hold schemata.MB of class be, domain 0: applied, now level", "batch work is done", "level 100 of memory bandwidth",
			"cache begins to compare", "cache is off", "level", "the kill switch", "-> release schemata.MB of class be, domain 0",
		},
		Never: []string{"resctrl.tasks of /t1", "class be, domain 1: applied, now level"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// Where there are no levels, or nobody can tell U, it is said once, and nothing is limited.
func TestNothingToGoBy(t *testing.T) {
	for name, tt := range map[string]struct {
		have  *model.Classes
		blind bool
		peak  float64
	}{"no resctrl": {&model.Classes{}, false, 100}, "not asked yet": {nil, false, 100}, "nothing is counted": {skylake(), true, 100}, "no peak": {skylake(), false, 0}} {
		w := newWorld(model.ModeEnforce, tt.have)
		w.be, w.blind, w.params().Peak = [2]float64{200, 200}, tt.blind, tt.peak
		w.windows(10)
		if w.Count(model.DecideLevel) > 0 || len(w.Wide) > 0 {
			t.Errorf("%s: %d levels decided", name, w.Count(model.DecideLevel))
		}
		if n := w.Count(model.DecideLeftAlone); n != 1 {
			t.Errorf("%s: said %d times", name, n)
		}
	}
	w := newWorld(model.ModeEnforce, skylake())
	w.be, w.params().Peak, w.params().LearnNsec = [2]float64{200, 200}, 0, 60e9
	if w.windows(14); w.level(0) == 100 {
		t.Error("the largest rate that was seen is not taken for the peak")
	}
}

// Without latency U alone decides where no services' CPI is known.
func TestWithoutLatency(t *testing.T) {
	w := newWorld(model.ModeEnforce, skylake())
	w.latency, w.be = false, [2]float64{60, 60}
	w.windows(6)
	if w.Engine.State.CPU.Bandwidth.Basis != bandwidth.ByUse || w.level(0) == 100 {
		t.Errorf("by %q, level %d", w.Engine.State.CPU.Bandwidth.Basis, w.level(0))
	}
}

// A stranger's level stays as it is, and nothing is judged by it.
func TestStrangersLevel(t *testing.T) {
	w := newWorld(model.ModeEnforce, skylake())
	w.be = [2]float64{200, 200}
	w.windows(6)
	for _, k := range w.Wide {
		if k.Domain == 0 && k.Value.Knob == model.MemoryBandwidth {
			k.Value = model.Level(70)
			w.Foreign(k)
		}
	}
	w.windows(6)
	if d := w.Engine.State.CPU.Bandwidth.Domains; w.level(0) != 70 || !d[0].Void || d[1].Void || w.level(1) == 100 {
		t.Errorf("levels %d and %d, %+v", w.level(0), w.level(1), d)
	}
}

// bench is the policy by itself: what is read, and what LC's CPI is, is the test's.
type bench struct {
	p     bandwidth.Params
	s     bandwidth.State
	v     policy.View
	w     policy.Wishes
	said  []model.Decision
	noise *rand.Rand
	level int     // in force, of memory 0
	ran   float64 // CPU time of BE; 0: nobody can tell
	late  bool    // the window's reading of memory is not there yet
}

func newBench(seed uint64) *bench {
	b := &bench{p: bandwidth.Defaults(), noise: rand.New(rand.NewPCG(seed, 1)), level: 100}
	b.p.Peak = 100
	b.v = policy.View{Mode: model.ModeEnforce, Topology: &model.Topology{Classes: skylake()}, Changed: true}
	b.v.Topology.Classes.Memory = []int32{0}
	for num, class := range []model.Class{model.LC, model.LC, model.BE} {
		b.v.Tasks = append(b.v.Tasks, policy.TaskView{Task: model.Task{Num: model.TaskNum(num + 1), Class: class}})
	}
	return b
}

// window plays a window of ten seconds in which BE moves some GB/s, memory answers within a time, and each service's
// CPI is so much of what is normal of it; and does what is wished.
func (b *bench) window(be, latency, of float64) {
	from := b.v.NowNsec
	b.v.NowNsec += 10e9
	rate := model.Known(be * 1e9)
	b.v.Window = policy.Window{Closed: true, StartNsec: from, LengthNsec: 10e9, Observation: &model.Observation{Memory: []model.MemoryObservation{
		{FromNsec: from, ToNsec: b.v.NowNsec, Total: rate, Local: rate, BE: rate, Node: rate, Latency: model.Known(latency)},
	}}}
	if b.ran > 0 {
		b.v.Window.Observation.Tasks = []model.TaskObservation{{Num: 3, CPU: model.Known(b.ran)}}
	}
	if b.late {
		b.v.Window.Observation.Memory = nil
	}
	for i, mean := range []float64{0.8, 2.5} {
		cpi := mean * of * math.Exp(0.02*b.noise.NormFloat64())
		b.v.Window.Victims = append(b.v.Window.Victims, policy.Victim{
			Num: model.TaskNum(i + 1), Source: model.SourceCPI, Verdict: outlier.Good, Signal: cpi, Threshold: 2 * mean, Spec: &model.Spec{Mean: mean},
		})
	}
	b.step()
}

func (b *bench) step() {
	b.w.Reset()
	b.s.Step(&b.p, &b.v, &b.w)
	b.said = append(b.said, b.w.Decisions...)
	if b.w.AsBefore {
		b.v.Changed = false
		return
	}
	before := b.level
	b.level, b.v.Classes = 100, b.v.Classes[:0]
	for i := range b.w.Claims {
		if c := &b.w.Claims[i]; c.Scope == model.ScopeCLOS {
			b.level = int(c.Cap)
			b.v.Classes = append(b.v.Classes, policy.ClassView{Target: c.Target, Kind: c.Value.Knob, KnobView: policy.KnobView{Ours: true, Now: model.Level(int64(c.Cap))}})
		}
	}
	b.v.Tasks[2].Knobs[model.ServiceClass].Ours = true
	b.v.Changed = before != b.level
}

func (b *bench) count(kind model.DecisionKind) (n int) {
	for i := range b.said {
		if b.said[i].Kind == kind {
			n++
		}
	}
	return n
}

// A limit that helps is kept; one that does not is taken back for an hour, and then tried again.
func TestComparesWithAndWithout(t *testing.T) {
	for name, tt := range map[string]struct {
		without float64 // LC's CPI while BE has no limit
		kept    bool
	}{"it helps": {1.3, true}, "it does not": {1, false}} {
		wrong := 0
		for seed := range uint64(100) {
			b := newBench(seed)
			for range 150 {
				be := min(90, 2.6*float64(b.level))
				of, latency := 1.0, 130.0
				if be > 70 {
					of, latency = tt.without, 250
				}
				b.window(be, latency, of)
			}
			kept, back := b.count(model.DecideKept), b.count(model.DecideTakenBack)
			if tt.kept && (kept == 0 || back > 0) || !tt.kept && (back == 0 || kept > 0) {
				wrong++
			}
			if !tt.kept && back > 0 && b.level != 100 {
				t.Errorf("seed %d: level %d although it does not help", seed, b.level)
			}
		}
		if wrong > 3 { // of 100, by chance
			t.Errorf("%s: wrong in %d of 100", name, wrong)
		}
	}
}

// The search finds the highest level that LC does not feel, whatever latency says, and stays about there.
func TestSearch(t *testing.T) {
	for _, knee := range []int{20, 50, 80, 200} {
		for seed := range uint64(20) {
			b := newBench(seed)
			b.p.Adaptive = true
			sum, n := 0, 0
			for i := range 120 {
				of := 1.0
				if b.level > knee {
					of = 1.12
				}
				if b.window(float64(b.level), 1, of); i >= 60 {
					sum, n = sum+b.level, n+1
				}
			}
			if mean, want := float64(sum)/float64(n), float64(min(knee, 100)); math.Abs(mean-want) > 10 {
				t.Errorf("seed %d: LC suffers above level %d; the mean is %.0f", seed, knee, mean)
			}
		}
	}
}

// Whatever is read, levels are the machine's, and nothing that is remembered is NaN or infinite.
func TestAdversarialReadings(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, 1e300, 50, 250}
	for seed := range uint64(300) {
		b := newBench(seed)
		b.p.Adaptive, b.p.Peak = seed%2 == 0, []float64{0, 100, 1e-9}[seed%3]
		b.p.LearnNsec = 0
		pick := func() float64 { return odd[b.noise.IntN(len(odd))] }
		for range 60 {
			b.window(pick(), pick(), 1)
			from := b.v.NowNsec
			if b.noise.IntN(3) == 0 {
				b.v.NowNsec += int64(b.noise.IntN(3)) - 1
			}
			for i := range b.v.Window.Victims {
				x := &b.v.Window.Victims[i]
				x.Signal, x.Threshold, x.MPKI = pick(), pick(), model.Known(pick())
			}
			m := &b.v.Window.Observation.Memory[0]
			m.FromNsec, m.ToNsec = from-int64(b.noise.IntN(3))*5e9, from+int64(b.noise.IntN(3))-1
			m.Latency.Outcome = model.Outcome(b.noise.IntN(5))
			b.step()
			if b.level < 10 || b.level > 100 || b.level%10 != 0 {
				t.Fatalf("seed %d: level %d", seed, b.level)
			}
			if _, err := jsonOf(&b.s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// A step in which nothing is new costs no allocation.
func TestSteadyStep(t *testing.T) {
	w := newWorld(model.ModeEnforce, skylake())
	w.windows(5)
	v := w.View(model.ModeEnforce)
	state, params := &w.Engine.State.CPU.Bandwidth, &w.Engine.Params.CPU.Bandwidth
	wishes := new(policy.Wishes)
	if a := testing.AllocsPerRun(100, func() { wishes.Reset(); state.Step(params, v, wishes) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !wishes.AsBefore {
		t.Error("it wishes anew although nothing changed")
	}
}

// Levels that count otherwise from now on (resctrl was mounted anew, with mba_MBps): no limit is one of those, too, and 100 of them is none of per cent.
func TestLevelsCountOtherwise(t *testing.T) {
	w := newWorld(model.ModeEnforce, skylake())
	w.be = [2]float64{5, 5}
	w.windows(4)
	machine := *w.Topology
	machine.Classes = skylake()
	machine.Classes.LeastLevel, machine.Classes.MostLevel, machine.Classes.LevelStep, machine.Classes.LevelUnit = 1, math.MaxUint32, 1, model.LevelMiB
	w.Plug(&machine)
	w.windows(4)
	if d := w.Engine.State.CPU.Bandwidth.Domains; len(w.Wide) > 0 || d[0].Limited || d[0].Level != math.MaxUint32 {
		t.Errorf("%d writes to classes, %+v", len(w.Wide), d)
	}
}
