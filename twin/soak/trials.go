package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who tries what with whom. The policies that try remedies for a victim and look what comes of them are not to pull at one task in the same windows. What they
// do is read from the ledger's claims after each turn, and not from what they say. The rule: of a task that one of them has on trial, or of which it took something less
// than a window ago and has it still, no other one begins to hold anything, and none gives a step back. Not so, for reasons: who held it before may take more, since his own victim suffers;
// and whoever ends a hold does so, so that no two wait for each other. A step back is on trial
// for the window after it. What a class of one task has only because the class of BE has no more is nobody's pull: it goes down and up with
// what all batch work has (policies cache and bandwidth), which is no remedy for one task and changes it just the same in the class of BE. Policy pressure and operators may do anything, since memory or a person cannot wait; what is on trial then says nothing: no verdict
// (kept, taken-back, verified) may come of a trial that began before one of them froze, capped or demoted its task, nor of one during which another
// of the policies changed what it holds of it.

// triers are the policies that try remedies for a victim, in the order in which they take their steps.
var triers = []string{model.PolicyHardcap, model.PolicyBalm, model.PolicyRemedy, model.PolicyIO, model.PolicyMemory}

// pull is what one policy holds of a task.
type pull struct {
	policy   string
	task     model.TaskNum
	of       model.Target
	kind     model.KnobKind
	incident string
}

// trying is a policy with a task.
type trying struct {
	policy string
	task   model.TaskNum
}

// trials is what was seen of one agent.
type trials struct {
	life      *life
	held      map[pull]float64 // what it is left with, as of the last turn
	was       map[pull]float64 // and when it was held last
	took      map[trying]int64 // when something was taken last
	since     map[trying]int64 // what is on trial, and since when
	lasting   map[trying]bool  // and a window later, whatever comes of it: what is on trial for a window alone, after a step back, is not
	moved     map[trying]int64 // when it was changed last
	disturbed map[model.TaskNum]int64
	pulled    map[trying]int64 // when something that a policy holds of a task was written last
}

// amount is what a claim leaves.
func amount(c *model.Claim) float64 {
	switch {
	case c.Kind == model.ClaimCap:
		return c.Cap
	case c.Value.Knob == model.CPUPlace:
		return float64(c.Value.CPUs.Len())
	}
	return 0
}

// pulls are what the triers hold.
func pulls(s *engine.State) map[pull]float64 {
	held := map[pull]float64{}
	for i := range s.Ledger.Knobs {
		k := &s.Ledger.Knobs[i]
		task := k.Task()
		if k.Scope == model.ScopeCLOS {
			task = model.Alone(k.Num)
		}
		for j := range k.Claims {
			c := &k.Claims[j]
			if task != 0 && c.Owner == model.OwnerPolicy && !c.Follows && slices.Contains(triers, c.Policy) {
				held[pull{c.Policy, task, k.Target, k.Kind, c.Incident}] = amount(c)
			}
		}
	}
	return held
}

// onTrial is what the policies have on trial.
func onTrial(s *engine.State, now int64) []policy.OnTrial {
	v := &policy.View{NowNsec: now, History: s.History}
	list := s.Hardcap.OnTrial(v, s.CPU.Remedy.OnTrial(nil))
	list = s.CPU.IO.OnTrial(v, model.PolicyIO, s.CPU.Balm.OnTrial(list))
	return s.CPU.Memory.OnTrial(v, model.PolicyMemory, list)
}

// lookAtTrials looks after a turn.
func (w *world) lookAtTrials(l *life, out *engine.Output) {
	in, _ := l.Last()
	s, t, now := l.Engine.State, &w.trials, in.MonoNsec
	if t.life != l {
		*t = trials{life: l, held: map[pull]float64{}, was: map[pull]float64{}, took: map[trying]int64{}, since: map[trying]int64{}, lasting: map[trying]bool{}, moved: map[trying]int64{}, disturbed: map[model.TaskNum]int64{}, pulled: map[trying]int64{}}
	}
	held, given, changed := pulls(s), []pull{}, map[trying]int64{}
	t.disturb(in, s, held)
	w.verdicts(out, now)
	for p, left := range held {
		had, is := t.held[p]
		before, ever := t.was[p]
		switch {
		case is && left == had, !is && ever && left == before && s.Tasks.Get(p.task) != nil: // renewed, or its time was over for a while
		case is && left < had:
			t.took[trying{p.policy, p.task}], changed[trying{p.policy, p.task}] = now, now
		case is:
			given, changed[trying{p.policy, p.task}] = append(given, p), now
		default:
			t.took[trying{p.policy, p.task}], changed[trying{p.policy, p.task}] = now, now
			given = append(given, p)
		}
		t.was[p] = left
	}
	slices.SortFunc(given, func(a, b pull) int {
		return cmp.Or(strings.Compare(a.policy, b.policy), cmp.Compare(a.task, b.task), cmp.Compare(a.kind, b.kind), cmp.Compare(a.of.Domain, b.of.Domain), strings.Compare(a.incident, b.incident))
	})
	since := map[trying]int64{}
	for _, o := range onTrial(s, now) {
		at := trying{o.Policy, o.Task}
		if since[at] = now; t.since[at] != 0 {
			since[at] = t.since[at]
		}
	}
	for i := range given {
		w.alone(t, s, held, since, &given[i], now)
	}
	maps.Copy(t.moved, changed)
	clear(t.lasting)
	for _, o := range onTrial(s, now+s.History.PeriodNsec()) {
		t.lasting[trying{o.Policy, o.Task}] = true
	}
	t.held, t.since = held, since
}

