package balm_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/balm"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// xeon has two memories of 8 classes, of which others hold some.
func xeon(taken int) *model.Classes {
	return &model.Classes{
		Caches: []int32{0, 1}, Ways: 11, Least: 1, Memory: []int32{0, 1}, LeastLevel: 10, MostLevel: 100, LevelStep: 10, LevelUnit: model.LevelPercent,
		IDs: 8, Taken: taken, Domains: []model.Domain{{ID: 0, CPUs: cpu(0)}, {ID: 1, CPUs: cpu(1)}},
	}
}

func cpu(n int) (set model.CPUSet) {
	set.Add(n)
	return set
}

const service = model.TaskNum(1)

// world is a service on socket 0 and BE tasks on both. What each draws is the test's; the service is the slower the
// busier memory 0 is, and its source looks back over three seconds.
type world struct {
	*enginetest.Node
	free      int64                     // the level that is no limit
	own       float64                   // GB/s of the service
	asks      map[model.TaskNum]float64 // GB/s that a BE task would move
	remote    float64                   // share of socket 1's traffic that goes to memory 0
	shared    bool                      // that is no other memory: resctrl counts it as local
	gone      map[model.TaskNum]float64 // share of a socket 0 task's pages that were moved to memory 1
	other     float64                   // ms that the service takes for another reason
	homes     []model.PageHomes
	counted   bool      // the service's misses are counted
	uncounted bool      // nobody tells what memory moves
	silent    bool      // its source has no valid figure
	last      []float64 // ms, of the last seconds
	missed    map[model.TaskNum]uint64
	memory    [2]model.MemorySample
	sample    []model.TaskSample
	red       int // seconds
}

// newWorld makes tasks 2 and 3 on socket 0, of which 3 draws more, and 4 on socket 1.
func newWorld(mode model.Mode, have *model.Classes) *world {
	p := enginetest.Params()
	p.CPU.BalmMode, p.CPU.Balm = mode, balm.Defaults()
	p.CPU.Balm.Pages = false // newPagesWorld
	machine := enginetest.Flat(2)
	machine.CPUs[1].Node, machine.CPUs[1].Socket = 1, 1
	machine.Classes = have
	w := &world{free: int64(have.MostLevel), own: 10, asks: map[model.TaskNum]float64{2: 15, 3: 60, 4: 40}, missed: map[model.TaskNum]uint64{}}
	tasks := []*enginetest.Task{enginetest.NewTask(1, model.LC).CPUs(cpu(0))}
	for num, at := range []int{0, 0, 1} {
		tasks = append(tasks, enginetest.NewTask(num+2, model.BE).CPUs(cpu(at)))
	}
	w.Node = enginetest.New(p, machine, tasks...)
	return w
}

func (w *world) params() *balm.Params { return &w.Engine.Params.CPU.Balm }
func (w *world) state() *balm.State   { return &w.Engine.State.CPU.Balm }

// level is what a task's class has on its socket.
func (w *world) level(num model.TaskNum) int64 {
	t := w.Task(num)
	class, domain := model.TaskNum(t.Knobs[model.ServiceClass].Value.Amount), int32(0)
	if t.Knobs[model.CPUPlace].Value.CPUs == cpu(1) {
		domain = 1
	}
	for _, k := range w.Wide {
		if class != model.ClassFound && k.Target == model.OfClass(class, domain) && k.Value.Knob == model.MemoryBandwidth {
			return k.Value.Amount
		}
	}
	return w.free
}

// moves is what a BE task moves, GB/s: half of what it could is left at level 50.
func (w *world) moves(num model.TaskNum) float64 {
	if unit := w.Topology.Classes.LevelBytes(); unit > 0 {
		return min(w.asks[num], float64(w.level(num))*unit/1e9)
	}
	return min(w.asks[num], 0.8*float64(w.level(num)))
}

