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

// inUse is how much memory a task had at this look, or at the window's end.
func inUse(v *policy.View, num model.TaskNum) (bytes float64, ok bool) {
	if v.Look != nil {
		i, there := slices.BinarySearchFunc(v.Look.Tasks, num, func(t model.TaskMemory, n model.TaskNum) int { return cmp.Compare(t.Num, n) })
		if !there {
			return 0, false
		}
		return float64(v.Look.Tasks[i].Bytes), true
	}
	if o := v.Window.Observation.Task(num); o != nil && o.InUse.Outcome == model.OK {
		return o.InUse.V, true
	}
	return 0, false
}

// candidate is a best-effort task that may have to give way.
type candidate struct {
	t     *policy.TaskView
	bytes float64
	grows float64 // bytes a second
	next  float64 // bytes at the next look, as it grows now
	spent float64 // CPU-seconds
}

// candidates are the best-effort tasks of which it is known what they have, in the order in which they give way. Tasks are
// numbered as they come, so that the youngest has the highest number.
func (s *State) candidates(p *Params, v *policy.View) (list []candidate) {
	for i := range s.Tasks {
		h := &s.Tasks[i]
		if bytes, ok := inUse(v, h.Num); ok {
			list = append(list, candidate{&v.Tasks[h.view], bytes, h.GrowsBytes, bytes + max(0, h.GrowsBytes)*s.ahead(p), h.Spent})
		}
	}
	last := func(c candidate) int {
		if c.t.Task.Importance == model.Critical {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(last(a)-last(b), compare(p.Order, a, b), compare(p.Then, a, b), compare(Largest, a, b))
	})
	return list
}

// compare is below 0 where a gives way before b.
func compare(order string, a, b candidate) int {
	switch order {
	case LeastImportant:
		return rank(a) - rank(b)
	case Youngest:
		return cmp.Compare(b.t.Task.Num, a.t.Task.Num)
	case Cheapest:
		return cmp.Compare(a.spent, b.spent)
	}
	return cmp.Compare(b.next, a.next)
}

// rank is how important a task is, the least first.
func rank(c candidate) int {
	return slices.Index([]model.Importance{model.BestEffort, model.Batch, model.Critical}, c.t.Task.Importance)
}

// giveWay has the next tasks give way, and reports whether one was to be frozen. Memory is asked back until there is
// enough; nobody more is frozen once what is available falls no further.
func (s *State) giveWay(p *Params, v *policy.View, w *policy.Wishes) (froze bool) {
	list := s.candidates(p, v)
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
		dry := slices.ContainsFunc(s.Dry, func(d policy.Until) bool { return d.Num == t.Num })
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
	s.Dry = slices.DeleteFunc(s.Dry, func(d policy.Until) bool { return v.NowNsec >= d.UntilNsec })
	kept := s.Asked[:0]
	for _, a := range s.Asked {
		if v.Pending(a.Num, model.MemoryReclaim) {
			kept = append(kept, a)
			continue
		}
		if has, ok := inUse(v, a.Num); ok && has > a.Had-fruitless*float64(a.Bytes) {
			s.Dry = append(s.Dry, policy.Until{Num: a.Num, UntilNsec: v.NowNsec + rounds*max(p.EveryNsec, 1e9)})
		}
	}
	s.Asked = kept
}

// freeze has the first of the list that run frozen. Where the reserve is near because some of them grow, these are; those that do
// not would give nothing for it, and where it is the only thing left they follow once a second. What only would be done changes nothing: in mode observe it is said of
// the first ones, and nothing is inferred from what they go on doing.
func (s *State) freeze(p *Params, list []candidate, v *policy.View, w *policy.Wishes) bool {
	if !v.Enforced() && len(s.Frozen) >= p.AtOnce {
		return false
	}
	list = slices.DeleteFunc(list, func(c candidate) bool { return !s.mayFreeze(&c, w) })
	stands := func(c candidate) bool { return c.grows < s.FallBytes/10 }
	if s.urgent(p) && slices.ContainsFunc(list, func(c candidate) bool { return !stands(c) }) {
		list = slices.DeleteFunc(list, stands)
	} else if n := len(s.Frozen); n > 0 && v.NowNsec-s.Frozen[n-1].AtNsec < settleNsec {
		return false
	}
	list = list[:min(len(list), p.AtOnce)]
	for _, c := range list {
		t := &c.t.Task
		s.Frozen = append(s.Frozen, Frozen{t.Num, v.NowNsec})
		w.Decide(model.Decision{
			Kind: model.DecideFreeze, Task: t.Num, Path: t.Path, Facts: append(s.facts(p), model.FactHeld.Is(c.bytes)),
			Reason: fmt.Sprintf("memory is short, and this task has %.0f MiB", c.bytes/(1<<20)),
		})
	}
	return len(list) > 0
}

// settleNsec is how long it takes to be seen what came of a task that was frozen.
const settleNsec = int64(1e9)

// mayFreeze reports whether a task runs, has memory, and may be frozen. What stands against it is said once.
func (s *State) mayFreeze(c *candidate, w *policy.Wishes) bool {
	t := &c.t.Task
	if t.Importance == model.Critical || c.bytes < leastAsk || slices.ContainsFunc(s.Frozen, func(f Frozen) bool { return f.Num == t.Num }) {
		return false
	}
	word, why := c.t.Closed(model.GroupFreeze)
	if word == "" && c.t.Knobs[model.GroupFreeze].Refused {
		word, why = "refused", "it could not be frozen: "+c.t.Knobs[model.GroupFreeze].Why
	}
	if word != "" {
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Num, Path: t.Path, Reason: why})
	}
	return word == ""
}

// letIn lets the task that was frozen last go on, and the next one when there has been enough for as long again.
func (s *State) letIn(p *Params, v *policy.View, w *policy.Wishes) {
	calm, wait := s.eased(p)
	switch n := len(s.Frozen); {
	case n == 0 && s.LetNsec > 0 && v.NowNsec-s.LetNsec >= 4*s.WaitNsec:
		s.LetNsec, s.Patience = 0, 0
	case n > 0 && calm > 0 && v.NowNsec-calm >= wait && (s.LetNsec == 0 || v.NowNsec-s.LetNsec >= wait):
		w.End(claimOf(p, s.Frozen[n-1].Num), fmt.Sprintf("%.1f %% of memory have been available for long enough", 100*s.share()))
		s.Frozen, s.LetNsec, s.WaitNsec = s.Frozen[:n-1], v.NowNsec, wait
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
		if t == nil || !p.Freeze || v.Enforced() && slices.Contains(s.Ending, f.Num) { // v1 ends no process that is frozen
			return true
		}
		word, _ := t.Closed(model.GroupFreeze) // an operator's word, or a stranger's write
		return word != ""
	})
	for _, f := range s.Frozen {
		w.Claims = append(w.Claims, claimOf(p, f.Num))
	}
	for _, a := range s.Asked {
		if s.AskedNsec == v.NowNsec || v.Pending(a.Num, model.MemoryReclaim) {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfTask(a.Num), Kind: model.ClaimRun, Value: model.Reclaim(a.Bytes), Reason: frozenReason, HoldNsec: p.HoldNsec,
			})
		}
	}
	s.WishEnds(v, w, frozenReason, p.HoldNsec)
	w.Why = "it is not to give way any more"
}
