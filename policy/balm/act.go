package balm

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// mostPatience bounds how much later a step back is tried each time.
const mostPatience = 16

// judge takes a reading in; false where no job that tells is on this node.
func (s *State) judge(have *model.Classes, v *policy.View, w *policy.Wishes) bool {
	worst, told, blind := -1, false, false
	s.Domains = s.Domains[:0]
	for i := range v.SLO {
		l := &v.SLO[i]
		victim := model.TaskNum(0)
		colour := slices.Index(colours, l.State)
		valid := l.Figure.Outcome == model.OK && l.Figure.V >= 0 && l.Figure.V < absurd && l.Target >= 1/absurd && l.Target < absurd && colour >= 0
		for j := range v.Tasks {
			t := &v.Tasks[j]
			if t.Task.Job != l.Job || !t.Task.Protected() {
				continue
			}
			if victim == 0 {
				victim = t.Task.Num
			}
			for _, m := range v.Memories(have) {
				if valid && inTrouble(l.State) && !s.troubles(&m) && v.ServedBy(have, t, &m) {
					s.Domains = append(s.Domains, m.Domains...)
				}
			}
		}
		switch {
		case victim == 0:
			continue
		case !valid:
			blind = true
		case colour > worst || colour == worst && l.Figure.V/l.Target > s.Figure/s.Target:
			worst = colour
			s.Victim, s.Figure, s.Target = victim, l.Figure.V, l.Target
		}
		told = true
	}
	slices.Sort(s.Domains)
	s.Colour, s.Premises = "", ""
	if t := v.Task(s.Victim); t != nil {
		premises := w.Premises(v, t)
		s.Premises = premises.String()
	}
	if worst >= 0 && (!blind || inTrouble(colours[worst])) {
		s.Colour = colours[worst]
	}
	return told
}

// absurd is in seconds: no latency and no target is as long, and no target a part of a second as small.
const absurd = 1e9

// colours are the states, the worst last.
var colours = []string{model.LatencyGreen, model.LatencyGrey, model.LatencyYellow, model.LatencyRed}

func inTrouble(colour string) bool {
	return colour == model.LatencyRed || colour == model.LatencyYellow
}

// act does what a reading asks for.
func (s *State) act(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	calm := s.Colour == model.LatencyGreen || s.Colour == model.LatencyGrey && p.Until == UntilGrey
	if s.Colour != "" {
		s.BlindNsec = 0
	}
	if calm {
		s.CannotFix = nil
	}
	switch {
	case s.Colour == "":
		if s.BlindNsec == 0 {
			s.BlindNsec = v.NowNsec
		}
		if len(s.Rungs) > 0 && v.NowNsec-s.BlindNsec >= p.BlindNsec {
			s.giveBack("no service has a valid figure of its latency")
		}
	case !v.Enforced():
		s.wouldAct(have, v, w)
	case v.NowNsec < s.RestNsec || !s.settled(p, v) || v.Judging && len(s.Rungs) == 0:
	case s.Trial > 0 && s.voidBack(p, have, v, w):
	case inTrouble(s.Colour) && s.Trial > 0:
		s.revert(p, have, v, w)
	case inTrouble(s.Colour):
		s.Healing = true
		s.heal(p, have, v, w)
	case s.Healing && !calm: // on until they are green (BALM III-A)
		s.heal(p, have, v, w)
	default:
		if s.Trial > 0 {
			s.Rungs[s.Trial-1].Patience = 0
		}
		if s.Trial, s.Tries, s.Healing = 0, 0, false; calm {
			s.climb(have, v, w)
		} else {
			s.elsewhere(p, have, v, w) // between well and in trouble nothing is given back, and pages can go on
		}
	}
}

// wouldAct says once whom it would take bandwidth from first: what would come then nobody knows.
func (s *State) wouldAct(have *model.Classes, v *policy.View, w *policy.Wishes) {
	if list := s.candidates(have, v); inTrouble(s.Colour) && len(list) > 0 && !w.NoPeak(have, s.Loads) {
		w.Once("would", s.tell(list[0].task, s.lowest(have), have.MostLevel))
	}
}

