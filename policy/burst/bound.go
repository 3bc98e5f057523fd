package burst

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Bound is what the kernel takes.
type Bound struct {
	Known bool `json:"known,omitempty"`
	// K is the greatest burst, in quotas, that the kernel took, up to what was asked for.
	K     float64 `json:"k"`
	Probe Probe   `json:"probe"`
}

// Probe is how far the search for the bound has come.
type Probe struct {
	Asking    bool          `json:"asking,omitempty"`
	Task      model.TaskNum `json:"task,omitempty"`
	K         float64       `json:"k,omitempty"`          // asked for
	SinceNsec int64         `json:"since_nsec,omitempty"` // when
	// Stale: the knob was refused already when it was asked for.
	Stale bool `json:"stale,omitempty"`
	// Lowered: k quotas were refused, and one is tried. Refusals are those of it.
	Lowered  bool   `json:"lowered,omitempty"`
	Refusals int    `json:"refusals,omitempty"`
	Why      string `json:"why,omitempty"` // what the kernel said
}

// surePlenty is how many tasks must have been refused a burst of one quota before there is
// none at all: it costs all tasks their bursts, and one task may be an odd one.
const surePlenty = 2

// mainlineK is the bound of mainline kernels since 5.14: burst ≤ quota.
const mainlineK = 1

// probe looks for the kernel's bound, with one task at a time.
func (s *State) probe(p *Params, v *policy.View, w *policy.Wishes) {
	pr := &s.Bound.Probe
	if !pr.Asking {
		s.ask(p, v)
		return
	}
	now := v.Pulse.MonoNsec
	t := s.task(pr.Task)
	if t == nil {
		pr.Asking = false // it is gone: the next one
		return
	}
	k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]
	late := now-pr.SinceNsec >= p.ProbeNsec
	switch {
	case t.Closed:
		s.pass(p, w, t, now)
	case k.Pending:
	case k.Ours && k.Now.BurstUsec >= pr.burstUsec(t):
		s.conclude(p, w, t, pr.K)
	case k.Refused && (!pr.Stale || late):
		s.refused(p, v, w, t, k.Why)
	case late && k.Ours && k.Now.BurstUsec > 0: // the kernel, or the ledger, took less than was asked for
		s.conclude(p, w, t, float64(k.Now.BurstUsec)/float64(t.Found.QuotaUsec))
	case late: // not granted: a limit of ours, or another's claim
		s.pass(p, w, t, now)
	}
}

// burstUsec is the burst that is asked for of a task.
func (pr *Probe) burstUsec(t *Task) int64 { return int64(pr.K * float64(t.Found.QuotaUsec)) }

// pass turns to another task.
func (s *State) pass(p *Params, w *policy.Wishes, t *Task, nowNsec int64) {
	w.End(t.claim(), "the kernel's bound is sought elsewhere")
	t.PassNsec = nowNsec + p.RetryNsec
	s.Bound.Probe.Asking, s.moved = false, true
}

// ask picks a task and asks the kernel.
func (s *State) ask(p *Params, v *policy.View) {
	pr, now := &s.Bound.Probe, v.Pulse.MonoNsec
	pr.K = p.Bucket
	if pr.Lowered {
		pr.K = min(p.Bucket, mainlineK)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		k := &v.Tasks[t.at].Knobs[model.CPUBandwidth]
		if t.Closed || k.Pending || now < t.PassNsec || t.Found.BurstUsec >= pr.burstUsec(t) {
			continue
		}
		pr.Asking, pr.Task, pr.SinceNsec, pr.Stale, s.moved = true, t.Num, now, k.Refused, true
		return
	}
}

// refused takes in that the kernel said no.
func (s *State) refused(p *Params, v *policy.View, w *policy.Wishes, t *Task, why string) {
	pr := &s.Bound.Probe
	t.PassNsec = v.Pulse.MonoNsec + p.ProbeNsec // the ledger backs off for a while too
	t.RestNsec = t.PassNsec
	w.End(t.claim(), "the kernel refused it")
	pr.Asking, pr.Why, s.moved = false, why, true
	if !pr.Lowered && p.Bucket > mainlineK {
		pr.Lowered = true
		return
	}
	if pr.Refusals++; pr.Refusals >= min(surePlenty, len(s.Tasks)) {
		s.conclude(p, w, t, 0)
		return
	}
	t.PassNsec = v.Pulse.MonoNsec + p.RetryNsec // so that the next one asked is another
}

// conclude settles the bound, and says so.
func (s *State) conclude(p *Params, w *policy.Wishes, t *Task, k float64) {
	why := s.Bound.Probe.Why
	s.Bound = Bound{Known: true, K: min(k, p.Bucket)}
	s.RenewNsec, s.moved = 0, true // all get theirs now
	text := fmt.Sprintf("the kernel takes a burst of %g times the quota", s.Bound.K)
	if s.Bound.K < p.Bucket {
		text = fmt.Sprintf("asked for a burst of %g times the quota, the kernel takes %g", p.Bucket, s.Bound.K)
		if why != "" {
			text += " (" + why + ")"
		}
		rest := p.Bucket - s.Bound.K
		if p.UserSpace {
			text += fmt.Sprintf("; the other %g are carried in user space, with at worst %g quotas more than a bucket in the kernel would grant", rest, p.MaxOverspend)
		} else {
			text += fmt.Sprintf("; the other %g are not carried: user_space is off", rest)
		}
	}
	w.Decide(model.Decision{
		Kind: model.DecideBound, Task: t.Num, Reason: text,
		Facts: []model.Fact{model.FactBurst.Is(s.Bound.K), model.FactBurstAsked.Is(p.Bucket)},
	})
	if t.InForce.BurstUsec > t.Found.BurstUsec { // the one that was asked has it already
		s.given(w, t, t.InForce.BurstUsec)
	}
}

func (s *State) task(num model.TaskNum) *Task {
	for i := range s.Tasks {
		if s.Tasks[i].Num == num {
			return &s.Tasks[i]
		}
	}
	return nil
}

// KeptBound is the bound as it outlives a restart.
type KeptBound struct {
	K      float64 `json:"k"`
	Bucket float64 `json:"bucket"` // what was asked for
}

// Keep returns the bound once it is known.
func (b *Bound) Keep(p *Params) *KeptBound {
	if !b.Known {
		return nil
	}
	return &KeptBound{K: b.K, Bucket: p.Bucket}
}

// Mark is another number when Keep would return another bound.
func (b *Bound) Mark() float64 {
	if !b.Known {
		return -1
	}
	return b.K
}

// Restore takes up a bound that was found before, if there is one, unless another bucket is asked for now.
func (b *Bound) Restore(k *KeptBound, p *Params) (d model.Decision, ok bool) {
	if k == nil || b.Known || k.Bucket != p.Bucket || k.K < 0 || k.K > k.Bucket {
		return d, false
	}
	*b = Bound{Known: true, K: k.K}
	return model.Decision{
		Kind: model.DecideBound, Facts: []model.Fact{model.FactBurst.Is(k.K), model.FactBurstAsked.Is(k.Bucket)},
		Reason: fmt.Sprintf("the kernel takes a burst of %g times the quota, as was found out before the agent was restarted", k.K),
	}, true
}
