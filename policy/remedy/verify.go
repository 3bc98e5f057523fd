package remedy

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// What came of a step is told on the service: by how it waits, by its CPI, or by its figure.

// patience: times so many windows as are asked for it is waited for them.
const patience = 4

// conclude looks what came of the last change, and reports whether it has to be waited on, or changed something.
func (s *State) conclude(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) bool {
	t, h := s.Trial, s.hold(s.Trial.Task, s.Trial.Means)
	if h == nil {
		s.Trial = nil
		return false
	}
	if t.Back {
		return s.concludeBack(p, have, v, w, h)
	}
	x := s.victim(h.Victim)
	if x == nil {
		s.Trial = nil
		return false
	}
	by, source := s.helped(p, x)
	if t.Waited += policy.One(v.Window.Closed); source == "" {
		if t.Waited <= patience*p.Windows {
			return true
		}
		source = "signal" // which it does not tell: as if nothing had changed
	}
	d := h.tell(v, x)
	d.Facts = append(d.Facts, model.FactRatio.Is(math.Exp(-by.diff)), model.FactNoise.Is(by.sem))
	d.Reason = fmt.Sprintf("%s; with %s its %s is %.3g times what it was, +- %.2g", x.text(v), h.text(), source, math.Exp(-by.diff), by.sem)
	if len(t.With) > 0 {
		d.Reason += fmt.Sprintf("; %d others with it", len(t.With))
	}
	victim := v.Task(h.Victim)
	s.Trial = nil
	if by.enough() {
		d.Kind, s.StuckNsec = model.DecideKept, 0
		w.Decide(d)
		if t.ForCPU { // what was before is nobody's who may be capped for it
			w.Forgiven = append(w.Forgiven, h.Victim)
		}
		for h := range s.held(t) {
			h.Effect = max(h.Effect, t.worth(x, by.diff))
			s.price(h, t)
			s.remember(victim, v.Task(h.Task), h)
		}
		if h.Means == Pages {
			s.weigh(h.Task, t)
			s.wentAway(p, v, t, by.diff)
			s.roomMade(h.Task)
			s.away(v, h)
		}
		return false
	}
	if by.diff > by.sem {
		d.Reason += fmt.Sprintf(", which is less than %.3g %%", 100*by.least)
	}
	d.Kind, d.Facts = model.DecideTakenBack, h.takenBack(d.Facts)
	w.Decide(d)
	for h := range s.held(t) {
		task := v.Task(h.Task)
		s.Known = slices.DeleteFunc(s.Known, func(k Known) bool {
			return victim != nil && task != nil && k.Victim == victim.Task.Job && k.Job == task.Task.Job && k.Means == h.Means
		})
		s.Tried = append(s.Tried, Tried{Victim: h.Victim, Task: h.Task, Means: h.Means, UntilNsec: v.NowNsec + p.RestNsec})
		if h.Means != Pages {
			s.move(v, h, h.Was)
		}
	}
	if h.Means == Pages {
		s.wentAway(p, v, t, 0)
		s.away(v, h)
		return true
	}
	s.resetOf(t)
	x.CPI, x.Figure, x.Waits.Slow = t.CPI, t.Figure, t.Slow // as before
	s.drop("it did not help")
	return true
}

// held goes over what the tasks of a trial are held to.
func (s *State) held(t *Trial) iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		for i := range s.Holds {
			if h := &s.Holds[i]; h.Means == t.Means && (h.Task == t.Task || slices.Contains(t.With, h.Task)) && !yield(h) {
				return
			}
		}
	}
}

// worth is what a step that was kept is worth, the logarithm: what it waits may be little of a service's time, and most of its figure, and its CPI may have gone up but now.
func (t *Trial) worth(x *Victim, diff float64) float64 {
	if t.Means == Pool && t.Cycles > 0 && x.Cycles.Now > 0 {
		diff = max(diff, math.Log(t.Cycles/x.Cycles.Now))
	}
	if t.ForCPU && x.Targeted && x.Figure.N >= 2 && t.Figure.N >= 2 {
		figure, _ := x.Figure.below(&t.Figure, 1)
		return max(diff, figure)
	}
	return diff
}

// price notes what a step cost the task.
func (s *State) price(h *Hold, t *Trial) {
	own := &s.batch(h.Task).CPI
	switch cost, _ := own.below(&t.Own, 1); {
	case h.Means == Demotion: // it has what nobody else wants: that is not of the remedy
	case h.Means == CPU:
		h.Price = math.Log(h.Full / h.Amount)
	case h.Means == Pool:
		if h.Price = h.cpuTime(); own.N > 0 && t.Own.N > 0 {
			h.Price += max(0, -cost)
		}
	case own.N > 0 && t.Own.N > 0:
		h.Price = max(0, -cost)
	}
}

// change is by how much a signal came down, the logarithm, its standard error, and how much that has to be at least.
type change struct{ diff, sem, least float64 }

// enough reports whether it came down by more than noise, and by so much that it matters.
func (c change) enough() bool { return c.diff > max(c.sem, c.least, 0) }

// helped compares the victim's CPI, or where there is none its figure, with what it was; source "": not known yet. CPU time that
// is taken may help a service that waits for it, which CPI does not tell.
func (s *State) helped(p *Params, x *Victim) (by change, source string) {
	n, t := float64(p.Windows), s.Trial
	if t.ForCPU && t.Slow.N >= 2 {
		if x.Waits.Slow.N < n {
			return by, ""
		}
		was, _ := t.Slow.mean()
		if by.diff, by.sem = x.Waits.Slow.below(&t.Slow, 1); by.diff > max(by.sem, leastFall*was) || !x.Targeted {
			return by, "slowdown by waiting"
		}
	} else if t.CPI.N >= 2 {
		if x.CPI.N < n {
			return by, ""
		}
		by.diff, by.sem = x.CPI.below(&t.CPI, 1)
		by.least = p.Least
		if t.Means != CPU && t.Means != Demotion && t.Means != Pool || t.Figure.N < 2 || by.enough() {
			return by, "CPI"
		}
	}
	each := 1.0
	if x.Targeted {
		each = overlap
	}
	if t.Figure.N < 2 || x.Figure.N < each*n {
		return by, ""
	}
	diff, sem := x.Figure.below(&t.Figure, each)
	return change{diff: diff, sem: sem}, "figure"
}
