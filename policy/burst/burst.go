// Package burst lets latency-critical tasks carry unused quota over from one CFS period to
// the next (Alibaba §4.1, "Burstable CFS controller"): a token bucket of k times
// the quota, in the kernel as far as the kernel has room for it, and in user space beyond.
//
// Intuition. A service that uses a fifth of its quota for two seconds has paid for a spike
// of ten quotas. The kernel keeps what was not used, up to cpu.cfs_burst_us (v1) or
// cpu.max.burst (v2), and lets the task use it when its quota is gone. Nobody's average use
// rises above the quota by it. Alibaba chose k = 10 by simulation (figure 14).
//
// What the kernel's bound is. Mainline refuses a burst above the quota (EINVAL), so that k
// is at most 1; kernels before 5.14 have none; Alibaba's own takes 10 times the quota. None
// of them says so, so it is tried out on one task. A burst of k times its quota is written; where
// the kernel refuses it, a burst of one quota. Where that is refused as well, to two tasks or to the
// only one that there is, this kernel has no bursts. What was found is told once (DecideBound) and
// remembered (bound.go).
//
// The rest of the bucket. For each task the policy follows the ideal bucket of k times the
// quota from the CPU time used between two pulses (bucket.go). While a task bursts and has
// savings, its quota stands at up to MaxRaise times the original; when the savings are used
// up to a reserve, or no burst was seen for QuietNsec, it comes down (raise.go).
//
// The worst overspend. With q the original quota, P the period, b the burst in the kernel,
// B the quota in force without us (q, or what the CPU pool made of it), m the raise:
// the kernel adds a quota to what a group may use at each period's end and at each write of
// quota or burst, up to quota + burst (tg_set_cfs_bandwidth calls
// __refill_cfs_bandwidth_runtime). The policy sees the level L of the ideal bucket at a
// pulse, and what the next pulse decides is in force at most LateNsec later. Until then the
// task may use at most
//
//	D = (m·q + b)   what the kernel holds for it
//	  + n·m·q       a refill at each period's end; n = ⌈LateNsec / P⌉
//
// and, when the raise is yet to be written, B + b before that. When the quota comes down,
// that write leaves it B + b at the most, and from then on it gets the rate. The ideal bucket
// gains q from each refill to the next, which is (n-1)·q at the least. So a raise lasts while
//
//	L ≥ R(m) = D + B + b - (n-1)·q - MaxOverspend·q
//
// and begins only when L ≥ R(m) + B + b. Then L never falls below -MaxOverspend·q: over any
// interval of length t the task uses at most (k + 1 + MaxOverspend)·q + t·q/P, where the
// kernel's own bucket of k·q grants up to (k + 2)·q + t·q/P. What was overspent is debt: L
// must rise to R(m) + B + b again before the next raise, so overspends do not add up. A
// pulse that comes later than that, by x, adds at most (m-1)·q·x/P + m·q, which is debt too.
// So is the refill of another's write of the same limit meanwhile (the pool's: one in 5 s).
// What the scheduler has handed to CPUs in slices (5 ms each) is left out here, as it is on
// both sides.
//
// Hard cases:
//
//   - Readings far apart (5 s while all is quiet): L is taken as low as any order of use
//     within them allows, given what the kernel could have granted (bucket.go).
//   - Pulses without detail, or none, while a quota is raised: it comes down. The claim ends
//     within a second if the policy is not heard of again.
//   - The CPU pool raised the quota as well: claims settle at the greatest. What the task used
//     above its original quota by the pool's grace is taken from its savings: who lives above
//     his income has none.
//   - A task that uses all of its quota all the time has no savings and is never raised, and
//     not watched from pulse to pulse either.
//   - A write refills the kernel's bucket, so few writes are part of the bound: a raise stays
//     for QuietNsec after the last sign of a burst, begins RestNsec after the one before
//     ended, and all tasks together may write MaxWritesPerSec times a second.
//
// In observe mode nothing is asked for: the kernel's bound is not known, and a task that was
// throttled is told once.
package burst

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Task is what the policy remembers of one shared LC task that has a quota.
type Task struct {
	Num model.TaskNum `json:"num"`
	// Found is what stands there without us.
	Found model.CPUMax `json:"found"`

	// SeenNsec is when the counters were last read; 0: not yet.
	SeenNsec  int64         `json:"seen_nsec,omitempty"`
	GapNsec   int64         `json:"gap_nsec,omitempty"` // between the last two readings
	Usage     model.Counter `json:"usage"`
	Throttled model.Counter `json:"throttled"`
	// Level is that of the ideal bucket, in microseconds of CPU time; below 0 it is debt.
	Level float64 `json:"level"`
	// InForce is what the kernel holds now, PeakUsec its greatest quota, in one found period,
	// since the last reading, and Writes how often it changed.
	InForce  model.CPUMax `json:"in_force"`
	PeakUsec int64        `json:"peak_usec"`
	Writes   int          `json:"writes,omitempty"`

	HotNsec    int64 `json:"hot_nsec,omitempty"`    // when a burst was last seen; 0: never
	RaisedUsec int64 `json:"raised_usec,omitempty"` // 0: not raised
	BaseUsec   int64 `json:"base_usec,omitempty"`   // the quota in force before the raise
	RestNsec   int64 `json:"rest_nsec,omitempty"`   // not raised before then
	PassNsec   int64 `json:"pass_nsec,omitempty"`   // the kernel's bound is not sought with it before then
	Closed     bool  `json:"closed,omitempty"`      // it is not ours to raise

	at     int       // index in View.Tasks
	closed [2]string // why it is not ours to raise: a word, and in full
}

