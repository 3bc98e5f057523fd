package pressure_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/pressure"
)

var rewrite = flag.Bool("rewrite", false, "write the golden anew")

// wishes are reused from step to step, as the engine does.
var wishes policy.Wishes

const mib = 1 << 20

// holds is what a task has in memory: it grows by so much a second while it runs, up to most.
type holds struct {
	bytes, grows, most float64
	cold               float64 // of it, what can be taken back: it goes to swap and does not come back
	spent              float64 // CPU-seconds
}

// world is a node of 10,000 MiB: a service, and batch work whose memory is the test's own. Whoever grows beyond what
// there is has the largest task killed.
type world struct {
	*enginetest.Node
	mem        map[model.TaskNum]*holds
	some       float64 // share of the time in which programs stall, beside what being full brings
	stall      float64 // ns, so far
	blind      bool    // nobody tells what is available
	killed     []model.TaskNum
	reclaimed  float64
	noReclaim  bool
	lowestFree float64
	ended      []model.TaskNum // by the policy
	looks      bool            // memory is looked at between windows
	looked     int             // how often it was
}

func newWorld(mode model.Mode) *world {
	p := enginetest.Params()
	p.CPU.PressureMode = mode
	p.Hardcap.DurationNsec = 20 * enginetest.Sec
	w := &world{mem: map[model.TaskNum]*holds{}, lowestFree: 1e9}
	w.Node = enginetest.New(p, enginetest.Flat(2))
	w.start(1, model.LC, model.BestEffort, holds{bytes: 4000 * mib})
	return w
}

// start starts a task.
func (w *world) start(num int, class model.Class, importance model.Importance, h holds) {
	t := enginetest.NewTask(num, class)
	t.Importance = importance
	t.Knobs[model.MemoryReclaim].Write = func(v model.Setting) string {
		if w.noReclaim {
			return "no memory.reclaim"
		}
		m := w.mem[t.Num]
		got := min(float64(v.Amount), m.cold)
		m.cold, m.bytes, w.reclaimed = m.cold-got, m.bytes-got, w.reclaimed+got
		return ""
	}
	t.Knobs[model.GroupKill].Write = func(model.Setting) string {
		w.ended = append(w.ended, t.Num)
		return ""
	}
	w.Add(t)
	w.mem[t.Num] = &h
}

func (w *world) params() *pressure.Params { return &w.Engine.Params.CPU.Pressure }
func (w *world) state() *pressure.State   { return &w.Engine.State.CPU.Pressure }

func (w *world) frozen(num model.TaskNum) bool {
	t := w.Task(num)
	return t != nil && t.Knobs[model.GroupFreeze].Value == model.Freeze(true)
}

// free is what is available.
func (w *world) free() float64 {
	free := 10_000.0 * mib
	for _, t := range w.Tasks {
		free -= w.mem[t.Num].bytes
	}
	return free
}

// second plays one, and a window closes. The world goes on four times in it, and memory is looked at in between when that is due.
func (w *world) second() {
	for quarter := range 4 {
		w.live(0.25)
		w.stall += 1e9 * min(1, w.some) / 4
		if quarter < 3 && w.looks && w.Engine.LookDue() <= w.NowNsec+enginetest.Sec/4*int64(quarter+1) {
			w.Look = w.seen()
			w.looked++
		}
		if w.looks && quarter < 3 {
			w.NowNsec += enginetest.Sec / 4
			if w.Look != nil {
				w.Beat(0)
			}
		}
	}
	s := w.Snapshot()
	s.Mark = model.WindowStart | model.WindowEnd
	l := w.seen()
	s.Node, s.Tasks = l.Node, nil
	for _, t := range w.Tasks {
		x := model.TaskSample{Num: t.Num}
		x.C[model.CountMemory], x.C[model.CountUsage] = model.Read(uint64(w.mem[t.Num].bytes)), model.Read(uint64(w.mem[t.Num].spent*1e9))
		s.Tasks = append(s.Tasks, x)
	}
	if w.looks {
		w.Beat(enginetest.Sec / 4)
		return
	}
	w.Beat(enginetest.Sec)
}

// live lets a part of a second pass: who was told to end is gone, who runs grows, who does not fit is killed.
func (w *world) live(part float64) {
	for _, num := range w.ended {
		if w.Task(num) != nil {
			w.Remove(num)
		}
	}
	for _, t := range w.Tasks {
		if m := w.mem[t.Num]; !w.frozen(t.Num) {
			m.bytes += max(0, min(m.grows*part, m.most-m.bytes))
		}
	}
	if w.free() < 0 {
		largest := w.Tasks[0].Num
		for _, t := range w.Tasks {
			if w.mem[t.Num].bytes > w.mem[largest].bytes {
				largest = t.Num
			}
		}
		w.killed = append(w.killed, largest)
		w.mem[largest].bytes, w.mem[largest].grows = 0, 0
	}
	w.lowestFree = min(w.lowestFree, max(0, w.free()))
}

