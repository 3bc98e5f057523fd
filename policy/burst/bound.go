package burst

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
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
func (s *State) probe(p *Params, v *model.CPUView, w *model.Wishes) {
	pr := &s.Bound.Probe
	if !pr.Asking {
		s.ask(p, v, w)
		return
	}
	now := v.Pulse.MonoNsec
	t := s.task(pr.Task)
	if t == nil {
		pr.Asking = false // it is gone: the next one
		return
	}
	view := &v.Tasks[t.at]
	k := &view.Knobs[model.CPUBandwidth]
	late := now-pr.SinceNsec >= p.ProbeNsec
	asked := int64(pr.K * float64(t.Found.QuotaUsec))
	switch {
	case k.Void || view.Exempt:
		s.pass(p, t, w, now)
	case k.Pending:
	case k.Ours && k.Now.BurstUsec >= asked:
		s.conclude(p, v, w, t, pr.K)
	case k.Refused && (!pr.Stale || late):
		s.refused(p, v, w, t, k.Why)
	case late && k.Ours && k.Now.BurstUsec > 0: // the kernel, or the ledger, took less than was asked for
		s.conclude(p, v, w, t, float64(k.Now.BurstUsec)/float64(t.Found.QuotaUsec))
	case late: // not granted: a limit of ours, or another's claim
		s.pass(p, t, w, now)
	}
}

// pass turns to another task.
func (s *State) pass(p *Params, t *Task, w *model.Wishes, nowNsec int64) {
	t.drop(w, "the kernel's bound is sought elsewhere")
	t.RetryNsec = nowNsec + p.RetryNsec
	s.Bound.Probe.Asking = false
}

// ask picks a task and asks the kernel.
func (s *State) ask(p *Params, v *model.CPUView, w *model.Wishes) {
	pr, now := &s.Bound.Probe, v.Pulse.MonoNsec
	pr.K = p.Bucket
	if pr.Lowered {
		pr.K = min(p.Bucket, mainlineK)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		view := &v.Tasks[t.at]
		k := &view.Knobs[model.CPUBandwidth]
		burst := int64(pr.K * float64(t.Found.QuotaUsec))
		if view.Exempt || k.Void || k.Pending || now < t.RetryNsec || t.Found.BurstUsec >= burst {
			continue
		}
		pr.Asking, pr.Task, pr.SinceNsec, pr.Stale = true, t.Num, now, k.Refused
		t.Why = fmt.Sprintf("to find out whether the kernel takes a burst of %g times the quota", pr.K)
		t.MadeNsec = now
		w.Claims = append(w.Claims, model.Claim{
			Task: t.Num, Kind: model.ClaimRaise, BurstUsec: burst, Reason: t.Why, ExpiresNsec: v.NowNsec + p.HoldNsec,
		})
		return
	}
}

// refused takes in that the kernel said no.
func (s *State) refused(p *Params, v *model.CPUView, w *model.Wishes, t *Task, why string) {
	pr := &s.Bound.Probe
	t.drop(w, "the kernel refused it")
	t.RetryNsec = v.Pulse.MonoNsec + p.ProbeNsec // the ledger backs off for a while too
	pr.Asking, pr.Why = false, why
	if !pr.Lowered && p.Bucket > mainlineK {
		pr.Lowered = true
		return
	}
	if pr.Refusals++; pr.Refusals >= min(surePlenty, len(s.Tasks)) {
		s.conclude(p, v, w, t, 0)
		return
	}
	t.RetryNsec = v.Pulse.MonoNsec + p.RetryNsec // so that the next one asked is another
}

// conclude settles the bound, and says so.
func (s *State) conclude(p *Params, v *model.CPUView, w *model.Wishes, t *Task, k float64) {
	why := s.Bound.Probe.Why
	s.Bound = Bound{Known: true, K: min(k, p.Bucket)}
	s.RenewNsec = 0 // all get theirs now
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
	w.Decisions = append(w.Decisions, model.Decision{
		Kind: model.DecideBound, Task: t.Num, Path: v.Tasks[t.at].Task.Path, Value: s.Bound.K, Threshold: p.Bucket, Reason: text,
	})
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

// Restore takes up a bound that was found before, unless another bucket is asked for now.
func (b *Bound) Restore(k *KeptBound, p *Params) bool {
	if b.Known || k.Bucket != p.Bucket || k.K < 0 || k.K > k.Bucket {
		return false
	}
	*b = Bound{Known: true, K: k.K}
	return true
}
