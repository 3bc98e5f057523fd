package engine

import (
	"slices"
	"sort"

	"github.com/commensal-io/commensal/model"
)

// base is what a knob said when it was not ours.
type base struct {
	Task    model.TaskNum `json:"task"`
	Setting model.Setting `json:"setting"`
}

// bases are what the host last said of knobs that we do not hold, ordered by task and kind:
// over them raises are put, and from them the policies know what a task may use.
type bases []base

func (b bases) find(task model.TaskNum, kind model.KnobKind) (int, bool) {
	i := sort.Search(len(b), func(i int) bool {
		o := &b[i]
		return o.Task > task || o.Task == task && o.Setting.Knob >= kind
	})
	return i, i < len(b) && b[i].Task == task && b[i].Setting.Knob == kind
}

func (b bases) get(task model.TaskNum, kind model.KnobKind) (model.Setting, bool) {
	if i, ok := b.find(task, kind); ok {
		return b[i].Setting, true
	}
	return model.Setting{Knob: kind}, false
}

func (b *bases) put(task model.TaskNum, v model.Setting) {
	i, ok := b.find(task, v.Knob)
	if !ok {
		*b = slices.Insert(*b, i, base{Task: task})
	}
	(*b)[i].Setting = v
}

func (b *bases) drop(task model.TaskNum, kind model.KnobKind) {
	if i, ok := b.find(task, kind); ok {
		*b = slices.Delete(*b, i, i+1)
	}
}

func (b *bases) forget(task model.TaskNum) {
	*b = slices.DeleteFunc(*b, func(o base) bool { return o.Task == task })
}
