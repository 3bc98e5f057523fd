package cpupool

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// told are the reasons for leaving a task alone that were explained already.
type told uint16

const (
	toldVoid told = 1 << iota
	toldExempt
	toldBusy   // the pool is over its utilisation
	toldBlind  // the utilisation, or the task's use, is not known
	toldSteady // not bursty: it uses all of its quota all the time
	toldBound  // raised as far as it goes
	toldWould  // observe mode: it would be raised
)

// forgetTold is after how much time without throttling the reasons are told anew.
const forgetTold = 600e9

// Bounds of doublings: of the wait before a step back, and of the peace after a refusal.
const maxWaits, maxRefusals = 3, 5

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
func (s *State) period(p *Params, v *model.CPUView, w *model.Wishes, cpus int64) {
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
		if !t.free(p, v, w, &e) {
			continue
		}
		t.judge(p, v, w, s.Utilisation, &e, cpus)
		t.claim(p, v, w, e.use)
		if v.Pulse.MonoNsec-t.QuietNsec >= forgetTold {
			t.Told = 0
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

// free reports whether the task's quota may be touched, and says once why not.
func (t *Task) free(p *Params, v *model.CPUView, w *model.Wishes, e *evidence) bool {
	view := &v.Tasks[t.at]
	k := &view.Knobs[model.CPUBandwidth]
	wanted := t.WantUsec != 0 || e.throttled > 0
	switch {
	case view.Exempt:
		t.drop(w, "an operator freed this task")
		if wanted {
			t.leave(p, v, w, toldExempt, "an operator freed this task")
		}
		return false
	case k.Void:
		t.drop(w, "another program owns this knob")
		if wanted {
			t.leave(p, v, w, toldVoid, "another program wrote its limit: "+k.Why)
		}
		return false
	case k.Refused && !k.Pending && t.WantUsec != 0:
		t.Refusals = min(t.Refusals+1, maxRefusals)
		wait := p.RetryNsec << (t.Refusals - 1)
		t.RetryNsec = v.Pulse.MonoNsec + wait
		t.say(p, v, w, model.DecideLeftAlone, model.Value{}, fmt.Sprintf("the kernel refused its quota: %s; next try in %d s", k.Why, wait/1e9))
		t.drop(w, "the kernel refused it")
		return false
	case v.Pulse.MonoNsec < t.RetryNsec:
		return false
	}
	if k.Ours && !k.Refused {
		t.Refusals, t.RetryNsec = 0, 0
	}
	return true
}

// judge decides on the task's quota for the next period.
func (t *Task) judge(p *Params, v *model.CPUView, w *model.Wishes, u model.Value, e *evidence, cpus int64) {
	quota := t.quota()
	limit := float64(t.OriginalUsec) / float64(t.PeriodUsec)
	over := e.use.Outcome == model.OK && e.use.V > limit
	busy := u.Outcome == model.OK && u.V > p.UtilisationHigh
	switch {
	case busy && (quota > t.OriginalUsec || p.BelowOriginal):
		t.halve(p, v, w, u, "in the last period")
	case over && quota > t.OriginalUsec:
		to := t.lowered(p)
		t.move(p, v, w, model.DecideLower, u, to, fmt.Sprintf("it used %.2f CPUs on average, more than the %.2f of its original limit", e.use.V, limit))
	case quota < t.OriginalUsec && u.Outcome == model.OK && !busy:
		to := min(quota+t.step(p), t.OriginalUsec)
		t.move(p, v, w, model.DecideRaise, u, to, fmt.Sprintf("the pool's utilisation is down to %.1f %%", u.V*100))
	case e.known && e.throttled > 0:
		t.raise(p, v, w, u, e, cpus)
	case e.known && quota > t.OriginalUsec && p.GiveBackNsec > 0 && v.Pulse.MonoNsec-t.QuietNsec >= p.GiveBackNsec<<t.Waits:
		to := max(quota-t.step(p), t.OriginalUsec)
		t.move(p, v, w, model.DecideLower, u, to, fmt.Sprintf("not throttled for %d s", (v.Pulse.MonoNsec-t.QuietNsec)/1e9))
		t.QuietNsec, t.Stepped = v.Pulse.MonoNsec, true
		if to == t.OriginalUsec {
			t.Waits, t.Stepped = 0, false
		}
	}
}

// raise gives a throttled task a step more, or says once why not.
func (t *Task) raise(p *Params, v *model.CPUView, w *model.Wishes, u model.Value, e *evidence, cpus int64) {
	limit := float64(t.OriginalUsec) / float64(t.PeriodUsec)
	most := max(t.OriginalUsec, min(int64(p.MaxFactor*float64(t.OriginalUsec)), cpus*t.PeriodUsec))
	switch k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]; {
	case u.Outcome != model.OK:
		t.leave(p, v, w, toldBlind, "throttled, but the pool's utilisation is "+u.Outcome.String())
	case e.use.Outcome != model.OK:
		t.leave(p, v, w, toldBlind, "throttled, but its CPU time is "+e.use.Outcome.String())
	case u.V > p.UtilisationHigh:
		t.leave(p, v, w, toldBusy, fmt.Sprintf("throttled in %d of %d periods, but the pool's utilisation is %.1f %%", e.throttled, e.periods, u.V*100))
	case e.use.V >= p.BurstyBelow*limit:
		t.leave(p, v, w, toldSteady, fmt.Sprintf("throttled in %d of %d periods, but it is not bursty: it used %.2f CPUs on average of a limit of %.2f; it needs a larger limit",
			e.throttled, e.periods, e.use.V, limit))
	case t.quota() >= most:
		t.leave(p, v, w, toldBound, fmt.Sprintf("throttled in %d of %d periods, but its quota of %d us is raised as far as max_factor and the %d CPUs of the pool allow",
			e.throttled, e.periods, t.quota(), cpus))
	case k.Pending: // what became of the last change is known with the next period
	case v.Mode != model.ModeEnforce && t.Told&toldWould != 0:
	default:
		to := min(t.quota()+t.step(p), most)
		t.move(p, v, w, model.DecideRaise, u, to, fmt.Sprintf("throttled in %d of %d periods with %.2f CPUs used on average, and the pool's utilisation is %.1f %%",
			e.throttled, e.periods, e.use.V, u.V*100))
		t.Stepped = false
	}
}

// halve brings the quota down because the pool is too busy.
func (t *Task) halve(p *Params, v *model.CPUView, w *model.Wishes, u model.Value, when string) {
	if to := t.lowered(p); to < t.quota() {
		t.move(p, v, w, model.DecideLower, u, to, fmt.Sprintf("the pool's utilisation was %.1f %% %s", u.V*100, when))
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
func (t *Task) move(p *Params, v *model.CPUView, w *model.Wishes, kind model.DecisionKind, u model.Value, to int64, why string) {
	from := t.quota()
	if to == from {
		return
	}
	text := fmt.Sprintf("%s: quota %d -> %d us a period of %d us (original %d)", why, from, to, t.PeriodUsec, t.OriginalUsec)
	if v.Mode != model.ModeEnforce {
		t.Told |= toldWould
		t.tell(p, v, w, kind, u, to, text)
		return
	}
	had := t.WantUsec != 0
	t.WantUsec, t.Why = to, why
	if to == t.OriginalUsec {
		t.WantUsec = 0
	}
	if had && t.WantUsec == 0 {
		w.Drops = append(w.Drops, model.Drop{Task: t.Num, Kind: model.ClaimRaise, Reason: why})
	}
	t.tell(p, v, w, kind, u, to, text)
}

// claim makes, or renews, the task's claim. Where BelowOriginal allows it, it is one of less
// than was found.
func (t *Task) claim(p *Params, v *model.CPUView, w *model.Wishes, use model.Value) {
	if t.WantUsec == 0 || v.Mode != model.ModeEnforce {
		return
	}
	w.Claims = append(w.Claims, model.Claim{
		Task: t.Num, Kind: model.ClaimRaise, QuotaUsec: t.WantUsec, Reason: t.Why, ExpiresNsec: v.NowNsec + p.HoldNsec, UsageAtClaim: use.V,
	})
}

// drop gives the task's claim back.
func (t *Task) drop(w *model.Wishes, why string) {
	if t.WantUsec == 0 {
		return
	}
	w.Drops = append(w.Drops, model.Drop{Task: t.Num, Kind: model.ClaimRaise, Reason: why})
	t.WantUsec, t.Why = 0, ""
}

// leave says once why a task is left alone.
func (t *Task) leave(p *Params, v *model.CPUView, w *model.Wishes, why told, text string) {
	if t.Told&why == 0 {
		t.Told |= why
		t.say(p, v, w, model.DecideLeftAlone, model.Value{}, text)
	}
}

func (t *Task) say(p *Params, v *model.CPUView, w *model.Wishes, kind model.DecisionKind, u model.Value, text string) {
	t.tell(p, v, w, kind, u, t.quota(), text)
}

// tell adds a decision: Score is U, Threshold U_H, Value the limit in CPUs.
func (t *Task) tell(p *Params, v *model.CPUView, w *model.Wishes, kind model.DecisionKind, u model.Value, quota int64, text string) {
	d := model.Decision{Kind: kind, Task: t.Num, Path: v.Tasks[t.at].Task.Path, Score: u.V, Threshold: p.UtilisationHigh, Reason: text}
	if t.PeriodUsec > 0 {
		d.Value = float64(quota) / float64(t.PeriodUsec)
	}
	w.Decisions = append(w.Decisions, d)
}
