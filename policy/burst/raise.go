package burst

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// told are the reasons that were explained already.
type told uint8

const (
	toldVoid told = 1 << iota
	toldExempt
	toldGiven // it was given a burst
	toldWould // observe mode: it would be given one
)

// raisedHoldNsec is how long a raise stands that is not renewed.
const raisedHoldNsec = 1e9

// maxRefusals bounds the doublings of RetryNsec.
const maxRefusals = 5

// free reports whether the task's knob may be touched, and says once why not. What is not
// free is not claimed either.
func (s *State) free(p *Params, v *model.CPUView, w *model.Wishes, t *Task) bool {
	view := &v.Tasks[t.at]
	k := &view.Knobs[model.CPUBandwidth]
	switch {
	case view.Exempt:
		s.letGo(t, w, "an operator freed this task")
		t.leave(v, w, toldExempt, "an operator freed this task")
		return false
	case k.Void:
		s.letGo(t, w, "another program owns this knob")
		t.leave(v, w, toldVoid, "another program wrote its limit: "+k.Why)
		return false
	case k.Refused && !k.Pending && t.MadeNsec != 0 && v.Pulse.MonoNsec-t.AskedNsec >= p.ProbeNsec:
		s.refusedTask(p, v, w, t, k.Why)
		return false
	case v.Pulse.MonoNsec < t.RetryNsec:
		return false
	}
	if k.Ours && !k.Refused {
		t.Refusals, t.RetryNsec = 0, 0
	}
	return true
}

// refusedTask leaves a task alone for a while. Where it was a raise that was refused, only
// raises wait: the burst is asked for again.
func (s *State) refusedTask(p *Params, v *model.CPUView, w *model.Wishes, t *Task, why string) {
	now, what := v.Pulse.MonoNsec, "burst"
	t.Refusals = min(t.Refusals+1, maxRefusals)
	wait := p.RetryNsec << (t.Refusals - 1)
	if t.RaisedUsec != 0 {
		what = "raised quota"
		t.RestNsec, t.RetryNsec = now+wait, now+p.ProbeNsec
	} else {
		t.RetryNsec = now + wait
	}
	s.letGo(t, w, "the kernel refused it")
	t.tell(v, w, model.DecideLeftAlone, t.Found.QuotaUsec, fmt.Sprintf("the kernel refused its %s: %s; next try in %d s", what, why, wait/1e9))
}

// letGo gives a task's claim back, with its raise.
func (s *State) letGo(t *Task, w *model.Wishes, why string) {
	if t.RaisedUsec != 0 {
		s.Raised--
	}
	t.drop(w, why)
}

// drop gives a task's claim back.
func (t *Task) drop(w *model.Wishes, why string) {
	if t.MadeNsec != 0 {
		w.Drops = append(w.Drops, model.Drop{Task: t.Num, Kind: model.ClaimRaise, Reason: why})
	}
	t.MadeNsec, t.AskedUsec, t.RaisedUsec, t.BaseUsec, t.Why = 0, 0, 0, 0, ""
}

// renew makes or renews the claims that are due.
func (s *State) renew(p *Params, v *model.CPUView, w *model.Wishes) {
	now := v.Pulse.MonoNsec
	due := now >= s.RenewNsec
	for i := range s.Tasks {
		t := &s.Tasks[i]
		switch {
		case t.RaisedUsec != 0 && (due || now-t.MadeNsec >= raisedHoldNsec/2):
		case t.RaisedUsec == 0 && due && t.burstUsec(p, s.Bound.K) > t.Found.BurstUsec:
		default:
			continue
		}
		if s.free(p, v, w, t) {
			s.claim(p, v, w, t)
		}
	}
}

// claim asks for the burst that the kernel has room for, and for the raise if there is one.
func (s *State) claim(p *Params, v *model.CPUView, w *model.Wishes, t *Task) {
	c := model.Claim{Task: t.Num, Kind: model.ClaimRaise, QuotaUsec: t.RaisedUsec, ExpiresNsec: v.NowNsec + p.HoldNsec}
	if b := t.burstUsec(p, s.Bound.K); b > t.Found.BurstUsec {
		c.BurstUsec = b
	}
	switch {
	case t.RaisedUsec != 0:
		c.ExpiresNsec = v.NowNsec + raisedHoldNsec
		c.Reason = "it bursts, and saved more than the kernel's bucket holds"
	case c.BurstUsec == 0:
		t.drop(w, "the burst is over")
		return
	default:
		c.Reason = "to save what it does not use for a burst"
		if t.Told&toldGiven == 0 {
			t.Told |= toldGiven
			t.tell(v, w, model.DecideRaise, t.Found.QuotaUsec, fmt.Sprintf("may save up to %d us for a burst, %g times its quota of %d us", c.BurstUsec,
				s.Bound.K, t.Found.QuotaUsec))
		}
	}
	if t.MadeNsec == 0 || t.AskedUsec != t.RaisedUsec {
		t.AskedNsec, t.AskedUsec = v.Pulse.MonoNsec, t.RaisedUsec
	}
	t.MadeNsec, t.Why = v.Pulse.MonoNsec, c.Reason
	w.Claims = append(w.Claims, c)
}

