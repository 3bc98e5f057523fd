// Package enginetest is a node for the tests of policies: the real engine, with its ledger and
// its memory of what was said, over tasks whose knobs are plain memory. What a policy wishes for
// becomes claims, changes and results the way it does on a server. The load of the tasks, and
// what a kernel does with a quota or a cpuset, is the test's own.
//
// What it does not model: a journal, cgroups below a task's, partial writes.
package enginetest

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/blockio"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/policy/cpupool"
	"github.com/commensal-io/commensal/policy/cpuset"
	"github.com/commensal-io/commensal/policy/demote"
	"github.com/commensal-io/commensal/policy/memory"
	"github.com/commensal-io/commensal/policy/pressure"
)

// Durations, in nanoseconds.
const (
	Msec = int64(1e6)
	Sec  = int64(1e9)
)

// wallNsec is how far the wall clock is ahead of the monotonic one.
const wallNsec = int64(1e18)

// Params are the engine's parameters with every policy off and the CPU policies' defaults.
func Params() engine.Params {
	p := engine.Params{Platform: "test", HistoryWindows: 1, CapPeriodNsec: 250 * Msec, Limits: engine.Limits{MaxHeldTasks: 8, MaxBETaken: 1}}
	p.Hardcap.DurationNsec = 300 * Sec // for so long policies keep off a task that an operator freed
	p.CPU = engine.CPUParams{CPUSet: cpuset.Defaults(), CPUPool: cpupool.Defaults(), Burst: burst.Defaults(), Demote: demote.Defaults(), Pressure: pressure.Defaults(), ColdPages: coldpages.Defaults(), IO: blockio.Defaults(), Memory: memory.Defaults()}
	p.SetModes(model.ModeOff)
	return p
}

// Knob is one knob of a task.
type Knob struct {
	Value      model.Setting // what it says
	Unreadable bool
	// Write is what the kernel makes of a write, "" when it takes it. nil: it takes everything.
	Write func(v model.Setting) (refusal string)
	// Did is how much an action does of what it is asked for. nil: all.
	Did func(v model.Setting) int64
	// Kept is the share of what it does that does not come free (memory.reclaim).
	Kept float64
	// Ours: Found was there before our first write. The journal of this node.
	Ours         bool
	Found, wrote model.Setting
}

// Task is one task with its knobs.
type Task struct {
	model.Task
	Knobs [model.NumKnobs]Knob
}

// NewTask returns a task that may run everywhere and has no quota.
func NewTask(num int, class model.Class) *Task {
	t := &Task{Task: model.Task{Num: model.TaskNum(num), Path: fmt.Sprintf("/t%d", num), Job: fmt.Sprintf("t%d", num), Class: class}}
	for kind := range model.OfTasks {
		t.Knobs[kind].Value = model.Ask(kind)
	}
	t.Knobs[model.MemoryHigh].Value = model.HighMemory(model.NoMemoryHigh)
	t.Knobs[model.CPUWeight].Value = model.Weight(model.WeightDefault)
	return t.Quota(-1, 100_000)
}

// Quota gives the task a quota, in microseconds a period, -1: none.
func (t *Task) Quota(quotaUsec, periodUsec int64) *Task {
	t.Knobs[model.CPUBandwidth].Value = model.Bandwidth(model.CPUMax{QuotaUsec: quotaUsec, PeriodUsec: periodUsec})
	return t
}

// CPUs lets the task run on some CPUs only.
func (t *Task) CPUs(set model.CPUSet) *Task {
	t.Knobs[model.CPUPlace].Value = model.Place(set)
	return t
}

// Refuse lets the kernel refuse every write of a knob, "": take them again.
func (t *Task) Refuse(kind model.KnobKind, why string) *Task {
	t.Knobs[kind].Write = func(model.Setting) string { return why }
	return t
}

// Flat is a machine of so many cores with one thread each.
func Flat(cpus int) *model.Topology {
	t := &model.Topology{Possible: model.FullSet(cpus)}
	for i := range cpus {
		t.CPUs = append(t.CPUs, model.CPU{ID: i, Core: i})
	}
	return t
}

