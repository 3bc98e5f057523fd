package model

import (
	"encoding/json"
	"strings"
)

// What became of suspects, rounds and members stands in their State; their Verdict is the same
// for people, with the particulars. Nothing is decided by the text.

// SuspectState says why a suspect was chosen or passed over.
type SuspectState uint8

// The states of a suspect.
const (
	SuspectUnjudged    SuspectState = iota
	SuspectBelow                    // scores less than is asked for
	SuspectIdle                     // used too little CPU to have done it
	SuspectLeftAlone                // may not be held, whatever it did
	SuspectGone                     // its cgroup is
	SuspectTried                    // in an earlier round
	SuspectHeldAlready              // for another victim, or in an earlier round
	SuspectOutdone                  // something that nobody can hold explains the victim clearly better
	SuspectAlibi                    // most of the waiting is there too while it uses no more than usual, and something that nobody can hold explains more
	SuspectBehind                   // would do, and scores less than the one that was chosen
	SuspectLast                     // critical: held back last
	SuspectChosen
	SuspectChosenLast   // critical, and nobody else would do
	SuspectChosenMember // of a group
	SuspectNudged       // held for a moment, to see whether it is the one
	SuspectUndecided    // would do, but the evidence is split
)

// RoundState says what became of a round.
type RoundState uint8

// The states of a round.
const (
	RoundOpen        RoundState = iota
	RoundObserved               // nothing was to be written
	RoundNobody                 // was held
	RoundRecovered              // the victim did
	RoundHelped                 // at first: the victim suffers again, by somebody else
	RoundKept                   // it helped, though not enough
	RoundCoincidence            // the victim had recovered, and suffers as before
	RoundNoHelp                 // the victim did not recover
	RoundRefuted                // a nudge did not help
	RoundUnjudged               // there was not enough evidence of the victim, or somebody else paused too
	RoundSuspectGone            // the suspect's cgroup is
	RoundEnded                  // before it could be judged: refused, given back, switched off
)

// MemberState says what became of one task of a group.
type MemberState uint8

// The states of a member.
const (
	MemberUntried   MemberState = iota
	MemberNeeded                // the victim suffered without it
	MemberReleased              // the victim stays well without it
	MemberGone                  // its cgroup is
	MemberElsewhere             // held for another victim
	MemberRefused               // could not be held
)

// verdictRow is a state's name, and the texts that say it, of which records before there were
// states have nothing else. "..." stands for particulars.
type verdictRow struct {
	name string
	says []string
}

var suspectStates = [...]verdictRow{
	SuspectUnjudged:     {name: "unjudged"},
	SuspectBelow:        {"below", []string{"below the threshold"}},
	SuspectIdle:         {"idle", []string{"used too little CPU to have done it"}},
	SuspectLeftAlone:    {"left-alone", []string{"left alone: ..."}},
	SuspectGone:         {"gone", []string{"gone"}},
	SuspectTried:        {"tried", []string{"tried in an earlier round"}},
	SuspectHeldAlready:  {"held-already", []string{"held already"}},
	SuspectOutdone:      {"outdone", []string{"a suspect that nobody can hold explains the victim clearly better"}},
	SuspectAlibi:        {"alibi", []string{"most of the waiting is there too while it uses no more than usual, and a suspect that nobody can hold explains more"}},
	SuspectBehind:       {"behind", []string{"over the threshold, behind the one that was chosen"}},
	SuspectLast:         {"held-last", []string{"critical: held back last"}},
	SuspectChosen:       {"chosen", []string{"chosen"}},
	SuspectChosenLast:   {"chosen-last", []string{"chosen: critical, but nobody else qualifies"}},
	SuspectChosenMember: {"chosen-member", []string{"chosen: a member of the group"}},
	SuspectNudged:       {"nudged", []string{"nudged: the evidence is split", "one of those that are held in an experiment, to see which of them hurt"}},
	SuspectUndecided:    {"undecided", []string{"over the threshold, but the evidence is split"}},
}

