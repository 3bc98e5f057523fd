package model

import "fmt"

// Mode is how far a policy may go.
type Mode uint8

// The modes. The default, and so the zero value, is to observe: a decision is recorded
// as it would be done (DESIGN.md, decision 7).
const (
	ModeObserve Mode = iota
	ModeOff
	ModeEnforce
)

// modeBounds is what a configuration may say.
const modeBounds = "off, observe or enforce"

var modeNames = [...]string{"observe", "off", "enforce"}

// String returns the mode as it stands in the configuration.
func (m Mode) String() string { return nameOf(modeNames[:], uint8(m)) }

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a mode's name.
func (m *Mode) UnmarshalText(b []byte) error {
	if parseName(modeNames[:], string(b), "mode", (*uint8)(m)) != nil {
		return fmt.Errorf("is %q; expected %s", b, modeBounds)
	}
	return nil
}

// Pace is how often a policy looks at the machine, beside the windows that it is told of.
type Pace uint8

// The paces.
const (
	PaceWindow Pace = iota // it lives by windows alone
	PaceTick               // once a second
	PacePulse              // at every fast reading: within a tenth of a second
)

// Pace returns how often a policy looks that keeps a pace when it enforces. One that only
// observes has nothing to be in time for.
func (m Mode) Pace(enforcing Pace) Pace {
	switch m {
	case ModeOff:
		return PaceWindow
	case ModeObserve:
		return min(enforcing, PaceTick)
	}
	return enforcing
}