// WideKnob is a knob of a target that is no task.
type WideKnob struct {
	model.Target
	Knob
}

// wide returns a knob that is no task's: 100 of its unit before it is written, and no limit where levels count bytes.
func (n *Node) wide(c *model.Change) *WideKnob {
	for _, w := range n.Wide {
		if w.Target == c.Target && w.Value.Knob == c.Value.Knob {
			return w
		}
	}
	w := &WideKnob{Target: c.Target, Knob: Knob{Value: model.Setting{Knob: c.Value.Knob, Amount: 100}}}
	if c.Value.Knob == model.MemoryBandwidth && n.Topology != nil && n.Topology.Classes != nil && n.Topology.Classes.LevelBytes() > 0 {
		w.Value.Amount = int64(n.Topology.Classes.MostLevel)
	}
	n.Wide = append(n.Wide, w)
	return w
}

// Node is the node. A test sets the clock and the next pulse, and steps.
type Node struct {
	Engine   *engine.Engine
	NowNsec  int64
	Pulse    *model.Pulse    // of the next step; nil: none
	Kill     bool            // the kill switch is there
	SLO      []model.Latency // that the next step is told
	Look     *model.Look     // memory between windows, of the next step; nil: none
	Tasks    []*Task         // ordered by number
	Topology *model.Topology
	Wide     []*WideKnob // that are no task's, as they are first written

	Said   []model.Decision // everything that was decided
	Writes int              // of knobs, that the kernel took
	// After is called after each step. Log gets decisions and writes as a story.
	After func(in *engine.Input, out *engine.Output)
	Log   io.Writer

	began   int64 // when the story began: at the first chapter
	in      engine.Input
	due     []model.Change
	results []model.Result
}

// New returns a node at second 1000. topology nil: it cannot be read.
func New(p engine.Params, topology *model.Topology, tasks ...*Task) *Node {
	n := &Node{Engine: engine.New(p), NowNsec: 1000 * Sec}
	if topology != nil {
		n.Plug(topology)
	}
	for _, t := range tasks {
		n.Add(t)
	}
	return n
}

// Snapshot is what the next step sees of the machine. A test that plays windows fills in marks and
// samples.
func (n *Node) Snapshot() *model.Snapshot {
	if n.in.Snapshot == nil {
		n.in.Snapshot = &model.Snapshot{}
	}
	return n.in.Snapshot
}

// Plug tells of the CPUs that are online.
func (n *Node) Plug(t *model.Topology) { n.Topology, n.Snapshot().Topology = t, t }

// Add tells of a new task.
func (n *Node) Add(t *Task) {
	n.Tasks = append(n.Tasks, t)
	slices.SortFunc(n.Tasks, func(a, b *Task) int { return int(a.Num) - int(b.Num) })
	n.Snapshot().Added = append(n.Snapshot().Added, t.Task)
	n.List(t.Num)
}

// Remove lets a task end.
func (n *Node) Remove(num model.TaskNum) {
	n.Tasks = slices.DeleteFunc(n.Tasks, func(t *Task) bool { return t.Num == num })
	s := n.Snapshot()
	s.Removed = append(s.Removed, num)
	s.Settings = slices.DeleteFunc(s.Settings, func(k model.KnobReading) bool { return k.Num == num })
}

// List tells anew what the knobs of a task say that are not ours; the policies look at
// everything anew then.
func (n *Node) List(num model.TaskNum) {
	t, s := n.Task(num), n.Snapshot()
	for kind := range model.OfCgroups {
		k := &t.Knobs[kind]
		r := model.KnobReading{Target: model.OfTask(num), Value: k.Value, Outcome: model.OK}
		if k.Unreadable {
			r.Value, r.Outcome = model.Ask(kind), model.Unavailable
		}
		if !k.Ours {
			s.Settings = append(s.Settings, r)
		}
	}
}

// Stranger writes a knob behind the engine's back; the next step finds it.
func (n *Node) Stranger(num model.TaskNum, v model.Setting) {
	k := &n.Task(num).Knobs[v.Knob]
	if k.Value = v; k.Ours {
		n.in.Knobs = append(n.in.Knobs, model.KnobReading{Target: model.OfTask(num), Value: v, Outcome: model.OK})
		return
	}
	n.List(num)
}

