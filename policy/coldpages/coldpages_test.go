package coldpages_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/beside"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/memory"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// wishes are reused from step to step, as the engine does.
var wishes policy.Wishes

const (
	mib  = 1 << 20
	sec  = enginetest.Sec
	hour = 3600 * sec
)

// mem is what a task has: all of its cold memory is of one age. Of what was taken a share comes back in each minute.
type mem struct {
	bytes      float64
	cold       [3]float64 // by kind of page, that could be taken
	lies       float64    // that the kernel counts as old file memory and does not find
	back       float64    // share of what is out that comes back in a minute
	out        float64
	refaults   float64
	stall      float64 // share of the time
	stallNsec  float64
	nothing    bool // the kernel refuses
	locked     bool // it finds hardly a page that it may take
	readAtNsec int64
	swapMax    *float64 // of what its own limit leaves it of swap
	guest      *float64 // it is a virtual machine, whose guest has so much room in swap of its own
}

// room is where its anonymous pages go.
func (w *world) room(m *mem) *float64 {
	if m.guest != nil {
		return m.guest
	}
	if m.swapMax != nil {
		return m.swapMax
	}
	return &w.swap
}

// world is a node whose ages are read each ten minutes, with a window a minute. Memory is the test's own.
type world struct {
	*enginetest.Node
	mem     map[model.TaskNum]*mem
	swap    float64 // free
	some    float64 // of the machine
	somNsec float64
	blind   bool
	asks    []model.Setting // that the kernel was asked for
	asked   []model.TaskNum
}

func newWorld(mode model.Mode) *world {
	p := enginetest.Params()
	p.CPU.ColdPagesMode = mode
	w := &world{mem: map[model.TaskNum]*mem{}, swap: 4000 * mib}
	w.Node = enginetest.New(p, enginetest.Flat(2))
	return w
}

// start starts a task with so much cold anonymous and file memory, MiB.
func (w *world) start(num int, class model.Class, anon, file float64) *mem {
	m := &mem{bytes: 4000 * mib}
	m.cold[model.AnonPages], m.cold[model.FilePages] = anon*mib, file*mib
	t := enginetest.NewTask(num, class)
	k := &t.Knobs[model.MemoryReclaim]
	k.Write = func(v model.Setting) string {
		if m.nothing {
			return "no memory.reclaim"
		}
		return ""
	}
	k.Did = func(v model.Setting) int64 {
		w.asks, w.asked = append(w.asks, v), append(w.asked, t.Num)
		if m.nothing {
			return 0
		}
		if m.locked {
			return 4096
		}
		got := 0.0
		for kind := model.AnonPages; kind <= model.FilePages; kind++ {
			if v.Pages == kind || v.Pages == model.AnyPages {
				n := min(float64(v.Amount)-got, m.cold[kind])
				if kind == model.AnonPages {
					room := w.room(m)
					n = min(n, *room)
					*room -= n
				}
				m.cold[kind], got = m.cold[kind]-n, got+n
			}
		}
		m.out, m.bytes = m.out+got, m.bytes-got
		return int64(got)
	}
	w.Add(t)
	w.mem[t.Num] = m
	return m
}

func (w *world) params() *coldpages.Params { return &w.Engine.Params.CPU.ColdPages }
func (w *world) state() *coldpages.State   { return &w.Engine.State.CPU.ColdPages }

// minute plays one, in ticks of five seconds, and closes a window at its end.
func (w *world) minute() {
	for range 11 {
		w.Beat(5 * sec)
	}
	s := w.Snapshot()
	s.Mark = model.WindowStart | model.WindowEnd
	w.somNsec += 60e9 * w.some
	s.Node.C[model.CountSwapFree], s.Node.C[model.CountMemorySome] = model.Read(uint64(w.swap)), model.Read(uint64(w.somNsec))
	s.Tasks, s.Ages = nil, nil
	for _, t := range w.Tasks {
		m := w.mem[t.Num]
		back := m.out * m.back
		m.out, m.bytes, m.refaults, m.stallNsec = m.out-back, m.bytes+back, m.refaults+back/4096, m.stallNsec+60e9*m.stall
		x := model.TaskSample{Num: t.Num}
		x.C[model.CountMemory], x.C[model.CountRefaults], x.C[model.CountMemoryStall] = model.Read(uint64(m.bytes)), model.Read(uint64(m.refaults)), model.Read(uint64(m.stallNsec))
		s.Tasks = append(s.Tasks, x)
		if w.NowNsec-m.readAtNsec < 600*sec || w.blind {
			continue
		}
		m.readAtNsec = w.NowNsec
		a := model.PageAges{Num: t.Num, MonoNsec: w.NowNsec, Source: "test"}
		for i, edge := range model.AgeEdges {
			if edge <= 6*hour {
				a.Anon[i], a.File[i] = uint64(m.cold[model.AnonPages]), uint64(m.cold[model.FilePages]+m.lies)
			}
		}
		if m.guest != nil {
			a.Guest, a.AnonRoom = true, uint64(*m.guest)
		}
		if m.swapMax != nil {
			a.Limited, a.AnonRoom = true, uint64(*m.swapMax)
		}
		s.Ages = append(s.Ages, a)
	}
	w.Beat(5 * sec)
}

