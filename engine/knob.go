package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
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

// Knob is one kernel control as the ledger sees it.
type Knob struct {
	model.Target
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
	By       string           `json:"by,omitempty"`     // whose claim decides, or did last
	AskedBy  string           `json:"asked_by,omitempty"`
	Unwanted bool             `json:"unwanted,omitempty"` // nobody asks any more for the action that is on its way
	Ending   bool             `json:"ending,omitempty"`   // and the host was told to end it
}

// withdrawn notes that who asked for the action that is on its way does not any more. That its claim is over says nothing: an operator's is for beginning.
func (k *Knob) withdrawn() {
	k.Unwanted = k.Unwanted || k.State == KnobAsked && k.AskedFor == model.Run && k.Kind.Spec().Stops
}

// disclaim takes all claims away.
func (k *Knob) disclaim() {
	k.withdrawn()
	k.Claims = k.Claims[:0]
}

// endRuns emits what ends the actions that nobody asks for any more.
func (l *Ledger) endRuns(changes []model.Change) []model.Change {
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.Unwanted && !k.Ending {
			k.Ending = true
			l.NextChange++
			changes = append(changes, model.Change{Seq: l.NextChange, Target: k.Target, Kind: model.Stop, Value: model.Ask(k.Kind)})
		}
	}
	return changes
}

// free takes all claims away; what an operator asks for then is tried now, and a knob that
// was void is usable again.
func (k *Knob) free() {
	k.disclaim()
	k.Failures, k.RetryAt = 0, 0
	if k.State == KnobVoid {
		k.State, k.Why = KnobIdle, ""
	}
}

// wish is what a knob's claims settle at.
type wish struct {
	kind  model.ChangeKind // Hold, Set or Run
	value model.Setting
	of    *model.Claim // that decides
}

// wanted settles a knob's claims (docs/DESIGN.md, decision 5). Where a knob has one owner, or
// is an action, the claim says it all; of several classes of service the task's own goes before
// that of many. Of caps an operator's word comes first, then the
// smallest; the host takes the smaller of that and what it found. Without a cap the raises are
// put over what was found: as long as that is not known there is no raise.
func (l *Ledger) wanted(k *Knob, periodNsec int64) (wish, bool) {
	spec := k.Kind.Spec()
	var least, place, raise *model.Claim
	for i := range k.Claims {
		switch c := &k.Claims[i]; {
		case c.Kind == model.ClaimPlace:
			if place == nil || c.Value.Amount > place.Value.Amount {
				place = c
			}
		case c.Kind == model.ClaimRun:
			return wish{model.Run, c.Value, c}, true
		case c.Kind == model.ClaimRaise:
			raise = c
		case least == nil || c.Owner < least.Owner || (c.Owner == least.Owner && c.Cap < least.Cap):
			least = c
		}
	}
	if place != nil {
		return wish{model.Set, place.Value, place}, true
	}
	if least != nil {
		if spec.Cap == nil {
			return wish{model.Hold, least.Value, least}, true
		}
		return wish{model.Hold, spec.Cap(least.Cap, periodNsec), least}, true
	}
	if base, known := l.base(k); raise != nil && known {
		v, ok := spec.Raise(base, k.Claims)
		return wish{model.Set, v, raise}, ok
	}
	return wish{}, false
}

// base returns what a knob says without us.
func (l *Ledger) base(k *Knob) (model.Setting, bool) {
	if k.Ours {
		return k.Found, true
	}
	return l.Bases.get(k.Target, k.Kind)
}

