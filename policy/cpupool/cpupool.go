// Package cpupool shares the CPUs that latency-critical services leave idle among them
// (Alibaba §4.1, "Shared CPU pool"): it raises the CFS quotas of tasks that ran out
// of theirs for a moment, and brings them down when the CPUs that they share get busy.
//
// Intuition. A quota is set from use that was averaged over seconds; the work comes in spikes
// of milliseconds. A task that uses a fifth of its quota is stopped in one period of ten,
// with idle CPUs beside it. TCP has the same problem, a share of something that others use
// too and whose size nobody tells, and AIMD solves it: take a little more each time that you
// ran short, and half of it all when there is a jam. The jam is here the utilisation U of the
// CPUs of the pool: above 45 % the two threads of a core begin to slow each other down
// (Alibaba's footnote 6).
//
// Each period of 5 s, for each shared LC task with a quota Q and an original quota O:
//
//	U > U_H                        Q ← max(O, Q/2)
//	average use > O                Q ← max(O, Q/2)
//	throttled in the period        Q ← min(Q + a·O, MaxFactor·O, CPUs of the pool)
//
// and the first line that holds counts. What is halved is the whole raised quota, as in the
// paper's sentence "reduces its quota by half until the utilization drops below U_H", but not
// beyond what was found: a limit that somebody set is a promise to the service. So every
// raise is gone after log2(MaxFactor) periods of jam. BelowOriginal reads the sentence to its
// letter, with a floor.
//
// What Alibaba leaves open, and how it is here:
//
//   - The step a. A quarter of the original: twice the quota after 20 s, the greatest after a
//     minute, which is the time that a flash crowd takes (section 5.3). One step of all tasks
//     of a pool that is as large as their quotas adds a quarter of what the throttled ones
//     use, about U_H/4 at the worst: one halving takes it away. "Evenly": a step is in
//     proportion to the task's own limit.
//   - A task that uses all of its quota all the time is throttled too. More would put its
//     average above its original limit, and the next period would halve it again, for ever.
//     Alibaba wants the average below the original, so a task that is already at it
//     (BurstyBelow) is not raised, and is told to need a larger limit.
//   - What becomes of a raise that is no longer needed. Throttling follows the tide of a day
//     (figure 12b), and a machine should be found as it was. So a quota that was not
//     exhausted for GiveBackNsec goes one step back; when that turns out to be too early, the
//     next wait of that task is twice as long, up to eight times. A task then finds the
//     least quota with which it is throttled once in ten minutes or less.
//   - A surge within a period. Raised quotas let U pass 45 % for up to 5 s. An earlier check
//     (EarlyUtilisation) can be had; it is off, because U over half a second is as bursty as
//     the tasks, and would take their quotas from them in the middle of a spike. That is the
//     harm which this policy is for; 5 s of shared cores is not.
//   - Whose CPU time U is. That of all that runs on the pool's CPUs, since siblings do not ask
//     whose thread it is. Where the partition keeps others away that is what the shared LC tasks
//     use. Without it the pool is the whole machine, and U is of everybody on it: of LC alone it
//     would be 20 % on a machine that batch work fills, and quotas would rise although no CPU is
//     idle.
//
// Tasks without a quota count in U and are never touched. A counter that is fresh, absent or
// went back is no evidence. In observe mode a raise is told once, and nothing follows
// from it, because nothing was raised.
package cpupool

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Task is what the policy remembers of one shared LC task.
type Task struct {
	Num model.TaskNum `json:"num"`
	// OriginalUsec and PeriodUsec are what stands there without us; 0: no limit, or not known.
	OriginalUsec int64 `json:"original_usec"`
	PeriodUsec   int64 `json:"period_usec"`
	WantUsec     int64 `json:"want_usec,omitempty"` // 0: the original
	// The counters at the end of the last period.
	Usage     model.Counter `json:"usage"`
	Periods   model.Counter `json:"periods"`
	Throttled model.Counter `json:"throttled"`

	QuietNsec int64 `json:"quiet_nsec"`        // when it was last throttled, or stepped back
	Waits     uint8 `json:"waits,omitempty"`   // how often a step back came too early
	Stepped   bool  `json:"stepped,omitempty"` // the last change was a step back
	// Why is the reason of the claim that stands, or of why it no longer does.
	Why string `json:"why,omitempty"`

	at int // index in View.Tasks
}

