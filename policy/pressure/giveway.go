package pressure

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// leastAsk is how little memory of a task is not worth asking for.
const leastAsk = 1 << 20

// pending reports whether memory is being taken back from a task.
func pending(v *policy.View, num model.TaskNum) bool {
	t := v.Task(num)
	return t != nil && t.Knobs[model.MemoryReclaim].Pending
}

// inUse is how much memory a task had at the window's end.
func inUse(v *policy.View, num model.TaskNum) (bytes float64, ok bool) {
	obs := v.Window.Observation
	if obs == nil {
		return 0, false
	}
	i, there := slices.BinarySearchFunc(obs.Tasks, num, func(t model.TaskObservation, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
	if !there || obs.Tasks[i].InUse.Outcome != model.OK {
		return 0, false
	}
	return obs.Tasks[i].InUse.V, true
}

// candidate is a best-effort task that may have to give way.
type candidate struct {
	t     *policy.TaskView
	bytes float64
}

// candidates are the best-effort tasks of which it is known what they have, in the order in which they give way. Tasks are
// numbered as they come, so that the youngest has the highest number.
func candidates(p *Params, v *policy.View) (list []candidate) {
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if bytes, ok := inUse(v, t.Task.Num); ok && t.Task.Class == model.BE {
			list = append(list, candidate{t, bytes})
		}
	}
	last := func(c candidate) int {
		if c.t.Task.Importance == model.Critical {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		key := 0
		if p.Order == LeastImportant {
			key = rank(a) - rank(b)
		}
		if p.Order == Youngest {
			key = cmp.Compare(b.t.Task.Num, a.t.Task.Num)
		}
		return cmp.Or(last(a)-last(b), key, cmp.Compare(b.bytes, a.bytes))
	})
	return list
}

// rank is how important a task is, the least first.
func rank(c candidate) int {
	return slices.Index([]model.Importance{model.BestEffort, model.Batch, model.Critical}, c.t.Task.Importance)
}

// giveWay has the next tasks give way, and reports whether one was to be frozen. Memory is asked back until there is
// enough; nobody more is frozen once what is available falls no further.
func (s *State) giveWay(p *Params, v *policy.View, w *policy.Wishes) (froze bool) {
	list := candidates(p, v)
	if p.ReclaimBytes > 0 && s.share() < p.Enough && (s.AskedNsec == 0 || v.NowNsec-s.AskedNsec >= p.EveryNsec) {
		s.ask(p, list, v, w)
	}
	return s.Level == Freeze && s.Short && p.Freeze && s.freeze(p, list, v, w)
}

// ask asks the first of the list for memory.
func (s *State) ask(p *Params, list []candidate, v *policy.View, w *policy.Wishes) {
	s.learn(p, v)
	n := 0
	for _, c := range list {
		t, k := &c.t.Task, &c.t.Knobs[model.MemoryReclaim]
		bytes := min(p.ReclaimBytes, int64(c.bytes))
		dry := slices.ContainsFunc(s.Dry, func(d Dry) bool { return d.Num == t.Num })
		if n == p.AtOnce || dry || k.Pending || bytes < leastAsk {
			continue
		}
		if word, why := c.t.Closed(model.MemoryReclaim); why != "" {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Num, Path: t.Path, Reason: why})
			continue
		}
		n++
		s.Asked = append(s.Asked, Asked{t.Num, bytes, c.bytes})
		w.Decide(model.Decision{
			Kind: model.DecideReclaim, Task: t.Num, Path: t.Path, Facts: append(s.facts(p), model.FactHeld.Is(c.bytes), model.FactBytes.Is(float64(bytes))),
			Reason: fmt.Sprintf("memory is short, and this task has %.0f MiB: up to %.0f MiB are taken back", c.bytes/(1<<20), float64(bytes)/(1<<20)),
		})
	}
	if n > 0 {
		s.AskedNsec = v.NowNsec
	}
}