var roundStates = [...]verdictRow{
	RoundOpen:        {name: "open"},
	RoundObserved:    {"observed", []string{"observed only: nothing was written"}},
	RoundNobody:      {"nobody", []string{"nobody was held"}},
	RoundRecovered:   {"recovered", []string{"the victim recovered..."}},
	RoundHelped:      {"helped", []string{"helped at first...", "helped: ..."}},
	RoundKept:        {"kept", []string{"helped, ..."}},
	RoundCoincidence: {"coincidence", []string{"the recovery was a coincidence..."}},
	RoundNoHelp:      {"no-help", []string{"the victim did not recover"}},
	RoundRefuted:     {"refuted", []string{"...: refuted"}},
	RoundUnjudged: {"unjudged", []string{
		"...: nothing is known", "ended without enough evidence of the victim", "the cap expired before it could be judged",
	}},
	RoundSuspectGone: {"suspect-gone", []string{"the suspect's cgroup went away"}},
	RoundEnded:       {"ended", []string{"..."}},
}

var memberStates = [...]verdictRow{
	MemberUntried:   {name: "untried"},
	MemberNeeded:    {"needed", []string{"needed: ..."}},
	MemberReleased:  {"released", []string{"given back: the victim stays well without it"}},
	MemberGone:      {"gone", []string{"the task went away"}},
	MemberElsewhere: {"elsewhere", []string{"given back on trial, and held for another victim"}},
	MemberRefused:   {"refused", []string{"..."}},
}

// VerdictStates returns the names of all states, by what has them.
func VerdictStates() map[string][]string {
	return map[string][]string{"a suspect": namesOf(suspectStates[:]), "a round": namesOf(roundStates[:]), "a member": namesOf(memberStates[:])}
}

// Judge says what stands for or against a suspect; detail takes the place of what the state's text leaves open.
func (s *Suspect) Judge(state SuspectState, detail string) {
	s.State, s.Verdict = state, strings.Replace(suspectStates[state].says[0], "...", detail, 1)
}

// Conclude says what became of a round, in words for people.
func (r *Round) Conclude(state RoundState, verdict string) { r.State, r.Verdict = state, verdict }

// Conclude says what became of a member, in words for people.
func (m *Member) Conclude(state MemberState, verdict string) { m.State, m.Verdict = state, verdict }

// stateOf returns the first state that a text says; the zero of no text.
func stateOf(rows []verdictRow, text string) uint8 {
	for i := range rows {
		for _, say := range rows[i].says {
			before, after, open := strings.Cut(say, "...")
			if text == say || open && text != "" && strings.HasPrefix(text, before) && strings.HasSuffix(text, after) {
				return uint8(i)
			}
		}
	}
	return 0
}

// namesOf returns the names of states.
func namesOf(rows []verdictRow) []string {
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].name
	}
	return names
}

func (s SuspectState) String() string { return nameOf(namesOf(suspectStates[:]), uint8(s)) }

// MarshalText writes the state's name.
func (s SuspectState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *SuspectState) UnmarshalText(b []byte) error {
	return parseName(namesOf(suspectStates[:]), string(b), "state of a suspect", (*uint8)(s))
}

func (s RoundState) String() string { return nameOf(namesOf(roundStates[:]), uint8(s)) }

// MarshalText writes the state's name.
func (s RoundState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *RoundState) UnmarshalText(b []byte) error {
	return parseName(namesOf(roundStates[:]), string(b), "state of a round", (*uint8)(s))
}

func (s MemberState) String() string { return nameOf(namesOf(memberStates[:]), uint8(s)) }

// MarshalText writes the state's name.
func (s MemberState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *MemberState) UnmarshalText(b []byte) error {
	return parseName(namesOf(memberStates[:]), string(b), "state of a member", (*uint8)(s))
}

// UnmarshalJSON reads a suspect of any version.
func (s *Suspect) UnmarshalJSON(b []byte) error {
	type plain Suspect
	err := json.Unmarshal(b, (*plain)(s))
	if s.State == SuspectUnjudged {
		s.State = SuspectState(stateOf(suspectStates[:], s.Verdict))
	}
	return err
}

// UnmarshalJSON reads a round of any version.
func (r *Round) UnmarshalJSON(b []byte) error {
	type plain Round
	err := json.Unmarshal(b, (*plain)(r))
	if r.State == RoundOpen {
		r.State = RoundState(stateOf(roundStates[:], r.Verdict))
	}
	return err
}

// UnmarshalJSON reads a member of any version.
func (m *Member) UnmarshalJSON(b []byte) error {
	type plain Member
	err := json.Unmarshal(b, (*plain)(m))
	if m.State == MemberUntried {
		m.State = MemberState(stateOf(memberStates[:], m.Verdict))
	}
	return err
}
