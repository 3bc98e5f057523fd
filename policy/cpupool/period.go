package cpupool

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// maxWaits bounds the doublings of the wait before a step back.
const maxWaits = 3

// evidence is what one period says of one task.
type evidence struct {
	use       model.Value // CPU-sec/sec
	throttled uint64      // periods of its own CFS group
	periods   uint64
	known     bool // throttled and periods are
}

func (t *Task) evidence(now *model.TaskPulse, dtNsec int64) evidence {
	var e evidence
	if now == nil || dtNsec <= 0 {
		return e
	}
	used, outcome := model.Delta(t.Usage, now.Usage)
	if e.use = model.Missing(outcome); outcome == model.OK {
		e.use = model.Known(float64(used) / float64(dtNsec))
	}
	var a, b model.Outcome
	e.throttled, a = model.Delta(t.Throttled, now.Throttled)
	e.periods, b = model.Delta(t.Periods, now.Periods)
	e.known = a == model.OK && b == model.OK
	return e
}

// period is the algorithm of section 4.1, once every period.
func (s *State) period(p *Params, v *policy.View, w *policy.Wishes, cpus int64) {
	s.Utilisation = s.Period.utilisation(v.Pulse)
	dt, j := v.Pulse.MonoNsec-s.LastNsec, 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		e := t.evidence(v.Pulse.Find(t.Num, &j), dt)
		if t.OriginalUsec == 0 {
			continue // no limit: of the pool, but nothing to raise
		}
		if e.known && e.throttled > 0 {
			t.ranShort(v.Pulse.MonoNsec)
		}
		word, why := v.Tasks[t.at].Closed(model.CPUBandwidth)
		switch {
		case word == "":
			s.judge(p, v, w, t, s.Utilisation, &e, cpus)
		case e.throttled > 0:
			t.leave(p, w, word, why)
		}
	}
}

// ranShort notes that the task was throttled.
func (t *Task) ranShort(nowNsec int64) {
	t.QuietNsec = nowNsec
	if t.Stepped { // the step back was too much
		t.Stepped, t.Waits = false, min(t.Waits+1, maxWaits)
	}
}

// judge decides on the task's quota for the next period.
func (s *State) judge(p *Params, v *policy.View, w *policy.Wishes, t *Task, u model.Value, e *evidence, cpus int64) {
	quota := t.quota()
	limit := float64(t.OriginalUsec) / float64(t.PeriodUsec)
	over := e.use.Outcome == model.OK && e.use.V > limit
	busy := u.Outcome == model.OK && u.V > p.UtilisationHigh
	switch {
	case quota < t.OriginalUsec && !p.BelowOriginal: // it was allowed before
		s.move(p, v, w, t, model.DecideRaise, u, t.OriginalUsec, "less than the original limit is not allowed any more")
	case busy && (quota > t.OriginalUsec || p.BelowOriginal):
		s.halve(p, v, w, t, u, "in the last period")
	case over && quota > t.OriginalUsec:
		to := t.lowered(p)
		s.move(p, v, w, t, model.DecideLower, u, to, fmt.Sprintf("it used %.2f CPUs on average, more than the %.2f of its original limit", e.use.V, limit))
	case quota < t.OriginalUsec && u.Outcome == model.OK && !busy:
		to := min(quota+t.step(p), t.OriginalUsec)
		s.move(p, v, w, t, model.DecideRaise, u, to, fmt.Sprintf("the pool's utilisation is down to %.1f %%", u.V*100))
	case e.known && e.throttled > 0:
		s.raise(p, v, w, t, u, e, cpus)
	case e.known && quota > t.OriginalUsec && p.GiveBackNsec > 0 && v.Pulse.MonoNsec-t.QuietNsec >= p.GiveBackNsec<<t.Waits:
		to := max(quota-t.step(p), t.OriginalUsec)
		s.move(p, v, w, t, model.DecideLower, u, to, fmt.Sprintf("not throttled for %d s", (v.Pulse.MonoNsec-t.QuietNsec)/1e9))
		t.QuietNsec, t.Stepped = v.Pulse.MonoNsec, true
		if to == t.OriginalUsec {
			t.Waits, t.Stepped = 0, false
		}
	}
}

