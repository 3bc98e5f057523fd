package linux

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	cpuset "github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// placer is the part of a cgroup driver that places need.
type placer interface {
	PlaceInode(path string) (uint64, error)
	PlacesBelow(path string) ([]string, error)
	ReadCPUs(path string) (string, error)
	ReadEffectiveCPUs(path string) (string, error)
	WriteCPUs(path, list string) error
	OpenCPUs(path string) (cgroup.CPUList, error)
}

// partitioner is a driver of groups that can own CPUs (v2).
type partitioner interface {
	ReadPartition(path string) (cgroup.Partition, error)
}

// place is the CPUs of a task: cpuset.cpus.
//
// On cgroup v2 it is the task's own list alone: the kernel keeps every list as it was
// written, and what a group below may use follows from those above.
//
// On v1 each list must lie within that of the group above, so the knob is the task's list
// together with those below: on the way down the groups below go first, on the way up last,
// and where old and new have nothing in common the task has both for a moment. A group
// below that had a list of its own keeps what of it is in the new one, and has all of the
// new one when that is nothing, or when its list was the task's. Runtimes copy the list of
// the group above into one that they make, so a group that comes while the task is held
// starts out with ours; it is met at the next write, or when the task is put back, and
// then has what it would have copied without us. (One that came with a list of its own and
// says the same before it was ever met cannot be told from it.)
//
// On v1 the kernel strikes a CPU that goes offline from every list, and does not give it
// back when it is online again. Such a list is still ours. On v2 a list that was empty,
// which is what the group above has, cannot be emptied again while the group has processes:
// then it becomes all CPUs that could ever be, which comes to the same.
//
// A list is never emptied otherwise: on v1 a cpuset without CPUs takes no process.
type place struct {
	cg   placer
	flat bool // v2
	cpus func() (machineCPUs, error)

	now   machineCPUs // of this batch
	known bool
	kept  keeper[cgroup.CPUList]
	gone  model.CPUSet            // CPUs that were offline at any look
	above map[string]model.CPUSet // CPUs of groups above tasks, of this batch
}

// machineCPUs are the CPUs of the machine.
type machineCPUs struct{ online, possible model.CPUSet }

// cpusOfMachine returns what reads them.
func cpusOfMachine(fs hostfs.FS) func() (machineCPUs, error) {
	var possible []int // which never change
	return func() (machineCPUs, error) {
		var m machineCPUs
		online, err := cputopology.ReadOnline(fs)
		if err != nil {
			return m, err
		}
		if possible == nil {
			if possible, err = cputopology.ReadPossible(fs); err != nil {
				return m, err
			}
		}
		m.online, m.possible = cpuset.Of(online...), cpuset.Of(possible...)
		return m, nil
	}
}

func (p *place) begin() {
	p.known = false
	clear(p.above)
}

// look reads the machine's CPUs once a batch.
func (p *place) look() error {
	if p.known {
		return nil
	}
	m, err := p.cpus()
	if err != nil {
		return err
	}
	p.now, p.known = m, true
	p.gone = p.gone.Or(m.possible.Without(m.online))
	return nil
}

func (p *place) keep(path string) { p.kept.keep(path, p.cg.OpenCPUs) }
func (p *place) drop(path string) { p.kept.drop(path) }

func (p *place) inode(path string) (uint64, error) {
	if _, inode, ok := readKept(&p.kept, path, cgroup.CPUList.Read); ok {
		return inode, nil
	}
	return p.cg.PlaceInode(path)
}

func (p *place) held(path string) (model.Setting, uint64, bool) {
	text, inode, ok := readKept(&p.kept, path, cgroup.CPUList.Read)
	cpus, err := model.ParseCPUSet(text)
	return model.Place(cpus), inode, ok && err == nil
}

func (p *place) groups() ([]string, error) {
	if p.flat {
		return nil, nil
	}
	return p.cg.PlacesBelow("/")
}

func (p *place) read(path string) (model.Setting, error) {
	cpus, err := readCPUs(path, func(path string) (string, error) {
		if text, _, ok := readKept(&p.kept, path, cgroup.CPUList.Read); ok {
			return text, nil
		}
		return p.cg.ReadCPUs(path)
	})
	return model.Place(cpus), err
}

func readCPUs(path string, read func(string) (string, error)) (model.CPUSet, error) {
	list, err := read(path)
	if err != nil {
		return model.CPUSet{}, err
	}
	cpus, err := model.ParseCPUSet(list)
	if err != nil {
		return model.CPUSet{}, fmt.Errorf("read the CPUs of cgroup %s: %w", path, err)
	}
	return cpus, nil
}

