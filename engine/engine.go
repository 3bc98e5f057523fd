// Package engine runs the policies in a fixed order and settles what they wish for. It
// is pure: Step(input) -> output, equal inputs give equal outputs, time is data. The
// shell (agent/) owns clocks, files and goroutines; a replay feeds a record's inputs in
// and compares the outputs.
//
// The order of a tick: tasks that came and went; what the host says of earlier writes;
// what operators say; the kill switch; the window that closed, if one did (observe, judge
// outliers, learn specs); the policies (policies.go), whose wishes become claims (grant.go);
// expiry and arbitration.
package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Params is everything that the configuration says to the engine.
type Params struct {
	Platform       string                 `json:"platform"` // CPU type
	Mode           model.Mode             `json:"mode"`     // of the hard-cap policy
	Sources        [model.NumSources]bool `json:"sources"`  // signals that may be used
	HistoryWindows int                    `json:"history_windows"`
	CapPeriodNsec  int64                  `json:"cap_period_nsec"` // section 5: 250 ms
	Outlier        outlier.Params         `json:"outlier"`
	Spec           localspec.Params       `json:"spec"`
	Hardcap        hardcap.Params         `json:"hardcap"`
	Limits         Limits                 `json:"limits"`
	CPU            CPUParams              `json:"cpu"`
}

// Input is one tick. Everything that could change the engine's mind is in it.
type Input struct {
	Seq        uint64              `json:"seq"`
	MonoNsec   int64               `json:"mono_nsec"`
	WallNsec   int64               `json:"wall_nsec"`
	Snapshot   *model.Snapshot     `json:"-"` // nil on ticks without a reading; recorded apart
	Pulse      *model.Pulse        `json:"-"` // nil on ticks without one; recorded apart
	Results    []model.Result      `json:"results,omitempty"`
	Knobs      []model.KnobReading `json:"knobs,omitempty"`
	Commands   []model.Command     `json:"commands,omitempty"`
	KillSwitch bool                `json:"kill_switch,omitempty"`
	Restored   *Restored           `json:"restored,omitempty"` // on the first tick after a restart
	// Params are new parameters, from this tick on; nil: as before.
	Params *Params `json:"params,omitempty"`
	// Specs are what a fleet, or an earlier run, knows of jobs.
	Specs []model.Spec `json:"specs,omitempty"`
	// SLO are readings of latency sources that are new since the last tick.
	SLO []model.Latency `json:"slo,omitempty"`
}

// Output is what a tick leads to. Its slices are reused by the next Step.
type Output struct {
	Changes   []model.Change    `json:"changes,omitempty"`
	Decisions []model.Decision  `json:"decisions,omitempty"`
	Incidents []*model.Incident `json:"incidents,omitempty"` // new or changed, as they stand now
	Observed  bool              `json:"observed,omitempty"`  // a window closed
}

// Track is what the engine remembers of one task beside its history.
type Track struct {
	Num     model.TaskNum   `json:"num"`
	Flags   outlier.Flags   `json:"flags"`
	Verdict outlier.Verdict `json:"verdict"` // of the last window
	Source  model.Source    `json:"source"`
	Signal  model.Value     `json:"signal"`
	CPU     model.Value     `json:"cpu"`
	Limit   float64         `json:"limit"` // outlier threshold; 0: no spec
	// Raw are all signals as they were measured, and ThrottledRate how many CFS periods a second
	// quotas throttled, in the last window. Nothing is decided by them here: people look at them.
	Raw           model.Measures `json:"raw"`
	ThrottledRate model.Value    `json:"throttled_rate"`
	// FigureNsec is when the task's latency was last held against its job's target; 0: never.
	FigureNsec int64 `json:"figure_nsec,omitempty"`
	// Excused is when it was last said that the task's distress is its own doing.
	ExcusedNsec int64 `json:"excused_nsec"`
}

// NodeTrack is the node in its last window, for people to look at.
type NodeTrack struct {
	CPUs        int         `json:"cpus"`
	ElapsedNsec int64       `json:"elapsed_nsec"` // 0: there was no window yet
	Busy        model.Value `json:"busy"`         // CPU-sec/sec of the whole node
	Unmanaged   model.Value `json:"unmanaged"`    // of it, what no task used
	Steal       model.Value `json:"steal"`        // CPU-sec/sec
}

