// Package demote makes best-effort tasks give way from the start: cpu.idle, which the kernel
// calls SCHED_IDLE for a whole cgroup, or the least weight where there is none.
//
// Intuition. A service waits for a CPU because somebody else has it. A task that is idle to the
// scheduler loses its CPU to whoever is woken, at once, and still uses whatever nobody wants. So
// it costs BE nothing that LC did not ask for, which no quota can say of itself, and nobody has
// to find out first who the antagonist is.
//
// What it does not do: caches and memory bandwidth are shared as before; a task that is demoted
// may starve while LC keeps all CPUs busy; it gives way to everybody, cgroups that no rule
// speaks of included. Those of BE that are demoted divide by equal weights what is left, whatever
// weights they had. So it is an operator's choice, and off unless he says so; where it is off
// the hard cap demotes one antagonist at a time, for as long as an incident lasts (policy/hardcap).
//
// Rejected: to demote while LC is busy only. The scheduler does just that, within microseconds.
package demote

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// State is what the policy remembers: figures for status.
type State struct {
	Wanted int `json:"wanted"` // tasks that are to be demoted
	Stands int `json:"stands"` // of them, those that are
}

// Step wishes for all demotions anew whenever something changed.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if w.AsBefore = !v.Changed; w.AsBefore {
		return
	}
	*s = State{}
	most := slices.IndexFunc(ranks, func(i model.Importance) bool { return i.String() == p.UpTo })
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if t.Task.Class != model.BE || slices.Index(ranks, t.Task.Importance) > most {
			continue
		}
		s.Wanted++
		if word, why := t.Closed(model.CPUWeight); why != "" {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Task.Num, Path: t.Task.Path, Reason: why})
			continue
		}
		if t.Knobs[model.CPUWeight].Ours {
			s.Stands++
		}
		const reason = "best-effort work gives way to everybody"
		w.Once("demote", model.Decision{Kind: model.DecideDemote, Task: t.Task.Num, Path: t.Task.Path, Reason: reason})
		w.Claims = append(w.Claims, model.Claim{
			Target: model.OfTask(t.Task.Num), Kind: model.ClaimCap, Value: model.Ask(model.CPUWeight), Cap: model.WeightIdle, Uncounted: true,
			Reason: reason, HoldNsec: p.HoldNsec,
		})
	}
	w.Why = "it is not to be demoted any more"
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if now == model.ModeEnforce {
		return fmt.Sprintf("%d of %d BE tasks demoted", s.Stands, s.Wanted)
	}
	return fmt.Sprintf("would demote %d BE tasks", s.Wanted)
}