// giveBack lets all go.
func (s *State) giveBack(why string) {
	s.Rungs, s.Trial, s.Tries, s.Start, s.Healing = nil, 0, 0, 0, false
	s.changed, s.why = true, why
}

// follow drops who is gone, and whose class or level is refused or another program's, and notes since when what is
// wished for stands.
func (s *State) follow(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	s.Barred = slices.DeleteFunc(s.Barred, func(b Barred) bool { return v.NowNsec >= b.UntilNsec || v.Task(b.Task) == nil })
	if !v.Enforced() {
		if len(s.Rungs) > 0 {
			s.giveBack("it is not to be enforced any more")
		}
		return
	}
	stands, before := true, len(s.Rungs)
	for i := range s.Rungs {
		r := &s.Rungs[i]
		word, why, done := s.levelOf(have, v, r)
		late := s.SetNsec == 0 && v.NowNsec-s.AskedNsec >= p.BlindNsec
		r.Tasks = slices.DeleteFunc(r.Tasks, func(num model.TaskNum) bool {
			t := v.Task(num)
			if t == nil {
				s.changed = true
				return true
			}
			k, word, why := &t.Knobs[model.ServiceClass], word, why
			ok := k.Ours && !k.Pending && k.Now == model.InClass(r.Class)
			if closed, because := t.Closed(model.ServiceClass); because != "" {
				word, why = closed, because
			} else if k.Refused {
				word, why = "refused", k.Why
			}
			if late && why == "" && (!ok || !done) {
				word, why = "late", "its class of service is not there in time"
			}
			if stands = stands && ok; why == "" {
				return false
			}
			s.changed, s.why = true, why
			s.Barred = append(s.Barred, Barred{num, v.NowNsec + p.RestNsec})
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: num, Path: t.Task.Path, Reason: why})
			return true
		})
		stands = stands && done
	}
	if s.Rungs = slices.DeleteFunc(s.Rungs, func(r Rung) bool { return len(r.Tasks) == 0 }); len(s.Rungs) != before {
		s.Trial = 0
	}
	switch {
	case !stands || s.changed:
		s.SetNsec = 0
	case s.SetNsec == 0:
		s.SetNsec = v.NowNsec
	}
}

// levelOf says whether a rung has its level in all memories, and why it cannot.
func (s *State) levelOf(have *model.Classes, v *policy.View, r *Rung) (word, why string, stands bool) {
	stands = true
	for _, domain := range have.Memory {
		switch k := v.Class(r.Class, domain, model.MemoryBandwidth); {
		case k.Void:
			return "void level", "another program sets its memory bandwidth: " + k.Why, false
		case k.Refused:
			return "refused level", k.Why, false
		default:
			stands = stands && k.Ours && !k.Pending
		}
	}
	return "", "", stands
}

// settled reports whether what services say is of what stands.
func (s *State) settled(p *Params, v *policy.View) bool {
	return len(s.Rungs) == 0 && s.AskedNsec == 0 || s.SetNsec != 0 && v.NowNsec-s.SetNsec >= p.SettleNsec
}

// revert takes a step back again that brought trouble: the level before was good a moment ago.
func (s *State) revert(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	r := &s.Rungs[s.Trial-1]
	r.Patience = min(max(1, 2*r.Patience), mostPatience)
	r.RetryNsec = v.NowNsec + int64(r.Patience)*p.RetryNsec
	s.Trial = 0
	s.move(r, s.tighter(have, r), v, w)
	s.away(p, have, v, w, r, pageStep)
}

// tighter is what a rung had before its last step back.
func (s *State) tighter(have *model.Classes, r *Rung) int {
	return min(r.Level, max(s.lowest(have), r.Level-have.Raise(policy.Peak(s.Loads))))
}

// lowest is the level that takes most; MostLevel while that is not known.
func (s *State) lowest(have *model.Classes) int { return have.Lowest(policy.Peak(s.Loads)) }