// State is the engine's whole memory. It can be written to a checkpoint and read back.
type State struct {
	Tasks   model.TaskTable     `json:"tasks"`
	Tracks  []Track             `json:"tracks"` // ordered by Num, one a task
	Prev    *model.Snapshot     `json:"prev,omitempty"`
	Specs   localspec.State     `json:"specs"`
	History *antagonist.History `json:"history"`
	Hardcap hardcap.State       `json:"hardcap"`
	Ledger  Ledger              `json:"ledger"`
	CPU     CPUState            `json:"cpu"`
	// Policies are the policies in the order in which they run, and Told what they said.
	Policies []Standing `json:"policies"`
	Told     tellings   `json:"told,omitempty"`
	// ProtectOff lists jobs whose protection an operator turned off; "" stands for all.
	ProtectOff []string  `json:"protect_off"`
	Killed     bool      `json:"killed"`
	BECPU      float64   `json:"be_cpu"` // CPU-sec/sec of BE tasks in the last window
	Node       NodeTrack `json:"node"`
	// SLO is the last reading of each latency source, ordered by job.
	SLO []model.Latency `json:"slo,omitempty"`
}

// Engine is State with its parameters and scratch space.
type Engine struct {
	Params Params
	State  *State

	obs     model.Observation
	scratch scratch
	out     Output
}

// New returns an engine that knows nothing yet.
func New(p Params) *Engine {
	s := &State{History: antagonist.NewHistory(max(1, p.HistoryWindows))}
	s.Specs.Platform = p.Platform
	s.standings()
	return &Engine{Params: p, State: s}
}

// standings gives each policy its entry: a checkpoint may be of a version that knew others.
func (s *State) standings() {
	list := make([]Standing, len(policyRows))
	for i := range policyRows {
		list[i].Policy = policyRows[i].name
		if j := slices.IndexFunc(s.Policies, func(o Standing) bool { return o.Policy == policyRows[i].name }); j >= 0 {
			list[i] = s.Policies[j]
		}
	}
	s.Policies = list
}

// Resume returns an engine with the state of a checkpoint.
func Resume(p Params, s *State) (*Engine, error) {
	if s.History == nil || s.History.Cap != max(1, p.HistoryWindows) {
		return nil, fmt.Errorf("checkpoint: history does not fit the parameters")
	}
	if err := s.History.Check(); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if len(s.Tracks) != len(s.Tasks.Tasks) {
		return nil, fmt.Errorf("checkpoint: %d tasks, %d tracks", len(s.Tasks.Tasks), len(s.Tracks))
	}
	s.standings()
	if s.Hardcap.Claims == nil { // before records of version 3 they stood in the ledger alone
		s.Hardcap.Claims = s.Ledger.claimsOf(model.PolicyHardcap)
	}
	return &Engine{Params: p, State: s}, nil
}

// Step takes one tick. The output is good until the next one.
func (e *Engine) Step(in *Input) *Output {
	e.out = Output{Changes: e.out.Changes[:0], Decisions: e.out.Decisions[:0], Incidents: e.out.Incidents[:0]}
	if in.Restored != nil {
		e.restore(in)
	}
	e.told(in)
	if in.Snapshot != nil {
		e.tasks(in)
	}
	e.learn(in)
	for i := range in.Commands {
		e.command(in, &in.Commands[i])
	}
	e.killSwitch(in)
	e.scratch.victims = e.scratch.victims[:0]
	e.window(in)
	e.policies(in)
	e.doubt(in)
	e.settle(in)
	return &e.out
}

// tasks takes in who came and who went.
func (e *Engine) tasks(in *Input) {
	s := e.State
	e.lookAtSnapshot(in.Snapshot)
	for _, n := range in.Snapshot.Removed {
		t := s.Tasks.Get(n)
		if t == nil {
			continue
		}
		s.Specs.Forget(e.Params.Spec, t)
		s.Tasks.Remove(n)
		s.Tracks = slices.DeleteFunc(s.Tracks, func(t Track) bool { return t.Num == n })
		s.History.Forget(n)
		s.Ledger.Gone(model.OfTask(n), in.MonoNsec)
		s.Told.forget(func(t *told) bool { return t.Task == n })
	}
	for _, t := range in.Snapshot.Added {
		s.Tasks.Add(t)
		s.History.Ensure(t.Num)
		i, ok := slices.BinarySearchFunc(s.Tracks, t.Num, func(a Track, n model.TaskNum) int { return int(int64(a.Num) - int64(n)) })
		if !ok {
			s.Tracks = slices.Insert(s.Tracks, i, Track{Num: t.Num})
		}
	}
	for _, sh := range in.Snapshot.Shields {
		s.Ledger.shield(sh, in.MonoNsec)
		if d := (model.Decision{Kind: model.DecideLeftAlone, Task: sh.Task, Reason: sh.Why}); sh.Why != "" {
			e.decide(in, d)
		}
	}
	for _, k := range in.Snapshot.Settings {
		if k.Outcome == model.OK {
			s.Ledger.Bases.put(k.Target, k.Value)
		} else {
			s.Ledger.Bases.drop(k.Target, k.Value.Knob)
		}
	}
}

