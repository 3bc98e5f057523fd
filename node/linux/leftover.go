package linux

import (
	"maps"
	"slices"

	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// leftover is when limits of a knob that nobody holds are tried again. Such limits are what an
// earlier agent could not put back, and holds that the kernel refused after they had taken
// effect in part. The ledger knows nothing of them, for to it a refused hold holds nothing; without another try they would
// stand until the agent ends.
type leftover struct {
	at   int64 // monotonic; not before
	wait int64
	due  bool // now
	n    int  // limits
}

// Each try is a write to a kernel that may refuse it again, and some entries in the
// journal: the pause is doubled up to the most. Each knob of a task has its own: what the kernel
// refuses one says nothing of another. It begins anew with each limit that comes to it: what cannot be done with one of a group that was at
// the task's path before says nothing of that either.
const (
	leftoverFirstNsec = int64(1e9)
	leftoverMostNsec  = int64(300e9)
)

// putBackLeftovers puts back, where it is still ours, what stands in the kernel although
// nobody holds it. Without any it costs no call and no allocation. Between two changes the
// journal is gone through once a second: at every pulse it would be all for nothing.
func (k *Knobs) putBackLeftovers(nowNsec int64, changed bool) []node.Restoration {
	if !changed && nowNsec >= k.looked && nowNsec-k.looked < leftoverFirstNsec {
		return nil
	}
	k.looked = nowNsec
	todo := k.j.Unheld(k.holds)
	maps.DeleteFunc(k.displaced, func(key heldKey, _ bool) bool {
		return !slices.ContainsFunc(todo, func(l journal.Limit) bool { return l.Task == key.task && l.Found.Knob == key.knob })
	})
	if len(todo) == 0 {
		clear(k.leftovers)
		return nil
	}
	known, n := map[heldKey]leftover{}, map[heldKey]int{}
	for i := range todo {
		n[heldKey{todo[i].Task, todo[i].Found.Knob}]++
	}
	todo = slices.DeleteFunc(todo, func(l journal.Limit) bool {
		key := heldKey{l.Task, l.Found.Knob}
		r, met := known[key]
		if !met {
			if r = k.leftovers[key]; n[key] > r.n {
				r = leftover{}
			}
			r.n = n[key]
			if r.due = nowNsec >= r.at; r.due {
				r.wait = min(max(2*r.wait, leftoverFirstNsec), leftoverMostNsec)
				r.at = nowNsec + r.wait
			}
			known[key] = r
		}
		return !r.due
	})
	k.leftovers = known
	return k.restoreRefused(todo)
}

// holds says whether a limit belongs to a hold that stands: of a path at which another group was before,
// and could not be put back, only what is of the group that is there now.
func (k *Knobs) holds(l *journal.Limit) bool {
	key := heldKey{l.Task, l.Found.Knob}
	if k.kinds[key.knob] == nil {
		return true // no cgroup's (classes.go)
	}
	if k.held[key] == nil || !k.displaced[key] {
		return k.held[key] != nil
	}
	inode, err := k.kinds[key.knob].inode(l.Path)
	return err == nil && inode == l.Inode
}

// restoreRefused puts limits back, and notes which of a refused hold a stranger wrote meanwhile.
func (k *Knobs) restoreRefused(limits []journal.Limit) []node.Restoration {
	items := k.restore(limits)
	for i := range items {
		it := &items[i]
		l := slices.IndexFunc(limits, func(l journal.Limit) bool { return l.Path == it.Path && l.Found.Knob == it.Found.Knob })
		if l < 0 || it.Kind != node.LeftForeign {
			continue
		}
		key := heldKey{limits[l].Task, it.Found.Knob}
		if _, ok := k.refused[key]; ok {
			k.refused[key] = true
		}
	}
	return items
}

// tendNsec is how often the journal is looked after: a write to a file that somebody removed
// is lost for whoever comes after us.
const tendNsec = int64(1e9)

// tendJournal makes the journal again where it is gone, and writes what could not be written.
func (h *Host) tendJournal(nowNsec int64) {
	if k := h.knobs; nowNsec >= k.tended && nowNsec-k.tended < tendNsec {
		return
	}
	h.knobs.tended = nowNsec
	why := ""
	if err := h.knobs.j.Tend(); err != nil {
		why = err.Error()
	}
	h.outages.set(h.opt.Log, "the journal cannot be written: until it can, nothing new is held, and what is held can be put back", why)
}

// tellLeftovers logs what became of limits that nobody held; not what was refused again.
func (h *Host) tellLeftovers(items []node.Restoration) {
	for i := range items {
		if it := &items[i]; it.Kind != node.NotRestored {
			h.opt.Log.Warn("a limit of ours that no decision holds any more was still in force", "path", it.Path, "outcome", string(it.Kind), "now", it.Now, "found", it.Found)
		}
	}
}
