package model

import (
	"encoding/json"
	"fmt"
)

// Outcome says what became of an attempt to read something. The zero value is
// Unavailable, so that a field nobody filled in can never pass for a zero.
type Outcome uint8

// The outcomes. Only OK yields a value; each of the others has a name of its own
// because each asks for a different reaction (DESIGN.md, decision 3).
const (
	Unavailable   Outcome = iota // this kernel or this moment does not provide it
	OK                           // read
	Absent                       // the thing measured is gone
	GoneBackwards                // a counter is smaller than it was: no rate
	Fresh                        // first reading: there is nothing to subtract from
)

var outcomeNames = [...]string{"unavailable", "ok", "absent", "gone-backwards", "fresh"}

// String returns the outcome's name as it stands in records and on screens.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// MarshalText writes the outcome's name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads an outcome's name; an unknown one is an error.
func (o *Outcome) UnmarshalText(b []byte) error {
	return parseName(outcomeNames[:], string(b), "outcome", (*uint8)(o))
}

// Counter is one reading of a number that only grows.
type Counter struct {
	Value   uint64  `json:"value"`
	Outcome Outcome `json:"outcome"`
}

// Read returns a counter that was read.
func Read(v uint64) Counter { return Counter{Value: v, Outcome: OK} }

// Delta returns cur minus prev. Anything but two good readings in order yields no
// number and the outcome that says why.
func Delta(prev, cur Counter) (uint64, Outcome) {
	switch {
	case cur.Outcome != OK:
		return 0, cur.Outcome
	case prev.Outcome != OK:
		return 0, Fresh
	case cur.Value < prev.Value:
		return 0, GoneBackwards
	}
	return cur.Value - prev.Value, OK
}

// Value is one derived figure, or the reason why there is none.
type Value struct {
	V       float64 `json:"v"`
	Outcome Outcome `json:"outcome"`
}

// Known returns a value that could be derived.
func Known(v float64) Value { return Value{V: v, Outcome: OK} }

// Missing returns a value that could not be derived, and why.
func Missing(o Outcome) Value { return Value{Outcome: o} }

// parseName finds s among names and stores its index.
func parseName(names []string, s, kind string, dst *uint8) error {
	for i, n := range names {
		if n == s {
			*dst = uint8(i)
			return nil
		}
	}
	return fmt.Errorf("unknown %s %q", kind, s)
}

// EnumFromJSON reads a value of an enum: by its name, or by its number, which is how records of
// versions before 3 have it. what is what the enum is called in an error.
func EnumFromJSON(b []byte, names []string, what string) (uint8, error) {
	var n uint8
	if len(b) > 0 && b[0] != '"' {
		if err := json.Unmarshal(b, &n); err != nil || int(n) >= len(names) {
			return 0, fmt.Errorf("unknown %s %s", what, b)
		}
		return n, nil
	}
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return 0, err
	}
	return n, parseName(names, name, what, &n)
}