// raise gives a throttled task a step more, or says once why not.
func (s *State) raise(p *Params, v *policy.View, w *policy.Wishes, t *Task, u model.Value, e *evidence, cpus int64) {
	limit := float64(t.OriginalUsec) / float64(t.PeriodUsec)
	most := max(t.OriginalUsec, min(int64(p.MaxFactor*float64(t.OriginalUsec)), cpus*t.PeriodUsec))
	switch k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]; {
	case u.Outcome != model.OK:
		t.leave(p, w, "blind", "throttled, but the pool's utilisation is "+u.Outcome.String())
	case e.use.Outcome != model.OK:
		t.leave(p, w, "blind", "throttled, but its CPU time is "+e.use.Outcome.String())
	case u.V > p.UtilisationHigh:
		t.leave(p, w, "busy", fmt.Sprintf("throttled in %d of %d periods, but the pool's utilisation is %.1f %%", e.throttled, e.periods, u.V*100))
	case e.use.V >= p.BurstyBelow*limit:
		t.leave(p, w, "steady", fmt.Sprintf("throttled in %d of %d periods, but it is not bursty: it used %.2f CPUs on average of a limit of %.2f; it needs a larger limit",
			e.throttled, e.periods, e.use.V, limit))
	case t.quota() >= most:
		t.leave(p, w, "bound", fmt.Sprintf("throttled in %d of %d periods, but its quota of %d us is raised as far as max_factor and the %d CPUs of the pool allow",
			e.throttled, e.periods, t.quota(), cpus))
	case k.Pending: // what became of the last change is known with the next period
	case k.Refused && t.WantUsec != 0: // the kernel is asked again by itself
	default:
		to := min(t.quota()+t.step(p), most)
		s.move(p, v, w, t, model.DecideRaise, u, to, fmt.Sprintf("throttled in %d of %d periods with %.2f CPUs used on average, and the pool's utilisation is %.1f %%",
			e.throttled, e.periods, e.use.V, u.V*100))
		t.Stepped = false
	}
}

// halve brings the quota down because the pool is too busy.
func (s *State) halve(p *Params, v *policy.View, w *policy.Wishes, t *Task, u model.Value, when string) {
	if to := t.lowered(p); to < t.quota() {
		s.move(p, v, w, t, model.DecideLower, u, to, fmt.Sprintf("the pool's utilisation was %.1f %% %s", u.V*100, when))
	}
}

// lowered is the multiplicative decrease.
func (t *Task) lowered(p *Params) int64 {
	least := t.OriginalUsec
	if p.BelowOriginal {
		// The kernel takes no quota below a millisecond.
		least = min(max(int64(p.FloorFactor*float64(t.OriginalUsec)), 1000), t.OriginalUsec)
	}
	return max(int64(p.Decrease*float64(t.quota())), least)
}

func (t *Task) step(p *Params) int64 { return max(int64(p.Increase*float64(t.OriginalUsec)), 1) }

// quota is what the policy lets the task have.
func (t *Task) quota() int64 {
	if t.WantUsec != 0 {
		return t.WantUsec
	}
	return t.OriginalUsec
}

// move changes the quota, and says so. In observe mode it only says so, once.
func (s *State) move(p *Params, v *policy.View, w *policy.Wishes, t *Task, kind model.DecisionKind, u model.Value, to int64, why string) {
	from := t.quota()
	if to == from {
		return
	}
	d := t.decision(p, kind, to, fmt.Sprintf("%s: quota %d -> %d us a period of %d us (original %d)", why, from, to, t.PeriodUsec, t.OriginalUsec))
	d.Facts = append(d.Facts, model.FactUtilisation.Is(u.V))
	if !v.Enforced() {
		w.Once("would", d)
		return
	}
	s.moved = true
	if t.WantUsec, t.Why = to, why; to == t.OriginalUsec {
		t.WantUsec = 0
	}
	w.Decide(d)
}

// drop gives the task's claim back.
func (s *State) drop(t *Task, why string) {
	if t.WantUsec != 0 {
		t.WantUsec, t.Why, s.moved = 0, why, true
	}
}

// leave says once why a task is left alone.
func (t *Task) leave(p *Params, w *policy.Wishes, word, text string) {
	w.Once(word, t.decision(p, model.DecideLeftAlone, t.quota(), text))
}

// decision is one about the task with a quota.
func (t *Task) decision(p *Params, kind model.DecisionKind, quota int64, text string) model.Decision {
	d := model.Decision{Kind: kind, Task: t.Num, Reason: text, Facts: []model.Fact{model.FactHigh.Is(p.UtilisationHigh)}}
	if t.PeriodUsec > 0 {
		d.Facts = append(d.Facts, model.FactLimit.Is(float64(quota)/float64(t.PeriodUsec)))
	}
	return d
}