// errEmpty: a cpuset of v1 without CPUs takes no process.
var errEmpty = errors.New("a cpuset is never emptied")

func (p *place) write(path string, _, to model.Setting) error {
	if !to.CPUs.Empty() {
		return p.cg.WriteCPUs(path, to.CPUs.String())
	}
	if !p.flat {
		return fmt.Errorf("write the CPUs of cgroup %s: %w", path, errEmpty)
	}
	err := p.cg.WriteCPUs(path, "")
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	if err := p.look(); err != nil {
		return err
	}
	return p.cg.WriteCPUs(path, p.now.possible.String())
}

// parentOf returns the group above; "/" of those at the top.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// room returns the CPUs that a group's list is bounded by.
func (p *place) room(path string) (model.CPUSet, error) {
	up := parentOf(path)
	if cpus, ok := p.above[up]; ok {
		return cpus, nil
	}
	read := p.cg.ReadCPUs
	if p.flat {
		read = p.cg.ReadEffectiveCPUs
	}
	cpus, err := readCPUs(up, read)
	if err != nil {
		return cpus, err
	}
	if p.above == nil {
		p.above = map[string]model.CPUSet{}
	}
	p.above[up] = cpus
	return cpus, nil
}

// What a place cannot be.
var (
	errNoCPUsYet   = errors.New("its cpuset has no CPUs yet")
	errIsPartition = errors.New("its CPUs are a partition, which is its owner's")
)

// want leaves out what is offline or not the group's to have.
func (p *place) want(path string, c *model.Change, found model.Setting) (model.Setting, string, error) {
	none := model.Ask(model.CPUPlace)
	if err := p.look(); err != nil {
		return none, "", err
	}
	if !p.flat && found.CPUs.Empty() {
		return none, "", errNoCPUsYet
	}
	if d, ok := p.cg.(partitioner); ok {
		if part, err := d.ReadPartition(path); err == nil && part.Kind != cgroup.Member {
			return none, "", errIsPartition
		}
	}
	room, err := p.room(path)
	if err != nil {
		return none, "", err
	}
	wish := c.Value.CPUs
	cpus := wish.And(p.now.online).And(room)
	switch {
	case wish.Empty():
		return none, "", errEmpty
	case wish.And(p.now.online).Empty():
		return none, "", fmt.Errorf("CPUs %s are all offline", wish)
	case cpus.Empty():
		return none, "", fmt.Errorf("CPUs %s are none of CPUs %s of cgroup %s above it", wish, room, parentOf(path))
	case cpus != wish:
		return model.Place(cpus), fmt.Sprintf("without CPUs %s, which are offline or not of cgroup %s above it", wish.Without(cpus), parentOf(path)), nil
	}
	return model.Place(cpus), "", nil
}

// fits returns the list of a group below: of its own list what is in the one above, all of
// that when it had all, or has nothing of it.
func fits(own, foundAbove, above model.CPUSet) model.CPUSet {
	if foundAbove.Within(own) {
		return above
	}
	if both := own.And(above); !both.Empty() {
		return both
	}
	return above
}

// placed is one group of a task on the way from one list to another.
type placed struct{ found, now, want model.CPUSet }

func (p *place) below(own *journal.Limit, limits []journal.Limit) ([]journal.Limit, error) {
	if p.flat {
		return nil, nil
	}
	paths, err := cgroup.Listed(p.cg.PlacesBelow(own.Path))
	if err != nil {
		return nil, err
	}
	groups := map[string]placed{own.Path: {own.Found.CPUs, own.Before.CPUs, own.Intended.CPUs}}
	var plan []journal.Limit
	for _, path := range paths { // the group above comes before
		up, ok := groups[parentOf(path)]
		if !ok {
			continue // below one that is gone or has no CPUs
		}
		ino, err := p.cg.PlaceInode(path)
		cur := model.Setting{}
		if err == nil {
			cur, err = p.read(path)
		}
		switch {
		case errors.Is(err, cgroup.ErrVanished):
			continue
		case err != nil:
			return nil, err // whether its list is its own could not be told any more once it had ours
		case cur.CPUs.Empty():
			continue // half made: it takes no process, and is within everything
		}
		g := placed{found: cur.CPUs, now: cur.CPUs}
		l := limitAt(limits, path, ino)
		switch {
		case l != nil && !p.ours(l, cur):
			return nil, fmt.Errorf("%s: %w", path, errForeign)
		case l != nil:
			g.found = l.Found.CPUs
		case cur.CPUs == up.now:
			g.found = up.found // it came while we held the one above, and copied from it
		}
		g.want = fits(g.found, up.found, up.want)
		groups[path] = g
		// A list of its own is noted when it is first seen, also where nothing is to be written:
		// once both read alike, as when the kernel struck CPUs that went offline, it would be
		// taken for one that was copied from ours (met).
		if first := l == nil && g.found != up.found; first || g.want != g.now {
			plan = append(plan, journal.Limit{
				Task: own.Task, Path: path, Inode: ino, Found: model.Place(g.found), Before: cur, Intended: model.Place(g.want),
			})
		}
	}
	return plan, nil
}

