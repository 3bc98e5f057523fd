package burst

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// raisedHoldNsec is how long a raise stands when no step is taken any more.
const raisedHoldNsec = 1e9

// wish asks, for each task, for the burst that the kernel has room for, and for its raise if
// it has one.
func (s *State) wish(p *Params, v *policy.View, w *policy.Wishes) {
	if !v.Enforced() {
		return
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		c := t.claim()
		c.HoldNsec, c.Value.QuotaUsec = p.HoldNsec, t.RaisedUsec
		if s.Bound.Known {
			c.Reason = "to save what it does not use for a burst"
			if b := t.burstUsec(p, s.Bound.K); b > t.Found.BurstUsec {
				c.Value.BurstUsec = b
			}
		} else if pr := &s.Bound.Probe; pr.Asking && pr.Task == t.Num {
			c.Reason = fmt.Sprintf("to find out whether the kernel takes a burst of %g times the quota", pr.K)
			c.Value.BurstUsec = pr.burstUsec(t)
		}
		switch {
		case c.Value == model.Ask(model.CPUBandwidth):
			continue
		case t.Closed:
			w.Once(t.closed[0], t.decision(model.DecideLeftAlone, t.Found.QuotaUsec, t.closed[1]))
			continue
		case t.RaisedUsec != 0:
			c.Over = model.Bandwidth(model.CPUMax{QuotaUsec: t.Found.QuotaUsec, PeriodUsec: t.Found.PeriodUsec})
			c.HoldNsec, c.Reason = raisedHoldNsec, "it bursts, and saved more than the kernel's bucket holds"
		case s.Bound.Known && t.InForce.BurstUsec < c.Value.BurstUsec: // it is yet to be written
			s.given(w, t, c.Value.BurstUsec)
		}
		w.Claims = append(w.Claims, c)
	}
}

// claim is the one claim that a task has, of whatever.
func (t *Task) claim() model.Claim {
	return model.Claim{Target: model.OfTask(t.Num), Kind: model.ClaimRaise, Value: model.Ask(model.CPUBandwidth)}
}

// given says once that a task has a burst.
func (s *State) given(w *policy.Wishes, t *Task, burstUsec int64) {
	w.Once("given", t.decision(model.DecideRaise, t.Found.QuotaUsec, fmt.Sprintf(
		"may save up to %d us for a burst, %g times its quota of %d us", burstUsec, s.Bound.K, t.Found.QuotaUsec)))
}

// raise gives tasks that burst a larger quota for a while, in turns, as far as the budget
// of writes goes.
func (s *State) raise(p *Params, v *policy.View, w *policy.Wishes) {
	now := v.Pulse.MonoNsec
	if s.WritesNsec == 0 || now < s.WritesNsec {
		s.Writes = p.MaxWritesPerSec
	} else {
		s.Writes = min(s.Writes+p.MaxWritesPerSec*float64(now-s.WritesNsec)/1e9, max(p.MaxWritesPerSec, 2))
	}
	s.WritesNsec = now
	first := 0
	for first < len(s.Tasks) && s.Tasks[first].Num <= s.Turn {
		first++
	}
	for n := range s.Tasks {
		if s.Writes < 2 { // up, and down again
			return
		}
		t := &s.Tasks[(first+n)%len(s.Tasks)]
		if s.mayRaise(p, v, w, t) {
			s.Writes -= 2
			s.Turn = t.Num
		}
	}
}

