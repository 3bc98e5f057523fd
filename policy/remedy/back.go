package remedy

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// The way back. What was taken last is dearest to batch work and is given back first, by steps: a way or two, a level, a quarter of
// the CPU time. It is known what a step had brought, so it is known what giving it back may cost: services have to have been well for
// a while, and every figure so far from its target that with this cost it would still be some standard deviations away. That is for
// targets, where each try costs a promise; a bound of CPI is no promise, and a while is enough. Batch work changes, too, and what a
// task does without its hold nobody knows while it has it: so after a long time a step is tried all the same, and later and later
// where that brought trouble. The last step takes the task out of its class of service; where the machine refuses one on the way
// (another program's ways are in between) the last one is taken at once. Services are looked at after these as after any other.

// mostPatience bounds how much later a step back is tried each time.
const mostPatience = 16

// later is the patience after one more step back that brought trouble.
func later(patience int) int { return min(max(1, 2*patience), mostPatience) }

// steps is about in how many steps something is given back.
const steps = 4

// relax gives back one step where there is room for it.
func (s *State) relax(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if s.Trial != nil || v.Holding || s.SetNsec == 0 {
		return
	}
	if s.makeRoom(p, have, v, w) {
		return
	}
	var dearest *Hold
	for i := range s.Holds {
		h := &s.Holds[i]
		if h.RetryNsec == 0 {
			h.RetryNsec = h.FreshNsec + p.RetryNsec
		}
		if h.Means == Demotion && slices.ContainsFunc(s.Holds[i+1:], func(o Hold) bool { return o.Means == Demotion || o.Means == Pool || o.Means == CPU }) {
			continue // what was taken of CPUs after it is given back before it
		}
		if v.LeaveAlone(h.Task, model.PolicyRemedy) != "" || !s.calm(p, v, h.Task) {
			continue
		}
		if (v.NowNsec >= h.RetryNsec || h.Patience == 0 && s.room(p, h.Task, h.lost())) && (dearest == nil || h.dear() >= dearest.dear()) {
			dearest = h
		}
	}
	if b := s.homeward(p, have, v); b != nil && (dearest == nil || b.dear() >= dearest.dear()) {
		s.goHome(have, v, w, b)
	} else if h := dearest; h != nil {
		h.Before = model.CPUSet{}
		s.stepBack(v, w, h, h.looser(have, policy.Peak(s.Loads)))
	}
}

// stepBack has a task have more, and looks what comes of it.
func (s *State) stepBack(v *policy.View, w *policy.Wishes, h *Hold, amount float64) {
	x := s.closest(h.Task)
	s.Trial = &Trial{Task: h.Task, Means: h.Means, Back: true, SinceNsec: v.NowNsec}
	s.move(v, h, amount)
	s.why = "services are well"
	s.reset(h.Task)
	d := h.tell(v, x)
	d.Reason = fmt.Sprintf("services are well, the closest: %s; %s", x.text(v), h.text())
	w.Decide(d)
}

// dear is what something costs a task for what it brings the service.
func dear(cost, worth float64) float64 { return cost / (worth + 0.01) }

func (h *Hold) dear() float64 { return dear(h.Price, h.Effect) }

// calm reports whether services that feel what a task has have been well for long enough, with everything as it is. Who did may be elsewhere by now, or gone.
func (s *State) calm(p *Params, v *policy.View, task model.TaskNum) bool {
	somebody := false
	for i := range s.Victims {
		x := &s.Victims[i]
		if !s.feels(x, task) {
			continue
		}
		since := s.SetNsec
		if p.Apart {
			since = x.SetNsec
		}
		if x.Trouble && !x.blip(p) || x.Figure.N < float64(p.Windows) || x.SeenNsec != v.NowNsec || since == 0 || v.NowNsec-since < p.QuietNsec {
			return false
		}
		somebody = true
	}
	return somebody || v.NowNsec-s.SetNsec >= p.QuietNsec
}

// closest is the service that is closest to its bound of those that feel what a task has; where none does, of all.
func (s *State) closest(task model.TaskNum) (worst *Victim) {
	for i := range s.Victims {
		if x := &s.Victims[i]; s.feels(x, task) && (worst == nil || compare(x, worst) > 0) {
			worst = x
		}
	}
	if worst == nil && task != 0 {
		return s.closest(0)
	}
	return worst
}

// lost is what a step back is reckoned to cost.
func (h *Hold) lost() float64 {
	if h.Means == Demotion || h.Means == Pool { // there is one step
		return h.Effect
	}
	return h.Effect / 2
}

