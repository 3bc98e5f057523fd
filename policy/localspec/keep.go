package localspec

import (
	"slices"
	"time"

	"github.com/commensal-io/commensal/model"
)

// Kept is a published spec, with what the next one goes on from, as it outlives a restart.
type Kept struct {
	Spec    model.Spec `json:"spec"` // without its time, which is that of a clock that ended
	History Moments    `json:"history"`
	// Measured is what takes the place of a spec without a neighbour when that is doubted; else nil.
	Measured *Moments `json:"measured,omitempty"`
	// WallNsec is when the spec was calculated, by the wall clock, in whole seconds.
	WallNsec int64 `json:"wall_nsec"`
}

// maxKept is the age beyond which a spec is not taken up again, and from which on one of a fleet gives way to what is learned here:
// CPI² calculates one each day and weighs the day before by 0.9, so that after a week half of it would be gone.
const maxKept = 7 * 24 * time.Hour

// Keep returns what is published at a moment, in key order.
func (s *State) Keep(monoNsec, wallNsec int64) []Kept {
	var list []Kept
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Spec != nil {
			k := Kept{Spec: *e.Spec, History: e.History, Measured: e.Measured, WallNsec: wallNsec - (monoNsec - e.Spec.MonoNsec)}
			k.WallNsec -= k.WallNsec % int64(time.Second)
			k.Spec.MonoNsec = 0
			list = append(list, k)
		}
	}
	return list
}

// Restore takes a spec up again, nil when it is too old, of another platform, or there is a
// newer one.
func (s *State) Restore(k *Kept, monoNsec, wallNsec int64) *model.Spec {
	age := max(0, wallNsec-k.WallNsec)
	if k.Spec.Platform != s.Platform || age > int64(maxKept) {
		return nil
	}
	key := Key{k.Spec.Job, k.Spec.Source, k.Spec.Size}
	i, ok := s.find(key)
	if !ok {
		s.Entries = slices.Insert(s.Entries, i, Entry{Key: key})
	}
	e := &s.Entries[i]
	if e.Spec != nil {
		return nil
	}
	spec := k.Spec
	spec.MonoNsec = monoNsec - age
	e.Spec, e.History, e.Measured = &spec, k.History, k.Measured
	return e.Spec
}
