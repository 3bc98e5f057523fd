package engine

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// What a sampling window says: signals, verdicts, history, specs.

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
			*win = policy.Window{Closed: true, LengthNsec: e.obs.ElapsedNsec, StartNsec: s.Prev.MonoNsec, Observation: &e.obs}
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
	tasks, memory, io := append(s.Prev.Tasks[:0], snap.Tasks...), append(s.Prev.Memory[:0], snap.Memory...), append(s.Prev.IO[:0], snap.IO...)
	domains := append(s.Prev.Domains[:0], snap.Domains...)
	*s.Prev = model.Snapshot{MonoNsec: snap.MonoNsec, WallNsec: snap.WallNsec, Mark: snap.Mark, Node: snap.Node, Tasks: tasks, Memory: memory, IO: io, Domains: domains}
}

// Domains returns what the last window says of what a task has of the last-level caches and moves to and from memory, by domain; none where nobody
// counts it. It is good until the next window.
func (e *Engine) Domains(task model.TaskNum) []model.DomainObservation { return e.obs.In(task) }

// judge goes through the tasks of the window once: signal, verdict, history, spec.
func (e *Engine) judge(in *Input) {
	s := e.State
	h := s.History
	h.Begin(in.MonoNsec)
	needs := e.Params.Needs()
	beside := [model.NumSources]bool{model.SourceIO: needs.IO, model.SourceMemory: needs.Stalls}
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
		e.judgeBeside(in, o, j, &beside)
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
		e.study(in, task, o, src, spec)
	case tr.Verdict == outlier.Good: // what is normal of another signal is best learned while the job keeps its promise
		other := e.source(o)
		e.study(in, task, o, other, s.Specs.Of(task, other))
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
	if e.Params.Hardcap.Confirm.ByLack {
		s.History.PutParts(j, e.obs.In(o.Num))
		if task.Protected() {
			s.History.PutMPKI(j, o.MPKI)
		}
	}
	if task.Class == model.BE {
		s.BECPU += cpu
	}
	if task.Protected() && spec != nil {
		n := tr.Flags.Recent(&e.Params.Outlier, in.MonoNsec)
		e.scratch.victims = append(e.scratch.victims, policy.Victim{
			Num: task.Num, Source: src, Verdict: tr.Verdict, Signal: o.Signals[src].V, Threshold: limit, Spec: spec,
			Violations: n, Anomalous: n >= e.Params.Outlier.Violations, MPKI: o.MPKI, Protected: !s.off(task.Job),
		})
	}
}

// beside are the outliers of a signal that is judged beside.
func (t *Track) beside(src model.Source) *outlier.Flags {
	if src == model.SourceMemory {
		return &t.Starved
	}
	return &t.Beside
}

// judgeBeside judges a protected task by the signals that stand beside the one that is used, as far as a policy goes by them. What a task of
// best-effort work waits is nobody's concern.
func (e *Engine) judgeBeside(in *Input, o *model.TaskObservation, j int, by *[model.NumSources]bool) {
	tr, task := &e.State.Tracks[j], &e.State.Tasks.Tasks[j]
	if !task.Protected() {
		return
	}
	for _, src := range model.Sources() {
		if !by[src] {
			continue
		}
		flags := tr.beside(src)
		spec := e.State.Specs.Of(task, src)
		e.study(in, task, o, src, spec)
		verdict := outlier.Judge(&e.Params.Outlier, src, spec, o)
		if verdict == outlier.Outlier {
			flags.Flag(&e.Params.Outlier, in.MonoNsec)
		}
		if spec == nil {
			continue
		}
		n := flags.Recent(&e.Params.Outlier, in.MonoNsec)
		e.scratch.beside = append(e.scratch.beside, policy.Victim{
			Num: task.Num, Source: src, Verdict: verdict, Signal: o.Signals[src].V, Threshold: e.Params.Outlier.Threshold(spec), Spec: spec,
			Violations: n, Anomalous: n >= e.Params.Outlier.Violations, Protected: !e.State.off(task.Job),
		})
	}
}

// study gives the learner a window.
func (e *Engine) study(in *Input, task *model.Task, o *model.TaskObservation, src model.Source, spec *model.Spec) {
	if !outlier.Usable(&e.Params.Outlier, src, o) {
		return
	}
	limit := math.Inf(1)
	if spec != nil {
		limit = e.Params.Outlier.Threshold(spec)
	} else if src.Row().Waits && e.obs.Steal.Outcome == model.OK && e.State.Specs.PassOver(e.Params.Spec, task, src, e.obs.Steal.V/float64(e.obs.CPUs), in.MonoNsec) {
		return
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
	return src, e.State.Specs.Of(task, src)
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
		if !e.Params.Sources[src] || src.Row().Beside {
			continue
		}
		if last = src; o.Signals[src].Outcome == model.OK {
			return src
		}
	}
	return last
}
