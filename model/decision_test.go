package model

import (
	"encoding/json"
	"testing"
)

// Every kind has a name of its own and comes back from it, and nothing else has one: what is
// not listed can be neither written nor read.
func TestDecisionKinds(t *testing.T) {
	seen := map[string]bool{"": true}
	for k := DecideNothing + 1; k < NumDecisionKinds; k++ {
		b, err := json.Marshal(Decision{Kind: k})
		if err != nil || seen[k.String()] {
			t.Fatalf("kind %d: %q, %v; a kind before it has that name, or it has none", k, k, err)
		}
		seen[k.String()] = true
		var back Decision
		if err := json.Unmarshal(b, &back); err != nil || back.Kind != k {
			t.Errorf("%s comes back as %s, %v", b, back.Kind, err)
		}
	}
	if names := DecisionKindNames(); len(names) != len(seen)-1 || !seen[names[0]] {
		t.Errorf("names %q", names)
	}
	for _, k := range []DecisionKind{DecideNothing, NumDecisionKinds, 255} {
		if b, err := json.Marshal(Decision{Kind: k}); err == nil {
			t.Errorf("kind %d is written: %s", k, b)
		}
	}
	for _, name := range []string{"", "Cap", "decision kind 3", "hold"} {
		var k DecisionKind
		if err := k.UnmarshalText([]byte(name)); err == nil {
			t.Errorf("%q is read as %s", name, k)
		}
	}
}