// Arbitrate emits the changes that bring the kernel to what the claims settle at: at
// most one a knob a tick, none while one is on its way or backing off. Where a kind's row says
// so what shrinks comes first, so that a core is free before somebody else gets it.
func (l *Ledger) Arbitrate(nowNsec, periodNsec int64, changes []model.Change) []model.Change {
	idle := false
	for i := range l.Knobs {
		k := &l.Knobs[i]
		if k.settled(nowNsec) {
			continue
		}
		want, any := l.wanted(k, periodNsec)
		any = any && !k.stranded()
		switch {
		case k.Disown:
			k.Disown = false
			l.NextChange++
			changes = append(changes, model.Change{Seq: l.NextChange, Target: k.Target, Kind: model.Disown, Value: model.Ask(k.Kind)})
		case k.State == KnobAsked || k.State == KnobVoid || nowNsec < k.RetryAt && !k.giveBack(any):
		case any && (!k.Ours || k.Wanted != want.value):
			k.owe(holder(want.of))
			changes = append(changes, l.ask(k, want.kind, want.value, nowNsec))
		case !any && k.Ours:
			k.AskedBy = k.By
			changes = append(changes, l.ask(k, model.Release, model.Ask(k.Kind), nowNsec))
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

// settled reports, without much work, that a knob is as the one claim on it asks: on a node
// with a partition that is nearly every knob at nearly every pulse.
func (k *Knob) settled(nowNsec int64) bool {
	return k.State == KnobHeld && k.Ours && !k.Disown && len(k.Claims) == 1 && k.Claims[0].Kind == model.ClaimPlace &&
		k.Claims[0].Value == k.Wanted && nowNsec >= k.RetryAt
}

// shrinkFirst orders changes: those that only take what others are waiting for before all
// others. The order of the rest stays.
func (l *Ledger) shrinkFirst(changes []model.Change) {
	if !slices.ContainsFunc(changes, func(c model.Change) bool { return c.Value.Knob.Spec().ShrinkFirst }) {
		return
	}
	slices.SortStableFunc(changes, func(a, b model.Change) int { return cmp.Compare(l.gain(&a), l.gain(&b)) })
}

// gain is 0 for a change that takes and gives nothing, 1 for every other.
func (l *Ledger) gain(c *model.Change) int {
	k, spec := l.knob(c.Target, c.Value.Knob), c.Value.Knob.Spec()
	if k == nil || c.Kind != model.Set || !spec.ShrinkFirst {
		return 1
	}
	now := k.Written
	if !k.Ours {
		if now, _ = l.Bases.get(k.Target, k.Kind); now == model.Ask(k.Kind) {
			return 0 // not known, or all that the group above has
		}
	}
	if spec.Within(c.Value, now) {
		return 0
	}
	return 1
}

// giveBack reports whether a release is due that was not tried yet. Its time is over: that the
// kernel refused other values before is no reason to wait with it.
func (k *Knob) giveBack(claimed bool) bool {
	return !claimed && k.Ours && k.AskedFor != model.Release
}

// stranded reports whether a task stays in a class of service that nobody asks for any more because the next one was
// refused: it leaves it first, so that the class can go.
func (k *Knob) stranded() bool {
	return k.Kind.Spec().Class != nil && k.Ours && k.Failures > 0 &&
		!slices.ContainsFunc(k.Claims, func(c model.Claim) bool { return c.Value == k.Written })
}

func (l *Ledger) ask(k *Knob, kind model.ChangeKind, want model.Setting, nowNsec int64) model.Change {
	l.NextChange++
	if kind != k.AskedFor {
		k.Failures = 0 // those were of something else
	}
	if kind == model.Run {
		l.Runs = append(l.Runs, nowNsec)
	}
	k.Asked, k.AskedFor, k.State, k.Wanted = l.NextChange, kind, KnobAsked, want
	c := model.Change{Seq: k.Asked, Target: k.Target, Kind: kind, Value: want}
	if base, known := l.Bases.get(k.Target, k.Kind); known && kind == model.Set && !k.Ours {
		c.Base = &base
	}
	return c
}

// Learn takes the host's answer in and returns what is worth telling, DecideNothing for
// the expected.
func (l *Ledger) Learn(r *model.Result, nowNsec int64) (kind model.DecisionKind, reason string) {
	k := l.asked(r)
	if k == nil {
		return model.DecideNothing, ""
	}
	if k.AskedFor == model.Run && r.Kind != model.Vanished {
		return l.ran(k, r)
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
		l.vanished(k, nowNsec)
		return model.DecideGone, "the cgroup went away before the write"
	case model.Foreign:
		if reason = l.void(k, r.Now, nowNsec); k.AskedFor == model.Release && r.Error != "" {
			reason += "; " + r.Error
		}
		return model.DecideForeign, reason
	case model.Stale: // somebody wrote it since it was listed: asked for anew, with what stands there now
		k.State, k.Wanted = KnobIdle, model.Ask(k.Kind)
		l.Bases.put(k.Target, r.Now)
		return model.DecideNothing, ""
	}
	return l.refused(k, r, nowNsec)
}

// asked returns the knob that waits for a result. A result whose task vanished does not say
// of which kind it was.
func (l *Ledger) asked(r *model.Result) *Knob {
	for kind := range model.NumKnobs {
		if k := l.knob(r.Target, kind); k != nil && k.State == KnobAsked && k.Asked == r.Seq {
			return k
		}
	}
	return nil
}

// ran takes in what became of an action: it was asked for once, and nothing of it stands.
func (l *Ledger) ran(k *Knob, r *model.Result) (kind model.DecisionKind, reason string) {
	asked := k.Wanted
	k.State, k.Wanted, k.Claims, k.Unwanted, k.Ending = KnobIdle, model.Ask(k.Kind), k.Claims[:0], false, false
	if r.Kind != model.Applied {
		return model.DecideRefused, fmt.Sprintf("%s of %s was refused: %s", k.Kind, asked, r.Error)
	}
	reason = fmt.Sprintf("%s: %s; asked for: %s", k.Kind, r.Now, asked)
	if r.Error != "" {
		reason += ": " + r.Error
	}
	return model.DecideRan, reason
}

// refused backs off, and tells once. A claim of an incident that was refused is dropped: its
// policy looks for another suspect. All others stay, and are tried again until their policy
// wants something else.
func (l *Ledger) refused(k *Knob, r *model.Result, nowNsec int64) (kind model.DecisionKind, reason string) {
	k.State, k.Wanted = KnobIdle, model.Ask(k.Kind) // what was asked for is not in force: ask again
	if k.Ours {
		k.State = KnobHeld
	}
	k.Failures++
	k.RetryAt = nowNsec + min(firstRetryNsec<<min(k.Failures-1, 16), maxRetryNsec)
	first := k.Why != r.Error
	k.Why = r.Error
	for j := 0; j < len(k.Claims); {
		c := k.Claims[j]
		if c.Owner == model.OwnerPolicy && c.Incident != "" {
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

// Compare looks at what a held knob says now, and returns what is worth telling, DecideNothing for the expected.
func (l *Ledger) Compare(r *model.KnobReading, nowNsec int64) (kind model.DecisionKind, reason string) {
	k := l.knob(r.Target, r.Value.Knob)
	switch {
	case k == nil || k.State != KnobHeld || !k.Ours:
	case r.Outcome == model.Absent:
		k.Disown = true
		return l.lost(k, nowNsec)
	case r.Outcome == model.OK && r.Value != k.Written:
		k.Disown = true
		return model.DecideForeign, l.void(k, r.Value, nowNsec)
	}
	return model.DecideNothing, ""
}

// lost takes in that a knob is not there any more although its target is, and with it what we wrote: somebody took
// the controller away. To what still asks for it that is a refusal.
func (l *Ledger) lost(k *Knob, nowNsec int64) (kind model.DecisionKind, reason string) {
	k.Ours = false
	l.Bases.drop(k.Target, k.Kind)
	return l.refused(k, &model.Result{Error: fmt.Sprintf("%s is not there any more, and what was written to it is gone with it", k.Kind)}, nowNsec)
}

// void gives a knob up to the stranger who wrote it.
func (l *Ledger) void(k *Knob, now model.Setting, nowNsec int64) string {
	k.State, k.Ours = KnobVoid, false
	k.Why = fmt.Sprintf("found %s where we had written %s", now, k.Written)
	l.Bases.put(k.Target, now)
	for i := range k.Claims {
		l.failed(&k.Claims[i], "another program wrote the knob", nowNsec)
	}
	k.Claims = k.Claims[:0]
	return k.Why + "; it was left, and claims on it are void until `uncap` or `cap` says otherwise"
}