// room reports whether all services with a target that feel what a task has would still be well away from it if they lost so much, the logarithm.
func (s *State) room(p *Params, task model.TaskNum, lost float64) bool {
	for i := range s.Victims {
		if x := &s.Victims[i]; x.Targeted && s.feels(x, task) && !x.wellAway(p, lost) {
			return false
		}
	}
	return true
}

// wellAway reports whether a service is known to be some standard deviations away from its target even if it loses so much, the logarithm.
func (x *Victim) wellAway(p *Params, lost float64) bool {
	mean, sd := x.Figure.mean()
	return x.Figure.N >= 2 && mean+lost+p.Margin*sd < 0
}

// looser is a step up from what a hold leaves. peak is what a memory was seen to move, above which no level limits.
func (h *Hold) looser(have *model.Classes, peak float64) float64 {
	step := 0.0
	switch h.Means {
	case Ways:
		step = max(1, float64(have.Ways/steps))
	case Bandwidth:
		if step = float64(have.Raise(peak)); h.Amount+step >= float64(have.Top(peak)) {
			return h.Full
		}
	case CPU:
		step = h.Full / steps
	case Demotion, Pool:
		step = h.Full
	}
	return min(h.Full, h.Amount+step)
}

// concludeBack looks what came of a step back: trouble takes it back.
func (s *State) concludeBack(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, h *Hold) bool {
	if x := s.inTrouble(p, h.Task); x != nil {
		h.Patience = later(h.Patience)
		h.RetryNsec = v.NowNsec + int64(h.Patience)*p.RetryNsec
		s.Trial = nil
		if h.Home {
			s.batch(h.Task).goesBack(h)
		}
		s.move(v, h, h.Was)
		s.reset(h.Task)
		d := h.tell(v, x)
		d.Kind, d.Reason = model.DecideTakenBack, fmt.Sprintf("%s; back to %s", x.text(v), h.text())
		w.Decide(d)
		return true
	}
	if x := s.inTrouble(p, 0); x != nil && !s.CannotFix {
		s.undo(p, v, w, h, x.text(v)+", does not feel it, and is not to wait for what comes of it")
		return true
	}
	if x := s.closest(h.Task); x == nil || v.NowNsec-s.SetNsec < p.QuietNsec/2 {
		return true
	}
	if s.Trial, h.RetryNsec, h.Patience = nil, 0, 0; h.Home {
		s.batch(h.Task).came(h)
		s.away(v, h)
	}
	s.drop("services are well without")
	return s.changed
}

// skip gives a task all back at once of what the machine refuses to give by a step.
func (s *State) skip(have *model.Classes, v *policy.View, w *policy.Wishes) {
	if s.Trial == nil || !s.Trial.Back {
		return
	}
	h, t := s.hold(s.Trial.Task, s.Trial.Means), v.Task(s.Trial.Task)
	if h == nil || t == nil || h.over() {
		return
	}
	word, why, _ := h.stands(have, v, t)
	x := s.closest(h.Task)
	if word != refusedClass || x == nil {
		return
	}
	was, step := h.Was, h.Amount
	s.move(v, h, h.Full)
	h.Was, s.why = was, "a step on the way was refused"
	d := h.tell(v, x)
	d.Reason = fmt.Sprintf("%.0f were refused: %s; %s", step, why, h.text())
	w.Decide(d)
}

// over reports whether a hold leaves a task all that it has without us: nothing is wished for then. What is held is forgotten once it
// is known what came of that.
func (h *Hold) over() bool { return h.Amount >= h.Full && !h.Home }

// drop forgets holds that hold nothing any more.
func (s *State) drop(why string) {
	n := len(s.Holds)
	if s.Holds = slices.DeleteFunc(s.Holds, func(h Hold) bool { return h.over() }); len(s.Holds) != n {
		s.changed, s.why = true, why
	}
}

// giveBack lets all go.
func (s *State) giveBack(v *policy.View, why string) {
	s.Holds, s.Trial, s.Victim = nil, nil, 0
	s.changed, s.why, s.AskedNsec, s.SetNsec = true, why, v.NowNsec, 0
	s.reset(0)
}