// learn takes in what became of earlier writes, and what held knobs say now.
func (e *Engine) learn(in *Input) {
	for i := range in.Results {
		r := &in.Results[i]
		if kind, reason := e.State.Ledger.Learn(r, in.MonoNsec); kind != model.DecideNothing {
			e.decide(in, model.Decision{Kind: kind, Task: r.Task(), Path: e.State.Tasks.NameOf(r.Target), Reason: reason})
		}
		e.moved()
	}
	for i := range in.Knobs {
		k := &in.Knobs[i]
		if foreign, reason := e.State.Ledger.Compare(k, in.MonoNsec); foreign {
			e.decide(in, model.Decision{Kind: model.DecideForeign, Task: k.Task(), Path: e.State.Tasks.NameOf(k.Target), Reason: reason})
			e.moved()
		}
	}
}

// killSwitch releases everything when the file appears, and says when it goes.
func (e *Engine) killSwitch(in *Input) {
	if in.KillSwitch {
		e.State.Ledger.DropAll()
	}
	if in.KillSwitch == e.State.Killed {
		return
	}
	e.State.Killed = in.KillSwitch
	reason := "the kill switch is gone: policies are as configured"
	if in.KillSwitch {
		reason = "the kill switch is there: everything is released and nothing is held"
	} else {
		e.State.Hardcap.Wake()
	}
	e.decide(in, model.Decision{Kind: model.DecideKill, Reason: reason})
}

// window closes a sampling window and judges it.
func (e *Engine) window(in *Input) {
	snap, win := in.Snapshot, &e.scratch.view.Window
	*win = policy.Window{}
	if snap == nil {
		return
	}
	s := e.State
	if snap.Mark&model.WindowEnd != 0 && s.Prev != nil {
		model.Observe(s.Prev, snap, &e.obs)
		if e.Params.Spec.CoreCycles {
			e.obs.ByCore()
		}
		if e.obs.ElapsedNsec > 0 {
			e.judge(in)
			*win = policy.Window{Closed: true, LengthNsec: e.obs.ElapsedNsec, StartNsec: s.Prev.MonoNsec, Memory: e.obs.Memory, Room: e.obs.Room, Tasks: e.obs.Tasks}
			e.out.Observed = true
		}
	}
	if snap.Mark&model.WindowStart == 0 {
		s.Prev = nil
		return
	}
	if s.Prev == nil {
		s.Prev = &model.Snapshot{}
	}
	tasks, memory := append(s.Prev.Tasks[:0], snap.Tasks...), append(s.Prev.Memory[:0], snap.Memory...)
	*s.Prev = model.Snapshot{MonoNsec: snap.MonoNsec, WallNsec: snap.WallNsec, Mark: snap.Mark, Node: snap.Node, Tasks: tasks, Memory: memory}
}

// judge goes through the tasks of the window once: signal, verdict, history, spec.
func (e *Engine) judge(in *Input) {
	s := e.State
	h := s.History
	h.Begin(in.MonoNsec)
	s.BECPU = 0
	s.Node = NodeTrack{CPUs: e.obs.CPUs, ElapsedNsec: e.obs.ElapsedNsec, Busy: e.obs.Busy, Unmanaged: e.obs.Unmanaged, Steal: e.obs.Steal}
	j := 0
	for i := range e.obs.Tasks {
		o := &e.obs.Tasks[i]
		for j < len(s.Tracks) && s.Tracks[j].Num < o.Num {
			j++
		}
		if j >= len(s.Tracks) || s.Tracks[j].Num != o.Num {
			continue // a task the engine was never told of
		}
		e.judgeTask(in, o, j)
	}
	h.Put(model.NumUnmanaged, e.obs.Unmanaged.V, antagonist.NoEvidence)
	h.Put(model.NumSteal, e.obs.Steal.V, antagonist.NoEvidence)
	h.End()
	for _, sp := range s.Specs.Recalculate(e.Params.Spec, in.MonoNsec) {
		e.spec(in, sp, sp.Origin())
	}
}