// State is what the policy remembers. It is bounded by the number of tasks.
type State struct {
	Tasks []Task `json:"tasks"` // ordered by Num
	// LastNsec is when the last period ended; 0: the first has not begun.
	LastNsec int64 `json:"last_nsec"`
	// Utilisation is U of the last period.
	Utilisation model.Value `json:"utilisation"`
	Period      meter       `json:"period"`
	Early       meter       `json:"early"`
	EarlyDone   bool        `json:"early_done,omitempty"` // quotas came down early in this period

	ready bool   // Tasks[].at holds
	moved bool   // what is wished for may be other than in the step before
	spare []Task // room for the next list
}

// meter measures the utilisation of a pool whose size may change.
type meter struct {
	FromNsec int64         `json:"from_nsec"`
	SeenNsec int64         `json:"seen_nsec"`
	LC       model.Counter `json:"lc"`        // LCUsage at FromNsec
	Node     model.Counter `json:"node"`      // NodeUsage then
	PoolNsec int64         `json:"pool_nsec"` // CPU time that the pool had since
	Shared   bool          `json:"shared"`    // with everybody: Node counts
	// Unknown: the pool's size was not known all the time, or the partition came or went.
	Unknown bool `json:"unknown"`
}

func (m *meter) start(p *Params, v *policy.View) {
	now := v.Pulse.MonoNsec
	*m = meter{FromNsec: now, SeenNsec: now, LC: v.Pulse.LCUsage, Node: v.Pulse.NodeUsage, Shared: v.PoolShared && !p.LCOnly}
}

func (m *meter) follow(p *Params, v *policy.View) {
	m.Unknown = m.Unknown || m.Shared != (v.PoolShared && !p.LCOnly)
	if now := v.Pulse.MonoNsec; now > m.SeenNsec {
		cpus := int64(v.PoolCPUs.Len())
		m.PoolNsec += cpus * (now - m.SeenNsec)
		m.Unknown = m.Unknown || cpus == 0
		m.SeenNsec = now
	}
}

// utilisation is the share of the pool's CPU time that was used by those who may run there.
func (m *meter) utilisation(pulse *model.Pulse) model.Value {
	used, outcome := model.Delta(m.LC, pulse.LCUsage)
	if m.Shared {
		used, outcome = model.Delta(m.Node, pulse.NodeUsage)
	}
	if outcome != model.OK {
		return model.Missing(outcome)
	}
	if m.Unknown || m.PoolNsec <= 0 {
		return model.Missing(model.Unavailable)
	}
	return model.Known(float64(used) / float64(m.PoolNsec))
}

// Detail reports whether the pulse at nowNsec should be one with detail: a period is over, or
// the time of EarlyUtilisation.
func (s *State) Detail(p *Params, nowNsec int64) bool {
	return s.LastNsec == 0 || p.EarlyUtilisation > 0 && nowNsec >= s.Early.FromNsec+p.EarlyNsec || nowNsec >= s.LastNsec+p.IntervalNsec-slack(p)
}

// slack is by how much a period may be shorter, so that a pulse that comes a little early is
// not passed over for one that comes a whole period late.
func slack(p *Params) int64 { return p.IntervalNsec / 50 }

// Step advances the policy by one pulse. With one without detail it only follows the size of
// the pool.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	// Not ready is no reason to wish anew: a State that was read back decides as the one that was written.
	if s.moved = v.Changed; s.moved || !s.ready {
		s.meet(v, w)
	}
	pulse, cpus := v.Pulse, int64(v.PoolCPUs.Len())
	s.Period.follow(p, v)
	if p.EarlyUtilisation > 0 {
		s.early(p, v, w)
	}
	switch {
	case pulse.Tasks == nil:
		s.blind(p, pulse.MonoNsec)
	case s.LastNsec == 0 || pulse.MonoNsec < s.LastNsec: // the first one
		s.begin(p, v)
	case pulse.MonoNsec >= s.LastNsec+p.IntervalNsec-slack(p):
		s.period(p, v, w, cpus)
		s.begin(p, v)
	}
	if w.AsBefore = !s.moved; s.moved {
		s.wish(p, w)
	}
}

// wish asks for the quotas that are not as they were found.
func (s *State) wish(p *Params, w *policy.Wishes) {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.WantUsec != 0 {
			w.Claims = append(w.Claims, t.claim(p))
		} else if t.Why != "" {
			w.End(t.claim(p), t.Why)
			t.Why = ""
		}
	}
}

