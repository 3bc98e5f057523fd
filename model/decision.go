package model

import "fmt"

// DecisionKind says what was decided.
type DecisionKind uint8

// The kinds of decision. Each has a row in decisionKinds.
const (
	// DecideNothing is the zero value; no decision has it.
	DecideNothing DecisionKind = iota

	DecideSpec      // a spec became robust or was recalculated
	DecideAnomaly   // a task suffers: enough violations in the window
	DecideOwnDoing  // distress that the task made itself
	DecideSearch    // analysed, nobody stands out yet
	DecideLeftAlone // a top suspect that may not be held
	DecideCap
	DecideRelease
	DecideVerified
	DecideTakenBack // the cap did not help
	DecideCannotFix
	DecideRefused
	DecideForeign
	DecideLimit
	DecideOperator
	DecideKill
	DecideGone
	DecideRelapse // recovered, then suffered again under the same cap

	// Of the policies beyond the seed.

	DecideGroup  // several suspects are held together
	DecideTrial  // a member of a group is released, to see whether it is needed
	DecideKept   // a cap helped, though not enough: kept, and the next one sought
	DecideNudge  // a suspect is held for a moment, to see whether it is the one
	DecideStep   // a cap is loosened or tightened
	DecideRefute // a nudge did not help the victim

	// Of the policies of the CPU: cpuset, cpu_pool, burst.

	DecideResize // the border between LC and BE cores moved
	DecideRaise  // a quota was raised, or a burst given
	DecideLower  // a raised quota came down
	DecideBound  // what the kernel allows was found out

	NumDecisionKinds
)

// decisionRow is what is known of a kind.
type decisionRow struct {
	name string // in logs, records and metrics
	// routine: such decisions are a policy's daily work, of which a log would be full.
	routine bool
}

// decisionKinds is the one list of the kinds.
var decisionKinds = [NumDecisionKinds]decisionRow{
	DecideSpec:      {name: "spec"},
	DecideAnomaly:   {name: "anomaly"},
	DecideOwnDoing:  {name: "own-doing"},
	DecideSearch:    {name: "search"},
	DecideLeftAlone: {name: "left-alone"},
	DecideCap:       {name: "cap"},
	DecideRelease:   {name: "release"},
	DecideVerified:  {name: "verified"},
	DecideTakenBack: {name: "taken-back"},
	DecideCannotFix: {name: "cannot-fix"},
	DecideRefused:   {name: "refused"},
	DecideForeign:   {name: "foreign"},
	DecideLimit:     {name: "limit"},
	DecideOperator:  {name: "operator"},
	DecideKill:      {name: "kill-switch"},
	DecideGone:      {name: "gone"},
	DecideRelapse:   {name: "relapse"},

	DecideGroup:  {name: "group"},
	DecideTrial:  {name: "trial"},
	DecideKept:   {name: "kept"},
	DecideNudge:  {name: "nudge"},
	DecideStep:   {name: "step"},
	DecideRefute: {name: "refute"},

	DecideResize: {name: "resize", routine: true},
	DecideRaise:  {name: "raise", routine: true},
	DecideLower:  {name: "lower", routine: true},
	DecideBound:  {name: "bound"},
}

// DecisionKindNames returns the names of all kinds, in their order.
func DecisionKindNames() []string {
	names := make([]string, 0, NumDecisionKinds)
	for k := DecideNothing + 1; k < NumDecisionKinds; k++ {
		names = append(names, k.String())
	}
	return names
}

// String returns the kind's name.
func (k DecisionKind) String() string {
	if k.listed() {
		return decisionKinds[k].name
	}
	return fmt.Sprintf("decision kind %d", uint8(k))
}

func (k DecisionKind) listed() bool { return k > DecideNothing && k < NumDecisionKinds }

// Routine reports whether such decisions are a policy's daily work. The record has them all.
func (k DecisionKind) Routine() bool { return k.listed() && decisionKinds[k].routine }

// MarshalText writes the kind's name. A kind that is not listed is an error.
func (k DecisionKind) MarshalText() ([]byte, error) {
	if !k.listed() {
		return nil, fmt.Errorf("no %s", k)
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads a kind's name.
func (k *DecisionKind) UnmarshalText(b []byte) error {
	for i := DecideNothing + 1; i < NumDecisionKinds; i++ {
		if decisionKinds[i].name == string(b) {
			*k = i
			return nil
		}
	}
	return fmt.Errorf("unknown decision kind %q", b)
}