// raise gives tasks that burst a larger quota for a while, in turns, as far as the budget
// of writes goes.
func (s *State) raise(p *Params, v *model.CPUView, w *model.Wishes) {
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
func (s *State) mayRaise(p *Params, v *model.CPUView, w *model.Wishes, t *Task) bool {
	now := v.Pulse.MonoNsec
	// A level of before this pulse, or a pulse that came late, says nothing of the next one.
	if t.RaisedUsec != 0 || !t.hot(p, now) || now < t.RestNsec || t.GapNsec <= 0 || t.GapNsec > p.LateNsec {
		return false
	}
	quota := t.Found.QuotaUsec
	m := min(t.allowed(p, s.Bound.K), float64(int64(v.PoolCPUs.Len())*t.Found.PeriodUsec)/float64(quota))
	to := int64(m * float64(quota))
	base := t.inForceUsec()
	if m < p.MinRaise || to <= base || v.Tasks[t.at].Knobs[model.CPUBandwidth].Pending || !s.free(p, v, w, t) {
		return false
	}
	t.BaseUsec, t.RaisedUsec = max(base, quota), to
	s.Raised++
	t.tell(v, w, model.DecideRaise, to, fmt.Sprintf("it bursts and has saved %.0f us of CPU time (%.1f times its quota): quota %d -> %d us a period of %d us with a burst of %d us, down to a reserve of %.0f us",
		t.Level, t.Level/float64(quota), base, to, t.Found.PeriodUsec, t.burstUsec(p, s.Bound.K), t.reserve(p, s.Bound.K, m)))
	t.Told |= toldGiven
	s.claim(p, v, w, t)
	return true
}

// mayLower ends a raise whose burst is over or whose savings are used.
func (s *State) mayLower(p *Params, v *model.CPUView, w *model.Wishes, t *Task) {
	m := float64(t.RaisedUsec) / float64(t.Found.QuotaUsec)
	switch reserve := t.reserve(p, s.Bound.K, m); {
	case t.Level < reserve:
		s.lower(p, v, w, t, fmt.Sprintf("its savings of %.0f us are below the reserve of %.0f us", t.Level, reserve))
	case !t.hot(p, v.Pulse.MonoNsec):
		s.lower(p, v, w, t, fmt.Sprintf("no burst for %.1f s", float64(p.QuietNsec)/1e9))
	default:
		s.WatchNsec = max(s.WatchNsec, t.HotNsec+p.QuietNsec)
	}
}

// lowerBlind ends raises that nobody watches any more.
func (s *State) lowerBlind(p *Params, v *model.CPUView, w *model.Wishes) {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.RaisedUsec != 0 && v.Pulse.MonoNsec-t.SeenNsec >= p.LateNsec {
			s.lower(p, v, w, t, "its use could not be followed")
		}
	}
}

// lower ends a raise: the burst in the kernel stays.
func (s *State) lower(p *Params, v *model.CPUView, w *model.Wishes, t *Task, why string) {
	from, to := t.RaisedUsec, t.BaseUsec
	t.RaisedUsec, t.BaseUsec = 0, 0
	t.RestNsec = v.Pulse.MonoNsec + p.RestNsec
	s.Raised--
	t.tell(v, w, model.DecideLower, to, fmt.Sprintf("%s: quota %d -> %d us", why, from, to))
	if s.free(p, v, w, t) {
		s.claim(p, v, w, t)
	} else {
		t.drop(w, why)
	}
}

// would says once in observe mode what the policy is for.
func (t *Task) would(p *Params, v *model.CPUView, w *model.Wishes) {
	if v.Mode == model.ModeObserve && t.HotNsec != 0 && t.HotNsec == v.Pulse.MonoNsec {
		burst := int64(p.Bucket * float64(t.Found.QuotaUsec))
		t.leaveAs(v, w, toldWould, model.DecideRaise, fmt.Sprintf("it ran out of its quota of %d us: it would be let save up to %d us, of which the kernel may take less", t.Found.QuotaUsec, burst))
	}
}

func (t *Task) leave(v *model.CPUView, w *model.Wishes, why told, text string) {
	t.leaveAs(v, w, why, model.DecideLeftAlone, text)
}

func (t *Task) leaveAs(v *model.CPUView, w *model.Wishes, why told, kind model.DecisionKind, text string) {
	if t.Told&why == 0 {
		t.Told |= why
		t.tell(v, w, kind, t.Found.QuotaUsec, text)
	}
}

// tell adds a decision: Value is the limit in CPUs, Score the savings in quotas.
func (t *Task) tell(v *model.CPUView, w *model.Wishes, kind model.DecisionKind, quota int64, text string) {
	w.Decisions = append(w.Decisions, model.Decision{
		Kind: kind, Task: t.Num, Path: v.Tasks[t.at].Task.Path, Score: t.Level / float64(t.Found.QuotaUsec),
		Value: float64(quota) / float64(t.Found.PeriodUsec), Reason: text,
	})
}