func (w *world) run(minutes int) {
	for range minutes {
		w.minute()
	}
}

// taken is what was taken of a kind, MiB.
func (w *world) left(num model.TaskNum, kind model.PageKind) float64 {
	return w.mem[num].cold[kind] / mib
}

// TestStory: what is idle is given back, an amount at a time, and what it cost is said; pages that come back stop it, and longer each time.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := newWorld(model.ModeEnforce)
	w.start(1, model.LC, 800, 300)
	w.start(2, model.BE, 0, 500)
	w.start(3, model.System, 500, 500)
	w.Log = &text
	w.Chapter("ages are read")
	w.run(25)
	if w.left(1, model.AnonPages)+w.left(1, model.FilePages)+w.left(2, model.FilePages) > 0 || w.left(3, model.FilePages) != 500 {
		t.Errorf("left: %+v, %+v, %+v", w.mem[1], w.mem[2], w.mem[3])
	}
	w.Chapter("the service uses again what it gave")
	w.mem[1].back, w.mem[1].cold[model.FilePages] = 0.05, 400*mib
	w.run(30)
	if w.left(1, model.FilePages) < 200 {
		t.Errorf("%.0f MiB are left of a service whose pages come back", w.left(1, model.FilePages))
	}
	(&enginetest.Story{
		About: "coldpages: a service with 800 MiB of idle anonymous and 300 MiB of idle file pages, batch work with 500 MiB of file pages, and a daemon.",
		Want: []string{
			"reclaim     /t1: 800 MiB of its anonymous pages were not used for 6h0m0s (test)", "-> run memory.reclaim of /t1",
			"cost        /t1: it gave", "the service uses again", "rest        /t1:", "pages a second come back, usually",
		},
		Never: []string{"/t3", "cannot-fix", "refused", "nobody tells"},
		Once:  []string{"come back, usually"},
	}).Check(t, "story", text.String(), *rewrite)
}

// In mode observe it is said what each task would give, and nothing is done.
func TestObserve(t *testing.T) {
	w := newWorld(model.ModeObserve)
	w.start(1, model.LC, 800, 300)
	w.swap = 600 * mib
	w.run(60)
	said := w.Count(model.DecideReclaim)
	if len(w.asks) > 0 || said < 4 || said > 7 {
		t.Errorf("%d asks, said %d times in an hour", len(w.asks), said)
	}
	for _, d := range w.Said {
		if d.Kind == model.DecideReclaim && (!strings.Contains(d.Reason, "536 MiB of anonymous") || !strings.Contains(d.Reason, "of 800 MiB") || !strings.Contains(d.Reason, "300 MiB of file")) {
			t.Errorf("%s", d.Reason)
		}
	}
}

// What a task had of memory when its ages were read is kept beside them, whatever it has since.
func TestShareOfWhatItHad(t *testing.T) {
	w := newWorld(model.ModeObserve)
	m := w.start(1, model.LC, 800, 300)
	idle := func() *coldpages.Idle { return w.state().Idle(w.params(), &w.Task(1).Task) }
	for range 30 {
		if w.minute(); idle() != nil {
			break
		}
	}
	had := m.bytes
	m.bytes /= 2
	w.minute()
	if i := idle(); i == nil || i.InUse != had || had < 1100*mib {
		t.Errorf("%+v; it had %.0f", i, had)
	}
}

