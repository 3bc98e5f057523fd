// Package program is a catalogue of programs for the simulated server: what their
// instructions ask of cores, caches and memory. Where the numbers are published the
// source is named; where they are ours, Source says so.
//
// A profile says nothing of how many threads a program has or what work it is given: that
// is the scenario's.
package program

import (
	"slices"

	"github.com/commensal-io/commensal/twin/machine"
)

// Profile describes a program's instructions. Docs of machine.TaskConfig have the units.
type Profile struct {
	Name   string // kebab-case
	What   string // one line for a person
	Source string // where the numbers are from, and what of them is ours

	CPI        float64 // cycles of the core alone, without what LLC accesses cost
	APKI       float64 // accesses to the LLC per thousand instructions
	Overlap    float64 // accesses under way at once
	Prefetched float64 // share of the accesses that the core does not wait for
	WriteShare float64 // of the memory traffic
	Curve      machine.MissCurve

	// Threads is how many the source had, 0 when it does not say.
	Threads int
	// Service is true for programs that serve requests.
	Service bool
}

// Names returns the programs' names, sorted.
func Names() []string {
	var names []string
	for _, p := range all() {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// Find returns a program by its name.
func Find(name string) (Profile, bool) {
	for _, p := range all() {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Apply sets a task's CPI, APKI, Curve, Apart, Overlap, Prefetched and WriteShare. Of a program of one thread
// more threads are more copies.
func (p *Profile) Apply(c *machine.TaskConfig) {
	c.CPI, c.APKI, c.Curve = p.CPI, p.APKI, p.Curve
	c.Apart = p.Threads == 1
	c.Overlap, c.Prefetched, c.WriteShare = p.Overlap, p.Prefetched, p.WriteShare
}

// all returns a fresh catalogue.
func all() []Profile {
	return slices.Concat(spec(), parallel(), services(), batch())
}
