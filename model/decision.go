package model

import (
	"cmp"
	"fmt"
	"slices"
)

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
	DecideRan     // an action was done
	DecideRelapse // recovered, then suffered again under the same cap

	// Of the policies beyond CPI².

	DecideGroup  // several suspects are held together
	DecideTrial  // a member of a group is released, to see whether it is needed
	DecideKept   // a cap helped, though not enough: kept, and the next one sought
	DecideNudge  // a suspect is held for a moment, to see whether it is the one
	DecideStep   // a cap is loosened or tightened
	DecideRefute // a nudge did not help the victim
	DecideVoid   // what is on trial says nothing: somebody else interfered

	// Of the policies that act before anybody suffers: cpuset, cpu_pool, burst, demote, cache, bandwidth; and of balm and remedy.

	DecideResize // the border between LC and BE cores moved
	DecideRaise  // a quota was raised, or a burst given
	DecideLower  // a raised quota came down
	DecideBound  // what the kernel allows was found out
	DecideDemote // a task gives way to all others; also of the hard cap
	DecideDivide // BE, or one BE task, has a part of the caches
	DecideLevel  // the level of memory bandwidth of BE, or of one BE task, moved
	DecideBasis  // what a policy goes by is other than before
	DecidePool   // one BE task has fewer CPUs to run on
	DecidePages  // pages of a task are moved to other memory

	// Of pressure.

	DecidePressure // how hard best-effort work has to give way changed
	DecideReclaim  // memory of a task is taken back
	DecideFreeze   // a task is frozen
	DecideEnd      // a task is ended

	// Of coldpages, which also takes DecideReclaim.

	DecideCost // what it cost that memory of a task was taken back
	DecideRest // no more is taken back of a task, or of all, for a while

	NumDecisionKinds
)

// Who takes decisions that no policy takes.
const (
	ByDetection = "detection"
	ByOperators = "operators"
	ByKernel    = "kernel"
)

// decisionRow is what is known of a kind.
type decisionRow struct {
	name string // in logs, records and metrics
	// by is who takes such decisions when that is no policy. policies are those that do; none:
	// the hard cap alone.
	by       string
	policies []string
	// routine: such decisions are a policy's daily work, of which a log would be full.
	routine bool
	// acts: it is to do something, which observing leaves undone.
	acts bool
	// hooked is by what it is done, of the kinds that whom a policy tells is told of; 0: of none.
	hooked KnobKind
}

