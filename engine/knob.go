package engine

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

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

// MarshalText writes the state's name.
func (s KnobState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads a state's name.
func (s *KnobState) UnmarshalJSON(b []byte) error {
	n, err := model.EnumFromJSON(b, knobNames[:], "knob state")
	*s = KnobState(n)
	return err
}

// Knob is one kernel control of a task as the ledger sees it.
type Knob struct {
	Task     model.TaskNum    `json:"task"`
	Kind     model.KnobKind   `json:"kind,omitempty"`
	State    KnobState        `json:"state"`
	Claims   []model.Claim    `json:"claims,omitempty"`
	Found    model.Setting    `json:"found"`   // before our first write
	Written  model.Setting    `json:"written"` // as read back
	Wanted   model.Setting    `json:"wanted"`  // last asked for
	Ours     bool             `json:"ours"`    // Written is in the kernel
	Since    int64            `json:"since"`
	Asked    uint64           `json:"asked"` // sequence of the change on its way
	AskedFor model.ChangeKind `json:"asked_for"`
	Failures int              `json:"failures"`
	RetryAt  int64            `json:"retry_at"`
	Why      string           `json:"why,omitempty"`
	Disown   bool             `json:"disown,omitempty"` // the journal has yet to forget it
}

// free takes all claims away; what an operator asks for then is tried now, and a knob that
// was void is usable again.
func (k *Knob) free() {
	k.Claims = k.Claims[:0]
	k.Failures, k.RetryAt = 0, 0
	if k.State == KnobVoid {
		k.State, k.Why = KnobIdle, ""
	}
}

// wish is what a knob's claims settle at.
type wish struct {
	kind  model.ChangeKind // Hold or Set
	value model.Setting
}

// wanted settles a knob's claims (DESIGN.md, decision 5). Of caps an operator's word comes
// first, then the smallest; the host takes the smaller of that and what it found. Without a
// cap the greatest raise is in force, over what was found: without knowing that there is
// none. Of places there is one.
func (l *Ledger) wanted(k *Knob, periodNsec int64) (wish, bool) {
	best, raise, found := model.Claim{}, model.Claim{}, false
	for i := range k.Claims {
		c := &k.Claims[i]
		switch {
		case c.Kind == model.ClaimPlace:
			return wish{model.Set, model.Place(c.CPUs)}, true
		case c.Kind == model.ClaimRaise:
			raise.Kind = c.Kind
			raise.QuotaUsec = max(raise.QuotaUsec, c.QuotaUsec)
			raise.BurstUsec = max(raise.BurstUsec, c.BurstUsec)
		case !found || c.Owner < best.Owner || (c.Owner == best.Owner && c.Cap < best.Cap):
			best, found = *c, true
		}
	}
	if found {
		return wish{model.Hold, model.Bandwidth(CapFor(best.Cap, periodNsec))}, true
	}
	base, known := l.base(k)
	if raise.Kind != model.ClaimRaise || !known || base.QuotaUsec < 0 {
		return wish{}, false
	}
	return wish{model.Set, model.Bandwidth(raised(base.CPUMax, &raise))}, true
}

// raised puts a raise over what was found. A burst that the kernel's own bound (the quota)
// allowed with the quota that was found is kept within it when the quota goes below.
func raised(base model.CPUMax, c *model.Claim) model.CPUMax {
	v := base
	if c.QuotaUsec > 0 {
		v.QuotaUsec = max(c.QuotaUsec, minQuotaUsec)
	}
	v.BurstUsec = max(v.BurstUsec, c.BurstUsec)
	if v.BurstUsec <= base.QuotaUsec {
		v.BurstUsec = min(v.BurstUsec, v.QuotaUsec)
	}
	return v
}

// base returns what a knob says without us.
func (l *Ledger) base(k *Knob) (model.Setting, bool) {
	if k.Ours {
		return k.Found, true
	}
	return l.Bases.get(k.Task, k.Kind)
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

// Arbitrate emits the changes that bring the kernel to what the claims settle at: at
// most one a knob a tick, none while one is on its way or backing off. Places that shrink
// come first, so that a core is free before somebody else gets it.
func (l *Ledger) Arbitrate(nowNsec, periodNsec int64, changes []model.Change) []model.Change {
	idle := false
	for i := range l.Knobs {
		k := &l.Knobs[i]
		if k.settled(nowNsec) {
			continue
		}
		want, any := l.wanted(k, periodNsec)
		switch {
		case k.Disown:
			k.Disown = false
			l.NextChange++
			changes = append(changes, model.Change{Seq: l.NextChange, Task: k.Task, Kind: model.Disown, Value: model.Setting{Knob: k.Kind}})
		case k.State == KnobAsked || k.State == KnobVoid || nowNsec < k.RetryAt && !k.giveBack(any):
		case any && (!k.Ours || k.Wanted != want.value):
			l.ask(k, want.kind, want.value)
			changes = append(changes, model.Change{Seq: k.Asked, Task: k.Task, Kind: want.kind, Value: want.value})
		case !any && k.Ours:
			l.ask(k, model.Release, model.Setting{Knob: k.Kind})
			changes = append(changes, model.Change{Seq: k.Asked, Task: k.Task, Kind: model.Release, Value: model.Setting{Knob: k.Kind}})
		default:
			idle = idle || k.idle(nowNsec)
		}
	}
	if idle {
		l.Knobs = slices.DeleteFunc(l.Knobs, func(k Knob) bool { return k.idle(nowNsec) })
	}
	l.shrinkFirst(changes)
	return changes
}

// idle reports whether a knob can be forgotten: nothing claimed, nothing of ours, no refusal
// to remember.
func (k *Knob) idle(nowNsec int64) bool {
	return len(k.Claims) == 0 && !k.Ours && !k.Disown && k.State == KnobIdle && (k.Failures == 0 || nowNsec-k.RetryAt >= maxRetryNsec)
}

// settled reports, without much work, that a place is as its one claim asks: on a node with a
// partition that is nearly every knob at nearly every pulse.
func (k *Knob) settled(nowNsec int64) bool {
	return k.Kind == model.CPUPlace && k.State == KnobHeld && k.Ours && !k.Disown && len(k.Claims) == 1 &&
		k.Claims[0].CPUs == k.Wanted.CPUs && nowNsec >= k.RetryAt
}

// shrinkFirst orders changes of places: those that only take CPUs away before all others.
// The order of the rest stays.
func (l *Ledger) shrinkFirst(changes []model.Change) {
	if !slices.ContainsFunc(changes, func(c model.Change) bool { return c.Value.Knob == model.CPUPlace }) {
		return
	}
	slices.SortStableFunc(changes, func(a, b model.Change) int { return cmp.Compare(l.gain(&a), l.gain(&b)) })
}

// gain is 0 for a change that takes CPUs away and adds none, 1 for every other.
func (l *Ledger) gain(c *model.Change) int {
	k := l.knob(c.Task, c.Value.Knob)
	if k == nil || c.Kind != model.Set || c.Value.Knob != model.CPUPlace {
		return 1
	}
	now := k.Written.CPUs
	if !k.Ours {
		found, _ := l.Bases.get(k.Task, k.Kind)
		now = found.CPUs // empty: not known, or all that the group above has
	}
	if now.Empty() || c.Value.CPUs.Within(now) {
		return 0
	}
	return 1
}

// giveBack reports whether a release is due of which no write was refused yet: that the
// kernel took no other value is no reason to keep the one that stands, whose time is over.
func (k *Knob) giveBack(claimed bool) bool {
	return !claimed && k.Ours && k.AskedFor != model.Release
}

func (l *Ledger) ask(k *Knob, kind model.ChangeKind, want model.Setting) {
	l.NextChange++
	if kind != k.AskedFor {
		k.Failures = 0 // those were of something else
	}
	k.Asked, k.AskedFor, k.State, k.Wanted = l.NextChange, kind, KnobAsked, want
}

// Learn takes the host's answer in and returns what is worth telling, DecideNothing for
// the expected.
func (l *Ledger) Learn(r *model.Result, nowNsec int64) (kind model.DecisionKind, reason string) {
	k := l.asked(r)
	if k == nil {
		return model.DecideNothing, ""
	}
	switch r.Kind {
	case model.Applied:
		if k.AskedFor != model.Release {
			if !k.Ours {
				k.Found, k.Since = r.Found, r.MonoNsec
			}
			k.Ours, k.Written, k.State = true, r.Now, KnobHeld
		} else {
			k.Ours, k.State = false, KnobIdle
		}
		k.Failures, k.RetryAt, k.Why = 0, 0, ""
		return model.DecideNothing, ""
	case model.Vanished:
		l.Gone(r.Task, nowNsec)
		return model.DecideGone, "the cgroup went away before the write"
	case model.Foreign:
		return model.DecideForeign, l.void(k, r.Now, nowNsec)
	}
	return l.refused(k, r, nowNsec)
}

// asked returns the knob that waits for a result. A result whose task vanished does not say
// of which kind it was.
func (l *Ledger) asked(r *model.Result) *Knob {
	for kind := range model.NumKnobs {
		if k := l.knob(r.Task, kind); k != nil && k.State == KnobAsked && k.Asked == r.Seq {
			return k
		}
	}
	return nil
}

// refused backs off, and tells once. A policy's cap that was refused is dropped: its policy
// looks for another suspect. Raises and places stay, and are tried again until their policy
// wants something else.
func (l *Ledger) refused(k *Knob, r *model.Result, nowNsec int64) (kind model.DecisionKind, reason string) {
	k.State, k.Wanted = KnobIdle, model.Setting{} // what was asked for is not in force: ask again
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
			l.failed(&c, "the write was refused: "+r.Error, nowNsec)
			k.Claims = slices.Delete(k.Claims, j, j+1)
			continue
		}
		j++
	}
	if !first {
		return model.DecideNothing, ""
	}
	return model.DecideRefused, fmt.Sprintf("%s was refused: %s; next try in %.0f s", k.AskedFor, r.Error, float64(k.RetryAt-nowNsec)/1e9)
}

// Compare looks at what a held knob says now.
func (l *Ledger) Compare(r *model.KnobReading, nowNsec int64) (foreign bool, reason string) {
	k := l.knob(r.Task, r.Value.Knob)
	if k == nil || k.State != KnobHeld || !k.Ours || r.Outcome != model.OK || r.Value == k.Written {
		return false, ""
	}
	reason = l.void(k, r.Value, nowNsec)
	k.Disown = true
	return true, reason
}

// void gives a knob up to the stranger who wrote it.
func (l *Ledger) void(k *Knob, now model.Setting, nowNsec int64) string {
	k.State, k.Ours = KnobVoid, false
	k.Why = fmt.Sprintf("found %s where we had written %s", now, k.Written)
	l.Bases.put(k.Task, now)
	for i := range k.Claims {
		l.failed(&k.Claims[i], "another program wrote the knob", nowNsec)
	}
	k.Claims = k.Claims[:0]
	return k.Why + "; it was left, and claims on it are void until `uncap` or `cap` says otherwise"
}