// seen is memory as it is now.
func (w *world) seen() *model.Look {
	l := &model.Look{}
	if !w.blind {
		l.Node.C[model.CountMemoryTotal], l.Node.C[model.CountMemoryAvailable] = model.Read(10_000*mib), model.Read(uint64(max(0, w.free())))
		l.Node.C[model.CountMemorySome] = model.Read(uint64(w.stall))
	}
	for _, t := range w.Tasks {
		if t.Class == model.BE {
			l.Tasks = append(l.Tasks, model.TaskMemory{Num: t.Num, Bytes: uint64(w.mem[t.Num].bytes)})
		}
	}
	return l
}

func (w *world) run(seconds int) {
	for range seconds {
		w.second()
	}
}

// crowd is a service with batch work of which one grows by a good deal a second.
func crowd(mode model.Mode) *world {
	w := newWorld(mode)
	w.start(2, model.BE, model.BestEffort, holds{bytes: 1000 * mib, grows: 60 * mib, most: 7000 * mib, cold: 100 * mib})
	w.start(3, model.BE, model.Batch, holds{bytes: 2000 * mib, cold: 900 * mib})
	w.start(4, model.BE, model.Critical, holds{bytes: 1000 * mib, cold: 200 * mib})
	return w
}

// TestStory: what happens as memory runs out, and comes back.
func TestStory(t *testing.T) {
	var text strings.Builder
	w := crowd(model.ModeEnforce)
	w.Log = &text
	w.Chapter("/t2 grows by 60 MiB a second; 2000 MiB are left")
	w.run(60)
	if len(w.killed) > 0 || !w.frozen(2) || w.frozen(1) || w.frozen(4) || w.reclaimed == 0 {
		t.Errorf("killed %v, /t2 frozen %v, %.0f MiB reclaimed", w.killed, w.frozen(2), w.reclaimed/mib)
	}
	w.Chapter("the service needs less: there is room")
	w.mem[1].bytes = 1000 * mib
	w.mem[2].grows = 0
	w.run(120)
	if w.frozen(2) || w.frozen(3) {
		t.Error("with room they are still frozen")
	}
	w.Chapter("it needs all of it, at once")
	w.mem[1].bytes += max(0, w.free()-100*mib)
	w.run(5)
	if !w.frozen(2) || !w.frozen(3) || w.frozen(4) {
		t.Error("beyond the reserve they are not frozen")
	}
	w.Chapter("an operator frees /t2")
	w.Tell(model.Command{Kind: model.CommandUncap, Task: 2})
	w.run(3)
	if w.frozen(2) {
		t.Error("freed, it is frozen")
	}
	w.Chapter("nothing comes of it for five minutes")
	w.run(400)
	w.Chapter("the kill switch")
	w.Kill = true
	w.run(2)
	for num := model.TaskNum(1); num <= 4; num++ {
		if w.frozen(num) {
			t.Errorf("task %d is left frozen", num)
		}
	}
	story := enginetest.Story{
		About: "/t1 is a service of 4000 MiB, /t2 best-effort, /t3 batch, /t4 critical, of 10,000 MiB; times since the agent began",
		Want: []string{
			"/t2 grows", "pressure", "reclaim     /t2", "-> run memory.reclaim of /t2", "best-effort work is frozen", "freeze      /t2", "-> hold cgroup.freeze of /t2: applied, now frozen",
			"the service needs less", "pressure", "best-effort work may go on", "release     /t2", "-> release cgroup.freeze of /t2: applied, now runs",
			"it needs all of it", "freeze      /t", "freeze      /t",
			"an operator frees", "-> release cgroup.freeze of /t2", "nothing comes of it", "cannot-fix  /t", "the kill switch", "-> release cgroup.freeze of /t3",
		},
		Never: []string{"of /t1:", "freeze      /t4", "cgroup.freeze of /t4"},
	}
	story.Check(t, "story", text.String(), *rewrite)
}

// Without the policy, and with one that observes, somebody is killed, and nothing is written.
func TestWithout(t *testing.T) {
	for _, mode := range []model.Mode{model.ModeOff, model.ModeObserve} {
		w := crowd(mode)
		for range 120 {
			if w.second(); len(w.killed) > 0 {
				break
			}
		}
		if len(w.killed) != 1 || w.Writes > 0 || w.reclaimed > 0 {
			t.Errorf("%s: %d killed, %d writes, %.0f bytes reclaimed", mode, len(w.killed), w.Writes, w.reclaimed)
		}
		if said := w.Count(model.DecideFreeze); (said > 0) != (mode == model.ModeObserve) || said > w.params().AtOnce {
			t.Errorf("%s: it says %d times that it would freeze", mode, said)
		}
	}
}

