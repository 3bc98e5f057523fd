package engine

import (
	"fmt"
	"slices"
	"sort"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// The ledger settles claims and knows, for each knob, what was found, what we wrote and
// whether that is still so (docs/DESIGN.md, decision 5). A knob is a target and a kind, and
// the kind's row (model.Knobs) says how claims on it settle; what belongs to it below the
// target, as with groups below a task, the host changes in the order that the kernel demands.
// This file has the claims, knob.go what becomes of them in the kernel.

const (
	failureNsec = int64(60e9) // how long a failed claim is remembered for its policy
	maxFailures = 64          // bound on that memory

	// Actions cost the node something even when they help: so many may be on their way at
	// once, and so many be asked for in a minute.
	maxRunning  = 2
	maxRunsAMin = 30
)

// Failure is what became of a claim that could not be granted.
type Failure struct {
	model.Target
	Kind     model.KnobKind `json:"kind,omitempty"`
	Incident string         `json:"incident"`
	Why      string         `json:"why"`
	Gone     bool           `json:"gone"`
	AtNsec   int64          `json:"at_nsec"`
}

// Exemption keeps policies off a task that an operator freed, or everybody off one that holds
// something which is never held back.
type Exemption struct {
	Task      model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`       // of an operator's
	Shield    string        `json:"shield,omitempty"` // why it cannot be held; "": an operator freed it
}

// Ledger holds the knobs with claims or with something of ours in the kernel.
type Ledger struct {
	Knobs      []Knob      `json:"knobs"`           // ordered by target and kind
	Bases      bases       `json:"bases,omitempty"` // of knobs that are not ours
	Failures   []Failure   `json:"failures"`
	Exemptions []Exemption `json:"exemptions"`
	NextClaim  uint64      `json:"next_claim"`
	NextChange uint64      `json:"next_change"`
	Runs       []int64     `json:"runs,omitempty"` // when actions were asked for, of the last minute
}

// Limits bound how much may be held at once. The first task may always be held: the
// limits are about piling up.
type Limits struct {
	MaxHeldTasks int     `json:"max_held_tasks"`
	MaxBETaken   float64 `json:"max_be_cpu_taken"` // share of the BE CPU of the node, 0..1
}

// find searches by index: a knob is large, and slices.BinarySearchFunc would copy each that
// it looks at.
func (l *Ledger) find(of model.Target, kind model.KnobKind) (int, bool) {
	i := sort.Search(len(l.Knobs), func(i int) bool {
		k := &l.Knobs[i]
		return of.Before(k.Target) || k.Target == of && k.Kind >= kind
	})
	return i, i < len(l.Knobs) && l.Knobs[i].Target == of && l.Knobs[i].Kind == kind
}

func (l *Ledger) knob(of model.Target, kind model.KnobKind) *Knob {
	if i, ok := l.find(of, kind); ok {
		return &l.Knobs[i]
	}
	return nil
}

// claimsOf returns copies of all claims of a policy.
func (l *Ledger) claimsOf(name string) []model.Claim {
	var list []model.Claim
	for i := range l.Knobs {
		for _, c := range l.Knobs[i].Claims {
			if c.Owner == model.OwnerPolicy && c.Policy == name {
				list = append(list, c)
			}
		}
	}
	return list
}

// of returns all knobs of a target.
func (l *Ledger) of(t model.Target) []Knob {
	i, _ := l.find(t, 0)
	j := i
	for j < len(l.Knobs) && l.Knobs[j].Target == t {
		j++
	}
	return l.Knobs[i:j]
}

// Hold implements policy.Ledger.
func (l *Ledger) Hold(name string, c *model.Claim) policy.Hold {
	if k := l.knob(c.Target, c.Value.Knob); k != nil {
		if old := k.claimOf(name, c); old != nil {
			if k.State == KnobHeld && k.Ours {
				return policy.Hold{State: policy.HoldInForce, SinceNsec: max(k.Since, old.MadeNsec)}
			}
			return policy.Hold{State: policy.HoldAsked}
		}
	}
	for i := range l.Failures {
		if f := &l.Failures[i]; f.Target == c.Target && f.Kind == c.Value.Knob && f.Incident == c.Incident {
			if f.Gone {
				return policy.Hold{State: policy.HoldGone, Why: f.Why}
			}
			return policy.Hold{State: policy.HoldFailed, Why: f.Why}
		}
	}
	return policy.Hold{State: policy.HoldNone}
}

// Held implements policy.Ledger.
func (l *Ledger) Held(task model.TaskNum) bool {
	knobs := l.of(model.OfTask(task))
	return slices.ContainsFunc(knobs, func(k Knob) bool { return k.Kind.Spec().CPUs != nil && capOf(&k) != nil })
}

// Ours implements policy.Ledger.
func (l *Ledger) Ours(task model.TaskNum, kind model.KnobKind) bool {
	k := l.knob(model.OfTask(task), kind)
	return k != nil && k.Ours
}

// yields reports whether a task is demoted for an incident's sake, and not capped.
func (l *Ledger) yields(task model.TaskNum) bool {
	k := l.knob(model.OfTask(task), model.CPUWeight)
	return k != nil && k.Ours && capOf(k) != nil && !l.Ours(task, model.CPUBandwidth)
}

// capOf returns the first cap that is claimed on a knob because of what its task does, nil
// when there is none. Claims that the limits do not count are not meant: an operator said
// beforehand that the task may be held.
func capOf(k *Knob) *model.Claim {
	for i := range k.Claims {
		if c := &k.Claims[i]; c.Kind == model.ClaimCap && !c.Uncounted {
			return c
		}
	}
	return nil
}

// Exempt implements policy.Ledger. What cannot be held at all goes before what an operator said.
func (l *Ledger) Exempt(task model.TaskNum) (why string) {
	for i := range l.Exemptions {
		if e := &l.Exemptions[i]; e.Task == task {
			if e.Shield != "" {
				return e.Shield
			}
			why = "an operator freed it"
		}
	}
	return why
}

// Shielded says why a task cannot be held, whoever asks; "" when it can.
func (l *Ledger) Shielded(task model.TaskNum) string {
	i := slices.IndexFunc(l.Exemptions, func(e Exemption) bool { return e.Task == task && e.Shield != "" })
	if i < 0 {
		return ""
	}
	return l.Exemptions[i].Shield
}

// shield takes in whether a task can be held. All claims on one that cannot end.
func (l *Ledger) shield(s model.Shield, nowNsec int64) {
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == s.Task && e.Shield != "" })
	if s.Why == "" {
		return
	}
	l.Exemptions = append(l.Exemptions, Exemption{Task: s.Task, Shield: s.Why})
	knobs := l.of(model.OfTask(s.Task))
	for i := range knobs {
		for j := range knobs[i].Claims {
			l.failed(&knobs[i].Claims[j], s.Why, nowNsec)
		}
		knobs[i].disclaim()
	}
}

// unexempt ends what an operator's word exempted.
func (l *Ledger) unexempt(over func(e *Exemption) bool) {
	l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Shield == "" && over(&e) })
}

// claimOf returns a policy's claim that is the same wish as another, nil when there is none.
func (k *Knob) claimOf(name string, c *model.Claim) *model.Claim {
	for i := range k.Claims {
		if o := &k.Claims[i]; o.Owner == model.OwnerPolicy && o.Policy == name && o.Is(c) {
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

// Claim takes a claim in; a policy's claim that is the same wish as one that stands takes that
// one's place. why is not empty when it is refused outright.
func (l *Ledger) Claim(c model.Claim, lim Limits, beCPU float64) (why string) {
	k := l.knob(c.Target, c.Value.Knob)
	var old *model.Claim
	if c.Owner == model.OwnerPolicy {
		if k != nil {
			old = k.claimOf(c.Policy, &c)
		}
		if old != nil && sameWish(old, &c) {
			old.ExpiresNsec = c.ExpiresNsec
			return ""
		}
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
		i, _ := l.find(c.Target, c.Value.Knob)
		l.Knobs = slices.Insert(l.Knobs, i, Knob{Target: c.Target, Kind: c.Value.Knob})
		k = &l.Knobs[i]
	}
	l.NextClaim++
	c.ID = l.NextClaim
	k.Claims = append(k.Claims, c)
	return ""
}

// sameWish reports whether a claim asks for nothing else than an older one, but perhaps longer
// where it is renewed as a matter of course.
func sameWish(old, c *model.Claim) bool {
	return old.Value == c.Value && old.Over == c.Over && old.Cap == c.Cap && old.Follows == c.Follows && old.Reason == c.Reason && (c.HoldNsec > 0 || old.ExpiresNsec == c.ExpiresNsec)
}

// renewAll renews the claims of a policy that live on as long as they are wished for.
func (l *Ledger) renewAll(name string, nowNsec int64) {
	for i := range l.Knobs {
		for j := range l.Knobs[i].Claims {
			if c := &l.Knobs[i].Claims[j]; c.Owner == model.OwnerPolicy && c.Policy == name && c.HoldNsec > 0 {
				c.ExpiresNsec = nowNsec + c.HoldNsec
			}
		}
	}
}

// refuse says why a policy's claim cannot be granted. old is what it would renew.
func (l *Ledger) refuse(k *Knob, old, c *model.Claim, lim Limits, beCPU float64) string {
	switch {
	case k != nil && k.State == KnobVoid:
		return "another program owns this knob: " + k.Why
	case l.Exempt(c.Task()) != "":
		return l.Exempt(c.Task())
	case c.Kind == model.ClaimRun:
		return l.overRuns(c.MadeNsec)
	case c.Kind != model.ClaimCap || c.Uncounted:
		return "" // waits where the kernel refused the last write
	case k != nil && c.MadeNsec < k.RetryAt:
		return "the kernel refused the last write: " + k.Why
	case old != nil && c.Cap >= granted(old):
		return "" // takes no more than was granted
	}
	return l.overLimit(*c, lim, beCPU)
}

// renew puts a new claim in an old one's place. One that asks for something else than the
// kernel refused is tried soon.
func (k *Knob) renew(old, c *model.Claim) {
	if c.Value != old.Value {
		k.Failures = min(k.Failures, 1)
		k.RetryAt = min(k.RetryAt, c.MadeNsec+firstRetryNsec)
	}
	if c.Kind == model.ClaimCap {
		old.Least = min(granted(old), c.Cap)
	}
	old.Cap, old.Follows, old.Value, old.Over, old.HoldNsec, old.ExpiresNsec, old.Reason = c.Cap, c.Follows, c.Value, c.Over, c.HoldNsec, c.ExpiresNsec, c.Reason
}

// overLimit says why a policy's claim would pile up too much.
func (l *Ledger) overLimit(c model.Claim, lim Limits, beCPU float64) string {
	held, taken, last := 0, 0.0, c.Target
	for i := range l.Knobs { // those of one target follow each other
		o := capOf(&l.Knobs[i])
		if o == nil || o.Target == c.Target {
			continue
		}
		if o.Target != last {
			held, last = held+1, o.Target
		}
		taken += takes(o)
	}
	if held == 0 {
		return ""
	}
	if held >= lim.MaxHeldTasks {
		return fmt.Sprintf("limit: %d tasks are held already (limits.max_held_tasks)", held)
	}
	if total := beCPU + taken; total > 0 {
		share := (taken + takes(&c)) / total
		if share > lim.MaxBETaken {
			return fmt.Sprintf("limit: %.0f %% of the node's BE CPU would be held back, %.0f %% allowed (limits.max_be_cpu_taken)", 100*share, 100*lim.MaxBETaken)
		}
	}
	return ""
}

// takes is the CPU that a cap takes from its task. A demotion takes what others want, if any.
func takes(c *model.Claim) float64 {
	if c.Value.Knob.Spec().CPUs == nil {
		return 0
	}
	return max(0, c.UsageAtClaim-c.Cap)
}

// overRuns says why one action more would be too much.
func (l *Ledger) overRuns(nowNsec int64) string {
	running := 0
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.Kind.Spec().Action && k.State == KnobAsked {
			running++
		}
	}
	l.Runs = slices.DeleteFunc(l.Runs, func(at int64) bool { return nowNsec-at >= int64(60e9) })
	switch {
	case running >= maxRunning:
		return fmt.Sprintf("limit: %d actions are on their way", running)
	case len(l.Runs) >= maxRunsAMin:
		return fmt.Sprintf("limit: %d actions in the last minute", len(l.Runs))
	}
	return ""
}

// failed remembers a claim of an incident that could not be granted, for its policy to ask
// about. Other policies see the knob itself.
func (l *Ledger) failed(c *model.Claim, why string, nowNsec int64) {
	if c.Incident != "" {
		l.fail(Failure{Target: c.Target, Kind: c.Value.Knob, Incident: c.Incident, Why: why, AtNsec: nowNsec})
	}
}

func (l *Ledger) fail(f Failure) {
	if len(l.Failures) >= maxFailures {
		l.Failures = slices.Delete(l.Failures, 0, 1)
	}
	l.Failures = append(l.Failures, f)
}

// DropPolicy removes every claim of a policy.
func (l *Ledger) DropPolicy(policy string) {
	for i := range l.Knobs {
		l.drop(&l.Knobs[i], func(c *model.Claim) bool { return c.Policy == policy && c.Owner == model.OwnerPolicy })
	}
}

func (l *Ledger) drop(k *Knob, which func(c *model.Claim) bool) {
	for i := 0; i < len(k.Claims); {
		if which(&k.Claims[i]) {
			if k.Claims = slices.Delete(k.Claims, i, i+1); len(k.Claims) == 0 {
				k.withdrawn()
			}
			continue
		}
		i++
	}
}

// DropAll removes every claim.
func (l *Ledger) DropAll() {
	for i := range l.Knobs {
		l.Knobs[i].disclaim()
	}
}

// Free is an operator's word on a task: every claim goes, void knobs are usable again, and
// policies stay away until untilNsec. Void knobs that are no task's, which nobody could name otherwise, are
// usable again, too.
func (l *Ledger) Free(task model.TaskNum, untilNsec int64) {
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.Scope != model.ScopeTask && k.State == KnobVoid {
			k.free()
		}
	}
	knobs := l.of(model.OfTask(task))
	for i := range knobs {
		knobs[i].free()
	}
	l.unexempt(func(e *Exemption) bool { return e.Task == task })
	if untilNsec > 0 {
		l.Exemptions = append(l.Exemptions, Exemption{Task: task, UntilNsec: untilNsec})
	}
}

// Clear makes room for an operator's claim on a knob of a task: the claims on it go, and it is
// usable again. The task's other knobs are left as they are.
func (l *Ledger) Clear(task model.TaskNum, kind model.KnobKind) {
	if k := l.knob(model.OfTask(task), kind); k != nil {
		k.free()
	}
	l.unexempt(func(e *Exemption) bool { return e.Task == task })
}

// Busy says which action of a kind is on its way for a task, or was asked for by an operator and will be; "": none. Each is
// carried out once and has a result of its own, so that one more has to wait.
func (l *Ledger) Busy(task model.TaskNum, kind model.KnobKind) string {
	k := l.knob(model.OfTask(task), kind)
	if k == nil || !kind.Spec().Action {
		return ""
	}
	if k.State == KnobAsked {
		return fmt.Sprintf("%s of %s is on its way", kind, k.Wanted)
	}
	if i := slices.IndexFunc(k.Claims, func(c model.Claim) bool { return c.Owner == model.OwnerOperator }); i >= 0 {
		return fmt.Sprintf("%s of %s is asked for", kind, k.Claims[i].Value)
	}
	return ""
}

// Gone forgets a target that vanished: a task's cgroup.
func (l *Ledger) Gone(of model.Target, nowNsec int64) {
	if of.Scope == model.ScopeTask {
		l.Exemptions = slices.DeleteFunc(l.Exemptions, func(e Exemption) bool { return e.Task == of.Num })
	}
	l.Bases.forget(of)
	for knobs := l.of(of); len(knobs) > 0; knobs = l.of(of) {
		l.vanished(&knobs[0], nowNsec)
	}
}

// vanished forgets one knob of a target that is gone. The target itself is gone when a snapshot says so: a file or a
// directory may go alone, and then what else is held there is still to be put back.
func (l *Ledger) vanished(k *Knob, nowNsec int64) {
	for _, c := range k.Claims {
		if c.Kind == model.ClaimCap {
			l.fail(Failure{Target: k.Target, Kind: k.Kind, Incident: c.Incident, Why: "the task's cgroup is gone", Gone: true, AtNsec: nowNsec})
		}
	}
	l.Bases.drop(k.Target, k.Kind)
	i, _ := l.find(k.Target, k.Kind)
	l.Knobs = slices.Delete(l.Knobs, i, i+1)
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
	l.unexempt(func(e *Exemption) bool { return nowNsec >= e.UntilNsec })
	l.Failures = slices.DeleteFunc(l.Failures, func(f Failure) bool { return nowNsec-f.AtNsec >= failureNsec })
	return over
}
