package linux

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// knob is what one kind of knob is made of (bandwidth.go, place.go, weight.go). What is common to all
// is the ledger's side: what is held, what is put back, the journal before each write.
//
// A knob of a task is its own setting together with those of the groups below it that must
// change with it; each of these is a journal.Limit.
type knob interface {
	// begin forgets what was read of the machine around the tasks: a batch begins.
	begin()
	// keep may hold files of a task open from one change to the next, until drop.
	keep(path string)
	drop(path string)
	// inode tells a cgroup from one that is made anew at its path, in the hierarchy that
	// has the knob.
	inode(path string) (uint64, error)
	// groups lists all groups that have the knob, where they can be renamed.
	groups() ([]string, error)
	read(path string) (model.Setting, error)
	// held is read and inode in one reading of a file that keep opened; not when there is none.
	held(path string) (now model.Setting, inode uint64, ok bool)
	// write brings a setting from what it was a moment ago to another.
	write(path string, from, to model.Setting) error
	// want is what a change comes to where found stood without us. The note says what it is
	// short of; an error, that it cannot be.
	want(path string, c *model.Change, found model.Setting) (want model.Setting, note string, err error)
	// below lists what must change with a task's own limit; limits are those of this knob
	// that the journal has.
	below(own *journal.Limit, limits []journal.Limit) ([]journal.Limit, error)
	// order says in which order the kernel takes a plan.
	order(plan []journal.Limit) []step
	// ours says whether a setting can be what we left, finished or not.
	ours(l *journal.Limit, now model.Setting) bool
	// took says whether the kernel reads back what was intended.
	took(l *journal.Limit, now model.Setting) bool
	// others is what would stand had we never been here, where another program wrote some of the
	// files of a setting that is ours: what it wrote stands, and the rest is as it was found.
	others(l *journal.Limit, now model.Setting) model.Setting
	// met lists groups below that came while limits were in force and took them over, and says
	// of which tasks that could not be told.
	met(limits []journal.Limit) (more []journal.Limit, blind map[string]error)
	// nearest sets what can be written to put limits back, Found wherever it can be, and
	// returns for each what it is short of, "" for nothing.
	nearest(plan []journal.Limit) []string
	// asFound says whether a setting that is not ours is as good as what was found.
	asFound(l *journal.Limit, now model.Setting) bool
	// onTheWayBack says whether a setting can be what a crash left in the midst of putting back, of which the journal's disk took no note.
	onTheWayBack(l *journal.Limit, now model.Setting) bool
}

// step is one write of a plan.
type step struct {
	limit int // in the plan
	value model.Setting
	last  bool // value is what was intended
}

// Knobs writes the knobs of tasks with the journal before each write.
type Knobs struct {
	cg    identifier
	clock Clock
	j     *journal.Journal
	kinds [model.NumKnobs]knob

	// held has the knobs whose hold the caller was told of and has not ended.
	held map[heldKey]*holding
	// refused has the knobs whose hold was refused after it had taken effect in part. True: since
	// then somebody else wrote there, which is told to who next asks something of them. So it is
	// of a release that was refused in part, when what the task itself had was found to be a stranger's.
	refused map[heldKey]bool
	paths   [model.NumKnobs]paths // of this batch

	leftovers map[heldKey]leftover
	displaced map[heldKey]bool // limits of another group that was at a task's path are not put back
	looked    int64            // when the journal was last gone through for leftovers
	tended    int64            // when the journal was last looked after
	next      int              // where the next comparison begins
}

// identifier tells a task's cgroup from one that is made anew at its path.
type identifier interface {
	Inode(path string) (uint64, error)
}

// paths are those of all groups by inode number, or why they could not be told: then that is so for all of
// a batch, since a group that was followed while those above it were not would be put back within what they hold.
type paths struct {
	of  map[uint64]string
	err error
}

type heldKey struct {
	task string
	knob model.KnobKind
}

// holding is one knob that is held.
type holding struct {
	told      model.Setting // what the caller was told
	now       model.Setting // what stands there as far as we know: told, or what the kernel made of it
	journaled bool          // something was written
}

func newKnobs(cg cgroup.Driver, fs hostfs.FS, clock Clock, j *journal.Journal) *Knobs {
	flat := cg.Layout() == cgroup.LayoutV2
	return &Knobs{cg: cg, clock: clock, j: j, held: map[heldKey]*holding{}, refused: map[heldKey]bool{}, displaced: map[heldKey]bool{}, kinds: [model.NumKnobs]knob{
		model.CPUBandwidth: &bandwidth{cg: cg, flat: flat},
		model.CPUPlace:     &place{cg: cg, flat: flat, cpus: cpusOfMachine(fs)},
		model.CPUWeight:    &weight{cg: cg, flat: flat},
		model.GroupFreeze:  &freezing{cg: cg, flat: flat},
		model.IOMaxKnob:    newIOMax(cg, fs),
		model.MemoryHigh:   newMemoryHigh(cg, fs),
	}}
}

// errStale: something else stands there than the change assumes.
var errStale = errors.New("another value stands there than was assumed")