// heal takes bandwidth: what was given back before, or from the next one.
func (s *State) heal(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if w.NoPeak(have, s.Loads) {
		s.Healing = false // others need not wait
		return
	}
	for i := range s.Rungs {
		if r := &s.Rungs[i]; r.Level > s.lowest(have) && s.draws(have, v, r) {
			s.take(r, have, v, w)
			return
		}
	}
	list := s.candidates(have, v)
	if len(list) == 0 {
		if inTrouble(s.Colour) && s.elsewhere(p, have, v, w) {
			return
		}
		if s.Healing = inTrouble(s.Colour); s.Healing && !s.waits { // else it is not known yet what comes of what others do
			s.cannotFix(p, have, v, w)
		}
		return
	}
	if len(s.Rungs) == 0 {
		s.Start, s.StartNsec = s.Figure/s.Target, v.NowNsec
	}
	alone := 0
	for i := range s.Rungs {
		alone += policy.One(s.Rungs[i].Class != model.ClassBE)
	}
	if alone < s.alone {
		s.Rungs = append(s.Rungs, Rung{Class: model.ClassOf(list[0].task), Tasks: []model.TaskNum{list[0].task}, Level: have.MostLevel})
		s.take(&s.Rungs[len(s.Rungs)-1], have, v, w, list[0].fact.Is(list[0].draw))
		return
	}
	s.rest(list, have, v, w)
}

// elsewhere has pages moved of who has the lowest level already, and reports whether some are on their way.
func (s *State) elsewhere(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) bool {
	step := pageStep
	if s.Colour == model.LatencyRed {
		step = hastyStep
	}
	for i := range s.Rungs {
		if r := &s.Rungs[i]; (len(s.Domains) == 0 || s.draws(have, v, r)) && s.away(p, have, v, w, r, step) {
			return true
		}
	}
	return s.moving() != nil
}

// rest takes from all that are left, together: there is no class for one of them alone.
func (s *State) rest(list []candidate, have *model.Classes, v *policy.View, w *policy.Wishes) {
	at := slices.IndexFunc(s.Rungs, func(r Rung) bool { return r.Class == model.ClassBE })
	if at < 0 {
		at = len(s.Rungs)
		s.Rungs = append(s.Rungs, Rung{Class: model.ClassBE, Level: have.MostLevel})
	}
	r := &s.Rungs[at]
	for i := range list {
		r.Tasks = append(r.Tasks, list[i].task)
	}
	slices.Sort(r.Tasks)
	s.take(r, have, v, w)
}

// take has a rung at the lowest level, for the services that are in trouble. That nothing helps was said of those who were there before.
func (s *State) take(r *Rung, have *model.Classes, v *policy.View, w *policy.Wishes, more ...model.Fact) {
	s.CannotFix = nil
	if len(s.Domains) > 0 || len(r.Domains) == 0 {
		r.Domains = slices.Clone(s.Domains)
	}
	s.move(r, s.lowest(have), v, w, more...)
}

// leftAlone reports whether nothing is begun with a task of a rung just now.
func leftAlone(v *policy.View, r *Rung) bool {
	return slices.ContainsFunc(r.Tasks, func(num model.TaskNum) bool { return v.LeaveAlone(num, model.PolicyBalm) != "" })
}

// climb gives back by a step, to who had it taken first.
func (s *State) climb(have *model.Classes, v *policy.View, w *policy.Wishes) {
	peak := policy.Peak(s.Loads)
	for i := range s.Rungs {
		r := &s.Rungs[i]
		if v.NowNsec < r.RetryNsec || s.moving() != nil || leftAlone(v, r) {
			continue
		}
		if r.Level >= have.Top(peak) {
			s.Rungs = slices.Delete(s.Rungs, i, i+1)
			s.changed, s.why, s.AskedNsec, s.SetNsec = true, "its services are well without", v.NowNsec, 0
			return
		}
		s.Trial = i + 1
		s.move(r, min(have.Top(peak), r.Level+have.Raise(peak)), v, w)
		return
	}
}

