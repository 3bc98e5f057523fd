package engine_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// A small synthetic node for the scenarios of this package. Each second is a window. A
// task uses what it asks for, up to its limit; a victim's CPI is its base plus what the
// others' actual usage does to it. Changes are answered as a kernel would. What it does
// not model: CPUs that run out, latency of writes, caches. It says nothing about whether
// the model of interference is true, only about what the engine makes of it.

const second = int64(1e9)

// noLimit is what a cgroup has before anybody writes it.
var noLimit = model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}

// harmless is the CPU-sec/sec that a task may use without hurting anybody: a cap at the
// profile's quota cures the victim.
const harmless = 0.1

// simTask is one cgroup of the synthetic node.
type simTask struct {
	model.Task
	demand func(s int) float64 // CPU-sec/sec that it would use
	// hurt says by how much the CPI (or the slowdown) rises per CPU-sec/sec of others, by path.
	hurt   map[string]float64
	free   float64             // CPU-sec/sec that it may use without hurting anybody; 0: harmless
	misses float64             // of the LLC per CPU-sec; 0: 1e6
	self   func(s int) float64 // rise of its own making
	mpki   func(s int) float64 // LLC misses per 1000 instructions; nil: as misses has it
	// What resctrl counts of it, per CPU-sec/sec: bytes of the cache, and bytes a second to and from memory; both 0: it is not counted.
	lines, moves float64
	moved        uint64
	// throttledBySelf says when its own quota throttles it.
	throttledBySelf func(s int) bool

	from, until int // seconds of its life; until 0: for ever
	limit       model.CPUMax
	found       *model.CPUMax // set while we hold it
	weight      int64         // 0: 1024
	spite       float64       // what is left of the harm that it does once it gives way to everybody
	refuse      string        // the kernel's answer to a hold, "" to take it
	refuseIdle  string        // the same for a demotion
	refuseLoose string        // the same for a release
	there       bool
	used        float64 // in the present second
	sample      model.TaskSample
}

// sim is the node.
type sim struct {
	t     *testing.T
	e     *engine.Engine
	tasks []*simTask
	// at is called before the tick of its second.
	at map[int]func(*sim, *engine.Input)

	unmanaged, steal func(s int) float64
	hurtUnmanaged    float64 // rise of LC tasks per unmanaged CPU-sec/sec
	hurtSteal        float64
	pulses           bool // each second has one
	slowdown         bool // no hardware counters: only run and delay

	s       int
	seq     uint64
	mono    int64
	node    model.NodeSample
	results []model.Result
	states  map[string]model.IncidentState
	holds   int
	kill    bool
	out     strings.Builder
}

func steady(v float64) func(int) float64 { return func(int) float64 { return v } }

// between is v from second a (inclusive) to b (exclusive), idle outside.
func between(a, b int, v, idle float64) func(int) float64 {
	return func(s int) float64 {
		if s >= a && s < b {
			return v
		}
		return idle
	}
}

// bursts is v for on seconds of each on+off, from second a.
func bursts(a, on, off int, v, idle float64) func(int) float64 {
	return func(s int) float64 {
		if s >= a && (s-a)%(on+off) < on {
			return v
		}
		return idle
	}
}

// lc and be make tasks; the job is the first part of the path.
func lc(num model.TaskNum, path string, demand func(int) float64) *simTask {
	return &simTask{Task: model.Task{Num: num, Path: path, Inode: 1000 + uint64(num), Job: strings.Split(path, "/")[1], Class: model.LC, Production: true}, demand: demand, limit: noLimit}
}

func be(num model.TaskNum, path string, imp model.Importance, demand func(int) float64) *simTask {
	t := lc(num, path, demand)
	t.Class, t.Importance, t.Production = model.BE, imp, false
	return t
}

func (t *simTask) hurtBy(path string, rise float64) *simTask {
	if t.hurt == nil {
		t.hurt = map[string]float64{}
	}
	t.hurt[path] = rise
	return t
}

// singleNode returns the parameters of the single-node profile, enforcing.
func singleNode(t *testing.T) engine.Params {
	t.Helper()
	c := singleNodeConfig(t)
	return c.Params("sim-cpu")
}

