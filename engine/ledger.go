package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/hardcap"
)

// The ledger settles claims and knows, for each knob, what was found, what we wrote and
// whether that is still so (DESIGN.md, decision 5). A knob here is a task's CFS
// bandwidth: quota, period and burst together, and with them the limits of its
// descendants, which the host lowers and raises in the order that the kernel demands.

// Kernel bounds of CFS bandwidth (Documentation/scheduler/sched-bwc.rst): a quota of at
// least 1 ms, a period of 1 ms to 1 s.
const (
	minQuotaUsec  = 1_000
	maxPeriodUsec = 1_000_000
	// mostCPUs is far above any machine; its quota is still one that the kernel takes
	// (under 2^44 us), so that an absurd cap does not overflow into a tiny one.
	mostCPUs = 1 << 20
)

const (
	firstRetryNsec = int64(1e9)   // after a refused write
	maxRetryNsec   = int64(300e9) // back-off is doubled up to this
	failureNsec    = int64(60e9)  // how long a failed claim is remembered for its policy
	maxFailures    = 64           // bound on that memory
)

// KnobState is where a knob stands.
type KnobState uint8

// The states of a knob.
const (
	KnobIdle  KnobState = iota // nothing of ours is written
	KnobAsked                  // a change is on its way
	KnobHeld                   // our value is in force
	KnobVoid                   // a stranger wrote it: claims are void until an operator speaks
)

var knobNames = [...]string{"idle", "asked", "held", "void"}

// String returns the state's name.
func (s KnobState) String() string {
	if int(s) < len(knobNames) {
		return knobNames[s]
	}
	return fmt.Sprintf("knob state %d", uint8(s))
}

// Knob is one task's bandwidth limit as the ledger sees it.
type Knob struct {
	Task     model.TaskNum    `json:"task"`
	State    KnobState        `json:"state"`
	Claims   []model.Claim    `json:"claims,omitempty"`
	Found    model.CPUMax     `json:"found"`   // before our first write
	Written  model.CPUMax     `json:"written"` // as read back
	Wanted   model.CPUMax     `json:"wanted"`  // last asked for
	Ours     bool             `json:"ours"`    // Written is in the kernel
	Since    int64            `json:"since"`
	Asked    uint64           `json:"asked"` // sequence of the change on its way
	AskedFor model.ChangeKind `json:"asked_for"`
	Failures int              `json:"failures"`
	RetryAt  int64            `json:"retry_at"`
	Why      string           `json:"why,omitempty"`
	Disown   bool             `json:"disown,omitempty"` // the journal has yet to forget it
}

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
	Knobs      []Knob      `json:"knobs"` // ordered by task
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

func (l *Ledger) find(task model.TaskNum) (int, bool) {
	return slices.BinarySearchFunc(l.Knobs, task, func(k Knob, t model.TaskNum) int { return cmp.Compare(k.Task, t) })
}

func (l *Ledger) knob(task model.TaskNum) *Knob {
	if i, ok := l.find(task); ok {
		return &l.Knobs[i]
	}
	return nil
}

