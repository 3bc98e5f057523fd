package model

import "fmt"

// Lack is what a victim has too little of, as its own counters tell.
type Lack uint8

// What a victim can lack.
const (
	LackUnknown Lack = iota // nothing tells
	LackCache               // it misses the last-level cache more than while it was well
	LackMemory              // it misses no more, its instructions take longer, and memory moves more
)

var lackNames = []string{"unknown", "cache", "memory"}

// String returns what it is that is lacked.
func (l Lack) String() string { return nameOf(lackNames, uint8(l)) }

// Amount is how much of it somebody takes, for people: bytes of cache, or bytes a second of memory.
func (l Lack) Amount(v float64) string {
	if l == LackMemory {
		return fmt.Sprintf("%.3g GB/s", v/1e9)
	}
	return fmt.Sprintf("%.3g MB", v/1e6)
}

// MarshalText writes its name.
func (l Lack) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads its name; an error where there is no such.
func (l *Lack) UnmarshalText(b []byte) error {
	return parseName(lackNames, string(b), "lack", (*uint8)(l))
}