// judgeTask judges one task; j is its index in Tracks, which is also that of its row in
// the history: both hold one entry a task, ordered by number, with the pseudo-suspects
// behind all tasks.
func (e *Engine) judgeTask(in *Input, o *model.TaskObservation, j int) {
	s := e.State
	tr, task := &s.Tracks[j], &s.Tasks.Tasks[j]
	o.Discount(&e.obs, task.CPUs)
	src, spec := e.measure(in, o, tr, task)
	if src.Row().Targeted != tr.Source.Row().Targeted { // what was seen before was another thing
		tr.Flags.Clear()
		s.History.Disregard(j)
	}
	tr.Source, tr.Signal, tr.CPU, tr.Limit = src, o.Signals[src], o.CPU, 0
	tr.Raw, tr.ThrottledRate = o.Raw, o.ThrottledRate
	tr.Verdict = outlier.Judge(&e.Params.Outlier, src, spec, o)
	limit := math.Inf(1)
	if spec != nil {
		limit = e.Params.Outlier.Threshold(spec)
		tr.Limit = limit
	}
	switch {
	case !src.Row().Targeted:
		e.study(task, o, src, spec)
	case tr.Verdict == outlier.Good: // what is normal of another signal is best learned while the job keeps its promise
		other := e.source(o)
		e.study(task, o, other, s.Specs.Lookup(task.Job, other))
	}
	if tr.Verdict == outlier.Outlier {
		tr.Flags.Flag(&e.Params.Outlier, in.MonoNsec)
	}
	if task.Protected() && spec != nil {
		e.excuse(in, o, tr, task)
	}
	signal := float64(antagonist.NoEvidence)
	if tr.Verdict.Evidence() {
		signal = o.Signals[src].V
	}
	cpu := 0.0
	if o.CPU.Outcome == model.OK {
		cpu = o.CPU.V
	}
	used := cpu
	if task.Class == model.BE && src.Row().Waits && s.Ledger.yields(task.Num) {
		used = 0 // nobody waited for what it used: to count it would clear it of what it does otherwise
	}
	s.History.PutAt(j, used, signal)
	if o.Misses.Outcome == model.OK {
		s.History.PutMisses(j, o.Misses.V)
	}
	if task.Class == model.BE {
		s.BECPU += cpu
	}
	if task.Protected() && spec != nil {
		n := tr.Flags.Recent(&e.Params.Outlier, in.MonoNsec)
		e.scratch.victims = append(e.scratch.victims, policy.Victim{
			Num: task.Num, Source: src, Verdict: tr.Verdict, Signal: o.Signals[src].V, Threshold: limit, Spec: spec,
			Violations: n, Anomalous: n >= e.Params.Outlier.Violations, MPKI: o.MPKI, Protected: !slices.Contains(s.ProtectOff, task.Job),
		})
	}
}

// study gives the learner a window.
func (e *Engine) study(task *model.Task, o *model.TaskObservation, src model.Source, spec *model.Spec) {
	if !outlier.Usable(&e.Params.Outlier, src, o) {
		return
	}
	limit := math.Inf(1)
	if spec != nil {
		limit = e.Params.Outlier.Threshold(spec)
	}
	e.State.Specs.Add(e.Params.Spec, task, src, o.Signals[src].V, o.CPU.V, limit)
	i := -1
	if src.Row().Waits {
		i = slices.IndexFunc(e.obs.Waiting, func(w model.Waiting) bool { return w.Num == task.Num && w.Judged() })
	}
	if i < 0 {
		return
	}
	if w := &e.obs.Waiting[i]; src.Row().Charged && w.Waits > 0 {
		e.State.Specs.Turn(task.Job, src, o.CPU.V*float64(e.obs.ElapsedNsec)/1e6/float64(w.Waits))
	}
	if spec == nil && e.Params.Spec.Alone {
		e.charge(task, src, &e.obs.Waiting[i])
	}
}

// charge tells the learner which best-effort task delayed a task most in the window.
func (e *Engine) charge(task *model.Task, src model.Source, w *model.Waiting) {
	most, by := int64(0), (*model.Task)(nil)
	for k := range w.Shares {
		x := &w.Shares[k]
		if t := e.State.Tasks.Get(x.Task); x.Party == model.WaitTask && t != nil && t.Class == model.BE && x.Nsec > most {
			most, by = x.Nsec, t
		}
	}
	if by != nil {
		e.State.Specs.Charge(e.Params.Spec, task, src, localspec.Beside{Path: by.Path, Share: float64(most) / float64(w.Foreign())})
	}
}