// Faults: each leaves what it must, and says why.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		during func(w *world, minute int)
		left   [3]float64 // MiB, at the end
		says   string
	}{
		"no swap":                      {change: func(w *world) { w.swap = 0 }, left: [3]float64{0, 800, 0}},
		"swap fills":                   {change: func(w *world) { w.swap = 364 * mib }, left: [3]float64{0, 500, 0}},
		"a guest with swap of its own": {change: func(w *world) { w.swap, w.mem[1].guest = 0, new(2000.0*mib) }, left: [3]float64{0, 0, 0}},
		"a guest whose swap fills":     {change: func(w *world) { w.mem[1].guest = new(364.0 * mib) }, left: [3]float64{0, 500, 0}},
		"a guest without swap":         {change: func(w *world) { w.mem[1].guest = new(0.0) }, left: [3]float64{0, 800, 0}},
		"refused":                      {change: func(w *world) { w.mem[1].nothing = true }, left: [3]float64{0, 800, 300}, says: "the kernel took nothing back: no memory.reclaim"},
		"locked":                       {change: func(w *world) { w.mem[1].lies = 5000 * mib }, left: [3]float64{0, 0, 0}},
		"no ages":                      {change: func(w *world) { w.blind = true }, left: [3]float64{0, 800, 300}, says: "nobody tells how long pages lay idle"},
		"it stalls":                    {change: func(w *world) { w.mem[1].stall = 0.05 }, left: [3]float64{0, 800, 300}},
		"all stall":                    {change: func(w *world) { w.some = 0.2 }, left: [3]float64{0, 800, 300}, says: "programs wait for memory 20.0 % of the time"},
		"not this":                     {change: func(w *world) { w.params().LCAnonNsec = 0 }, left: [3]float64{0, 800, 0}},
		"off in time":                  {during: func(w *world, m int) { w.Engine.Params.CPU.ColdPagesMode = model.ModeOff }, left: [3]float64{0, 800, 300}},
		"freed": {change: func(w *world) {
			w.Tell(model.Command{Kind: model.CommandUncap, Task: 1})
			w.Engine.Params.Hardcap.DurationNsec = 10 * hour
		}, left: [3]float64{0, 800, 300}, says: "freed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(model.ModeEnforce)
			w.start(1, model.LC, 800, 300)
			if c.change != nil {
				c.change(w)
			}
			for m := range 120 {
				if c.during != nil {
					c.during(w, m)
				}
				w.minute()
			}
			for kind := model.AnonPages; kind <= model.FilePages; kind++ {
				if got := w.left(1, kind); got < c.left[kind]-65 || got > c.left[kind]+65 {
					t.Errorf("%.0f MiB of %s pages are left, want %.0f", got, kind, c.left[kind])
				}
			}
			told := 0
			for _, d := range w.Said {
				if c.says != "" && strings.Contains(d.Reason, c.says) {
					told++
				}
			}
			if c.says != "" && (told == 0 || told > 8) {
				t.Errorf("%q was said %d times", c.says, told)
			}
			if len(w.asks) > 40 {
				t.Errorf("asked %d times in two hours", len(w.asks))
			}
		})
	}
}

// A task that ends while memory is taken of it leaves nothing behind.
func TestVanishes(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	w.start(1, model.LC, 800, 300)
	w.start(2, model.BE, 0, 3000)
	for m := 0; len(w.asks) == 0 && m < 60; m++ {
		w.minute()
	}
	w.Remove(1)
	w.Remove(2)
	w.run(10)
	if n := len(w.state().Tasks) + len(w.state().Asked); n > 0 || w.Claims() > 0 {
		t.Errorf("%d entries, %d claims are left", n, w.Claims())
	}
}