// order lets lists grow from the top down, those with others below to old and new together
// where one below is still in the old, and shrink from the bottom up.
func (p *place) order(plan []journal.Limit) []step {
	byDepth := make([]int, len(plan))
	for i := range byDepth {
		byDepth[i] = i
	}
	slices.SortStableFunc(byDepth, func(a, b int) int { return cmp.Compare(depth(plan[a].Path), depth(plan[b].Path)) })
	steps := make([]step, 0, len(plan))
	done := make([]bool, len(plan))
	for _, i := range byDepth {
		l := &plan[i]
		if l.Intended.CPUs.Within(l.Before.CPUs) {
			continue
		}
		value := l.Intended
		if !p.flat && keepsBelow(plan, l) {
			value = model.Place(l.Before.CPUs.Or(l.Intended.CPUs))
		}
		done[i] = value == l.Intended
		steps = append(steps, step{i, value, done[i]})
	}
	for _, i := range slices.Backward(byDepth) {
		if !done[i] {
			steps = append(steps, step{i, plan[i].Intended, true})
		}
	}
	return steps
}

// keepsBelow says whether a group of the plan below another has CPUs that the other is to
// lose.
func keepsBelow(plan []journal.Limit, up *journal.Limit) bool {
	return slices.ContainsFunc(plan, func(l journal.Limit) bool {
		return below(up.Path, l.Path) && !l.Before.CPUs.Within(up.Intended.CPUs)
	})
}

// free says whether a list is what stands in for an empty one on v2.
func (p *place) free(now model.Setting) bool {
	return p.flat && p.look() == nil && now.CPUs == p.now.possible
}

// dropped says whether a list is another of which the kernel struck CPUs that went offline.
func (p *place) dropped(from, now model.CPUSet) bool {
	return !p.flat && p.look() == nil && now.Within(from) && from.Without(now).Within(p.gone)
}

func (p *place) ours(l *journal.Limit, now model.Setting) bool {
	if l.Ours(now) || l.ReadBack == nil && l.Intended.CPUs.Empty() && p.free(now) {
		return true
	}
	if !p.flat && now.CPUs.Empty() {
		return true // the kernel struck the last CPU: nobody wants a cpuset that takes no process
	}
	if l.ReadBack != nil {
		return p.dropped(l.ReadBack.CPUs, now.CPUs)
	}
	for _, of := range []model.CPUSet{l.Before.CPUs, l.Intended.CPUs, l.Before.CPUs.Or(l.Intended.CPUs)} {
		if p.dropped(of, now.CPUs) {
			return true
		}
	}
	return false
}

func (p *place) took(l *journal.Limit, now model.Setting) bool {
	return now == l.Intended || l.Intended.CPUs.Empty() && p.free(now) || p.dropped(l.Intended.CPUs, now.CPUs)
}

// others implements knob: a list is one write, and another one is all somebody else's.
func (p *place) others(_ *journal.Limit, now model.Setting) model.Setting { return now }

func (p *place) met(limits []journal.Limit) (more []journal.Limit, blind map[string]error) {
	if p.flat {
		return nil, nil
	}
	of := slices.Clone(limits)
	slices.SortStableFunc(of, func(a, b journal.Limit) int { return cmp.Compare(a.Path, b.Path) })
	seen := map[string]bool{}
	for i := range of {
		l := &of[i]
		if l.Path != l.Task || seen[l.Task] {
			continue
		}
		seen[l.Task] = true
		below, err := p.metBelow(l, limits)
		if more = append(more, below...); err == nil || errors.Is(err, cgroup.ErrVanished) {
			continue
		}
		if blind == nil {
			blind = map[string]error{}
		}
		blind[l.Task] = err
	}
	return more, blind
}