// second plays one.
func (w *world) second() {
	busy := w.own
	if w.counted {
		w.missed[service] += uint64(w.own * 1e9 / 64)
	}
	var total, local [2]float64
	total[0], local[0] = w.own, w.own
	for _, t := range w.Tasks {
		if t.Class != model.BE {
			continue
		}
		gb := w.moves(t.Num)
		w.missed[t.Num] += uint64(gb * 1e9 / 64)
		if t.Knobs[model.CPUPlace].Value.CPUs == cpu(1) {
			total[1], local[1] = total[1]+gb, local[1]+gb*(1-w.remote)
			if w.shared {
				local[1] += gb * w.remote
			}
			busy += gb * w.remote
			continue
		}
		near := gb * (1 - w.gone[t.Num])
		total[0], local[0] = total[0]+gb, local[0]+near
		busy += near
	}
	for d := range w.memory {
		m := &w.memory[d]
		m.Domain, m.MonoNsec = int32(d), w.NowNsec+enginetest.Sec
		m.C[model.CountMemTotal] = model.Read(m.C[model.CountMemTotal].Value + uint64(total[d]*1e9))
		m.C[model.CountMemLocal] = model.Read(m.C[model.CountMemLocal].Value + uint64(local[d]*1e9))
	}
	w.last = append(w.last[max(0, len(w.last)-2):], 0.45*(1+math.Pow(busy/60, 6))+w.other)
	w.SLO = append(w.SLO, w.reading())
	s := w.Snapshot()
	s.Mark, s.Memory, s.Homes = model.WindowStart|model.WindowEnd, w.memory[:], w.homes
	if w.uncounted {
		s.Memory = nil
	}
	w.sample = w.sample[:0]
	for _, t := range w.Tasks {
		x := model.TaskSample{Num: t.Num}
		x.C[model.CountLLCMisses], x.C[model.CountUsage] = model.Read(w.missed[t.Num]), model.Read(uint64(w.NowNsec))
		w.sample = append(w.sample, x)
	}
	s.Tasks = w.sample
	w.Beat(enginetest.Sec)
}

// reading is the worst of the last seconds beside a target of 1 ms.
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
		w.second()
	}
}

// levels are those of the BE tasks.
func (w *world) levels() string {
	var list []string
	for _, t := range w.Tasks {
		if t.Class == model.BE {
			list = append(list, fmt.Sprint(w.level(t.Num)))
		}
	}
	return strings.Join(list, " ")
}

func (w *world) expect(t *testing.T, when, levels string) {
	t.Helper()
	if got := w.levels(); got != levels {
		t.Errorf("%s: levels %s, expected %s", when, got, levels)
	}
}