// Little memory alone is no reason while nobody stalls and it does not fall; stalls alone are none while there is room.
func TestEitherAlone(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	w.start(2, model.BE, model.Batch, holds{bytes: 5300 * mib, cold: 5000 * mib})
	w.run(200) // 7 % are available
	if w.Count(model.DecidePressure) > 0 {
		t.Error("little memory alone is taken for pressure")
	}
	w.some = 0.3
	w.run(5)
	if w.Count(model.DecideReclaim) == 0 {
		t.Error("with stalls it is not")
	}
	w = newWorld(model.ModeEnforce)
	w.start(2, model.BE, model.Batch, holds{bytes: 2000 * mib, cold: 1000 * mib})
	w.some = 0.9
	w.run(100)
	if w.Count(model.DecidePressure) > 0 {
		t.Error("stalls on a machine with room are taken for pressure")
	}
}

// Who gives way first, in each order.
func TestOrder(t *testing.T) {
	for order, want := range map[[2]string]model.TaskNum{
		{pressure.Largest}: 3, {pressure.Youngest}: 6, {pressure.LeastImportant}: 2, {pressure.Cheapest}: 5,
		{pressure.LeastImportant, pressure.Youngest}: 6, {pressure.LeastImportant, pressure.Cheapest}: 2, {pressure.LeastImportant, pressure.Largest}: 2,
	} {
		w := newWorld(model.ModeEnforce)
		w.params().Order, w.params().Then, w.params().AtOnce, w.params().ReclaimBytes = order[0], order[1], 1, 0
		w.start(2, model.BE, model.BestEffort, holds{bytes: 600 * mib, spent: 40})
		w.start(3, model.BE, model.Batch, holds{bytes: 1500 * mib, spent: 30})
		w.start(4, model.BE, model.Critical, holds{bytes: 2500 * mib, spent: 1})
		w.start(5, model.BE, model.Batch, holds{bytes: 700 * mib, spent: 20})
		w.start(6, model.BE, model.BestEffort, holds{bytes: 500 * mib, spent: 50})
		w.run(2) // the first window closes with the second reading
		for num := model.TaskNum(2); num <= 6; num++ {
			if w.frozen(num) != (num == want) {
				t.Errorf("%s: task %d frozen: %v", order, num, w.frozen(num))
			}
		}
		if n := w.Count(model.DecideFreeze); n != 1 {
			t.Errorf("%s: %d frozen in one window", order, n)
		}
	}
}

// What the machine does not have is told, and the rest goes on.
func TestRefused(t *testing.T) {
	w := crowd(model.ModeEnforce)
	w.noReclaim = true
	w.Task(2).Refuse(model.GroupFreeze, "no freezer")
	w.run(45)
	if !w.frozen(3) || w.Count(model.DecideRefused) == 0 {
		t.Errorf("/t3 frozen %v, %d refusals told", w.frozen(3), w.Count(model.DecideRefused))
	}
}

// A task that locks its pages gives nothing: it is asked once a minute at most, and the next one is instead.
func TestLocked(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	w.params().Freeze = false
	w.start(2, model.BE, model.BestEffort, holds{bytes: 2500 * mib})
	w.start(3, model.BE, model.Batch, holds{bytes: 2500 * mib, cold: 2500 * mib})
	w.mem[1].bytes, w.some = 4200*mib, 0.3
	asked := func() (n [4]int) {
		for i := range w.Said {
			if d := &w.Said[i]; d.Kind == model.DecideReclaim {
				n[d.Task]++
			}
		}
		return n
	}
	w.run(8)
	if n := asked(); n[2] != 1 || n[3] != 1 {
		t.Errorf("in the first two rounds they were asked %d and %d times", n[2], n[3])
	}
	w.mem[1].grows, w.mem[1].most = 20*mib, 7000*mib
	w.run(292)
	if n := asked(); n[2] > 6 || n[3] < 4 || w.reclaimed != 2500*mib {
		t.Errorf("in five minutes they were asked %d and %d times, and gave %.0f MiB", n[2], n[3], w.reclaimed/mib)
	}
}

// Nobody tells what is available: what is held stays, nobody more is, and it is said once.
func TestBlind(t *testing.T) {
	w := crowd(model.ModeEnforce)
	w.run(60)
	before := w.Writes
	w.blind = true
	w.run(60)
	if w.Writes != before || !w.frozen(2) {
		t.Errorf("%d writes meanwhile, /t2 frozen %v", w.Writes-before, w.frozen(2))
	}
	n := 0
	for i := range w.Said {
		if strings.HasPrefix(w.Said[i].Reason, "nobody tells") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("told %d times", n)
	}
}