// Hold implements hardcap.Ledger.
func (l *Ledger) Hold(task model.TaskNum, incident string) hardcap.Hold {
	if k := l.knob(task); k != nil {
		for i := range k.Claims {
			if k.Claims[i].Incident != incident {
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
	k := l.knob(task)
	return k != nil && len(k.Claims) > 0
}

// Exempt implements hardcap.Ledger.
func (l *Ledger) Exempt(task model.TaskNum) bool {
	return slices.ContainsFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
}

// claimOf returns the claim that a policy's new one for the same incident would renew.
func (k *Knob) claimOf(c *model.Claim) *model.Claim {
	if k == nil || c.Owner != model.OwnerPolicy {
		return nil
	}
	for i := range k.Claims {
		if k.Claims[i].Owner == c.Owner && k.Claims[i].Incident == c.Incident {
			return &k.Claims[i]
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

// Claim takes a claim in; a policy's claim on a task that it holds already for the same
// incident renews that one. why is not empty when it is refused outright.
func (l *Ledger) Claim(c model.Claim, lim Limits, beCPU float64) (why string) {
	k := l.knob(c.Task)
	old := k.claimOf(&c)
	if c.Owner == model.OwnerPolicy {
		switch {
		case k != nil && k.State == KnobVoid:
			why = "another program owns this knob: " + k.Why
		case l.Exempt(c.Task):
			why = "an operator freed this task"
		case k != nil && c.MadeNsec < k.RetryAt:
			why = "the kernel refused the last write: " + k.Why
		case old != nil && c.Cap >= granted(old): // takes no more than was granted
		default:
			why = l.overLimit(c, lim, beCPU)
		}
		if why != "" && old != nil {
			return why // the claim that stands goes on standing
		}
		if why != "" {
			l.fail(Failure{Task: c.Task, Incident: c.Incident, Why: why, AtNsec: c.MadeNsec})
			return why
		}
	}
	if old != nil {
		old.Least = min(granted(old), c.Cap)
		old.Cap, old.ExpiresNsec, old.Reason = c.Cap, c.ExpiresNsec, c.Reason
		return ""
	}
	if k == nil {
		i, _ := l.find(c.Task)
		l.Knobs = slices.Insert(l.Knobs, i, Knob{Task: c.Task})
		k = &l.Knobs[i]
	}
	l.NextClaim++
	c.ID = l.NextClaim
	k.Claims = append(k.Claims, c)
	return ""
}

// overLimit says why a policy's claim would pile up too much.
func (l *Ledger) overLimit(c model.Claim, lim Limits, beCPU float64) string {
	held, taken := 0, 0.0
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.Task != c.Task && len(k.Claims) > 0 {
			held++
			taken += max(0, k.Claims[0].UsageAtClaim-k.Claims[0].Cap)
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

func (l *Ledger) fail(f Failure) {
	if len(l.Failures) >= maxFailures {
		l.Failures = slices.Delete(l.Failures, 0, 1)
	}
	l.Failures = append(l.Failures, f)
}

// Drop removes the claims of an incident on a task.
func (l *Ledger) Drop(task model.TaskNum, incident string) bool {
	k := l.knob(task)
	if k == nil {
		return false
	}
	n := len(k.Claims)
	k.Claims = slices.DeleteFunc(k.Claims, func(c model.Claim) bool { return c.Incident == incident && c.Owner == model.OwnerPolicy })
	return len(k.Claims) < n
}

// DropAll removes every claim of an owner; with OwnerOperator, everybody's.
func (l *Ledger) DropAll(owner model.Owner) int {
	n := 0
	for i := range l.Knobs {
		k := &l.Knobs[i]
		before := len(k.Claims)
		k.Claims = slices.DeleteFunc(k.Claims, func(c model.Claim) bool { return c.Owner >= owner })
		n += before - len(k.Claims)
	}
	return n
}

// Free is an operator's word on a task: every claim goes, a void knob is usable again,
// and policies stay away until untilNsec.
func (l *Ledger) Free(task model.TaskNum, untilNsec int64) {
	if k := l.knob(task); k != nil {
		k.Claims = k.Claims[:0]
		k.Failures, k.RetryAt = 0, 0 // what he asks for is tried now
		l.adopt(k)
	}
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
	if untilNsec > 0 {
		l.Exemptions = append(l.Exemptions, Exemption{task, untilNsec})
	}
}

// adopt makes a void knob usable again.
func (l *Ledger) adopt(k *Knob) {
	if k.State == KnobVoid {
		k.State, k.Why, k.Failures, k.RetryAt = KnobIdle, "", 0, 0
	}
}

// Gone forgets a task whose cgroup vanished.
func (l *Ledger) Gone(task model.TaskNum, nowNsec int64) {
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task })
	i, ok := l.find(task)
	if !ok {
		return
	}
	for _, c := range l.Knobs[i].Claims {
		l.fail(Failure{Task: task, Incident: c.Incident, Why: "the task's cgroup is gone", Gone: true, AtNsec: nowNsec})
	}
	l.Knobs = slices.Delete(l.Knobs, i, i+1)
}

// wanted settles a knob's claims: an operator's word first, the smallest cap among
// equals. The host takes the smaller of that and what it found (caps settle at
// min(caps, base)).
func (k *Knob) wanted(periodNsec int64) (model.CPUMax, bool) {
	best, found := model.Claim{}, false
	for _, c := range k.Claims {
		if !found || c.Owner < best.Owner || (c.Owner == best.Owner && c.Cap < best.Cap) {
			best, found = c, true
		}
	}
	if !found {
		return model.CPUMax{}, false
	}
	return CapFor(best.Cap, periodNsec), true
}

// CapFor turns CPU-sec/sec into a quota and a period (CPI2 section 5: 25 ms in each
// 250 ms window is 0.1). Where the quota would fall under the kernel's least, the
// period is stretched, up to the kernel's greatest; a smaller cap than 1 ms a second
// cannot be had and becomes that.
func CapFor(cpus float64, periodNsec int64) model.CPUMax {
	const least = float64(minQuotaUsec) / maxPeriodUsec
	if !(cpus > least) { // NaN too
		cpus = least
	}
	cpus = min(cpus, mostCPUs)
	period := min(max(periodNsec/1000, minQuotaUsec), maxPeriodUsec)
	quota := int64(math.Round(cpus * float64(period)))
	if quota < minQuotaUsec {
		quota = minQuotaUsec
		period = min(int64(math.Round(minQuotaUsec/cpus)), maxPeriodUsec)
	}
	return model.CPUMax{QuotaUsec: quota, PeriodUsec: period}
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

// Arbitrate emits the changes that bring the kernel to what the claims settle at: at
// most one a knob a tick, none while one is on its way or backing off.
func (l *Ledger) Arbitrate(nowNsec, periodNsec int64, changes []model.Change) []model.Change {
	kept := l.Knobs[:0]
	for i := range l.Knobs {
		k := l.Knobs[i]
		want, any := k.wanted(periodNsec)
		switch {
		case k.Disown:
			k.Disown = false
			l.NextChange++
			changes = append(changes, model.Change{Seq: l.NextChange, Task: k.Task, Kind: model.Disown})
		case k.State == KnobAsked || k.State == KnobVoid || nowNsec < k.RetryAt && !k.giveBack(any):
		case any && (!k.Ours || k.Wanted != want):
			l.ask(&k, model.Hold, want)
			changes = append(changes, model.Change{Seq: k.Asked, Task: k.Task, Kind: model.Hold, Value: want})
		case !any && k.Ours:
			l.ask(&k, model.Release, model.CPUMax{})
			changes = append(changes, model.Change{Seq: k.Asked, Task: k.Task, Kind: model.Release})
		case !any && k.State == KnobIdle && (k.Failures == 0 || nowNsec-k.RetryAt >= maxRetryNsec):
			continue // nothing claimed, nothing of ours, no refusal to remember: forget it
		}
		kept = append(kept, k)
	}
	l.Knobs = kept
	return changes
}

// giveBack reports whether a release is due of which no write was refused yet: that the
// kernel took no other cap is no reason to keep the one that stands, whose time is over.
func (k *Knob) giveBack(claimed bool) bool {
	return !claimed && k.Ours && k.AskedFor == model.Hold
}

func (l *Ledger) ask(k *Knob, kind model.ChangeKind, want model.CPUMax) {
	l.NextChange++
	if kind != k.AskedFor {
		k.Failures = 0 // those were of something else
	}
	k.Asked, k.AskedFor, k.State, k.Wanted = l.NextChange, kind, KnobAsked, want
}

// Learn takes the host's answer in and returns what is worth telling, "" for the
// expected.
func (l *Ledger) Learn(r *model.Result, nowNsec int64) (kind, reason string) {
	k := l.knob(r.Task)
	if k == nil || k.State != KnobAsked || k.Asked != r.Seq {
		return "", ""
	}
	switch r.Kind {
	case model.Applied:
		if k.AskedFor == model.Hold {
			if !k.Ours {
				k.Found, k.Since = r.Found, r.MonoNsec
			}
			k.Ours, k.Written, k.State = true, r.Now, KnobHeld
		} else {
			k.Ours, k.State = false, KnobIdle
		}
		k.Failures, k.RetryAt, k.Why = 0, 0, ""
		return "", ""
	case model.Vanished:
		l.Gone(r.Task, nowNsec)
		return model.DecideGone, "the cgroup went away before the write"
	case model.Foreign:
		return model.DecideForeign, l.void(k, r.Now, nowNsec)
	}
	return l.refused(k, r, nowNsec)
}

// refused backs off, and tells once.
func (l *Ledger) refused(k *Knob, r *model.Result, nowNsec int64) (kind, reason string) {
	k.State, k.Wanted = KnobIdle, model.CPUMax{} // what was asked for is not in force: ask again
	if k.Ours {
		k.State = KnobHeld
	}
	k.Failures++
	k.RetryAt = nowNsec + min(firstRetryNsec<<min(k.Failures-1, 16), maxRetryNsec)
	first := k.Why != r.Error
	k.Why = r.Error
	for j := 0; j < len(k.Claims); {
		c := k.Claims[j]
		if c.Owner == model.OwnerPolicy && k.AskedFor == model.Hold {
			l.fail(Failure{Task: k.Task, Incident: c.Incident, Why: "the write was refused: " + r.Error, AtNsec: nowNsec})
			k.Claims = slices.Delete(k.Claims, j, j+1)
			continue
		}
		j++
	}
	if !first {
		return "", ""
	}
	return model.DecideRefused, fmt.Sprintf("%s was refused: %s; next try in %.0f s", k.AskedFor, r.Error, float64(k.RetryAt-nowNsec)/1e9)
}

// Compare looks at what a held knob says now.
func (l *Ledger) Compare(r *model.KnobReading, nowNsec int64) (foreign bool, reason string) {
	k := l.knob(r.Task)
	if k == nil || k.State != KnobHeld || !k.Ours || r.Outcome != model.OK || r.Value == k.Written {
		return false, ""
	}
	reason = l.void(k, r.Value, nowNsec)
	k.Disown = true
	return true, reason
}

// void gives a knob up to the stranger who wrote it.
func (l *Ledger) void(k *Knob, now model.CPUMax, nowNsec int64) string {
	k.State, k.Ours = KnobVoid, false
	k.Why = fmt.Sprintf("found quota %d us, period %d us, burst %d us where we had written quota %d us, period %d us, burst %d us",
		now.QuotaUsec, now.PeriodUsec, now.BurstUsec, k.Written.QuotaUsec, k.Written.PeriodUsec, k.Written.BurstUsec)
	for _, c := range k.Claims {
		l.fail(Failure{Task: k.Task, Incident: c.Incident, Why: "another program wrote the knob", AtNsec: nowNsec})
	}
	k.Claims = k.Claims[:0]
	return k.Why + "; it was left, and claims on it are void until `uncap` or `cap` says otherwise"
}
