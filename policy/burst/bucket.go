package burst

import (
	"math"

	"github.com/commensal-io/commensal/model"
)

// The ideal bucket. Its level rises by the quota in each period and falls by what is used;
// more than (k+1) quotas, the bucket and one period's quota, it does not hold:
//
//	L(t) = min over s ≤ t of  (k+1)·q + (t-s)·q/P - use(s, t)
//
// The policy knows use at some moments only. Between two of them, dt apart, the least that
// L can have become is
//
//	L' = min( L + dt·q/P - use,  (k+1)·q - min(use, X) )
//
// where X is the most that the kernel can have granted above the rate q/P at the end of the
// interval: Q + b at once, Q at a period's end, Q for each write, and (Q - q)/P all the
// time, with Q the greatest quota that was in force. Without the second term a task that
// idled first and then used all of it would be taken to have more than it has; without X, one
// that was used evenly would be taken to have nothing.

// capacity is what the ideal bucket holds.
func (t *Task) capacity(p *Params) float64 { return (p.Bucket + 1) * float64(t.Found.QuotaUsec) }

// burstUsec is the burst that the kernel is to hold, with a bound of k quotas.
func (t *Task) burstUsec(p *Params, k float64) int64 {
	return max(int64(min(k, p.Bucket)*float64(t.Found.QuotaUsec)), t.Found.BurstUsec)
}

// follow brings the level, and the signs of a burst, up to a reading.
func (t *Task) follow(p *Params, k float64, now *model.TaskPulse, nowNsec int64) {
	var used, throttled uint64
	outcome, limited := model.Absent, model.Absent
	dt := float64(nowNsec-t.SeenNsec) / 1e3 // microseconds
	if now != nil {
		used, outcome = model.Delta(t.Usage, now.Usage)
		throttled, limited = model.Delta(t.Throttled, now.Throttled)
		t.Usage, t.Throttled = now.Usage, now.Throttled
	} else {
		t.Usage, t.Throttled = model.Counter{}, model.Counter{}
	}
	t.GapNsec = 0
	switch {
	case t.SeenNsec == 0 || outcome != model.OK || dt < 0:
		// What it used is not known: it has no savings that we could answer for.
		t.Level = min(t.Level, 0)
	case dt > 0:
		t.GapNsec = nowNsec - t.SeenNsec
		quota, period := float64(t.Found.QuotaUsec), float64(t.Found.PeriodUsec)
		peak, burst := float64(t.PeakUsec), float64(t.burstUsec(p, k))
		use := float64(used) / 1e3
		extra := (2+float64(t.Writes))*peak + burst + max(0, peak-quota)*dt/period
		level := min(t.Level+dt*quota/period-use, t.capacity(p)-min(use, extra))
		t.Level = max(level, -t.capacity(p))
		// Of what it would have without our raise: a burst that a raise takes in is one too.
		if use >= p.NearShare*(t.base()*dt/period+burst) {
			t.HotNsec = nowNsec
		}
	}
	if limited == model.OK && throttled > 0 {
		t.HotNsec = nowNsec
	}
	t.SeenNsec, t.PeakUsec, t.Writes = nowNsec, t.inForceUsec(), 0
}

// hot reports whether the task bursts.
func (t *Task) hot(p *Params, nowNsec int64) bool {
	return t.HotNsec != 0 && nowNsec-t.HotNsec < p.QuietNsec
}

// reserve is R(m): the level down to which a raise to m times the quota is within
// MaxOverspend (see the package comment).
func (t *Task) reserve(p *Params, k, m float64) float64 {
	quota, burst, base := float64(t.Found.QuotaUsec), float64(t.burstUsec(p, k)), t.base()
	n := t.refills(p)
	return (n+1)*m*quota + base + 2*burst - (n-1+p.MaxOverspend)*quota
}

// entry is what the level must have beyond the reserve for a raise to begin: what the task may
// use before that is written.
func (t *Task) entry(p *Params, k float64) float64 { return t.base() + float64(t.burstUsec(p, k)) }

// allowed is by how much the task may be raised now.
func (t *Task) allowed(p *Params, k float64) float64 {
	room := t.Level - t.entry(p, k) - t.reserve(p, k, 0)
	return min(p.MaxRaise, room/((t.refills(p)+1)*float64(t.Found.QuotaUsec)))
}

// refills is how many periods can end before what the next pulse decides is in force.
func (t *Task) refills(p *Params) float64 {
	return max(1, math.Ceil(float64(p.LateNsec)/float64(t.Found.PeriodUsec*1000)))
}

// base is the quota in force without our raise, the original at the least.
func (t *Task) base() float64 {
	if t.RaisedUsec != 0 {
		return float64(t.BaseUsec)
	}
	return float64(max(t.inForceUsec(), t.Found.QuotaUsec))
}
