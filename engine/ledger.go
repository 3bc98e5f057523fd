package engine

import (
	"fmt"
	"slices"
	"sort"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// The ledger settles claims and knows, for each knob, what was found, what we wrote and
// whether that is still so (DESIGN.md, decision 5). A knob is a task's CFS bandwidth (quota,
// period and burst together) or its CPUs, and with them those of its descendants, which the
// host changes in the order that the kernel demands. This file has the claims, knob.go what
// becomes of them in the kernel.

const (
	failureNsec = int64(60e9) // how long a failed claim is remembered for its policy
	maxFailures = 64          // bound on that memory
)

// Failure is what became of a claim that could not be granted.
type Failure struct {
	Task     model.TaskNum `json:"task"`
	Incident string        `json:"incident"`
	Why      string        `json:"why"`
	Gone     bool          `json:"gone"`
	AtNsec   int64         `json:"at_nsec"`
}

// Exemption keeps policies off a task that an operator freed.
type Exemption struct {
	Task      model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`
}

// Ledger holds the knobs with claims or with something of ours in the kernel.
type Ledger struct {
	Knobs      []Knob      `json:"knobs"`           // ordered by task and kind
	Bases      bases       `json:"bases,omitempty"` // of knobs that are not ours
	Failures   []Failure   `json:"failures"`
	Exemptions []Exemption `json:"exemptions"`
	NextClaim  uint64      `json:"next_claim"`
	NextChange uint64      `json:"next_change"`
}

// Limits bound how much may be held at once. The first task may always be held: the
// limits are about piling up.
type Limits struct {
	MaxHeldTasks int     `json:"max_held_tasks"`
	MaxBETaken   float64 `json:"max_be_cpu_taken"` // share of the BE CPU of the node, 0..1
}

// find searches by index: a knob is large, and slices.BinarySearchFunc would copy each that
// it looks at.
func (l *Ledger) find(task model.TaskNum, kind model.KnobKind) (int, bool) {
	i := sort.Search(len(l.Knobs), func(i int) bool {
		k := &l.Knobs[i]
		return k.Task > task || k.Task == task && k.Kind >= kind
	})
	return i, i < len(l.Knobs) && l.Knobs[i].Task == task && l.Knobs[i].Kind == kind
}

func (l *Ledger) knob(task model.TaskNum, kind model.KnobKind) *Knob {
	if i, ok := l.find(task, kind); ok {
		return &l.Knobs[i]
	}
	return nil
}

// of returns all knobs of a task.
func (l *Ledger) of(task model.TaskNum) []Knob {
	i, _ := l.find(task, 0)
	j := i
	for j < len(l.Knobs) && l.Knobs[j].Task == task {
		j++
	}
	return l.Knobs[i:j]
}

// Hold implements hardcap.Ledger.
func (l *Ledger) Hold(task model.TaskNum, incident string) hardcap.Hold {
	if k := l.knob(task, model.CPUBandwidth); k != nil {
		for i := range k.Claims {
			if c := &k.Claims[i]; c.Kind != model.ClaimCap || c.Policy != model.PolicyHardcap || c.Incident != incident {
				continue
			}
			if k.State == KnobHeld && k.Ours {
				return hardcap.Hold{State: hardcap.HoldInForce, SinceNsec: max(k.Since, k.Claims[i].MadeNsec)}
			}
			return hardcap.Hold{State: hardcap.HoldAsked}
		}
	}
	for i := range l.Failures {
		if f := &l.Failures[i]; f.Task == task && f.Incident == incident {
			if f.Gone {
				return hardcap.Hold{State: hardcap.HoldGone, Why: f.Why}
			}
			return hardcap.Hold{State: hardcap.HoldFailed, Why: f.Why}
		}
	}
	return hardcap.Hold{State: hardcap.HoldNone}
}

// Held implements hardcap.Ledger.
func (l *Ledger) Held(task model.TaskNum) bool {
	return capOf(l.knob(task, model.CPUBandwidth)) != nil
}

// capOf returns the first cap that is claimed on a knob because of what its task does, nil
// when there is none. BE that is parked for want of a core (policy/cpuset) is not meant.
func capOf(k *Knob) *model.Claim {
	if k == nil {
		return nil
	}
	for i := range k.Claims {
		if c := &k.Claims[i]; c.Kind == model.ClaimCap && c.Policy != model.PolicyCPUSet {
			return c
		}
	}
	return nil
}

// Exempt implements hardcap.Ledger.
func (l *Ledger) Exempt(task model.TaskNum) bool {
	return slices.ContainsFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
}

// claimOf returns the claim that a policy's new one, for the same incident, would renew.
func (k *Knob) claimOf(c *model.Claim) *model.Claim {
	if k == nil || c.Owner != model.OwnerPolicy {
		return nil
	}
	for i := range k.Claims {
		if o := &k.Claims[i]; o.Owner == c.Owner && o.Policy == c.Policy && o.Kind == c.Kind && o.Incident == c.Incident {
			return o
		}
	}
	return nil
}

// granted is the tightest cap that a claim was ever allowed.
func granted(c *model.Claim) float64 {
	if c.Least > 0 {
		return min(c.Least, c.Cap)
	}
	return c.Cap
}

// Claim takes a claim in; a policy's claim on a knob that it has already for the same
// incident renews that one. why is not empty when it is refused outright.
func (l *Ledger) Claim(c model.Claim, lim Limits, beCPU float64) (why string) {
	k := l.knob(c.Task, c.Kind.Knob())
	old := k.claimOf(&c)
	if c.Owner == model.OwnerPolicy {
		if why = l.refuse(k, old, &c, lim, beCPU); why != "" {
			if old == nil { // one that stands goes on standing
				l.failed(&c, why, c.MadeNsec)
			}
			return why
		}
	}
	if old != nil {
		k.renew(old, &c)
		return ""
	}
	if k == nil {
		i, _ := l.find(c.Task, c.Kind.Knob())
		l.Knobs = slices.Insert(l.Knobs, i, Knob{Task: c.Task, Kind: c.Kind.Knob()})
		k = &l.Knobs[i]
	}
	l.NextClaim++
	c.ID = l.NextClaim
	k.Claims = append(k.Claims, c)
	return ""
}

// refuse says why a policy's claim cannot be granted. old is what it would renew.
func (l *Ledger) refuse(k *Knob, old, c *model.Claim, lim Limits, beCPU float64) string {
	switch {
	case k != nil && k.State == KnobVoid:
		return "another program owns this knob: " + k.Why
	case l.Exempt(c.Task):
		return "an operator freed this task"
	case c.Kind != model.ClaimCap:
		return "" // waits where the kernel refused the last write
	case k != nil && c.MadeNsec < k.RetryAt:
		return "the kernel refused the last write: " + k.Why
	case c.Policy == model.PolicyCPUSet:
		return "" // BE is parked: an operator said that it need not keep a core
	case old != nil && c.Cap >= granted(old):
		return "" // takes no more than was granted
	}
	return l.overLimit(*c, lim, beCPU)
}

// renew puts a new claim in an old one's place. One that asks for something else than the
// kernel refused is tried soon.
func (k *Knob) renew(old, c *model.Claim) {
	if c.QuotaUsec != old.QuotaUsec || c.BurstUsec != old.BurstUsec || c.CPUs != old.CPUs {
		k.Failures = min(k.Failures, 1)
		k.RetryAt = min(k.RetryAt, c.MadeNsec+firstRetryNsec)
	}
	if c.Kind == model.ClaimCap {
		old.Least = min(granted(old), c.Cap)
	}
	old.Cap, old.QuotaUsec, old.BurstUsec, old.CPUs = c.Cap, c.QuotaUsec, c.BurstUsec, c.CPUs
	old.ExpiresNsec, old.Reason = c.ExpiresNsec, c.Reason
}

// overLimit says why a policy's claim would pile up too much.
func (l *Ledger) overLimit(c model.Claim, lim Limits, beCPU float64) string {
	held, taken := 0, 0.0
	for i := range l.Knobs {
		if o := capOf(&l.Knobs[i]); o != nil && o.Task != c.Task {
			held++
			taken += max(0, o.UsageAtClaim-o.Cap)
		}
	}
	if held == 0 {
		return ""
	}
	if held >= lim.MaxHeldTasks {
		return fmt.Sprintf("limit: %d tasks are held already (limits.max_held_tasks)", held)
	}
	if total := beCPU + taken; total > 0 {
		share := (taken + max(0, c.UsageAtClaim-c.Cap)) / total
		if share > lim.MaxBETaken {
			return fmt.Sprintf("limit: %.0f %% of the node's BE CPU would be held back, %.0f %% allowed (limits.max_be_cpu_taken)", 100*share, 100*lim.MaxBETaken)
		}
	}
	return ""
}

// failed remembers a cap that could not be granted, for the hard-cap policy to ask about.
// The policies of the CPU see the knob itself.
func (l *Ledger) failed(c *model.Claim, why string, nowNsec int64) {
	if c.Kind == model.ClaimCap && c.Policy == model.PolicyHardcap {
		l.fail(Failure{Task: c.Task, Incident: c.Incident, Why: why, AtNsec: nowNsec})
	}
}

func (l *Ledger) fail(f Failure) {
	if len(l.Failures) >= maxFailures {
		l.Failures = slices.Delete(l.Failures, 0, 1)
	}
	l.Failures = append(l.Failures, f)
}

// Drop removes the caps of an incident on a task.
func (l *Ledger) Drop(task model.TaskNum, incident string) bool {
	return l.drop(l.knob(task, model.CPUBandwidth), func(c *model.Claim) bool {
		return c.Kind == model.ClaimCap && c.Incident == incident && c.Owner == model.OwnerPolicy
	}) > 0
}

// DropClaim removes a policy's claim of a kind on a task.
func (l *Ledger) DropClaim(task model.TaskNum, kind model.ClaimKind, policy string) bool {
	return l.drop(l.knob(task, kind.Knob()), func(c *model.Claim) bool {
		return c.Kind == kind && c.Policy == policy && c.Owner == model.OwnerPolicy
	}) > 0
}

// DropPolicy removes every claim of a policy.
func (l *Ledger) DropPolicy(policy string) {
	for i := range l.Knobs {
		l.drop(&l.Knobs[i], func(c *model.Claim) bool { return c.Policy == policy && c.Owner == model.OwnerPolicy })
	}
}

func (l *Ledger) drop(k *Knob, which func(c *model.Claim) bool) int {
	if k == nil {
		return 0
	}
	n := len(k.Claims)
	k.Claims = slices.DeleteFunc(k.Claims, func(c model.Claim) bool { return which(&c) })
	return n - len(k.Claims)
}

// DropAll removes every claim.
func (l *Ledger) DropAll() {
	for i := range l.Knobs {
		l.Knobs[i].Claims = l.Knobs[i].Claims[:0]
	}
}

// Free is an operator's word on a task: every claim goes, void knobs are usable again, and
// policies stay away until untilNsec.
func (l *Ledger) Free(task model.TaskNum, untilNsec int64) {
	knobs := l.of(task)
	for i := range knobs {
		knobs[i].free()
	}
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
	if untilNsec > 0 {
		l.Exemptions = append(l.Exemptions, Exemption{task, untilNsec})
	}
}

// Clear makes room for an operator's cap on a task: the claims on its bandwidth go, and the
// knob is usable again. Where it runs is left as it is.
func (l *Ledger) Clear(task model.TaskNum) {
	if k := l.knob(task, model.CPUBandwidth); k != nil {
		k.free()
	}
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
}

// Gone forgets a task whose cgroup vanished.
func (l *Ledger) Gone(task model.TaskNum, nowNsec int64) {
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
	l.Bases.forget(task)
	for _, k := range l.of(task) {
		for _, c := range k.Claims {
			if c.Kind == model.ClaimCap {
				l.fail(Failure{Task: task, Incident: c.Incident, Why: "the task's cgroup is gone", Gone: true, AtNsec: nowNsec})
			}
		}
	}
	l.Knobs = slices.DeleteFunc(l.Knobs, func(k Knob) bool { return k.Task == task })
}

// Expire drops claims whose time is over and returns them.
func (l *Ledger) Expire(nowNsec int64) []model.Claim {
	var over []model.Claim
	for i := range l.Knobs {
		k := &l.Knobs[i]
		for j := 0; j < len(k.Claims); {
			if nowNsec >= k.Claims[j].ExpiresNsec {
				over = append(over, k.Claims[j])
				k.Claims = slices.Delete(k.Claims, j, j+1)
				continue
			}
			j++
		}
	}
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return nowNsec >= e.UntilNsec })
	l.Failures = slices.DeleteFunc(l.Failures, func(f Failure) bool { return nowNsec-f.AtNsec >= failureNsec })
	return over
}
