package twin_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// pair is an LC task under a quota, an exclusive one, a BE and a system task.
type pair struct {
	h                     *twin.Host
	lc, alone, be, system model.TaskNum
}

func newPair(t *testing.T, kernel machine.Kernel) *pair {
	t.Helper()
	c := machine.Skylake()
	c.Sockets, c.StepNsec, c.Kernel = 1, 1e6, kernel // 32 CPUs: n and n+16 are threads of one core
	m, err := machine.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{h: twin.NewHost(m, false)}
	start := func(task model.Task, threads int) model.TaskNum {
		t.Helper()
		num, err := p.h.Start(task, machine.TaskConfig{
			Name: task.Path, Threads: threads, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
		})
		if err != nil {
			t.Fatal(err)
		}
		return num
	}
	p.lc = start(model.Task{Path: "/shop", Class: model.LC}, 4)
	p.alone = start(model.Task{Path: "/db", Class: model.LC, Exclusive: true}, 2)
	p.be = start(model.Task{Path: "/batch", Class: model.BE}, 8)
	p.system = start(model.Task{Path: "/sys", Class: model.System}, 1)
	p.stranger(t, p.lc, bandwidth(200_000, 0))
	return p
}

func bandwidth(quota, burst int64) model.Setting {
	return model.Bandwidth(model.CPUMax{QuotaUsec: quota, PeriodUsec: 100_000, BurstUsec: burst})
}

func cpus(t *testing.T, list string) model.Setting {
	t.Helper()
	set, err := model.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return model.Place(set)
}

func (p *pair) stranger(t *testing.T, num model.TaskNum, v model.Setting) {
	t.Helper()
	if err := p.h.Stranger(num, v); err != nil {
		t.Fatal(err)
	}
}