// learn takes in what the last round gave. Who has given less than a tenth, because the kernel found no more, refused, or
// because the task took it all anew, is not asked for a while.
func (s *State) learn(p *Params, v *policy.View) {
	const fruitless, rounds = 0.1, 12
	s.Dry = slices.DeleteFunc(s.Dry, func(d Dry) bool { return v.NowNsec >= d.UntilNsec })
	kept := s.Asked[:0]
	for _, a := range s.Asked {
		if pending(v, a.Num) {
			kept = append(kept, a)
			continue
		}
		if has, ok := inUse(v, a.Num); ok && has > a.Had-fruitless*float64(a.Bytes) {
			s.Dry = append(s.Dry, Dry{a.Num, v.NowNsec + rounds*max(p.EveryNsec, 1e9)})
		}
	}
	s.Asked = kept
}

// freeze has the first of the list that run frozen. What only would be done changes nothing: in mode observe it is said
// of the first ones, and nothing is inferred from what they go on doing.
func (s *State) freeze(p *Params, list []candidate, v *policy.View, w *policy.Wishes) bool {
	n := 0
	for _, c := range list {
		t := &c.t.Task
		if n == p.AtOnce || t.Importance == model.Critical || !v.Enforced() && len(s.Frozen) >= p.AtOnce {
			break
		}
		if slices.ContainsFunc(s.Frozen, func(f Frozen) bool { return f.Num == t.Num }) || c.bytes < leastAsk {
			continue
		}
		word, why := c.t.Closed(model.GroupFreeze)
		if word == "" && c.t.Knobs[model.GroupFreeze].Refused {
			word, why = "refused", "it could not be frozen: "+c.t.Knobs[model.GroupFreeze].Why
		}
		if word != "" {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Num, Path: t.Path, Reason: why})
			continue
		}
		n++
		s.Frozen = append(s.Frozen, Frozen{t.Num, v.NowNsec})
		w.Decide(model.Decision{
			Kind: model.DecideFreeze, Task: t.Num, Path: t.Path, Facts: append(s.facts(p), model.FactHeld.Is(c.bytes)),
			Reason: fmt.Sprintf("memory is short, and this task has %.0f MiB", c.bytes/(1<<20)),
		})
	}
	return n > 0
}

// letIn lets the task that was frozen last go on, and the next one when there has been enough for as long again.
func (s *State) letIn(p *Params, v *policy.View, w *policy.Wishes) {
	wait := int64(max(1, s.Patience)) * p.CalmNsec
	switch n := len(s.Frozen); {
	case n == 0 && s.LetNsec > 0 && v.NowNsec-s.LetNsec >= 4*wait:
		s.LetNsec, s.Patience = 0, 0
	case n > 0 && s.CalmNsec > 0 && v.NowNsec-s.CalmNsec >= wait && (s.LetNsec == 0 || v.NowNsec-s.LetNsec >= wait):
		w.End(claimOf(p, s.Frozen[n-1].Num), fmt.Sprintf("%.1f %% of memory have been available for long enough", 100*s.share()))
		s.Frozen, s.LetNsec = s.Frozen[:n-1], v.NowNsec
	}
}

const frozenReason = "the machine is short of memory"

// claimOf is what has a task frozen.
func claimOf(p *Params, num model.TaskNum) model.Claim {
	return model.Claim{
		Target: model.OfTask(num), Kind: model.ClaimCap, Value: model.Ask(model.GroupFreeze), Cap: 0, Uncounted: true, Reason: frozenReason, HoldNsec: p.HoldNsec,
	}
}

// wish claims what is to be frozen, and the memory that is asked for and not yet answered.
func (s *State) wish(p *Params, v *policy.View, w *policy.Wishes) {
	s.Frozen = slices.DeleteFunc(s.Frozen, func(f Frozen) bool {
		t := v.Task(f.Num)
		if t == nil || !p.Freeze {
			return true
		}
		word, _ := t.Closed(model.GroupFreeze) // an operator's word, or a stranger's write
		return word != ""
	})
	for _, f := range s.Frozen {
		w.Claims = append(w.Claims, claimOf(p, f.Num))
	}
	for _, a := range s.Asked {
		if s.AskedNsec == v.NowNsec || pending(v, a.Num) {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfTask(a.Num), Kind: model.ClaimRun, Value: model.Reclaim(a.Bytes), Reason: frozenReason, HoldNsec: p.HoldNsec,
			})
		}
	}
	w.Why = "it is not to give way any more"
}
