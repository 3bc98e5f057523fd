package soak

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/twin/fault"
)

// journalPath is where the agents' journal is, on a disk that outlives them.
const journalPath = "/state/journal"

// recordName is how faults name the record.
const recordName = "record"

// watchedGroup is one cgroup as the witness knows it.
type watchedGroup struct {
	path  string
	inode uint64
	task  string      // path of the task that it is or is part of; "": of none
	class model.Class // of that task
	// rightful are the limits that may stand here once we are gone: as it was made, or as
	// a stranger left it; the newest is the last.
	rightful []model.CPUMax
	now      model.CPUMax
	// mixed: a stranger wrote in the midst of our writes. Then what stands may be partly
	// his and partly what was found.
	mixed bool
	// wild: a stranger wrote it while we held it, and no operator spoke since.
	wild bool
	// loose is for how many turns something of ours stands here that no claim asks for.
	loose int
	// The present stretch of trouble: faults and refusals that could hinder a release here.
	firstTrouble, lastTrouble int64
	writes                    []int64 // when we tried to write here, in the last minute
}

// ours reports whether what stands here is not rightful.
func (g *watchedGroup) ours() bool { return !g.isRightful(g.now) }

func (g *watchedGroup) isRightful(v model.CPUMax) bool {
	if !g.mixed {
		return slices.Contains(g.rightful, v)
	}
	any := func(same func(r model.CPUMax) bool) bool { return slices.ContainsFunc(g.rightful, same) }
	return any(func(r model.CPUMax) bool { return r.QuotaUsec == v.QuotaUsec }) &&
		any(func(r model.CPUMax) bool { return r.PeriodUsec == v.PeriodUsec }) &&
		any(func(r model.CPUMax) bool { return r.BurstUsec == v.BurstUsec })
}

// witness knows the truth about limits: it reads the kernel without faults, and is told of
// every write.
type witness struct {
	w     *world
	cg    cgroup.Driver // without faults
	mount string        // of the hierarchy with the limits
	list  []*watchedGroup

	strangers map[string]int // writes of theirs that changed something, by task

	appends []int64 // when we added to the journal, in the last minute
}

// group returns a group that lives, nil for none.
func (v *witness) group(path string) *watchedGroup {
	for _, g := range v.list {
		if g.path == path {
			return g
		}
	}
	return nil
}

// look takes in which groups there are.
func (v *witness) look() error {
	paths, err := v.cg.List()
	if err != nil {
		return err
	}
	kept := v.list[:0]
	for _, g := range v.list {
		if ino, err := v.cg.Inode(g.path); err == nil && ino == g.inode {
			kept = append(kept, g)
		}
	}
	clear(v.list[len(kept):])
	v.list = kept
	for _, p := range paths {
		if v.group(p) != nil {
			continue
		}
		now, err := v.cg.ReadCPUMax(p)
		if errors.Is(err, cgroup.ErrNoController) {
			continue
		}
		if err != nil {
			return err
		}
		ino, err := v.cg.Inode(p)
		if err != nil {
			return err
		}
		g := &watchedGroup{path: p, inode: ino, rightful: []model.CPUMax{model.CPUMax(now)}, now: model.CPUMax(now)}
		g.task, g.class = v.w.plan.taskOf(p)
		v.list = append(v.list, g)
	}
	return nil
}

// taskOf returns the task that a group is or is part of.
func (p *plan) taskOf(path string) (string, model.Class) {
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.class != model.System && (path == t.path || strings.HasPrefix(path, t.path+"/")) {
			return t.path, t.class
		}
	}
	return "", model.System
}

// groupOf returns the group of a kernel file, and the file's name.
func (v *witness) groupOf(file string) (group, name string) {
	rest, ok := strings.CutPrefix(file, v.mount)
	if !ok {
		return "", file
	}
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return "", file
	}
	return rest[:i], rest[i+1:]
}

// wrote is told of every write to a kernel file, ours or a stranger's.
func (v *witness) wrote(w *world, e *fault.Event) {
	path, name := v.groupOf(e.Path)
	g := v.group(path)
	if g == nil {
		if e.Who != strangerName && e.Took {
			w.fail("only known tasks", e.Who+" wrote "+e.Path+", which belongs to no group that is known")
		}
		return
	}
	before := g.now
	if now, err := v.cg.ReadCPUMax(path); err == nil {
		g.now = model.CPUMax(now)
	}
	if e.Who == strangerName {
		if e.Took {
			v.strange(g, before)
		}
		return
	}
	w.res.Writes++
	v.write(w, g, name, e, before)
}

// strangerName is who writes in package fault's events when it is not us.
const strangerName = "stranger"

// strange takes a stranger's write in. What he left may stand, and what stood before may
// not, unless nobody could have told his write from ours.
func (v *witness) strange(g *watchedGroup, before model.CPUMax) {
	if g.now == before {
		return // he wrote what was there
	}
	v.strangers[g.task]++
	wasOurs := !g.isRightful(before)
	switch {
	case v.w.turning:
		g.rightful = append(g.rightful, g.now)
		g.mixed = true
	case v.mistakable(g):
		g.rightful = append(g.rightful, g.now)
	default:
		g.rightful, g.mixed = []model.CPUMax{g.now}, false
		g.wild = g.wild || wasOurs && v.w.life != nil
	}
	// Whoever has been here often has written everything.
	if n := len(g.rightful); n > maxRightful {
		g.rightful = slices.Delete(g.rightful, 0, n-maxRightful)
	}
}

const maxRightful = 32

// mistakable reports whether the journal holds a limit of which the value that stands now
// may be ours: written and not yet looked at, or the very same.
func (v *witness) mistakable(g *watchedGroup) bool {
	c, _ := journal.ReadOn(v.w.disk, journalPath)
	for i := range c.Limits {
		if l := &c.Limits[i]; l.Path == g.path && l.Inode == g.inode && l.Found.Knob == model.CPUBandwidth {
			return l.Ours(model.Bandwidth(g.now))
		}
	}
	return false
}

// disturbed is told of everything that is not as it should be.
func (v *witness) disturbed(w *world, e *fault.Event) {
	if e.Op == fault.Append && strings.HasPrefix(e.Path, journalPath) {
		since := w.now() - minuteNsec
		if len(v.appends) > maxAppends {
			v.appends = slices.DeleteFunc(v.appends, func(at int64) bool { return at < since })
		}
		if v.appends = append(v.appends, w.now()); len(v.appends) > maxAppends+1 {
			w.fail(checkStorm, fmt.Sprintf("%d additions to the journal in a minute", len(v.appends)))
		}
	}
	if e.Who == strangerName || e.Fault == "" && e.Err == nil {
		return
	}
	at, _ := v.groupOf(e.Path)
	for _, g := range v.list {
		if g.task == "" || !strings.HasPrefix(e.Path, journalPath) && (at == "" || !within(at, g.task) && !within(g.task, at)) {
			continue
		}
		if w.now()-g.lastTrouble > 2*(g.lastTrouble-g.firstTrouble)+4*slackNsec {
			g.firstTrouble = w.now() // the stretch before is over
		}
		g.lastTrouble = w.now()
	}
}
