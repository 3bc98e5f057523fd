package model

// Mode is how far a policy may go.
type Mode uint8

// The modes. The default, and so the zero value, is to observe: a decision is recorded
// as it would be done (DESIGN.md, decision 7).
const (
	ModeObserve Mode = iota
	ModeOff
	ModeEnforce
)

var modeNames = [...]string{"observe", "off", "enforce"}

// String returns the mode as it stands in the configuration.
func (m Mode) String() string { return nameOf(modeNames[:], uint8(m)) }

// MarshalText writes the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a mode's name.
func (m *Mode) UnmarshalText(b []byte) error {
	return parseName(modeNames[:], string(b), "mode", (*uint8)(m))
}