// Foreign has the next step find what a knob of ours that is no task's says now.
func (n *Node) Foreign(w *WideKnob) {
	n.in.Knobs = append(n.in.Knobs, model.KnobReading{Target: w.Target, Value: w.Value, Outcome: model.OK})
}

// Tell hands an operator's word in.
func (n *Node) Tell(c model.Command) {
	c.By = "ann"
	n.in.Commands = append(n.in.Commands, c)
}

// Change has the next step take other parameters over.
func (n *Node) Change(p engine.Params) { n.in.Params = &p }

// Task returns a task that is there, nil for any other.
func (n *Node) Task(num model.TaskNum) *Task {
	for _, t := range n.Tasks {
		if t.Num == num {
			return t
		}
	}
	return nil
}

// Claim returns what a policy claims on a task's knob, nil when that is nothing.
func (n *Node) Claim(policyName string, num model.TaskNum, kind model.KnobKind) *model.Claim {
	for i := range n.Engine.State.Ledger.Knobs {
		k := &n.Engine.State.Ledger.Knobs[i]
		for j := range k.Claims {
			if c := &k.Claims[j]; k.Target == model.OfTask(num) && k.Kind == kind && c.Policy == policyName {
				return c
			}
		}
	}
	return nil
}

// Claims counts the claims of all policies.
func (n *Node) Claims() (count int) {
	for i := range n.Engine.State.Ledger.Knobs {
		count += len(n.Engine.State.Ledger.Knobs[i].Claims)
	}
	return count
}

// Count counts decisions of a kind.
func (n *Node) Count(kind model.DecisionKind) (count int) {
	for i := range n.Said {
		if n.Said[i].Kind == kind {
			count++
		}
	}
	return count
}

// Dump logs everything that was decided.
func (n *Node) Dump(t testing.TB) {
	t.Helper()
	for i := range n.Said {
		d := &n.Said[i]
		t.Logf("%d ms: %s task %d: %s", d.MonoNsec/Msec, d.Kind, d.Task, d.Reason)
	}
}

// Beat lets time pass, takes a step and carries out what comes of it at once.
func (n *Node) Beat(dt int64) *engine.Output {
	n.NowNsec += dt
	out := n.Step()
	n.Land()
	return out
}

// Step takes one step of the engine. What it changes lands when Land is called.
func (n *Node) Step() *engine.Output {
	in := &n.in
	in.MonoNsec, in.WallNsec, in.Pulse, in.KillSwitch = n.NowNsec, n.NowNsec+wallNsec, n.Pulse, n.Kill
	in.SLO, n.SLO = n.SLO, nil
	if in.Look, n.Look = n.Look, nil; in.Look != nil {
		in.Look.MonoNsec = in.MonoNsec
	}
	if in.Snapshot != nil {
		in.Snapshot.MonoNsec, in.Snapshot.WallNsec = in.MonoNsec, in.WallNsec
	}
	in.Results = append(in.Results[:0], n.results...)
	n.results = n.results[:0]
	out := n.Engine.Step(in)
	n.Said = append(n.Said, out.Decisions...)
	n.due = append(n.due, out.Changes...)
	n.tell(out)
	if n.After != nil {
		n.After(in, out)
	}
	in.Seq++
	in.Params, in.Snapshot, in.Knobs, in.Commands = nil, nil, in.Knobs[:0], in.Commands[:0]
	return out
}

// Land carries out the changes that are due, as node/linux does.
func (n *Node) Land() {
	for i := range n.due {
		n.land(&n.due[i])
	}
	n.due = n.due[:0]
}