func singleNodeConfig(t testing.TB) config.Config {
	t.Helper()
	c, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		t.Fatal("no single-node profile")
	}
	c.Policies.Mode = model.ModeEnforce
	return c
}

func newSim(t *testing.T, p engine.Params, tasks ...*simTask) *sim {
	return &sim{
		t: t, e: engine.New(p), tasks: tasks, at: map[int]func(*sim, *engine.Input){},
		unmanaged: steady(0), steal: steady(0), states: map[string]model.IncidentState{}, mono: 100 * second,
	}
}

func (n *sim) task(path string) *simTask {
	for _, t := range n.tasks {
		if t.Path == path {
			return t
		}
	}
	n.t.Fatalf("no task %s", path)
	return nil
}

// wobble is what the signal does when nothing is wrong: within 1 %, never above 2 sigma.
func wobble(s int) float64 { return []float64{-0.01, 0, 0.01, 0}[s%4] }

// live lets one second pass for every task.
func (n *sim) live(snap *model.Snapshot) {
	busy := n.unmanaged(n.s)
	for _, t := range n.tasks {
		alive := n.s >= t.from && (t.until == 0 || n.s < t.until)
		switch {
		case alive && !t.there:
			snap.Added = append(snap.Added, t.Task)
		case !alive && t.there:
			snap.Removed = append(snap.Removed, t.Num)
			t.found, t.weight = nil, 0
		}
		t.there, t.used = alive, 0
		if alive {
			t.used = min(t.demand(n.s), t.limit.Ratio())
			busy += t.used
		}
	}
	for _, t := range n.tasks {
		if t.there {
			n.count(t)
			snap.Tasks = append(snap.Tasks, t.sample)
			if t.lines+t.moves > 0 {
				t.moved += uint64(t.moves * t.used)
				d := model.DomainSample{Num: t.Num, SinceNsec: 1, MonoNsec: n.mono}
				d.C[model.CountOccupancy], d.C[model.CountMovedTotal] = model.Read(uint64(t.lines*t.used)), model.Read(t.moved)
				snap.Domains = append(snap.Domains, d)
			}
		}
	}
	slices.SortFunc(snap.Tasks, func(a, b model.TaskSample) int { return int(a.Num) - int(b.Num) })
	slices.SortFunc(snap.Domains, func(a, b model.DomainSample) int { return a.Compare(&b) })
	grow := func(k model.NodeCounter, by float64) { n.node.C[k] = grown(n.node.C[k], by) }
	n.node.CPUs = 16
	grow(model.CountBusy, busy*1e9)
	grow(model.CountSteal, n.steal(n.s)*1e9)
	snap.Node = n.node
}

func grown(c model.Counter, by float64) model.Counter {
	return model.Read(c.Value + uint64(math.Round(by)))
}

// count moves one task's counters on by a second.
func (n *sim) count(t *simTask) {
	rise := n.hurtUnmanaged*n.unmanaged(n.s) + n.hurtSteal*n.steal(n.s)
	if t.Class != model.LC && !t.Eligible {
		rise = 0
	}
	for _, o := range n.tasks {
		harm := t.hurt[o.Path] * max(0, o.used-max(harmless, o.free))
		if o.weight == model.WeightIdle {
			harm *= o.spite
		}
		rise += harm
	}
	if t.self != nil {
		rise += t.self(n.s)
	}
	level := 1.5 * (1 + wobble(n.s)) * (1 + rise)
	c := &t.sample
	c.Num = t.Num
	grow := func(k model.TaskCounter, by float64) { c.C[k] = grown(c.C[k], by) }
	grow(model.CountUsage, t.used*1e9)
	throttled := 0.0
	if t.demand(n.s) > t.used || (t.throttledBySelf != nil && t.throttledBySelf(n.s)) {
		throttled = 5
	}
	grow(model.CountThrottled, throttled)
	grow(model.CountRun, t.used*1e9)
	grow(model.CountDelay, t.used*1e9*(level-1))
	if !n.slowdown {
		grow(model.CountCycles, t.used*2e9)
		grow(model.CountRefCycles, t.used*2e9)
		grow(model.CountInstructions, t.used*2e9/level)
		if t.mpki != nil {
			grow(model.CountLLCMisses, t.used*2e9/level*t.mpki(n.s)/1000)
		} else {
			grow(model.CountLLCMisses, t.used*cmp.Or(t.misses, 1e6))
		}
	}
}

