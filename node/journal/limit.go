package journal

import "github.com/commensal-io/commensal/model"

// Key names one knob of one cgroup.
type Key struct {
	Path  string
	Inode uint64 // of the cgroup's directory in the hierarchy that has the knob
	Knob  model.KnobKind
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

// is says whether the limit is the one of a key.
func (l *Limit) is(k Key) bool {
	return l.Inode == k.Inode && l.Found.Knob == k.Knob && l.Path == k.Path
}

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

// Note is what became of a limit after its write.
type Note struct {
	Key
	ReadBack *model.Setting // nil: put back, or no longer ours
}

func (n *Note) entry() *entry {
	e := &entry{Kind: kindDone, Path: n.Path, Inode: n.Inode, Knob: n.Knob}
	if n.ReadBack != nil {
		e.Kind, e.Value = kindWrote, n.ReadBack
	}
	return e
}