// metBelow lists the groups below a task that copied a list of ours: one that stands above them, or
// stood there before that was put back or a stranger wrote another.
func (p *place) metBelow(own *journal.Limit, limits []journal.Limit) ([]journal.Limit, error) {
	ino, err := p.cg.PlaceInode(own.Path)
	if err != nil || ino != own.Inode { // a new group has copied nothing of ours
		return nil, err
	}
	paths, failed := lookedAt(p.cg.PlacesBelow(own.Path))
	if len(paths) == 0 {
		return nil, failed
	}
	type list struct {
		found model.CPUSet
		ours  [2]model.Setting // what stands, and what stood before it
	}
	groups := map[string]list{}
	look := func(l *journal.Limit) error {
		stood := l.Before
		if l.ReadBack != nil {
			stood = *l.ReadBack
		}
		now, err := p.read(l.Path)
		if err != nil {
			return err // what copied it cannot be told
		}
		if now != l.Found && !p.ours(l, now) {
			now = stood // what stands is a stranger's
		}
		groups[l.Path] = list{l.Found.CPUs, [2]model.Setting{now, stood}}
		return nil
	}
	if err := look(own); err != nil {
		return nil, err
	}
	var more []journal.Limit
	for _, path := range paths {
		ino, err := p.cg.PlaceInode(path)
		if l := limitAt(limits, path, ino); err == nil && l != nil {
			if err := look(l); err != nil && !errors.Is(err, cgroup.ErrVanished) {
				failed = err
			}
			continue
		}
		cur := model.Ask(model.CPUPlace)
		if err == nil {
			cur, err = p.read(path)
		}
		if err != nil {
			if !errors.Is(err, cgroup.ErrVanished) {
				failed = err
			}
			continue
		}
		up, ok := groups[parentOf(path)]
		if !ok || !slices.Contains(up.ours[:], cur) || cur.CPUs == up.found {
			continue
		}
		groups[path] = up
		more = append(more, journal.Limit{Task: own.Task, Path: path, Inode: ino, Found: model.Place(up.found), Before: cur, Intended: cur})
	}
	return more, failed
}

// nearest leaves out, on v1, what the kernel would refuse a whole list for: CPUs that are
// offline or that the group above has not. A list of which nothing is left becomes the one
// above, which is where the kernel put its processes. And CPUs stay that were not found there, where
// a group below has them by another program's word.
func (p *place) nearest(plan []journal.Limit) []string {
	short := make([]string, len(plan))
	if p.flat || len(plan) == 0 || p.look() != nil {
		return short
	}
	slices.SortStableFunc(plan, func(a, b journal.Limit) int { return cmp.Compare(a.Path, b.Path) })
	to := map[string]model.CPUSet{}
	for i := range plan {
		l := &plan[i]
		room, ok := to[parentOf(l.Path)]
		if !ok {
			var err error
			if room, err = p.room(l.Path); err != nil {
				room = l.Found.CPUs // the write will say, and those below are to have what it has then
			}
		}
		room = room.And(p.now.online)
		cpus := l.Found.CPUs.And(room)
		if cpus.Empty() {
			cpus = room
		}
		if cpus.Empty() {
			cpus = l.Before.CPUs
		}
		if cpus != l.Found.CPUs {
			short[i] = fmt.Sprintf("CPUs %s of what was found are offline or not of the group above", l.Found.CPUs.Without(cpus))
		}
		if !l.Before.CPUs.Within(cpus) {
			if more := p.othersBelow(l.Path, plan).And(room).Without(cpus); !more.Empty() {
				short[i] = fmt.Sprintf("CPUs %s stay, which another program has given to groups in it", more)
				cpus = cpus.Or(more)
			}
		}
		l.Intended = model.Place(cpus)
		to[l.Path] = cpus
	}
	return short
}

// othersBelow returns the CPUs of groups below one that are not to be written themselves.
func (p *place) othersBelow(path string, plan []journal.Limit) (all model.CPUSet) {
	paths, _ := cgroup.Listed(p.cg.PlacesBelow(path)) // of what cannot be read the kernel will say no
	for _, b := range paths {
		if slices.ContainsFunc(plan, func(l journal.Limit) bool { return l.Path == b }) {
			continue
		}
		if now, err := p.read(b); err == nil {
			all = all.Or(now.CPUs)
		}
	}
	return all
}

func (p *place) asFound(l *journal.Limit, now model.Setting) bool {
	return now == l.Found || l.Found.CPUs.Empty() && p.free(now) || p.dropped(l.Found.CPUs, now.CPUs)
}

// onTheWayBack implements knob. On v1 what was found may not fit into the group above any more, and a list is widened by what does of it
// while groups below still have ours.
func (p *place) onTheWayBack(l *journal.Limit, now model.Setting) bool {
	if p.flat || l.OnTheWayBack(now) || p.look() != nil {
		return l.OnTheWayBack(now)
	}
	room, err := p.room(l.Path)
	if err != nil {
		return false
	}
	fits := l.Found.CPUs.And(room)
	return now.CPUs == fits || slices.ContainsFunc(l.Left(), func(left model.Setting) bool { return p.dropped(left.CPUs.Or(fits), now.CPUs) })
}