// State is what the policy remembers. It is bounded by the number of tasks.
type State struct {
	Tasks []Task `json:"tasks"` // ordered by Num
	Bound Bound  `json:"bound"`
	// RenewNsec is when tasks are next looked at one by one.
	RenewNsec int64 `json:"renew_nsec"`
	// WatchNsec: until then tasks are looked at one by one at every pulse.
	WatchNsec int64 `json:"watch_nsec"`
	Raised    int   `json:"raised,omitempty"` // tasks whose quota is raised
	// Writes is what may be written now, up to a second's worth.
	Writes     float64       `json:"writes"`
	WritesNsec int64         `json:"writes_nsec"`
	Turn       model.TaskNum `json:"turn,omitempty"` // who was raised last

	ready bool   // Tasks[].at holds
	moved bool   // what is wished for may be other than in the step before
	spare []Task // room for the next list
}

// userSpace reports whether a part of the bucket is carried in user space.
func (s *State) userSpace(p *Params) bool {
	return p.UserSpace && s.Bound.Known && s.Bound.K < p.Bucket
}

// Detail reports whether the pulse at nowNsec should be one with detail.
func (s *State) Detail(p *Params, nowNsec int64) bool {
	return nowNsec >= s.RenewNsec || s.userSpace(p) && (s.Raised > 0 || nowNsec < s.WatchNsec)
}

// Step advances the policy by one pulse.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	// Not ready is no reason to wish anew: a State that was read back decides as the one that was written.
	if s.moved = v.Changed; s.moved || !s.ready {
		s.meet(v)
	}
	now := v.Pulse.MonoNsec
	if v.Enforced() && !s.Bound.Known {
		s.probe(p, v, w)
	}
	switch {
	case v.Pulse.Tasks != nil:
		s.look(p, v, w)
	case s.Raised > 0:
		s.lowerBlind(p, v, w)
	}
	if now >= s.RenewNsec && v.Pulse.Tasks != nil {
		s.RenewNsec = now + p.IntervalNsec
	}
	if w.AsBefore = !s.moved; s.moved {
		s.wish(p, v, w)
	}
}

// look takes in a pulse with detail: levels, then who comes down, then who is raised.
func (s *State) look(p *Params, v *policy.View, w *policy.Wishes) {
	now, j, waiting := v.Pulse.MonoNsec, 0, false
	s.WatchNsec = 0
	carries := s.userSpace(p)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		t.follow(p, s.Bound.K, v.Pulse.Find(t.Num, &j), now)
		if !v.Enforced() {
			t.would(p, v, w)
			continue
		}
		if !carries || t.Closed {
			continue
		}
		if t.RaisedUsec != 0 {
			s.mayLower(p, v, w, t)
			continue
		}
		if !t.hot(p, now) {
			continue
		}
		least := t.reserve(p, s.Bound.K, p.MinRaise) + t.entry(p, s.Bound.K)
		if t.Level >= least/2 {
			s.WatchNsec = max(s.WatchNsec, t.HotNsec+p.QuietNsec)
		}
		waiting = waiting || t.Level >= least
	}
	if waiting {
		s.raise(p, v, w)
	}
}

// meet takes in which tasks there are, what they were found with and what is in force.
func (s *State) meet(v *policy.View) {
	s.Raised = 0
	num := func(t *Task) model.TaskNum { return t.Num }
	s.Tasks, s.spare = policy.Match(v, s.Tasks, s.spare, num, func(view *policy.TaskView, had *Task, at int) (Task, bool) {
		k := &view.Knobs[model.CPUBandwidth]
		if view.Task.Class != model.LC || view.Task.Exclusive || !k.Known || k.Found.QuotaUsec <= 0 || k.Found.PeriodUsec <= 0 {
			return Task{}, false
		}
		found := k.Found.CPUMax
		t := Task{Num: view.Task.Num, Found: found, InForce: found, PeakUsec: found.QuotaUsec}
		if had != nil && had.Found == found {
			t = *had
		}
		t.at = at
		t.rebase(v, view)
		if t.RaisedUsec != 0 {
			s.Raised++
		}
		return t, true
	})
	if !v.Enforced() {
		s.Bound.Probe = Probe{}
	}
	s.ready = true
}

// rebase takes in what is in force, and whether the task may be raised.
func (t *Task) rebase(v *policy.View, view *policy.TaskView) {
	k := &view.Knobs[model.CPUBandwidth]
	if now := k.Now.CPUMax; now != t.InForce && now.PeriodUsec > 0 {
		t.InForce = now
		t.Writes++
	}
	t.PeakUsec = max(t.PeakUsec, t.inForceUsec())
	word, why := view.Closed(model.CPUBandwidth)
	t.Closed = word != ""
	if t.Closed || !v.Enforced() {
		t.RaisedUsec, t.BaseUsec = 0, 0
	}
	t.closed = [2]string{word, why}
}

// inForceUsec is the quota in force, in one found period.
func (t *Task) inForceUsec() int64 {
	if t.InForce.QuotaUsec < 0 {
		return t.Found.QuotaUsec // somebody took the limit away: nothing of ours to account for
	}
	if t.InForce.PeriodUsec == t.Found.PeriodUsec {
		return t.InForce.QuotaUsec
	}
	return int64(t.InForce.Ratio() * float64(t.Found.PeriodUsec))
}