func (p *pair) observe(t *testing.T) *model.Snapshot {
	t.Helper()
	var s model.Snapshot
	if err := p.h.Observe(0, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// apply carries out one change and returns what became of it.
func (p *pair) apply(t *testing.T, num model.TaskNum, kind model.ChangeKind, v model.Setting) model.Result {
	t.Helper()
	res := node.Do(p.h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: kind, Value: v})
	if len(res) != 1 {
		t.Fatalf("%d results", len(res))
	}
	return res[0]
}

func reading(num model.TaskNum, v model.Setting) model.KnobReading {
	return model.KnobReading{Target: model.OfTask(num), Value: v, Outcome: model.OK}
}

// The topology and the knobs that policies ask about are told first, and again only when
// they differ; what is held is not told; a new agent is told everything.
func TestTopologyAndSettings(t *testing.T) {
	p := newPair(t, machine.Mainline)
	everywhere, free := model.Place(model.CPUSet{}), bandwidth(-1, 0)
	first := p.observe(t)
	if top := first.Topology; top == nil || len(top.CPUs) != 32 || top.CPUs[17] != (model.CPU{ID: 17, Core: 1}) || top.Possible != model.FullSet(32) {
		t.Fatalf("topology: %+v", first.Topology)
	}
	want := []model.KnobReading{
		reading(p.lc, bandwidth(200_000, 0)), reading(p.lc, everywhere),
		reading(p.alone, free), reading(p.alone, everywhere), reading(p.be, everywhere),
	}
	if d := cmp.Diff(want, first.Settings); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	if s := p.observe(t); s.Topology != nil || len(s.Settings) != 0 {
		t.Errorf("told twice: %+v", s)
	}
	p.stranger(t, p.be, cpus(t, "8-15"))
	p.stranger(t, p.be, bandwidth(50_000, 0)) // nobody asks
	if s := p.observe(t); !cmp.Equal(s.Settings, []model.KnobReading{reading(p.be, cpus(t, "8-15"))}) {
		t.Errorf("a stranger's place: %+v", s.Settings)
	}
	if res := p.apply(t, p.be, model.Set, cpus(t, "4-7")); res.Kind != model.Applied || res.Found != cpus(t, "8-15") || res.Now != cpus(t, "4-7") {
		t.Errorf("set: %+v", res)
	}
	if s := p.observe(t); len(s.Settings) != 0 {
		t.Errorf("told of what is held: %+v", s.Settings)
	}
	if err := p.h.Machine().SetOnline(31, false); err != nil {
		t.Fatal(err)
	}
	if s := p.observe(t); s.Topology == nil || len(s.Topology.CPUs) != 31 || s.Topology.Possible != model.FullSet(32) || s.Node.CPUs != 31 {
		t.Errorf("a CPU went: %+v", s.Topology)
	}
	p.h.Reopen()
	if s := p.observe(t); s.Topology == nil || len(s.Settings) != 4 || len(s.Added) != 4 {
		t.Errorf("a new agent: %+v", s)
	}
}

// Both knobs of a task are held, read, taken by strangers and restored apart from each
// other. Hold is never looser than found, Set is what it says.
func TestKnobsOfBothKinds(t *testing.T) {
	p := newPair(t, machine.Mainline)
	found := bandwidth(200_000, 0)
	if res := p.apply(t, p.lc, model.Hold, bandwidth(300_000, 0)); res.Kind != model.Applied || res.Now != found {
		t.Errorf("hold above what was found: %+v", res)
	}
	if res := p.apply(t, p.lc, model.Set, bandwidth(300_000, 300_000)); res.Kind != model.Applied || res.Found != found || res.Now.BurstUsec != 300_000 {
		t.Errorf("raise: %+v", res)
	}
	if res := p.apply(t, p.lc, model.Set, bandwidth(300_000, 300_001)); res.Kind != model.Refused || res.Now != bandwidth(300_000, 300_000) {
		t.Errorf("a burst above the quota on mainline: %+v", res)
	}
	if res := p.apply(t, p.lc, model.Set, cpus(t, "0-7,16-23")); res.Kind != model.Applied || res.Found != model.Place(model.CPUSet{}) {
		t.Errorf("place: %+v", res)
	}
	if res := p.apply(t, p.be, model.Set, cpus(t, "40")); res.Kind != model.Refused || res.Now.Knob != model.CPUPlace {
		t.Errorf("a CPU that is not there: %+v", res)
	}
	if k := p.h.Knobs(nil); !cmp.Equal(k, []model.KnobReading{reading(p.lc, bandwidth(300_000, 300_000)), reading(p.lc, cpus(t, "0-7,16-23"))}) {
		t.Errorf("held: %+v", k)
	}
	p.stranger(t, p.lc, cpus(t, "0-3"))
	if res := p.apply(t, p.lc, model.Set, cpus(t, "0-5")); res.Kind != model.Foreign || res.Now != cpus(t, "0-3") {
		t.Errorf("over a stranger's: %+v", res)
	}
	if res := p.apply(t, p.lc, model.Release, model.Bandwidth(model.CPUMax{})); res.Kind != model.Applied || res.Now != found {
		t.Errorf("release: %+v", res)
	}
	if res := p.apply(t, p.be, model.Set, cpus(t, "8-15")); res.Kind != model.Applied {
		t.Errorf("place: %+v", res)
	}
	if err := p.h.Refuse(p.be, model.CPUPlace, "no"); err != nil {
		t.Fatal(err)
	}
	rep, err := p.h.Restore()
	if err != nil || rep.Count(node.LeftForeign) != 1 || rep.Count(node.NotRestored) != 1 || len(rep.Items) != 2 {
		t.Errorf("restore: %+v, %v", rep, err)
	}
	if err := p.h.Refuse(p.be, model.CPUPlace, ""); err != nil {
		t.Fatal(err)
	}
	if rep, err = p.h.Restore(); err != nil || rep.Count(node.Restored) != 1 || !rep.Complete() {
		t.Errorf("restore again: %+v, %v", rep, err)
	}
	if err := p.h.Stop(p.lc); err != nil {
		t.Fatal(err)
	}
	if res := p.apply(t, p.lc, model.Set, cpus(t, "1")); res.Kind != model.Vanished || res.Now.Knob != model.CPUPlace {
		t.Errorf("a task that is gone: %+v", res)
	}
}

// The kernels differ in what burst they take.
func TestKernelsOfTheHost(t *testing.T) {
	for k, want := range map[machine.Kernel][2]model.ResultKind{
		machine.Mainline: {model.Applied, model.Refused}, machine.AnyBurst: {model.Applied, model.Applied}, machine.NoBurst: {model.Refused, model.Refused},
	} {
		p := newPair(t, k)
		got := [2]model.ResultKind{
			p.apply(t, p.lc, model.Set, bandwidth(200_000, 200_000)).Kind, p.apply(t, p.lc, model.Set, bandwidth(200_000, 2_000_000)).Kind,
		}
		if got != want {
			t.Errorf("%s: %v, expected %v", k, got, want)
		}
	}
}

// A pulse knows the tasks of the last snapshot: shared LC tasks in sum and one by one, BE
// tasks in sum. Sums only grow, also over tasks that come and go; it allocates nothing.
func TestPulse(t *testing.T) {
	p := newPair(t, machine.Mainline)
	m := p.h.Machine()
	m.Advance(1e9)
	var pulse model.Pulse
	p.h.Pulse(true, &pulse)
	if pulse.LCUsage != model.Read(0) || len(pulse.Tasks) != 0 {
		t.Errorf("before the first snapshot: %+v", pulse)
	}
	p.observe(t)
	m.Advance(1e9) // the LC task uses its 2 CPUs, the BE task 8
	p.h.Pulse(true, &pulse)
	near := func(name string, c model.Counter, want float64) {
		t.Helper()
		if v := float64(c.Value) / 1e9; c.Outcome != model.OK || v < 0.95*want || v > 1.05*want {
			t.Errorf("%s: %+v, expected %v s", name, c, want)
		}
	}
	near("LC", pulse.LCUsage, 2)
	near("all, with the third task and what was before the first snapshot", pulse.NodeUsage, 26)
	if len(pulse.Tasks) != 1 || pulse.Tasks[0].Num != p.lc || pulse.Tasks[0].Periods.Value < 18 || pulse.Tasks[0].Throttled.Value < 17 {
		t.Errorf("detail: %+v", pulse.Tasks)
	}
	p.h.Pulse(false, &pulse)
	if near("LC again", pulse.LCUsage, 2); pulse.NodeUsage.Outcome != model.Unavailable || len(pulse.Tasks) != 0 {
		t.Errorf("without detail: %+v", pulse)
	}
	m.Advance(1e9)
	if err := p.h.Stop(p.lc); err != nil {
		t.Fatal(err)
	}
	if err := p.h.Stop(p.be); err != nil {
		t.Fatal(err)
	}
	m.Advance(1e9)
	p.h.Pulse(true, &pulse)
	near("LC, gone", pulse.LCUsage, 4)
	near("all, gone", pulse.NodeUsage, 42)
	p = newPair(t, machine.Mainline)
	p.observe(t)
	p.h.Pulse(true, &pulse)
	if n := testing.AllocsPerRun(100, func() { p.h.Pulse(true, &pulse); p.h.Pulse(false, &pulse) }); n != 0 {
		t.Errorf("%v allocations a pulse", n)
	}
}

// Pages that are moved are where the physics has them; what may stay stays, and other nodes get equal parts.
func TestMovePages(t *testing.T) {
	c := machine.Skylake()
	c.Sockets = 3
	m, err := machine.New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := twin.NewHost(m, false)
	num, err := h.Start(model.Task{Path: "/be", Class: model.BE}, machine.TaskConfig{
		Threads: 1, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{}, Pages: []float64{0.8, 0.2, 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		ask   model.Setting
		kind  model.ResultKind
		now   int64
		pages []float64
	}{
		{model.Pages(300, 0), model.Applied, 300, []float64{0.3, 0.45, 0.25}},
		{model.Pages(900, 0), model.Applied, 300, []float64{0.3, 0.45, 0.25}},
		{model.Pages(0, 0, 1), model.Applied, 0, []float64{0, 0, 1}},
		{model.Pages(0, 0, 1, 2), model.Refused, 0, []float64{0, 0, 1}},
		{model.Reclaim(1), model.Refused, 0, []float64{0, 0, 1}},
	} {
		res := node.Do(h, model.Change{Seq: 1, Target: model.OfTask(num), Kind: model.Run, Value: step.ask})
		if m.Copies() { // it answers when they are there
			if len(res) != 0 {
				t.Errorf("%s: %+v while pages are on their way", step.ask, res)
			}
			m.Advance(2e9)
			res = h.Results(nil)
		}
		got, err := m.Pages(0)
		if len(res) != 1 || res[0].Kind != step.kind || res[0].Now.Amount != step.now || err != nil {
			t.Fatalf("%s: %+v, %v", step.ask, res, err)
		}
		for i, want := range step.pages {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: pages on %v, want %v", step.ask, got, step.pages)
				break
			}
		}
	}
}

// A move that is ended leaves its pages where they are by then, and says so at once, though others' pages are on their way.
func TestMoveEnds(t *testing.T) {
	m, err := machine.New(machine.Skylake(), 1)
	if err != nil {
		t.Fatal(err)
	}
	h := twin.NewHost(m, false)
	var nums []model.TaskNum
	for _, path := range []string{"/be", "/other"} {
		num, err := h.Start(model.Task{Path: path, Class: model.BE}, machine.TaskConfig{
			Threads: 1, CPI: 1, Overlap: 1, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{0}}, Work: &machine.Work{},
			Memory: []machine.Heat{{Bytes: 4 << 30}}, Pages: []float64{1, 0},
		})
		if err != nil {
			t.Fatal(err)
		}
		nums = append(nums, num)
		if res := node.Do(h, model.Change{Seq: uint64(num), Target: model.OfTask(num), Kind: model.Run, Value: model.Pages(0, 0)}); len(res) > 0 {
			t.Fatalf("%+v", res)
		}
	}
	m.Advance(8e9) // of 32 at 128 MiB a second
	res := node.Do(h, model.Change{Seq: 9, Target: model.OfTask(nums[0]), Kind: model.Stop, Value: model.Ask(model.MemoryPages)})
	if len(res) != 1 || res[0].Seq != uint64(nums[0]) || res[0].Kind != model.Applied || res[0].Now.Amount < 700 || res[0].Now.Amount > 850 || res[0].Error == "" {
		t.Fatalf("%+v", res)
	}
	m.Advance(60e9)
	if pages, _ := m.Pages(0); math.Abs(pages[0]-float64(res[0].Now.Amount)/1000) > 0.001 {
		t.Errorf("a minute later its pages are on %v, it said %+v", pages, res[0])
	}
	if res := h.Results(nil); len(res) != 1 || res[0].Seq != uint64(nums[1]) || res[0].Now.Amount != 0 {
		t.Errorf("the other: %+v", res)
	}
}

// A place acts at once: who is moved apart is out of each other's way in the next step.
// When all its CPUs go offline a task runs on those that are left.
func TestPlaceActs(t *testing.T) {
	p := newPair(t, machine.Mainline)
	m := p.h.Machine()
	for _, other := range []model.TaskNum{p.lc, p.alone, p.system} {
		p.stranger(t, other, cpus(t, "0-7"))
	}
	num, err := p.h.Physical(p.be)
	if err != nil {
		t.Fatal(err)
	}
	used := func() float64 {
		before, err := m.Counters(num)
		if err != nil {
			t.Fatal(err)
		}
		m.Advance(100e6)
		after, err := m.Counters(num)
		if err != nil {
			t.Fatal(err)
		}
		return float64(after.UsageNsec-before.UsageNsec) / 100e6
	}
	for _, tt := range []struct {
		list string
		want float64
	}{{"8-31", 8}, {"30-31", 2}, {"31", 1}, {"8-15", 8}, {"30-31", 2}} {
		if res := p.apply(t, p.be, model.Set, cpus(t, tt.list)); res.Kind != model.Applied {
			t.Fatalf("%+v", res)
		}
		if got := used(); got < 0.99*tt.want || got > 1.01*tt.want {
			t.Errorf("on %q: %.2f CPUs", tt.list, got)
		}
	}
	for _, cpu := range []int{30, 31} {
		if err := m.SetOnline(cpu, false); err != nil {
			t.Fatal(err)
		}
	}
	if got := used(); got < 7.9 {
		t.Errorf("with its CPUs offline: %.2f CPUs", got)
	}
	if s := p.h.Knobs(nil); len(s) != 1 || s[0].Value != cpus(t, "30-31") {
		t.Errorf("what stands there: %+v", s)
	}
	if err := m.SetOnline(31, true); err != nil {
		t.Fatal(err)
	}
	if got := used(); got > 1.01 {
		t.Errorf("with one of them back: %.2f CPUs", got)
	}
}