// alone looks whether another policy has a task that one begins to hold, or gives a step back to: those that take their steps before it as they are after the
// turn, and the others as they were before.
func (w *world) alone(t *trials, s *engine.State, held map[pull]float64, after map[trying]int64, p *pull, now int64) {
	w.res.Pulls++
	for i, other := range triers {
		at := trying{other, p.task}
		has := func() bool {
			for o := range held {
				if o.policy == other && o.task == p.task {
					return true
				}
			}
			return false
		}
		since, tried := t.since[at]
		if i < slices.Index(triers, p.policy) {
			since, tried = after[at]
		} else if !t.lasting[at] && now-t.moved[at] >= s.History.PeriodNsec() {
			tried = false // the window after its step back has just ended
		}
		took := t.took[at] != 0 && now-t.took[at] < s.History.PeriodNsec()
		if i > slices.Index(triers, p.policy) && t.took[at] == now {
			took = false // its turn comes later: nobody could know it. Both trials are void then (verdicts)
		}
		if other != p.policy && (tried || took && has()) {
			w.fail(checkTrials, fmt.Sprintf("%s begins something with %s, or gives some back (%s, %s), which %s has on trial since %d or took something of at %d",
				p.policy, s.Tasks.Name(p.task), p.kind, p.incident, other, since, t.took[at]))
		}
	}
}

// disturb notes whom pressure froze, whom an operator holds, and what the triers' holds were written for.
func (t *trials) disturb(in *engine.Input, s *engine.State, held map[pull]float64) {
	for i := range in.Results {
		r := &in.Results[i]
		if r.Kind != model.Applied || r.Task() == 0 {
			continue
		}
		if r.Now == model.Freeze(true) || operators(s, r.Task(), r.Now.Knob) {
			t.disturbed[r.Task()] = in.MonoNsec
		}
		for p := range held {
			if p.task == r.Task() && p.kind == r.Now.Knob {
				t.pulled[trying{p.policy, p.task}] = in.MonoNsec
			}
		}
	}
}

// operators reports whether an operator holds a knob.
func operators(s *engine.State, task model.TaskNum, kind model.KnobKind) bool {
	return slices.ContainsFunc(s.Ledger.Knobs, func(k engine.Knob) bool {
		return k.Task() == task && k.Kind == kind && slices.ContainsFunc(k.Claims, func(c model.Claim) bool { return c.Owner == model.OwnerOperator })
	})
}

// verdicts looks whether a trial that was disturbed had one.
func (w *world) verdicts(out *engine.Output, now int64) {
	t := &w.trials
	for i := range out.Decisions {
		d := &out.Decisions[i]
		for _, task := range tasksOf(out, d) {
			at := trying{d.By(), task}
			since, tried := t.since[at]
			switch d.Kind {
			case model.DecideVoid:
				if tried {
					t.since[at] = now
				}
				w.res.Voids++
			case model.DecideCap:
				if tried && d.By() == model.PolicyMemory {
					t.since[at] = now // asking is over, whatever came of it: the limit is looked at by itself
				}
			case model.DecideKept, model.DecideTakenBack, model.DecideVerified:
				if gone := t.disturbed[task]; tried && gone > since {
					w.fail(checkTrials, fmt.Sprintf("%s: %s of %s, on trial since %d and disturbed at %d: %s", at.policy, d.Kind, d.Path, since, gone, d.Reason))
				}
				for _, other := range triers {
					if pulled := t.pulled[trying{other, task}]; tried && other != at.policy && pulled > since {
						w.fail(checkTrials, fmt.Sprintf("%s: %s of %s, on trial since %d, of which %s changed something at %d: %s", at.policy, d.Kind, d.Path, since, other, pulled, d.Reason))
					}
				}
			}
		}
	}
}

// tasksOf are the tasks that a decision is about: of an incident those that its last round holds.
func tasksOf(out *engine.Output, d *model.Decision) []model.TaskNum {
	for _, inc := range out.Incidents {
		if n := len(inc.Rounds); inc.ID == d.Incident && n > 0 {
			r := &inc.Rounds[n-1]
			list := []model.TaskNum{}
			for i := range r.Members {
				list = append(list, r.Members[i].Task)
			}
			if len(list) == 0 && r.Chosen != nil {
				list = append(list, *r.Chosen)
			}
			return list
		}
	}
	return []model.TaskNum{d.Task}
}
