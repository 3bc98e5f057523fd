package journal

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// Key names one knob of one cgroup.
type Key struct {
	Path  string
	Inode uint64 // of the cgroup's directory in the hierarchy that has the knob
	Knob  model.KnobKind
}

func (k Key) compare(to Key) int {
	return cmp.Or(cmp.Compare(k.Path, to.Path), cmp.Compare(k.Inode, to.Inode), cmp.Compare(k.Knob, to.Knob))
}

// Limit is one cgroup's knob that was touched and is not yet put back. The settings are all
// of one kind.
type Limit struct {
	Task     string
	Path     string
	Inode    uint64
	Found    model.Setting // before our first write
	Before   model.Setting // before our last write
	Intended model.Setting // by our last write
	ReadBack *model.Setting
}

// Key returns what the limit is known by.
func (l *Limit) Key() Key { return Key{l.Path, l.Inode, l.Found.Knob} }

// Ours reports whether a value in the kernel can be ours: as read back, or one of the
// states that a crash in the middle of the last compound write leaves behind
// (model.KnobSpec.Between).
func (l *Limit) Ours(now model.Setting) bool {
	if l.ReadBack != nil || now.Knob != l.Found.Knob {
		return l.ReadBack != nil && now == *l.ReadBack
	}
	if between := now.Knob.Spec().Between; between != nil {
		return between(now, l.Before, l.Intended)
	}
	return now == l.Before || now == l.Intended
}

// OnTheWayBack reports whether a value can be what a crash leaves behind in the midst of putting back
// what stood as it was read back: of that the journal says nothing where the disk took no note.
func (l *Limit) OnTheWayBack(now model.Setting) bool {
	if l.ReadBack == nil {
		return false
	}
	way := Limit{Found: l.Found, Before: *l.ReadBack, Intended: l.Found}
	return way.Ours(now)
}

// Left returns the values that we may have left in the kernel, one of them, but for what stands
// between two writes.
func (l *Limit) Left() []model.Setting {
	if l.ReadBack != nil {
		return []model.Setting{*l.ReadBack}
	}
	return []model.Setting{l.Before, l.Intended}
}

// Note is what became of a limit after its write.
type Note struct {
	Key
	ReadBack *model.Setting // nil: put back, or no longer ours
}

// table is limits by their keys.
type table struct {
	list []Limit
	at   map[Key]int // in list
}

// get returns a limit, nil for none. It is good until the table changes.
func (t *table) get(k Key) *Limit {
	if i, ok := t.at[k]; ok {
		return &t.list[i]
	}
	return nil
}

func (t *table) put(l Limit) {
	if was := t.get(l.Key()); was != nil {
		*was = l
		return
	}
	if t.at == nil {
		t.at = map[Key]int{}
	}
	t.at[l.Key()] = len(t.list)
	t.list = append(t.list, l)
}

// remove puts the last in the place of what goes.
func (t *table) remove(k Key) {
	i, ok := t.at[k]
	if !ok {
		return
	}
	delete(t.at, k)
	last := len(t.list) - 1
	if i != last {
		t.list[i] = t.list[last]
		t.at[t.list[i].Key()] = i
	}
	t.list[last] = Limit{}
	t.list = t.list[:last]
}

// apply takes one entry in.
func (t *table) apply(e *entry) error {
	for _, v := range []*model.Setting{e.Found, e.Before, e.Value} {
		if v != nil && v.Knob != e.Knob {
			return fmt.Errorf("an entry of %s has a value of %s", e.Knob, v.Knob)
		}
	}
	switch e.Kind {
	case kindIntent:
		if e.Found == nil || e.Before == nil || e.Value == nil {
			return errors.New("intent without its values")
		}
		t.put(Limit{Task: string(e.Task), Path: string(e.Path), Inode: e.Inode, Found: *e.Found, Before: *e.Before, Intended: *e.Value})
	case kindWrote:
		l := t.get(e.key())
		if l == nil || e.Value == nil {
			return fmt.Errorf("read-back of %s without an intent", e.Path)
		}
		v := *e.Value
		l.ReadBack = &v
	case kindDone:
		t.remove(e.key())
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}
