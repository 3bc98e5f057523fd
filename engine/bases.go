package engine

import (
	"slices"
	"sort"

	"github.com/commensal-io/commensal/model"
)

// base is what a knob said when it was not ours.
type base struct {
	model.Target
	Setting model.Setting `json:"setting"`
}

// bases are what the host last said of knobs that we do not hold, ordered by target and
// kind: what a raise is measured by, and where policies see what a task may use.
type bases []base

func (b bases) find(of model.Target, kind model.KnobKind) (int, bool) {
	i := sort.Search(len(b), func(i int) bool {
		o := &b[i]
		return of.Before(o.Target) || o.Target == of && o.Setting.Knob >= kind
	})
	return i, i < len(b) && b[i].Target == of && b[i].Setting.Knob == kind
}

func (b bases) get(of model.Target, kind model.KnobKind) (model.Setting, bool) {
	if i, ok := b.find(of, kind); ok {
		return b[i].Setting, true
	}
	return model.Ask(kind), false
}

func (b *bases) put(of model.Target, v model.Setting) {
	i, ok := b.find(of, v.Knob)
	if !ok {
		*b = slices.Insert(*b, i, base{Target: of})
	}
	(*b)[i].Setting = v
}

func (b *bases) drop(of model.Target, kind model.KnobKind) {
	if i, ok := b.find(of, kind); ok {
		*b = slices.Delete(*b, i, i+1)
	}
}

func (b *bases) forget(of model.Target) {
	*b = slices.DeleteFunc(*b, func(o base) bool { return o.Target == of })
}