// follow drops who is gone, and what is refused or another program's, and notes since when what is wished for stands.
func (s *State) follow(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	s.Tried = slices.DeleteFunc(s.Tried, func(f Tried) bool { return v.NowNsec >= f.UntilNsec || v.Task(f.Task) == nil })
	if !v.Enforced() {
		if s.CannotFix, s.Short, s.Victim, s.StuckNsec = false, false, 0, 0; len(s.Holds) > 0 {
			s.giveBack(v, "it is not to be enforced any more")
		}
		return
	}
	s.skip(have, v, w)
	stands := true
	before := len(s.Holds)
	s.Holds = slices.DeleteFunc(s.Holds, func(h Hold) bool { // pages are not held when nobody looks what came of them
		return h.Means == Pages && (!p.Home || h.Moved != "") && (s.Trial == nil || s.Trial.Task != h.Task || s.Trial.Means != Pages)
	})
	s.changed = s.changed || len(s.Holds) != before
	late := s.AskedNsec != 0 && s.SetNsec == 0 && v.NowNsec-s.AskedNsec >= p.BlindNsec
	n := len(s.Holds)
	s.Holds = slices.DeleteFunc(s.Holds, func(h Hold) bool {
		t := v.Task(h.Task)
		if t == nil {
			return true
		}
		word, why, done := h.stands(have, v, t)
		if h.over() && word != "void" {
			word, why, done = "", "", s.released(have, v, t, &h)
		}
		if late && why == "" && !done {
			word, why = "late", "it is not there in time: another program may hold it, or a limit forbids it (limits)"
		}
		stands = stands && done
		if why == "" {
			return false
		}
		s.why = why
		for _, m := range allMeans {
			if m.knob() == h.Means.knob() {
				s.Tried = append(s.Tried, Tried{Task: h.Task, Means: m, UntilNsec: v.NowNsec + p.RestNsec})
			}
		}
		w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: h.Task, Path: t.Task.Path, Reason: why})
		return true
	})
	if len(s.Holds) != n {
		s.changed, s.Trial = true, nil
	}
	switch {
	case !stands || s.changed:
		s.SetNsec = 0
	case s.SetNsec == 0:
		s.SetNsec = v.NowNsec
	}
	s.stand(p, v)
}

// stands reports whether a hold is in force, and why it cannot be.
func (h *Hold) stands(have *model.Classes, v *policy.View, t *policy.TaskView) (word, why string, done bool) {
	k := &t.Knobs[h.Means.knob()]
	if h.Means == Pool && v.Placing {
		return "placing", placing, false
	}
	if word, why = t.Closed(h.Means.knob()); why != "" {
		return word, why, false
	}
	if found := k.Found.CPUs; h.Means == Pool && k.Known && !found.Empty() && !h.Place.Within(found) {
		return "narrowed", fmt.Sprintf("another program has it run on CPUs %s meanwhile", found), false
	}
	if h.Means == Pages {
		if h.Moved != "" && h.Moved != moved {
			return "pages", h.Moved, false
		}
		return "", "", h.Moved == moved
	}
	if k.Refused {
		return "refused", k.Why, false
	}
	done = k.Ours && !k.Pending
	if !h.Means.classed() {
		return "", "", done
	}
	if h.Full != h.Means.full(have) {
		return "anew", "resctrl was unmounted, or mounted anew: what was held is counted otherwise", false
	}
	done = done && k.Now == model.InClass(model.ClassOf(h.Task))
	kind, domains := h.Means.domains(have)
	for _, d := range domains {
		switch c := v.Class(model.ClassOf(h.Task), d, kind); {
		case c.Void:
			return "void class", "another program sets what its class has: " + c.Why, false
		case c.Refused:
			return refusedClass, c.Why, false
		default:
			done = done && c.Ours && !c.Pending
		}
	}
	return "", "", done
}

// released reports whether a task has all back of what it was held to.
func (s *State) released(have *model.Classes, v *policy.View, t *policy.TaskView, h *Hold) bool {
	k := &t.Knobs[h.Means.knob()]
	if k.Pending || k.Refused {
		return false // which is tried again
	}
	if !h.Means.classed() {
		return true
	}
	own := model.ClassOf(h.Task)
	kind, domains := h.Means.domains(have)
	for _, d := range domains { // a task out of the class of BE has no more than that
		if c := v.Class(own, d, kind); c.Pending || c.Ours && !v.Class(model.ClassBE, d, kind).Ours {
			return false
		}
	}
	return k.Now != model.InClass(own) || slices.ContainsFunc(s.Holds, func(o Hold) bool { return o.Task == h.Task && o.Means.knob() == model.ServiceClass && !o.over() })
}

// full is what a class has of a means without a limit.
func (m Means) full(have *model.Classes) float64 {
	if m == Bandwidth {
		return float64(have.MostLevel)
	}
	return float64(have.Ways)
}

// domains returns the knob of a class of service that a means turns, and its domains.
func (m Means) domains(have *model.Classes) (model.KnobKind, []int32) {
	if m == Bandwidth {
		return model.MemoryBandwidth, have.Memory
	}
	return model.CacheWays, have.Caches
}

// refusedClass is what is said of a hold for which the machine refuses what its class is to have.
const refusedClass = "refused class"