// Whatever comes, no more is asked for than the rates and the ages allow, nobody else is asked, and no anonymous page without swap.
func TestBounds(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(model.ModeEnforce)
		p := w.params()
		p.MachineBytes, p.TaskBytes = int64(1+r.IntN(20))*mib, int64(1+r.IntN(8))*mib
		if p.By = coldpages.ByAge; seed%2 == 1 {
			p.By = coldpages.ByPressure
		}
		for n := 1; n <= 8; n++ {
			m := w.start(n, []model.Class{model.LC, model.BE, model.System}[r.IntN(3)], 2000*r.Float64(), 2000*r.Float64())
			m.back = 0.02 * r.Float64() * r.Float64()
		}
		before := map[model.TaskNum]int64{}
		begin := w.NowNsec
		for range 180 {
			if m := w.mem[model.TaskNum(1+r.IntN(8))]; r.IntN(20) == 0 {
				m.stall, m.nothing = 0.02*r.Float64(), r.IntN(3) == 0
			}
			w.some = r.Float64() * r.Float64() * 0.06
			from, noSwap := len(w.asks), w.swap < 65*mib
			w.minute()
			for i := from; i < len(w.asks); i++ {
				a, task := w.asks[i], w.Task(w.asked[i])
				before[task.Num] += a.Amount
				if task.Class == model.System || a.Amount > 512*mib || noSwap && a.Pages != model.FilePages && w.swap < 65*mib || (p.By == coldpages.ByAge) != (a.OlderNsec > 0) {
					t.Fatalf("seed %d: of %s %s: %s; %.0f MiB of swap", seed, task.Class, task.Path, a, w.swap/mib)
				}
			}
		}
		all, seconds := int64(0), (w.NowNsec-begin)/sec
		for num, bytes := range before {
			if all += bytes; bytes > p.TaskBytes*(seconds+120) {
				t.Errorf("seed %d: task %d was asked for %d MiB in %d s", seed, num, bytes/mib, seconds)
			}
		}
		if all == 0 || all > p.MachineBytes*(seconds+60) {
			t.Errorf("seed %d: %d MiB in all in %d s, at %d MiB/s", seed, all/mib, seconds, p.MachineBytes/mib)
		}
	}
}

// By pressure: who does not wait is asked for a share of what it has, who waits half as long as is allowed for half of it, who waits longer for nothing.
func TestByPressure(t *testing.T) {
	asked := func(stall float64) (sum float64) {
		w := newWorld(model.ModeEnforce)
		w.params().By = coldpages.ByPressure
		w.start(1, model.LC, 3000, 900)
		w.mem[1].stall = stall
		w.run(12)
		for _, a := range w.asks {
			sum += float64(a.Amount) / mib
		}
		return sum
	}
	none, half, much := asked(0), asked(0.0005), asked(0.002)
	if want := 4000 * 0.0005 * 11 * 60 / 6; none < 0.7*want || none > 1.1*want {
		t.Errorf("asked for %.0f MiB in eleven minutes, want about %.0f", none, want)
	}
	if half < 0.4*none || half > 0.6*none || much != 0 {
		t.Errorf("%.0f MiB without stalls, %.0f with half of what is allowed, %.0f with more", none, half, much)
	}
}

// Who is on trial with another policy, or suffers meanwhile, is not asked, either way: it would make the trial say nothing, each time anew. Afterwards it is.
func TestOnTrial(t *testing.T) {
	for _, by := range []string{coldpages.ByAge, coldpages.ByPressure} {
		w := newWorld(model.ModeEnforce)
		w.params().By = by
		w.Engine.Params.CPU.MemoryMode, w.Engine.Params.CPU.Memory = model.ModeEnforce, memory.Defaults()
		w.Engine.Params.CPU.Memory.SearchWindows = 1000
		w.start(1, model.LC, 0, 900)
		w.start(2, model.BE, 0, 900)
		w.start(3, model.BE, 0, 900)
		w.minute()
		tried := model.TaskNum(2)
		w.Engine.State.CPU.Memory.Incidents = []beside.Incident{{Mild: true, Incident: model.Incident{
			ID: "m1", Victim: 1, State: model.Verifying, Source: model.SourceMemory, Rounds: []model.Round{{Chosen: &tried}},
		}}}
		w.run(30)
		if len(w.asked) == 0 || slices.ContainsFunc(w.asked, func(n model.TaskNum) bool { return n != 3 }) {
			t.Errorf("%s: asked %v while 2 is on trial for 1", by, w.asked)
		}
		w.Engine.State.CPU.Memory.Incidents = nil
		w.run(30)
		if !slices.Contains(w.asked, 1) || !slices.Contains(w.asked, 2) {
			t.Errorf("%s: asked %v afterwards", by, w.asked)
		}
	}
}