func (n *Node) land(c *model.Change) {
	if c.Kind == model.Stop { // what Run does here is done at once
		return
	}
	none := model.Ask(c.Value.Knob)
	r := model.Result{Seq: c.Seq, Target: c.Target, Kind: model.Vanished, Found: none, Now: none, MonoNsec: n.NowNsec}
	if c.Scope != model.ScopeTask {
		w := n.wide(c)
		if c.Kind == model.Disown {
			w.Ours = false
			return
		}
		n.change(&w.Knob, c, &r)
		n.note(c.Name(), &w.Knob, c, &r)
	}
	if t := n.Task(c.Task()); t != nil {
		k := &t.Knobs[c.Value.Knob]
		if c.Kind == model.Disown {
			k.Ours = false
			n.List(t.Num)
			return
		}
		n.change(k, c, &r)
		n.note(t.Path, k, c, &r)
	}
	n.results = append(n.results, r)
}

// change writes a knob: what was found is remembered at the first write, a stranger's value
// is left, and a value that stands already is not written again.
func (n *Node) change(k *Knob, c *model.Change, r *model.Result) {
	r.Kind, r.Found, r.Now = model.Applied, k.Value, k.Value
	if c.Kind == model.Run { // nothing stands there afterwards
		if r.Now = c.Value; k.Did != nil {
			r.Now.Amount = k.Did(c.Value)
		}
		r.Now.Kept = int64(k.Kept * float64(r.Now.Amount))
		if k.Write != nil {
			if r.Error = k.Write(c.Value); r.Error != "" {
				r.Kind = model.Refused
			}
		}
		return
	}
	if k.Ours {
		if r.Found = k.Found; k.Value != k.wrote {
			r.Kind = model.Foreign
			return
		}
	}
	want := r.Found
	switch c.Kind {
	case model.Set:
		want = c.Value
	case model.Hold:
		want = r.Found.Tightest(c.Value)
	}
	if want != k.Value {
		if k.Write != nil {
			if why := k.Write(want); why != "" {
				r.Kind, r.Error = model.Refused, why
				return
			}
		}
		k.Value = want
		n.Writes++
	}
	k.Found, k.Ours, k.wrote, r.Now = r.Found, c.Kind != model.Release, want, want
}

// View is what a policy sees of the node while nothing is on its way, for a step or a benchmark
// of the policy alone.
func (n *Node) View(mode model.Mode) *policy.View {
	v := &policy.View{NowNsec: n.NowNsec, WallNsec: n.NowNsec + wallNsec, Mode: mode, Topology: n.Topology, Pulse: n.Pulse, Ledger: &n.Engine.State.Ledger}
	v.PoolCPUs, v.PoolShared = n.Engine.PoolCPUs()
	for _, t := range n.Tasks {
		view := policy.TaskView{Task: t.Task}
		for kind := range model.OfTasks {
			k := &t.Knobs[kind]
			view.Knobs[kind] = policy.KnobView{Known: !k.Unreadable, Found: k.Value, Now: k.Value, Ours: k.Ours}
			if k.Ours {
				view.Knobs[kind].Found = k.Found
			}
		}
		v.Tasks = append(v.Tasks, view)
	}
	return v
}

// Shadow lets a second engine take every step too, which is made anew from the first one's
// checkpoint before so many steps each. Both must do the same.
func (n *Node) Shadow(t testing.TB, every uint64) {
	var shadow *engine.Engine
	n.After = func(in *engine.Input, out *engine.Output) {
		t.Helper()
		if shadow != nil {
			shadow.Params = n.Engine.Params
			got := shadow.Step(in)
			if !same(got.Changes, out.Changes) || !same(got.Decisions, out.Decisions) {
				t.Fatalf("step %d: after a checkpoint\n%+v\nwithout\n%+v", in.Seq, got, out)
			}
		}
		if in.Seq%every == 0 {
			shadow = Resumed(t, n.Engine)
		}
	}
}

func same[T any](a, b []T) bool { return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b) }

// UseUp has whoever looks see that nearly all memory is used, and a task that has a GiB of it.
func (n *Node) UseUp(num model.TaskNum) {
	for range 2 { // what is read is held against the reading before
		n.NowNsec += Sec / 10
		n.Look = &model.Look{Tasks: []model.TaskMemory{{Num: num, Bytes: 1 << 30}}}
		n.Look.Node.C[model.CountMemoryTotal], n.Look.Node.C[model.CountMemoryAvailable] = model.Read(1e10), model.Read(1e7)
		n.Beat(0)
	}
}