// mayRaise raises a task's quota if it bursts and has savings.
func (s *State) mayRaise(p *Params, v *policy.View, w *policy.Wishes, t *Task) bool {
	now := v.Pulse.MonoNsec
	// A level of before this pulse, or a pulse that came late, says nothing of the next one.
	if t.RaisedUsec != 0 || !t.hot(p, now) || now < t.RestNsec || t.GapNsec <= 0 || t.GapNsec > p.LateNsec {
		return false
	}
	quota := t.Found.QuotaUsec
	m := min(t.allowed(p, s.Bound.K), float64(int64(v.PoolCPUs.Len())*t.Found.PeriodUsec)/float64(quota))
	to := int64(m * float64(quota))
	base := t.inForceUsec()
	k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]
	// Of a task without a burst the refusal is of something that is no longer asked for.
	refused := k.Refused && t.burstUsec(p, s.Bound.K) > t.Found.BurstUsec
	if m < p.MinRaise || to <= base || k.Pending || refused || t.Closed {
		return false
	}
	t.BaseUsec, t.RaisedUsec = max(base, quota), to
	s.Raised++
	s.moved = true
	w.Decide(t.decision(model.DecideRaise, to, fmt.Sprintf("it bursts and has saved %.0f us of CPU time (%.1f times its quota): quota %d -> %d us a period of %d us with a burst of %d us, down to a reserve of %.0f us",
		t.Level, t.Level/float64(quota), base, to, t.Found.PeriodUsec, t.burstUsec(p, s.Bound.K), t.reserve(p, s.Bound.K, m))))
	return true
}

// mayLower ends a raise whose burst is over or whose savings are used.
func (s *State) mayLower(p *Params, v *policy.View, w *policy.Wishes, t *Task) {
	m := float64(t.RaisedUsec) / float64(t.Found.QuotaUsec)
	k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]
	switch reserve := t.reserve(p, s.Bound.K, m); {
	case t.Level < reserve:
		s.lower(p, v, w, t, fmt.Sprintf("its savings of %.0f us are below the reserve of %.0f us", t.Level, reserve))
	case k.Refused && !k.Pending: // the burst, which it took before, is asked for again
		s.lower(p, v, w, t, "the kernel refused the raised quota: "+k.Why)
		t.RestNsec = v.Pulse.MonoNsec + p.RetryNsec
	case !t.hot(p, v.Pulse.MonoNsec):
		s.lower(p, v, w, t, fmt.Sprintf("no burst for %.1f s", float64(p.QuietNsec)/1e9))
	default:
		s.WatchNsec = max(s.WatchNsec, t.HotNsec+p.QuietNsec)
	}
}

// lowerBlind ends raises that nobody watches any more.
func (s *State) lowerBlind(p *Params, v *policy.View, w *policy.Wishes) {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.RaisedUsec != 0 && v.Pulse.MonoNsec-t.SeenNsec >= p.LateNsec {
			s.lower(p, v, w, t, "its use could not be followed")
		}
	}
}

// lower ends a raise: the burst in the kernel stays.
func (s *State) lower(p *Params, v *policy.View, w *policy.Wishes, t *Task, why string) {
	from, to := t.RaisedUsec, t.BaseUsec
	t.RaisedUsec, t.BaseUsec = 0, 0
	t.RestNsec = v.Pulse.MonoNsec + p.RestNsec
	s.Raised--
	s.moved = true
	w.Decide(t.decision(model.DecideLower, to, fmt.Sprintf("%s: quota %d -> %d us", why, from, to)))
}

// would says once in observe mode what the policy is for.
func (t *Task) would(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeObserve && t.HotNsec != 0 && t.HotNsec == v.Pulse.MonoNsec {
		w.Once("would", t.decision(model.DecideRaise, t.Found.QuotaUsec, fmt.Sprintf(
			"it ran out of its quota of %d us: it would be let save up to %d us, of which the kernel may take less", t.Found.QuotaUsec, int64(p.Bucket*float64(t.Found.QuotaUsec)))))
	}
}

// decision is one about the task with a quota.
func (t *Task) decision(kind model.DecisionKind, quota int64, text string) model.Decision {
	return model.Decision{Kind: kind, Task: t.Num, Reason: text, Facts: []model.Fact{
		model.FactLimit.Is(float64(quota) / float64(t.Found.PeriodUsec)), model.FactSavings.Is(t.Level / float64(t.Found.QuotaUsec)),
	}}
}