// tick is one second: the node lives, the engine steps, the kernel answers.
func (n *sim) tick() {
	in := &engine.Input{Seq: n.seq, MonoNsec: n.mono, WallNsec: n.mono + 1e18, Results: n.results, KillSwitch: n.kill}
	if f := n.at[n.s]; f != nil {
		f(n, in)
	}
	in.KillSwitch, in.MonoNsec = n.kill, n.mono
	snap := &model.Snapshot{MonoNsec: n.mono, WallNsec: in.WallNsec, Mark: model.WindowStart | model.WindowEnd}
	n.live(snap)
	in.Snapshot = snap
	if n.pulses {
		in.Pulse = &model.Pulse{MonoNsec: n.mono}
	}
	for _, t := range n.tasks {
		if t.found != nil {
			in.Knobs = append(in.Knobs, model.KnobReading{Target: model.OfTask(t.Num), Value: model.Bandwidth(t.limit), Outcome: model.OK})
		}
	}
	for _, t := range n.tasks {
		if t.weight != 0 {
			in.Knobs = append(in.Knobs, model.KnobReading{Target: model.OfTask(t.Num), Value: model.Weight(t.weight), Outcome: model.OK})
		}
	}
	out := n.e.Step(in)
	n.print(out)
	n.results = n.results[:0]
	for _, c := range out.Changes {
		n.answer(c)
	}
	n.check()
	n.s++
	n.seq++
	n.mono += second
}

func (n *sim) run(until int) {
	for n.s < until {
		n.tick()
	}
}

// answer does to a change what node/linux does.
func (n *sim) answer(c model.Change) {
	var t *simTask
	for _, x := range n.tasks {
		if x.Num == c.Task() {
			t = x
		}
	}
	if c.Value.Knob == model.CPUWeight {
		n.weigh(t, c)
		return
	}
	r := model.Result{Seq: c.Seq, Target: c.Target, MonoNsec: n.mono + 2e6, Found: model.Bandwidth(t.limit), Now: model.Bandwidth(t.limit)}
	if t.found != nil {
		r.Found = model.Bandwidth(*t.found)
	}
	switch {
	case c.Kind == model.Disown:
		t.found = nil
		n.printf("        -> disown %s\n", t.Path)
		return
	case !t.there || (t.until > 0 && n.s+1 >= t.until && t.until-n.s == 1):
		r.Kind, r.Error = model.Vanished, "no such cgroup"
	case c.Kind == model.Hold && t.refuse != "":
		r.Kind, r.Error = model.Refused, t.refuse
	case c.Kind == model.Release && t.refuseLoose != "":
		r.Kind, r.Error = model.Refused, t.refuseLoose
	case c.Kind == model.Hold:
		if t.found == nil {
			f := t.limit
			t.found = &f
		}
		n.holds++
		if c.Value.Ratio() < t.found.Ratio() {
			t.limit = c.Value.CPUMax
		} else {
			t.limit = *t.found
		}
		r.Now = model.Bandwidth(t.limit)
	default:
		if t.found != nil {
			t.limit = *t.found
		}
		t.found, r.Now = nil, model.Bandwidth(t.limit)
	}
	what := fmt.Sprintf("%s %s", c.Kind, t.Path)
	if c.Kind == model.Hold {
		what += fmt.Sprintf(" %d/%d", c.Value.QuotaUsec, c.Value.PeriodUsec)
	}
	n.printf("        -> %s: %s, %s\n", what, r.Kind, limitText(t.limit))
	n.results = append(n.results, r)
}

// weigh is answer for a task's weight.
func (n *sim) weigh(t *simTask, c model.Change) {
	found := model.Weight(model.WeightDefault)
	r := model.Result{Seq: c.Seq, Target: c.Target, MonoNsec: n.mono + 2e6, Found: found, Now: found}
	switch {
	case !t.there:
		r.Kind, r.Error = model.Vanished, "no such cgroup"
	case c.Kind == model.Hold && t.refuseIdle != "":
		r.Kind, r.Error = model.Refused, t.refuseIdle
	case c.Kind == model.Hold:
		n.holds++
		t.weight, r.Now = c.Value.Amount, c.Value
	default:
		t.weight = 0
	}
	n.printf("        -> %s %s of %s: %s, %s\n", c.Kind, c.Value.Knob, t.Path, r.Kind, r.Now)
	if c.Kind != model.Disown {
		n.results = append(n.results, r)
	}
}

