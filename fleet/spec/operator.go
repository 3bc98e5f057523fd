package spec

import (
	"fmt"

	"github.com/commensal-io/commensal/fleet/wire"
)

// What operators decide on a spec.

// Accept publishes what is held back of a job. ok is false where nothing is.
func (s *State) Accept(k Key, wallNsec int64) (sh wire.SpecSheet, ok bool) {
	j := s.Jobs[k]
	if j == nil {
		return sh, false
	}
	for i := range j.Signals {
		if h := j.Held(i); h != nil {
			j.setSpec(i, figuresOf(&h.Spec))
			j.setHeld(i, nil)
			ok = true
		}
	}
	j.together()
	if !ok {
		return sh, false
	}
	j.Pinned = false
	j.Revision++
	return j.Sheet(k, wallNsec), true
}

// Pin publishes an earlier sheet again and keeps it until Unpin: what is learned meanwhile is not published. What was learned
// since is forgotten, for it is what the operator does not believe.
func (s *State) Pin(k Key, old wire.SpecSheet, wallNsec int64) (wire.SpecSheet, error) {
	j := s.Jobs[k]
	switch {
	case j == nil:
		return old, fmt.Errorf("nothing is known of %s", k)
	case KeyOf(&old) != k:
		return old, fmt.Errorf("the sheet is of %s", KeyOf(&old))
	}
	j.begin(&old)
	j.Pinned = true
	j.Revision++
	sh := j.Sheet(k, wallNsec)
	sh.Nodes = old.Nodes
	for i := range sh.Specs { // what was learned since is not believed
		sp := &sh.Specs[i]
		sp.P50, sp.P90, sp.P99 = 0, 0, 0
		for k := range old.Specs {
			if was := &old.Specs[k]; was.Source == sp.Source && was.Definition == sp.Definition && was.CheckQuantiles() == nil {
				sp.P50, sp.P90, sp.P99 = was.P50, was.P90, was.P99
			}
		}
	}
	return sh, nil
}

// Unpin lets a job be published again as it is learned.
func (s *State) Unpin(k Key) bool {
	j := s.Jobs[k]
	if j == nil || !j.Pinned {
		return false
	}
	j.Pinned = false
	return true
}
