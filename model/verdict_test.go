package model

import (
	"encoding/json"
	"testing"
)

// TestStatesOfOldRecords: records from before there were states have verdicts alone, and the states
// are read from them.
func TestStatesOfOldRecords(t *testing.T) {
	read := func(verdict string) (r Round) {
		t.Helper()
		b, err := json.Marshal(map[string]any{"verdict": verdict, "suspects": []any{
			map[string]string{"verdict": "chosen"}, map[string]string{"verdict": "chosen: critical, but nobody else qualifies"},
			map[string]string{"verdict": "left alone: lc is never held"}, map[string]string{"verdict": "held already"},
		}, "members": []any{map[string]string{"verdict": "needed: the victim suffered without it"}, map[string]string{"verdict": "EBUSY"}, map[string]string{}}})
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := read("")
	for i, want := range []SuspectState{SuspectChosen, SuspectChosenLast, SuspectLeftAlone, SuspectHeldAlready} {
		if r.Suspects[i].State != want {
			t.Errorf("%q is %s, not %s", r.Suspects[i].Verdict, r.Suspects[i].State, want)
		}
	}
	for i, want := range []MemberState{MemberNeeded, MemberRefused, MemberUntried} {
		if r.Members[i].State != want {
			t.Errorf("%q is %s, not %s", r.Members[i].Verdict, r.Members[i].State, want)
		}
	}
	for verdict, want := range map[string]RoundState{
		"": RoundOpen, "the victim recovered": RoundRecovered, "the victim recovered; loosened step by step without /web suffering: given back": RoundRecovered,
		"helped at first; somebody else hurts the victim now": RoundHelped, "helped, but not enough: kept": RoundKept,
		"cpi of /web went from 3 to 2.9: refuted": RoundRefuted, "cpi of /web went from 3 to 1, but /b paused meanwhile: nothing is known": RoundUnjudged,
		"the kill switch is there": RoundEnded,
	} {
		if got := read(verdict).State; got != want {
			t.Errorf("%q is %s, not %s", verdict, got, want)
		}
	}
}

// TestStatesAreWritten: what is written is read again, and each suspect's text says its state.
func TestStatesAreWritten(t *testing.T) {
	for state := SuspectBelow; int(state) < len(suspectStates); state++ {
		var s, back Suspect
		s.Judge(state, "why")
		b, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || back != s || SuspectState(stateOf(suspectStates[:], s.Verdict)) != state {
			t.Errorf("%s: %q is read as %+v (%v)", state, b, back, err)
		}
	}
	var r Round
	if err := json.Unmarshal([]byte(`{"state": "sideways"}`), &r); err == nil {
		t.Error("a state that there is none of is taken")
	}
}