func limitText(m model.CPUMax) string {
	if m.QuotaUsec < 0 {
		return "no limit"
	}
	return fmt.Sprintf("limit %d/%d", m.QuotaUsec, m.PeriodUsec)
}

// check holds on every tick of every scenario.
func (n *sim) check() {
	for _, e := range n.e.State.Specs.Entries {
		for _, num := range e.Tasks {
			if n.e.State.Tasks.Get(num) == nil {
				n.t.Fatalf("s %d: the spec of %s remembers task %d, which has ended", n.s, e.Key.Job, num)
			}
		}
	}
	n.t.Helper()
	st := n.e.State
	if _, err := json.Marshal(st); err != nil {
		n.t.Fatalf("second %d: state cannot be written: %v", n.s, err)
	}
	for i := range st.Ledger.Knobs {
		k := &st.Ledger.Knobs[i]
		for _, c := range k.Claims {
			if task := st.Tasks.Get(c.Task()); c.Owner == model.OwnerPolicy && (task == nil || task.Class != model.BE) {
				n.t.Fatalf("second %d: a policy claims task %d, which is not BE", n.s, c.Task())
			}
			if n.mono >= c.ExpiresNsec {
				n.t.Fatalf("second %d: the claim on task %d is past its time", n.s, c.Task())
			}
		}
	}
	if n.e.Params.Mode != model.ModeEnforce && n.holds > 0 {
		n.t.Fatalf("second %d: written in mode %s", n.s, n.e.Params.Mode)
	}
}

func (n *sim) printf(format string, args ...any) { fmt.Fprintf(&n.out, format, args...) }

// print writes what a tick led to.
func (n *sim) print(out *engine.Output) {
	for i := range out.Decisions {
		d := &out.Decisions[i]
		n.printf("%4d s  %-10s  %s", n.s, d.Kind, d.Path)
		if d.Incident != "" {
			n.printf(" [%s]", d.Incident)
		}
		n.printf(": %s\n", d.Reason)
	}
	for _, inc := range out.Incidents {
		if n.states[inc.ID] == inc.State && inc.State != model.Searching {
			continue
		}
		if old, ok := n.states[inc.ID]; !ok || old != inc.State {
			n.printf("        %s is %s\n", inc.ID, inc.State)
		}
		n.states[inc.ID] = inc.State
		if !inc.State.Open() {
			n.printIncident(inc)
		}
	}
}

func (n *sim) printIncident(inc *model.Incident) {
	n.printf("        | %s suffered: %s %.2f over %.2f, %d violations\n", inc.VictimPath, inc.Source, inc.Signal, inc.Threshold, inc.Violations)
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		n.printf("        | round %d: asked %.2f, median %.2f, of %d; signal %.2f, then %.2f in %d windows; %s\n",
			i+1, r.Threshold, r.Median, r.Considered, r.SignalBefore, r.SignalAfter, r.WindowsJudged, r.Verdict)
		// Equals in an order that no rounding decides.
		suspects := slices.Clone(r.Suspects)
		slices.SortStableFunc(suspects, func(a, b model.Suspect) int {
			return cmp.Or(cmp.Compare(math.Round(b.Score*100), math.Round(a.Score*100)), cmp.Compare(a.Path, b.Path))
		})
		for _, s := range suspects {
			n.printf("        |   %5.2f %5.2f CPU %-20s %-6s %s\n", s.Score, s.Usage, s.Path, s.Class, s.Verdict)
		}
	}
	for _, tried := range inc.Tried {
		n.printf("        | tried %s\n", tried)
	}
	if inc.Evidence != "" {
		n.printf("        | %s\n", inc.Evidence)
	}
}

// command returns an action that hands an operator's word in.
func command(c model.Command) func(*sim, *engine.Input) {
	c.By = "ann"
	return func(_ *sim, in *engine.Input) { in.Commands = append(in.Commands, c) }
}