// errForeign: the value in the kernel is neither what we found nor what we wrote.
var errForeign = errors.New("another program wrote this limit")

func (k *Knobs) isHeld(task string, kind model.KnobKind) bool {
	return k.held[heldKey{task, kind}] != nil
}

// identify returns the inode of a task's own limit, after a look whether the task is still
// the one that is meant.
func (k *Knobs) identify(t *model.Task, kind model.KnobKind) (uint64, error) {
	inode, err := sameGroup(k.cg, t)
	if err != nil || kind != model.CPUPlace && kind != model.GroupFreeze && kind != model.IOMaxKnob { // these have hierarchies of their own on v1
		return inode, err
	}
	return k.kinds[kind].inode(t.Path)
}

// sameGroup returns the inode of a task's cgroup; an error where another one has its path by now.
func sameGroup(cg identifier, t *model.Task) (uint64, error) {
	inode, err := cg.Inode(t.Path)
	if err == nil && inode != t.Inode {
		err = fmt.Errorf("%s was made anew: %w", t.Path, cgroup.ErrVanished)
	}
	return inode, err
}

// lives reports whether a task may still be there: a knob's file or directory may go without it.
func (k *Knobs) lives(t *model.Task) bool {
	_, err := sameGroup(k.cg, t)
	return !errors.Is(err, cgroup.ErrVanished)
}

// read reads a setting of the very cgroup that is meant, not of a new one at its path.
func (k *Knobs) read(kind model.KnobKind, path string, inode uint64) (model.Setting, error) {
	d := k.kinds[kind]
	if v, ino, ok := d.held(path); ok && ino == inode {
		return v, nil
	}
	ino, err := d.inode(path)
	if err == nil && ino != inode {
		err = fmt.Errorf("%s was made anew: %w", path, cgroup.ErrVanished)
	}
	if err != nil {
		return model.Ask(kind), err
	}
	return d.read(path)
}

// follow finds the group of a limit, which has another path than the journal knows, under the
// one that it has now: cgroups of v1 can be renamed. Where not all groups could be looked at, the
// group cannot be said to be gone.
func (k *Knobs) follow(kind model.KnobKind, l *journal.Limit) (err error) {
	p := &k.paths[kind]
	if p.of == nil && p.err == nil {
		p.of, p.err = inodes(k.kinds[kind])
	}
	if p.err != nil {
		return p.err
	}
	path := p.of[l.Inode]
	if path == "" || path == l.Path {
		return nil
	}
	was := l.Key()
	// Under its new name the group is another task, which is to know what was found in it.
	if top, ok := strings.CutSuffix(path, strings.TrimPrefix(l.Path, l.Task)); ok {
		l.Task = top
	}
	l.Path = path
	k.j.Move(was, *l)
	return nil
}

// inodes returns the paths of all groups by inode number. On v1 a group may lack its directory in the knob's own hierarchy; none
// has one where that is not mounted, which says nothing of them.
func inodes(d knob) (map[uint64]string, error) {
	list, err := lookedAt(d.groups())
	if err != nil {
		return nil, err
	}
	paths := make(map[uint64]string, len(list))
	var without error
	for _, path := range list {
		inode, err := d.inode(path)
		switch {
		case err == nil:
			paths[inode] = path
		case hasNoLimit(err):
			without = err
		case !errors.Is(err, cgroup.ErrVanished):
			return nil, err
		}
	}
	if len(paths) == 0 && without != nil {
		return nil, without
	}
	return paths, nil
}

// lookedAt passes over that a list lacks what is beyond what is ever looked at: it would say so for
// good.
func lookedAt(groups []string, err error) ([]string, error) {
	if errors.Is(err, cgroup.ErrTooManyGroups) {
		return cgroup.Listed(groups, err)
	}
	return groups, err
}

// errElsewhere: what was found in a group is not known to be this task's.
var errElsewhere = errors.New("what we left here under another name is not yet put back")

// limits returns what the journal holds of a task's knob. What it could not yet forget of
// a cgroup that had the task's path before, or of this one when it was another task's, is put
// back first, and is none of it.
func (k *Knobs) limits(t *model.Task, kind model.KnobKind, inode uint64) ([]journal.Limit, error) {
	elsewhere := func() *journal.Limit {
		if at := k.j.At(inode, kind); at != nil && at.Task != t.Path {
			return at
		}
		return nil
	}
	if at := elsewhere(); at != nil {
		k.restore(k.j.Of(at.Task, kind)) // which follows it to the path that it has now
	}
	stale := func(l journal.Limit) bool { return l.Path == t.Path && l.Inode != inode }
	if all := k.j.Of(t.Path, kind); slices.ContainsFunc(all, stale) {
		k.restore(slices.DeleteFunc(all, func(l journal.Limit) bool { // with those below it, which are not this one's
			at, err := k.kinds[kind].inode(l.Path)
			return err == nil && at == l.Inode
		}))
		if slices.ContainsFunc(k.j.Of(t.Path, kind), stale) {
			k.displaced[heldKey{t.Path, kind}] = true
		}
	}
	if at := elsewhere(); at != nil {
		return nil, fmt.Errorf("%s, found as %s: %w", t.Path, at.Path, errElsewhere)
	}
	return slices.DeleteFunc(k.j.Of(t.Path, kind), stale), nil
}

