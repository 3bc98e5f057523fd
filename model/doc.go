// Package model holds Commensal's words as types: what was read (Sample,
// Snapshot), what follows from it (Observation), what is normal (Spec), what is
// wished (Claim), what was done (Change, Result) and why (Decision, Incident).
//
// The package is pure: no I/O, no clock, no randomness. Times are data: MonoNsec
// is the monotonic clock of the node in nanoseconds and is the only one that
// policies compute with; WallNsec (nanoseconds since the Unix epoch) is for people.
package model