// A task that locks its pages is not asked again and again, by age or by pressure; the one beside it is, and it is said why.
func TestLocked(t *testing.T) {
	for by, most := range map[string]int{coldpages.ByAge: 2 * 12, coldpages.ByPressure: 4} { // by age once a kind whenever ages were read
		w := newWorld(model.ModeEnforce)
		w.params().By = by
		w.start(1, model.BE, 800, 400).locked = true
		w.start(2, model.BE, 800, 400)
		w.run(120)
		asks := map[model.TaskNum]int{}
		for _, num := range w.asked {
			asks[num]++
		}
		if asks[1] == 0 || asks[1] > most || w.left(2, model.FilePages) > 65 {
			t.Errorf("by %s: in two hours it was asked %d times, the other %d, which has %.0f MiB of file pages left", by, asks[1], asks[2], w.left(2, model.FilePages))
		}
		told := 0
		for _, d := range w.Said {
			if d.Task == 1 && d.Kind == model.DecideRest && strings.Contains(d.Reason, "found hardly anything to take") {
				told++
			}
		}
		if by == coldpages.ByPressure && (told == 0 || told > 4) {
			t.Errorf("by %s: it was told %d times", by, told)
		}
	}
}

// A step in which nothing is new costs no allocation.
func TestSteadyStep(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	for n := 1; n <= 20; n++ {
		w.start(n, model.LC, 0, 0)
	}
	w.run(15)
	v := w.View(model.ModeEnforce)
	state, params := w.state(), w.params()
	if a := testing.AllocsPerRun(100, func() { wishes.Reset(); state.Step(params, v, &wishes) }); a > 0 {
		t.Errorf("%.1f allocations", a)
	}
	if !wishes.AsBefore {
		t.Error("it wishes anew although nothing changed")
	}
}

// An engine that goes on from a checkpoint decides the same.
func TestResumes(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	w.start(1, model.LC, 800, 300)
	w.start(2, model.BE, 200, 500)
	w.Shadow(t, 7)
	w.run(60)
	if len(w.asks) < 3 {
		t.Errorf("only %d asks", len(w.asks))
	}
}

// A pod that may not swap, on a machine with swap: its file pages go at once, and it need not rest, since it is not asked for what the kernel refuses.
func TestMayNotSwap(t *testing.T) {
	w, none := newWorld(model.ModeEnforce), 0.0
	w.start(2, model.BE, 800, 400).swapMax = &none
	w.run(25)
	for _, a := range w.asks {
		if a.Pages != model.FilePages {
			t.Errorf("asked for %+v", a)
		}
	}
	if len(w.asks) == 0 || w.Count(model.DecideRest) > 0 || w.mem[2].cold[model.FilePages] > 200*mib {
		t.Errorf("%d asks, %d rests, %.0f MiB of file pages are left", len(w.asks), w.Count(model.DecideRest), w.mem[2].cold[model.FilePages]/mib)
	}
}

// Pages that go to compressed memory are gone from the task whatever their copies take: it is not exhausted before its idle pages are, gives no more than it has, and what
// came free is a figure of its own. Where next to nothing comes free it rests, longer each time.
func TestCompressed(t *testing.T) {
	for _, kept := range []float64{0.3, 0.7, 0.95} {
		w := newWorld(model.ModeEnforce)
		w.start(1, model.LC, 1200, 0)
		w.Task(1).Knobs[model.MemoryReclaim].Kept = kept
		w.run(240)
		task, taken := w.state().Tasks[0], 1200-w.left(1, model.AnonPages)
		if task.Reclaimed/mib < taken-1 || task.Reclaimed/mib > taken+1 || task.Given/mib < (1-kept)*taken-1 || task.Given/mib > (1-kept)*taken+1 {
			t.Errorf("%.0f MiB were taken, of which %.0f %% stay; it says %.0f, and %.0f came free", taken, 100*kept, task.Reclaimed/mib, task.Given/mib)
		}
		var freed []float64
		for _, d := range w.Said {
			for _, f := range d.Facts {
				if d.Kind == model.DecideCost && f.Name == "freed" {
					freed = append(freed, f.Value/mib)
				}
			}
		}
		if kept < 0.9 {
			if len(w.asks) > 8 || taken < 1190 || w.Count(model.DecideRest) > 0 || len(freed) == 0 || freed[0] < (1-kept)*239 || freed[0] > (1-kept)*481 {
				t.Errorf("%g: %d asks, %.0f MiB, %d rests, came free by ask: %.0f MiB", kept, len(w.asks), taken, w.Count(model.DecideRest), freed)
			}
			continue
		}
		// Of four hours it rests half an hour, one and two.
		if n := w.Count(model.DecideRest); n != 3 || len(w.asks) != 3 {
			t.Errorf("%d asks, %d rests", len(w.asks), n)
		}
	}
}