// move changes a rung's level.
func (s *State) move(r *Rung, level int, v *policy.View, w *policy.Wishes, more ...model.Fact) {
	s.Tries = 0
	d := s.tell(r.Tasks[0], level, r.Level)
	if d.Facts = append(d.Facts, more...); r.Class == model.ClassBE {
		d.Task, d.Reason = 0, fmt.Sprintf("%s, for the %d BE tasks for which there is no class of one task", d.Reason, len(r.Tasks))
	}
	w.Decide(d)
	r.Level, s.changed, s.AskedNsec, s.SetNsec = level, true, v.NowNsec, 0
}

// tell says what a level is and was, and why.
func (s *State) tell(task model.TaskNum, level, was int) model.Decision {
	return model.Decision{
		Kind: model.DecideLevel, Task: task,
		Facts:  append(s.facts(), model.FactMemoryLevel.Is(float64(level))),
		Reason: fmt.Sprintf("%s; level %d of memory bandwidth, was %d", s.text(), level, was),
	}
}

// text says how the services are.
func (s *State) text() string {
	return fmt.Sprintf("services are %s, the worst at %.3g of its target", s.Colour, s.Figure/s.Target)
}

func (s *State) facts() []model.Fact {
	return []model.Fact{model.FactFigure.Is(1e3 * s.Figure), model.FactTarget.Is(1e3 * s.Target)}
}

// cannotFix says, after some more readings, that nobody is left to take from; what did not help is given back.
func (s *State) cannotFix(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if s.Tries++; s.Tries <= p.Retries {
		s.AskedNsec, s.SetNsec = v.NowNsec, v.NowNsec
		return
	}
	if s.CannotFix != nil && len(s.Rungs) > 0 {
		return // said
	}
	if d, ok := s.void(v, s.StartNsec, s.Rungs...); ok && len(s.Rungs) > 0 {
		d.Reason += "; all is given back, and taken anew where services are in trouble without"
		w.Decide(d)
		s.giveBack("the trial says nothing")
		s.AskedNsec, s.SetNsec = v.NowNsec, 0 // how they are without is to be seen first
		return
	}
	c := &CannotFix{Victim: s.Victim, Domains: slices.Clone(s.Domains), Figure: s.Figure, Target: s.Target, AtNsec: v.NowNsec}
	for i := range s.Rungs {
		c.Tried += len(s.Rungs[i].Tasks)
	}
	now := s.Figure / s.Target
	c.Helped = c.Tried > 0 && now <= (1-p.Gain)*s.Start
	d := model.Decision{Kind: model.DecideCannotFix, Task: s.Victim, Facts: append(s.facts(), model.FactTried.Is(float64(c.Tried)), model.FactMemoryLevel.Is(float64(s.lowest(have))))}
	switch {
	case c.Tried == 0:
		d.Reason = s.text() + ", and no best-effort task draws from its memory that could have less"
	case c.Helped:
		d.Reason = fmt.Sprintf("%s, with %d BE tasks at the lowest level of memory bandwidth; it was at %.3g before: that is kept, and is not enough", s.text(), c.Tried, s.Start)
	default:
		d.Reason = fmt.Sprintf("%s, with %d BE tasks at the lowest level of memory bandwidth; it was at %.3g before: they get it back", s.text(), c.Tried, s.Start)
	}
	if l, domain := s.filled(have, v); l != nil {
		c.Alone = *l
		d.Facts = append(d.Facts, model.FactOwn.Is(l.Own/l.All))
		d.Reason += fmt.Sprintf("; services themselves draw %.3g of the %.3g GB/s that memory %d delivers, of at most %.3g that were seen: they fill it by themselves", l.Own/1e9, l.All/1e9, domain, l.Most/1e9)
	}
	w.Decide(d)
	if s.CannotFix = c; !c.Helped {
		s.giveBack("it did not help")
		s.RestNsec = v.NowNsec + p.RestNsec
	}
}