// decisionKinds is the one list of the kinds.
var decisionKinds = [NumDecisionKinds]decisionRow{
	DecideSpec:      {name: "spec", by: ByDetection},
	DecideAnomaly:   {name: "anomaly", by: ByDetection},
	DecideOwnDoing:  {name: "own-doing", by: ByDetection},
	DecideSearch:    {name: "search", policies: []string{PolicyHardcap, PolicyIO, PolicyMemory}},
	DecideLeftAlone: {name: "left-alone", policies: []string{PolicyHardcap, PolicyCPUSet, PolicyCPUPool, PolicyBurst, PolicyDemote, PolicyCache, PolicyBandwidth, PolicyBalm, PolicyPressure, PolicyColdPages, PolicyRemedy, PolicyIO, PolicyMemory}},
	DecideCap:       {name: "cap", policies: []string{PolicyHardcap, PolicyRemedy, PolicyIO, PolicyMemory}, acts: true},
	DecideRelease:   {name: "release", policies: []string{PolicyHardcap, PolicyCPUSet, PolicyCPUPool, PolicyBurst, PolicyDemote, PolicyCache, PolicyBandwidth, PolicyBalm, PolicyPressure, PolicyColdPages, PolicyRemedy, PolicyIO, PolicyMemory}, acts: true, hooked: GroupFreeze},
	DecideVerified:  {name: "verified", policies: []string{PolicyHardcap, PolicyIO, PolicyMemory}},
	DecideTakenBack: {name: "taken-back", policies: []string{PolicyHardcap, PolicyCache, PolicyBandwidth, PolicyRemedy, PolicyIO, PolicyMemory}},
	DecideCannotFix: {name: "cannot-fix", policies: []string{PolicyHardcap, PolicyBalm, PolicyPressure, PolicyRemedy, PolicyIO, PolicyMemory}},
	DecideRefused:   {name: "refused", by: ByKernel},
	DecideForeign:   {name: "foreign", by: ByKernel},
	DecideLimit:     {name: "limit", policies: []string{PolicyHardcap, PolicyCPUSet, PolicyIO, PolicyMemory}},
	DecideOperator:  {name: "operator", by: ByOperators},
	DecideKill:      {name: "kill-switch", by: ByOperators},
	DecideGone:      {name: "gone", policies: []string{PolicyHardcap, PolicyIO, PolicyMemory}},
	DecideRan:       {name: "ran", by: ByKernel},
	DecideRelapse:   {name: "relapse", policies: []string{PolicyHardcap, PolicyIO, PolicyMemory}},

	DecideGroup:  {name: "group", acts: true},
	DecideTrial:  {name: "trial", policies: []string{PolicyHardcap, PolicyBandwidth}, acts: true},
	DecideKept:   {name: "kept", policies: []string{PolicyHardcap, PolicyCache, PolicyBandwidth, PolicyRemedy}},
	DecideNudge:  {name: "nudge", acts: true},
	DecideStep:   {name: "step", policies: []string{PolicyHardcap, PolicyIO, PolicyMemory, PolicyRemedy}, acts: true},
	DecideRefute: {name: "refute"},
	DecideVoid:   {name: "void", policies: []string{PolicyHardcap, PolicyBalm, PolicyRemedy, PolicyIO, PolicyMemory}},

	DecideResize: {name: "resize", policies: []string{PolicyCPUSet}, routine: true, acts: true},
	DecideRaise:  {name: "raise", policies: []string{PolicyCPUPool, PolicyBurst}, routine: true, acts: true},
	DecideLower:  {name: "lower", policies: []string{PolicyCPUPool, PolicyBurst}, routine: true, acts: true},
	DecideBound:  {name: "bound", policies: []string{PolicyBurst}},
	DecideDemote: {name: "demote", policies: []string{PolicyHardcap, PolicyDemote, PolicyRemedy}, acts: true},
	DecideDivide: {name: "divide", policies: []string{PolicyCache, PolicyRemedy}, acts: true},
	DecideLevel:  {name: "level", policies: []string{PolicyBandwidth, PolicyBalm, PolicyRemedy}, routine: true, acts: true},
	DecideBasis:  {name: "basis", policies: []string{PolicyBandwidth, PolicyBalm, PolicyRemedy}},
	DecidePool:   {name: "pool", policies: []string{PolicyRemedy}, acts: true},
	DecidePages:  {name: "pages", policies: []string{PolicyBalm}, routine: true, acts: true},

	DecidePressure: {name: "pressure", policies: []string{PolicyPressure}},
	DecideReclaim:  {name: "reclaim", policies: []string{PolicyPressure, PolicyColdPages, PolicyMemory}, routine: true, acts: true},
	DecideFreeze:   {name: "freeze", policies: []string{PolicyPressure}, acts: true, hooked: GroupFreeze},
	DecideEnd:      {name: "end", policies: []string{PolicyPressure, PolicyRemedy}, acts: true, hooked: GroupKill},

	DecideCost: {name: "cost", policies: []string{PolicyColdPages}, routine: true},
	DecideRest: {name: "rest", policies: []string{PolicyColdPages}},
}

// By returns who took the decision: a policy by its name, or one of the By constants.
func (d *Decision) By() string {
	if d.Kind.listed() && decisionKinds[d.Kind].by != "" {
		return decisionKinds[d.Kind].by
	}
	return cmp.Or(d.Policy, PolicyHardcap) // records before version 3 do not name it
}

// Acts reports whether a decision of the kind is to do something, which observing leaves undone.
func (k DecisionKind) Acts() bool { return k.listed() && decisionKinds[k].acts }

// Hooked returns by which knob such a decision is done, of the kinds that an outside hook is told of where the policy tells (engine.Params.Tells); 0: it is told of
// none.
func (k DecisionKind) Hooked() KnobKind {
	if !k.listed() {
		return 0
	}
	return decisionKinds[k].hooked
}

// TakenBy returns who takes decisions of a kind.
func (k DecisionKind) TakenBy() []string {
	if !k.listed() {
		return nil
	}
	row := &decisionKinds[k]
	if len(row.policies) == 0 {
		return []string{cmp.Or(row.by, PolicyHardcap)}
	}
	return slices.Clone(row.policies)
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