// doubt takes back that a spec leaves a neighbour out when an incident that it led to could not be fixed.
func (e *Engine) doubt(in *Input) {
	for _, inc := range e.out.Incidents {
		if inc.State != model.CannotFix || inc.Spec.Without == "" {
			continue
		}
		if sp := e.State.Specs.Doubt(inc.VictimJob, inc.Source, in.MonoNsec); sp != nil {
			e.spec(in, sp, fmt.Sprintf("as measured beside %s, for holding it did not help", inc.Spec.Without))
		}
	}
}

// spec tells of a spec that is new.
func (e *Engine) spec(in *Input, sp *model.Spec, origin string) {
	e.decide(in, model.Decision{
		Kind: model.DecideSpec, Path: sp.Job,
		Facts:  []model.Fact{model.FactMean.Is(sp.Mean), model.FactThreshold.Is(e.Params.Outlier.Threshold(sp))},
		Reason: fmt.Sprintf("%s of %s: %.4g +- %.2g %s", sp.Source, sp.Job, sp.Mean, sp.StdDev, origin),
	})
}

// excuse says, at most once in the outlier window, that a protected task is in distress
// for which no neighbour is to blame.
func (e *Engine) excuse(in *Input, o *model.TaskObservation, tr *Track, task *model.Task) {
	self := tr.Verdict == outlier.SelfQueueing || tr.Verdict == outlier.OwnThrottling
	raw := o.Raw[tr.Source]
	if !self || raw.Outcome != model.OK || raw.V <= tr.Limit {
		return
	}
	if tr.ExcusedNsec != 0 && in.MonoNsec-tr.ExcusedNsec < e.Params.Outlier.WindowNsec {
		return
	}
	tr.ExcusedNsec = in.MonoNsec
	e.decide(in, model.Decision{
		Kind: model.DecideOwnDoing, Task: task.Num, Facts: []model.Fact{model.FactSignal.Is(raw.V), model.FactThreshold.Is(tr.Limit)},
		Reason: fmt.Sprintf("%s %.3g, but it %s: no neighbour is accused", tr.Source, raw.V, tr.Verdict.Predicate()),
	})
}

// measure picks the signal by which a task is judged, and what is normal of it. A task of a job that has
// a target is judged by its latency. While that has no valid figure it says nothing: whoever answers no
// more is not well because it does not wait, either. Once that has lasted for the window of outliers, or
// where there never was a figure, the task is judged as if there were no target.
func (e *Engine) measure(in *Input, o *model.TaskObservation, tr *Track, task *model.Task) (model.Source, *model.Spec) {
	if l := e.State.promise(task); l != nil {
		told := *l
		if !slices.ContainsFunc(in.SLO, func(n model.Latency) bool { return n.Job == l.Job }) {
			told.Figure = model.Missing(model.Unavailable) // of an earlier window
		}
		src := told.Tell(o)
		if told.Figure.Outcome == model.OK {
			tr.FigureNsec = in.MonoNsec
		}
		if tr.FigureNsec != 0 && in.MonoNsec-tr.FigureNsec < e.Params.Outlier.WindowNsec {
			return src, l.Spec(e.Params.Platform)
		}
	}
	src := e.source(o)
	return src, e.State.Specs.Lookup(task.Job, src)
}

// promise is the last reading of a protected task's job, where that has a target.
func (s *State) promise(task *model.Task) *model.Latency {
	i, ok := slices.BinarySearchFunc(s.SLO, task.Job, func(l model.Latency, job string) int { return strings.Compare(l.Job, job) })
	if !ok || s.SLO[i].Target <= 0 || !task.Protected() {
		return nil
	}
	return &s.SLO[i]
}

// source picks the best signal that the window has; where it has none, the one that most
// machines have: the last that may be used.
func (e *Engine) source(o *model.TaskObservation) model.Source {
	last := model.Source(0)
	for _, src := range model.Sources() {
		if !e.Params.Sources[src] {
			continue
		}
		if last = src; o.Signals[src].Outcome == model.OK {
			return src
		}
	}
	return last
}

// decide records a decision that is not part of an incident's own story.
func (e *Engine) decide(in *Input, d model.Decision) {
	d.MonoNsec, d.WallNsec = in.MonoNsec, in.WallNsec
	if d.Path == "" && d.Task != 0 { // hosts number tasks from 1: 0 is the whole node
		d.Path = e.State.Tasks.Name(d.Task)
	}
	e.out.Decisions = append(e.out.Decisions, d)
}