// claim is the wish for a task's quota. Where BelowOriginal allows it, it is one for less than
// was found.
func (t *Task) claim(p *Params) model.Claim {
	return model.Claim{
		Target: model.OfTask(t.Num), Kind: model.ClaimRaise, Value: model.Bandwidth(model.CPUMax{QuotaUsec: t.WantUsec}),
		Over:   model.Bandwidth(model.CPUMax{QuotaUsec: t.OriginalUsec, PeriodUsec: t.PeriodUsec}),
		Reason: t.Why, HoldNsec: p.HoldNsec,
	}
}

// blind gives everything back when no task could be looked at for too long.
func (s *State) blind(p *Params, nowNsec int64) {
	if s.LastNsec == 0 || nowNsec-s.LastNsec < p.HoldNsec {
		return
	}
	for i := range s.Tasks {
		s.drop(&s.Tasks[i], "its use could not be followed")
	}
}

// begin starts a period.
func (s *State) begin(p *Params, v *policy.View) {
	pulse := v.Pulse
	s.LastNsec, s.EarlyDone = pulse.MonoNsec, false
	s.Period.start(p, v)
	j := 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		if now := pulse.Find(t.Num, &j); now != nil {
			t.Usage, t.Periods, t.Throttled = now.Usage, now.Periods, now.Throttled
		} else {
			t.Usage, t.Periods, t.Throttled = model.Counter{}, model.Counter{}, model.Counter{}
		}
	}
}

// meet takes in which tasks there are, what limits they were found with, and which of them are
// not ours to raise.
func (s *State) meet(v *policy.View, w *policy.Wishes) {
	num := func(t *Task) model.TaskNum { return t.Num }
	s.Tasks, s.spare = policy.Match(v, s.Tasks, s.spare, num, func(view *policy.TaskView, had *Task, at int) (Task, bool) {
		t := Task{Num: view.Task.Num}
		if had != nil {
			t = *had
		}
		t.at = at
		if view.Task.Class != model.LC || view.Task.Exclusive {
			return t, false
		}
		word, why := view.Closed(model.CPUBandwidth)
		if word != "" && t.WantUsec != 0 {
			w.Once(word, model.Decision{Kind: model.DecideLeftAlone, Task: t.Num, Reason: why})
		}
		if word != "" || !v.Enforced() {
			s.drop(&t, why)
			t.Waits, t.Stepped = 0, false
		}
		s.rebase(&t, view, w)
		return t, true
	})
	s.ready = true
}

// rebase takes a limit that somebody changed for the new original.
func (s *State) rebase(t *Task, view *policy.TaskView, w *policy.Wishes) {
	k := &view.Knobs[model.CPUBandwidth]
	quota, period := int64(0), int64(0)
	if k.Known && k.Found.QuotaUsec > 0 && k.Found.PeriodUsec > 0 {
		quota, period = k.Found.QuotaUsec, k.Found.PeriodUsec
	}
	if quota == t.OriginalUsec && period == t.PeriodUsec {
		return
	}
	if t.WantUsec != 0 {
		w.Decide(model.Decision{Kind: model.DecideLower, Task: t.Num, Reason: "the limit that was found is another one now: starting from there"})
		s.drop(t, "the limit that was found changed")
	}
	t.OriginalUsec, t.PeriodUsec, t.Waits, t.Stepped = quota, period, 0, false
}

// early brings raised quotas down between two periods.
func (s *State) early(p *Params, v *policy.View, w *policy.Wishes) {
	pulse := v.Pulse
	if s.Early.FromNsec == 0 || pulse.MonoNsec < s.Early.FromNsec {
		s.Early.start(p, v)
		return
	}
	s.Early.follow(p, v)
	if pulse.MonoNsec < s.Early.FromNsec+p.EarlyNsec || pulse.Tasks == nil {
		return
	}
	u := s.Early.utilisation(pulse)
	s.Early.start(p, v)
	if u.Outcome != model.OK || u.V <= p.EarlyUtilisation || s.EarlyDone {
		return
	}
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.WantUsec > t.OriginalUsec {
			s.EarlyDone = true
			s.halve(p, v, w, t, u, "between two periods")
		}
	}
}