// leftElsewhere finds, of groups that are about to be written for the first time, one of which the journal has what
// was found under another name: of a task that was renamed only what lies below it may be left.
func (k *Knobs) leftElsewhere(plan []journal.Limit) *journal.Limit {
	left := k.j.Unheld(k.holds)
	for i := range left {
		was := &left[i]
		if slices.ContainsFunc(plan, func(l journal.Limit) bool {
			return l.Inode == was.Inode && l.Found.Knob == was.Found.Knob && l.Path != was.Path
		}) {
			return was
		}
	}
	return nil
}

// limitAt finds the limit of the very cgroup that is meant: what the journal could not
// yet forget of one that is gone is not that of a new one at its path.
func limitAt(limits []journal.Limit, path string, inode uint64) *journal.Limit {
	for i := range limits {
		if limits[i].Path == path && limits[i].Inode == inode {
			return &limits[i]
		}
	}
	return nil
}

// disown forgets a task's knob where a stranger wrote it: his setting is left as it is,
// and what we changed below it is put back where it is still ours.
func (k *Knobs) disown(task string, kind model.KnobKind) {
	k.letGo(task, kind)
	k.restore(k.j.Of(task, kind))
}

// EachHeld names each knob of a task's cgroup that is held, in no order.
func (h *Host) EachHeld(is func(task string, kind model.KnobKind)) {
	if h.knobs != nil {
		for key := range h.knobs.held {
			is(key.task, key.knob)
		}
	}
}

// letGo ends a hold that the caller was told of.
func (k *Knobs) letGo(task string, kind model.KnobKind) {
	delete(k.held, heldKey{task, kind})
	delete(k.refused, heldKey{task, kind})
	k.kinds[kind].drop(task)
}

// close lets go of open files and leaves what is held as it is.
func (k *Knobs) close() {
	for key := range k.held {
		k.kinds[key.knob].drop(key.task)
	}
}

// maxCompared bounds how many knobs one comparison reads: with a cpuset policy every task
// of a node is held, and a look at each of them every second would cost as much as all
// that is measured. 16 a second find a stranger on a node of 150 tasks within 20 s.
const maxCompared = 16

// compare appends what held knobs say now: all of a few, of many as many as maxCompared, in
// turns. tasks are in order.
func (k *Knobs) compare(tasks []*watched, dst []model.KnobReading) []model.KnobReading {
	k.begin() // CPUs may have gone offline since the last batch
	n, of := 0, [model.NumKnobs]bool{}
	for key, h := range k.held {
		if h.journaled {
			n++
			of[key.knob] = true
		}
	}
	if p, ok := k.kinds[model.CPUPlace].(*place); ok && n > 0 {
		_ = p.look() // what the kernel (v1) struck from a list below a task can only be told by who saw which CPUs were offline
	}
	from, room := 0, n
	if n > maxCompared {
		from, room = k.next%n, maxCompared
		k.next = from + room
	}
	for turn := 0; turn < 2 && room > 0; turn++ { // the turn may pass the end
		at := 0
		for _, w := range tasks {
			for kind := range model.OfCgroups {
				if !of[kind] {
					continue // a look for each task costs as much as a few reads
				}
				h := k.held[heldKey{w.task.Path, kind}]
				if h == nil || !h.journaled {
					continue
				}
				at++
				if room > 0 && at > from {
					room--
					dst = append(dst, k.compareOne(&w.task, kind, h))
				}
			}
		}
		from = 0
	}
	return dst
}

// compareOne reads one held knob.
func (k *Knobs) compareOne(t *model.Task, kind model.KnobKind, h *holding) model.KnobReading {
	r := model.KnobReading{Target: model.OfTask(t.Num), Outcome: model.OK, Value: model.Ask(kind)}
	l := k.j.Limit(t.Path, kind)
	if l == nil {
		r.Outcome = model.Unavailable
		return r
	}
	v, err := k.read(kind, t.Path, l.Inode)
	r.Value = v
	switch {
	case (hasNoLimit(err) || errors.Is(err, cgroup.ErrVanished)) && k.lives(t):
		r.Outcome = model.Absent // of a task that is gone a snapshot tells
	case err != nil:
		r.Outcome = model.Unavailable
	case v == h.now:
		r.Value = h.told
	case l.Ours(v):
		// A change of ours that was refused half way: nobody else wrote this.
		r.Outcome = model.Unavailable
	case k.kinds[kind].ours(l, v):
		// The kernel's own doing. Whoever comes after us is to know it for ours, too.
		k.j.Wrote(l.Path, l.Inode, v)
		h.now = v
		r.Value = h.told
	}
	return r
}

// putBackAll puts back everything that is still ours.
func (k *Knobs) putBackAll() []node.Restoration { return k.restore(k.j.Outstanding()) }