// TestStory: what it does in which mode, one task after the other and back, and when trouble is none of memory's.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeObserve, xeon(1))
	w.Log = &text
	w.Chapter("mode observe: tasks 2 and 3 read memory 0, and the service is late")
	w.seconds(8)
	if w.Writes > 0 {
		t.Errorf("%d writes in mode observe", w.Writes)
	}
	w.Chapter("mode enforce: task 3, which draws most, has the lowest level at once; that is enough")
	w.Engine.Params.CPU.BalmMode = model.ModeEnforce
	w.seconds(4)
	w.expect(t, "at once", "100 10 100")
	w.Chapter("the service is well: step by step, until that brings trouble, and a step down again")
	w.seconds(40)
	if got := w.level(3); got < 20 || got > 50 || w.level(2) != 100 {
		t.Errorf("levels %s after the way back", w.levels())
	}
	w.Chapter("task 2 draws more, too: task 3 first, then task 2")
	w.asks[2] = 70
	w.seconds(8)
	w.expect(t, "both", "10 10 100")
	w.Chapter("batch work is done: both get everything back")
	w.asks = map[model.TaskNum]float64{2: 5, 3: 5, 4: 5}
	w.seconds(150)
	w.expect(t, "done", "100 100 100")
	if w.Claims() != 0 || len(w.state().Rungs) != 0 {
		t.Errorf("%d claims, %+v", w.Claims(), w.state().Rungs)
	}
	w.Chapter("task 4, on the other socket, reads memory 0")
	w.asks[4], w.remote = 75, 0.9
	w.seconds(4)
	if w.level(4) != 10 {
		t.Errorf("levels %s: it is not found on the other socket", w.levels())
	}
	w.Chapter("the service is late for a reason of its own: it cannot be fixed, and everything is given back")
	w.asks = map[model.TaskNum]float64{2: 5, 3: 5, 4: 5}
	w.seconds(120)
	w.other = 2
	w.seconds(40)
	w.expect(t, "cannot fix", "100 100 100")
	if c := w.state().CannotFix; c == nil || c.Victim != service || c.Helped || c.Tried != 3 || len(c.Domains) != 1 || c.Domains[0] != 0 {
		t.Errorf("%+v", c)
	}
	w.Chapter("the kill switch, while task 3 has less")
	w.other, w.state().RestNsec, w.asks[3] = 0, 0, 75
	w.seconds(12)
	if w.level(3) == 100 {
		t.Error("task 3 has everything")
	}
	w.Kill = true
	w.seconds(2)
	w.expect(t, "killed", "100 100 100")
	story := enginetest.Story{
		About: "/t1 is a service with a target of 1 ms on socket 0, /t2 and /t3 are batch work beside it, /t4 is batch work on socket 1; times since the agent began",
		Want: []string{
			"mode observe", "level 10 of memory bandwidth", "mode enforce", "-> set resctrl.tasks of /t3", "applied, now a class of its own", "level 20 of memory bandwidth, was 10",
			"services are red, the worst at 1.18 of its target; level 40 of memory bandwidth, was 50", "task 2 draws more", "-> set resctrl.tasks of /t2", "batch work is done", "release", "on the other socket", "-> set resctrl.tasks of /t4",
			"a reason of its own", "cannot-fix", "they get it back", "the kill switch", "-> release resctrl.tasks of /t3",
		},
		Never: []string{"resctrl.tasks of /t1"},
		Once:  []string{"cannot-fix"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// Until grey, as algorithm 1 has it, fewer tasks have less; both stay out of red.
func TestUntil(t *testing.T) {
	sum := map[string]float64{}
	for _, until := range []string{balm.UntilGreen, balm.UntilGrey} {
		w := newWorld(model.ModeEnforce, xeon(1))
		w.params().Until = until
		w.asks = map[model.TaskNum]float64{2: 42.5, 3: 60, 4: 40}
		w.seconds(300)
		before := w.red
		for range 300 {
			w.second()
			sum[until] += w.moves(2) + w.moves(3)
		}
		if share := float64(w.red-before) / 300; share > 0.1 {
			t.Errorf("until %s: %.0f %% of the time red", until, 100*share)
		}
	}
	if sum[balm.UntilGrey] <= sum[balm.UntilGreen] {
		t.Errorf("batch work moves %v", sum)
	}
}

// Where there is no class left for one task, those who are left share the class of BE; others' groups are counted.
func TestClassesRunOut(t *testing.T) {
	for taken, alone := range map[int]int{1: 5, 5: 1, 8: 0} {
		w := newWorld(model.ModeEnforce, xeon(taken))
		w.Add(enginetest.NewTask(5, model.BE).CPUs(cpu(0)))
		w.asks[5], w.other = 20, 2
		w.params().Retries = 1000
		w.seconds(30)
		own := 0
		for _, task := range w.Tasks {
			own += map[bool]int{true: 1}[model.Alone(model.TaskNum(task.Knobs[model.ServiceClass].Value.Amount)) == task.Num]
		}
		if w.levels() != "10 10 100 10" || own != min(alone, 3) { // socket 1 reads its own memory
			t.Errorf("%d taken: levels %s, %d tasks have a class of their own, expected %d", taken, w.levels(), own, alone)
		}
	}
}

// What did help, though not enough, is kept, said once, and given back when the service is well.
func TestHelpedAndKept(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.other = 0.7
	w.seconds(60)
	if c := w.state().CannotFix; c == nil || !c.Helped || w.Count(model.DecideCannotFix) != 1 || w.level(3) != 10 {
		t.Errorf("%+v, said %d times, levels %s", c, w.Count(model.DecideCannotFix), w.levels())
	}
	w.asks, w.other = map[model.TaskNum]float64{2: 5, 3: 5, 4: 5}, 0
	if w.seconds(200); w.levels() != "100 100 100" || w.state().CannotFix != nil {
		t.Errorf("levels %s, %+v", w.levels(), w.state().CannotFix)
	}
}

// Without a valid figure nothing is taken, and what was taken is given back after a while.
func TestBlind(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.silent = true
	if w.seconds(20); w.Writes > 0 {
		t.Errorf("%d writes without a figure", w.Writes)
	}
	w.silent = false
	w.seconds(3)
	w.silent = true
	w.seconds(30)
	w.expect(t, "for half a minute", "100 10 100")
	w.seconds(40)
	w.expect(t, "for more", "100 100 100")
}

// A class that is refused, a stranger's level and a task that an operator freed: it is the next one's turn.
func TestHindered(t *testing.T) {
	for name, hinder := range map[string]func(w *world){
		"refused": func(w *world) { w.Task(3).Refuse(model.ServiceClass, "no") },
		"a stranger's level": func(w *world) {
			w.seconds(4)
			for _, k := range w.Wide {
				k.Value = model.Level(70)
				w.Foreign(k)
			}
		},
		"freed": func(w *world) {
			w.seconds(4)
			w.Tell(model.Command{Kind: model.CommandUncap, Task: 3})
		},
	} {
		w := newWorld(model.ModeEnforce, xeon(1))
		hinder(w)
		if w.seconds(20); w.level(2) != 10 || w.Count(model.DecideLeftAlone) == 0 {
			t.Errorf("%s: levels %s; said %d times who is left alone", name, w.levels(), w.Count(model.DecideLeftAlone))
		}
	}
	w := newWorld(model.ModeEnforce, &model.Classes{})
	if w.seconds(20); w.Writes > 0 || w.Count(model.DecideLeftAlone) != 1 {
		t.Errorf("without resctrl: %d writes, said %d times", w.Writes, w.Count(model.DecideLeftAlone))
	}
}

// A task that is out of the class of BE has no more of the cache and of memory bandwidth than that.
func TestNoMoreThanTheClassOfBE(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	p := &w.Engine.Params.CPU
	p.CacheMode, p.Cache.Ways, p.Cache.Level, p.Cache.Windows, p.Cache.HoldNsec = model.ModeEnforce, 2, 60, 4, 60e9
	p.Cache.RestNsec = 1e9
	w.asks[3] = 75
	w.seconds(20)
	seen := map[model.KnobKind]int64{}
	for _, k := range w.Wide {
		if k.Num == model.ClassOf(3) {
			seen[k.Value.Knob] = max(seen[k.Value.Knob], k.Value.Amount)
		}
	}
	if seen[model.CacheWays] != 2 || seen[model.MemoryBandwidth] == 0 || seen[model.MemoryBandwidth] > 60 {
		t.Errorf("its own class has %v", seen)
	}
}

// Whatever is read, levels are the machine's, no service is held, and what is remembered can be written.
func TestAdversarialReadings(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, 1e300, 1e-3, 2e-3}
	states := []string{model.LatencyRed, model.LatencyYellow, model.LatencyGrey, model.LatencyGreen, "", "blue"}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func() float64 { return odd[rng.IntN(len(odd))] }
		p, s, h := balm.Defaults(), balm.State{}, antagonist.NewHistory(4)
		v := policy.View{Mode: model.ModeEnforce, Topology: &model.Topology{Classes: xeon(rng.IntN(9))}, History: h, Changed: true}
		for num := range model.TaskNum(4) {
			v.Tasks = append(v.Tasks, policy.TaskView{Task: model.Task{Num: num + 1, Job: fmt.Sprint("t", num+1), Class: []model.Class{model.LC, model.BE}[min(num, 1)]}})
			h.Ensure(num + 1)
		}
		w := new(policy.Wishes)
		for range 100 {
			v.NowNsec += rng.Int64N(5e9)
			h.Begin(v.NowNsec)
			for i := range 4 {
				h.PutAt(i, pick(), pick())
				h.PutMisses(i, pick())
			}
			h.End()
			v.SLO = []model.Latency{{Job: "t1", Target: pick(), Figure: model.Value{V: pick(), Outcome: model.Outcome(rng.IntN(3))}, State: states[rng.IntN(len(states))]}}
			v.Window.Observation = &model.Observation{Memory: []model.MemoryObservation{{Domain: int32(rng.IntN(3)), Total: model.Known(pick()), Local: model.Known(pick())}}}
			w.Reset()
			s.Step(&p, &v, w)
			if _, err := json.Marshal(&s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			grant(t, seed, &v, w)
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
		v.Tasks[i].Knobs[model.ServiceClass] = policy.KnobView{}
	}
	for i := range w.Claims {
		switch c := &w.Claims[i]; {
		case c.Scope == model.ScopeCLOS:
			if c.Cap < 10 || c.Cap > 100 || math.Mod(c.Cap, 10) != 0 {
				t.Fatalf("seed %d: level %g", seed, c.Cap)
			}
			v.Classes = append(v.Classes, policy.ClassView{Target: c.Target, Kind: c.Value.Knob, KnobView: policy.KnobView{Ours: true, Now: model.Level(int64(c.Cap))}})
		case c.Num == service:
			t.Fatalf("seed %d: a service is held", seed)
		default:
			v.Tasks[c.Num-1].Knobs[model.ServiceClass] = policy.KnobView{Ours: true, Now: c.Value}
		}
	}
}

// While the hard cap looks what came of holding who had the CPU nothing is begun; what was begun goes on.
func TestOneRemedyAtATime(t *testing.T) {
	w := newWorld(model.ModeObserve, xeon(1))
	w.seconds(4)
	v, params := w.View(model.ModeEnforce), w.params()
	v.History, v.SLO = w.Engine.State.History, []model.Latency{w.reading()}
	state := new(balm.State)
	for _, judging := range []bool{true, false, true} {
		v.Judging, v.NowNsec = judging, v.NowNsec+enginetest.Sec
		was := len(state.Rungs) > 0
		state.Step(params, v, new(policy.Wishes))
		if begun := len(state.Rungs) > 0; begun != (was || !judging) || begun != state.Taking() {
			t.Errorf("judging: %v, begun before: %v, rungs %+v", judging, was, state.Rungs)
		}
	}
}

// A step in which nothing is new costs no allocation, whether somebody has less or nobody.
func TestSteadyStep(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	w.seconds(5)
	v := w.View(model.ModeEnforce)
	for _, k := range w.Wide {
		v.Classes = append(v.Classes, policy.ClassView{Target: k.Target, Kind: k.Value.Knob, KnobView: policy.KnobView{Ours: true, Now: k.Value}})
	}
	v.History, v.SLO = w.Engine.State.History, []model.Latency{w.reading()}
	state, params, wishes := w.state(), w.params(), new(policy.Wishes)
	if a := testing.AllocsPerRun(100, func() { wishes.Reset(); state.Step(params, v, wishes) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !wishes.AsBefore || len(state.Rungs) != 1 {
		t.Errorf("as before: %v, %+v", wishes.AsBefore, state.Rungs)
	}
}

// Levels that count otherwise from now on (resctrl was mounted anew, with mba_MBps) are not held as they were counted before.
func TestLevelsCountOtherwise(t *testing.T) {
	w := newWorld(model.ModeEnforce, xeon(1))
	if w.seconds(20); len(w.state().Rungs) != 1 || w.level(3) == 100 {
		t.Fatalf("%s, %+v", w.levels(), w.state().Rungs)
	}
	machine := *w.Topology
	machine.Classes = xeon(1)
	machine.Classes.LeastLevel, machine.Classes.MostLevel, machine.Classes.LevelStep, machine.Classes.LevelUnit = 1, 1<<32-1, 1, model.LevelMiB
	w.asks[3] = 0
	w.Plug(&machine)
	if w.seconds(2); len(w.state().Rungs) > 0 {
		t.Errorf("%+v", w.state().Rungs)
	}
	w.expect(t, "given back", "100 100 100")
}