// Let in too soon, it has to wait longer the next time.
func TestPatience(t *testing.T) {
	w := newWorld(model.ModeEnforce)
	w.start(2, model.BE, model.BestEffort, holds{bytes: 1000 * mib, grows: 100 * mib, most: 5000 * mib, cold: 0})
	var times []int64
	for range 4 {
		for range 300 {
			if w.second(); w.frozen(2) {
				break
			}
		}
		w.mem[2].bytes = 1000 * mib // a frozen task's pages went to swap
		at := w.NowNsec
		for range 2000 {
			if w.second(); !w.frozen(2) {
				break
			}
		}
		times = append(times, (w.NowNsec-at)/enginetest.Sec)
	}
	if times[1] <= times[0] || times[2] <= times[1] || times[3] > 20*times[0] {
		t.Errorf("frozen for %v seconds", times)
	}
}

// Whatever happens: no service and no critical task is ever frozen, no more at once than is allowed, numbers stay finite, an
// engine that is made anew of a checkpoint does the same, and where batch work could have given way in time nobody is killed.
func TestRandomLives(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomLife(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func randomLife(t *testing.T, r *rand.Rand) {
	w := newWorld(model.ModeEnforce)
	w.Shadow(t, 50)
	w.params().AtOnce = 1 + r.IntN(4)
	w.params().Order = []string{pressure.Largest, pressure.Youngest, pressure.LeastImportant, pressure.Cheapest}[r.IntN(4)]
	w.looks = r.IntN(2) == 0
	w.mem[1].bytes = (1000 + 3000*r.Float64()) * mib
	next, before := 2, 0
	for range 300 {
		switch r.IntN(12) {
		case 0:
			if len(w.Tasks) < 8 && w.free() > 1500*mib {
				h := holds{bytes: 300 * mib * r.Float64(), grows: 20 * mib * r.Float64(), most: 3000 * mib * r.Float64()}
				h.cold = h.bytes * r.Float64()
				w.start(next, model.BE, []model.Importance{model.BestEffort, model.Batch}[r.IntN(2)], h)
				next++
			}
		case 1:
			if len(w.Tasks) > 1 && r.IntN(3) == 0 {
				w.Remove(w.Tasks[1+r.IntN(len(w.Tasks)-1)].Num)
			}
		case 2:
			w.some = r.Float64() * r.Float64()
		}
		before = w.Count(model.DecideFreeze)
		w.second()
		if n := w.Count(model.DecideFreeze) - before; n > w.params().AtOnce*(1+3*bit(w.looks)) || w.frozen(1) {
			t.Fatalf("%d frozen in a second, the service frozen: %v", n, w.frozen(1))
		}
		if share := w.state().FallBytes; share != share || share > 1e12 || share < -1e12 {
			t.Fatalf("available memory falls by %g", share)
		}
	}
	if len(w.killed) > 0 {
		t.Errorf("killed: %v", w.killed)
	}
	w.some = 0
	for _, m := range w.mem {
		m.grows = 0
	}
	w.params().CalmNsec, w.params().StuckNsec = 1e9, 60e9
	w.run(16*16 + 60) // whatever patience it has come to
	for _, task := range w.Tasks {
		if w.frozen(task.Num) && !w.told() {
			t.Errorf("%s stays frozen with %.1f %% available, and nobody is told", task.Path, w.free()/(100*mib))
		}
	}
	w.Engine.Params.CPU.PressureMode = model.ModeOff
	w.run(2)
	for _, task := range w.Tasks {
		if w.frozen(task.Num) {
			t.Errorf("%s is left frozen", task.Path)
		}
	}
}

// A step in which nothing is new costs no allocation, in peace and while tasks are frozen.
func TestSteadyStep(t *testing.T) {
	w := crowd(model.ModeEnforce)
	for _, seconds := range []int{2, 60} {
		w.run(seconds)
		v := w.View(model.ModeEnforce)
		state, params := w.state(), w.params()
		if a := testing.AllocsPerRun(100, func() { wishes.Reset(); state.Step(params, v, &wishes) }); a > 0 {
			t.Errorf("%.1f allocations", a)
		}
		if !wishes.AsBefore {
			t.Error("it wishes anew although nothing changed")
		}
	}
}

// Parameters that do not fit each other are found.
func TestCheck(t *testing.T) {
	for want, change := range map[string]func(p *pressure.Params){
		"":        func(*pressure.Params) {},
		"reserve": func(p *pressure.Params) { p.Reserve = p.Low },
		"enough":  func(p *pressure.Params) { p.Enough = p.Low / 2 },
		"soon":    func(p *pressure.Params) { p.SoonNsec = 2 * p.HorizonNsec },
		"look":    func(p *pressure.Params) { p.LookNsec = 1e6 },
	} {
		p := pressure.Defaults()
		change(&p)
		if key, _ := p.Check(); key != want {
			t.Errorf("%q is wrong, want %q", key, want)
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
