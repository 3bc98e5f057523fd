package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// What the worker of classes of service says to resctrl.

func openResctrl(fsys hostfs.FS, clock resctrl.Clock) (*resctrl.Driver, error) {
	at, err := resctrl.Discover(fsys)
	if err != nil {
		return nil, err
	}
	o := resctrl.DefaultOptions()
	o.Clock = clock
	return resctrl.Open(fsys, at, o)
}

// noResctrl reports whether an error means that there is no resctrl, or not the one that there was: with it all
// its groups are gone.
func noResctrl(err error) bool {
	return errors.Is(err, resctrl.ErrUnsupported) || errors.Is(err, resctrl.ErrNotMounted) || errors.Is(err, resctrl.ErrRemounted)
}

// driver opens the drivers, once for each mount, and finds out what the machine has by it.
func (w *classWorker) driver() (*resctrl.Driver, error) {
	if w.drv != nil {
		return w.drv, nil
	}
	drv, err := openResctrl(w.fs, w.clock)
	if err != nil {
		return nil, err
	}
	info, err := drv.Info()
	if err != nil {
		return nil, err
	}
	cg, err := cgroup.Open(w.fs, w.mounts)
	if err != nil {
		return nil, err
	}
	w.drv, w.info, w.cg, w.point = drv, info, cg, drv.Mounted().Point
	if w.told != nil {
		if err := w.tell(drv); err != nil {
			w.drv = nil
			return nil, err
		}
	}
	return drv, nil
}

// have says what the machine has; an empty answer: nothing.
func (w *classWorker) have() *model.Classes {
	w.told = &model.Classes{}
	_, _ = w.driver() // which tells
	w.news = false
	told := *w.told
	return &told
}

// tell finds out what the machine has as resctrl is mounted now.
func (w *classWorker) tell(d *resctrl.Driver) error {
	have := &model.Classes{}
	online, _ := cputopology.ReadOnline(w.fs) // where it cannot be read nothing tells that there are others
	root, err := d.ReadSchemata(resctrl.Name{})
	if err != nil {
		return err
	}
	domains := func(r resctrl.Resource) (list []int32) {
		for _, d := range root.Domains(r) {
			list = append(list, int32(d))
		}
		return list
	}
	if caches := w.caches(model.CacheWays); len(caches) > 0 {
		c := caches[0]
		have.Caches, have.Ways, have.Least = domains(c.Resource), c.FullMask.Ways(), max(c.MinBits, 1)
	}
	if caches := w.caches(model.L2Ways); len(caches) > 0 {
		have.L2Ways, have.L2Least = caches[0].FullMask.Ways(), max(caches[0].MinBits, 1)
	}
	if b := w.info.Bandwidth(resctrl.MB); b != nil {
		have.Memory = domains(b.Resource)
		offerLevels(have, b, root)
	}
	have.Domains = w.domains(have)
	w.told, w.news, w.online = have, true, online
	return w.countIDs(d)
}

// recount counts how many classes there can be, and how many of them others hold: programs come and go. So does resctrl, which may be
// mounted, unmounted, and mounted with other options: other lines for code and data (cdp), levels in another unit (mba_MBps).
func (w *classWorker) recount() {
	if w.told == nil {
		return // nobody asked
	}
	d, err := w.driver()
	if err == nil {
		if err = w.again(d); noResctrl(err) {
			w.forgetGone(err)
			w.drv = nil
			_, err = w.driver()
		}
	}
	if noResctrl(err) && len(w.told.Caches)+len(w.told.Memory)+w.told.L2Ways > 0 {
		w.told, w.news = &model.Classes{}, true
	}
}

// again finds out what may have changed: with CPUs domains come and go, and else only classes do.
func (w *classWorker) again(d *resctrl.Driver) error {
	if online, err := cputopology.ReadOnline(w.fs); err == nil && !slices.Equal(online, w.online) {
		return w.tell(d)
	}
	return w.countIDs(d)
}

// countIDs counts classes of service.
func (w *classWorker) countIDs(d *resctrl.Driver) error {
	b, err := d.Budget()
	if err != nil || !b.CLOSIDs.Known {
		return err
	}
	next := *w.told
	next.IDs = b.CLOSIDs.Total
	next.Taken = max(0, next.IDs-b.CLOSIDs.Free()-len(w.groups))
	next.Taken += max(0, b.CLOSIDs.Free()-resctrl.DefaultReserveCLOSIDs-b.Bound.CtrlGroups) // numbers of monitoring are the scarcer
	if next.IDs != w.told.IDs || next.Taken != w.told.Taken {
		w.told, w.news = &next, true
	}
	return nil
}

// offerLevels says which levels of memory bandwidth there are. Where the kernel does not say which is no limit (AMD,
// and mounted with mba_MBps), it is what the root group has, which nobody limits.
func offerLevels(have *model.Classes, b *resctrl.Bandwidth, root resctrl.Schemata) {
	have.LeastLevel, have.MostLevel = int(max(b.Min, 1)), int(b.Max)
	have.LevelStep, have.LevelUnit = int(max(b.Gran, 1)), string(b.Unit)
	if b.Unit == resctrl.MiBps {
		have.LeastLevel, have.LevelStep = 1, 1
	}
	if b.Max == 0 {
		have.MostLevel = most(root, b.Resource)
	}
}

// most is the greatest value of a resource over all domains.
func most(s resctrl.Schemata, r resctrl.Resource) int {
	n := uint64(0)
	for _, d := range s.Domains(r) {
		v, _ := s.Get(r, d)
		n = max(n, v)
	}
	return int(min(n, math.MaxInt64))
}

// domains says which CPUs are in which domain: resctrl goes by the last-level caches' numbers.
func (w *classWorker) domains(have *model.Classes) (list []model.Domain) {
	at, err := cputopology.Read(w.fs)
	if err != nil {
		return nil
	}
	of := map[int32]model.CPUSet{}
	for i := range at.CPUs {
		if c := &at.CPUs[i]; c.LLC.Level == 3 && c.LLC.ID != cputopology.Unknown {
			set := of[int32(c.LLC.ID)]
			set.Add(c.ID)
			of[int32(c.LLC.ID)] = set
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if slices.Contains(have.Caches, id) || slices.Contains(have.Memory, id) {
			list = append(list, model.Domain{ID: id, CPUs: of[id]})
		}
	}
	return list
}

// linesOf are the lines of schemata that a knob may be in: one, or one for code and one for data, by which its amount goes.
func linesOf(kind model.KnobKind) []resctrl.Resource {
	switch kind {
	case model.CacheWays:
		return []resctrl.Resource{resctrl.L3, resctrl.L3Data, resctrl.L3Code}
	case model.L2Ways:
		return []resctrl.Resource{resctrl.L2, resctrl.L2Data, resctrl.L2Code}
	}
	return []resctrl.Resource{resctrl.MB}
}

// caches are the lines of a knob's caches that there are.
func (w *classWorker) caches(kind model.KnobKind) []*resctrl.Cache {
	var list []*resctrl.Cache
	for _, r := range linesOf(kind) {
		if c := w.info.Cache(r); c != nil {
			list = append(list, c)
		}
	}
	return list
}

// limit writes what a group gets.
func (w *classWorker) limit(g *classGroup, op *classOp) (want resctrl.Schemata, change resctrl.Change, err error) {
	d, err := w.driver()
	if now := w.told; err == nil && now != nil && op.change.Value.Knob == model.MemoryBandwidth && op.unit != now.LevelUnit {
		err = fmt.Errorf("resctrl was mounted anew: levels of memory bandwidth count in %q, not %q", now.LevelUnit, op.unit)
	}
	if err == nil {
		want, err = w.value(d, g, op)
	}
	if err == nil {
		change, err = d.WriteSchemata(g.id, want)
	}
	if err == nil && len(change.Missing) > 0 {
		err = fmt.Errorf("%v: not there", change.Missing)
	}
	return want, change, err
}

// clear removes what somebody before us left under a class's name.
func (w *classWorker) clear(class model.TaskNum, d *resctrl.Driver) error {
	l := classLimit(class, w.own)
	_, err := removeGroup(w.fs, d, nameOf(&l))
	if noResctrl(err) && isGone(w.fs, d.Mounted().Point, resctrl.Identity{Name: nameOf(&l)}) {
		w.drv, err = nil, nil
	}
	if err == nil {
		delete(w.left, class)
	}
	return err
}

// group returns a class's group, which it makes if there is none.
func (w *classWorker) group(class model.TaskNum) (*classGroup, error) {
	if g := w.groups[class]; g != nil {
		return g, nil
	}
	d, err := w.driver()
	if err != nil {
		return nil, err
	}
	if err = w.clear(class, d); err != nil {
		return nil, err
	}
	made, err := d.CreateGroup(groupOf(class, w.own), 0)
	if err != nil {
		w.lost(class, err)
		return nil, err
	}
	g := &classGroup{id: made.Identity, found: made.Schemata, tasks: map[string]model.Task{}, limit: map[classKnob]resctrl.Schemata{}, away: map[classKnob]bool{}}
	if w.groups[class] = g; w.born == nil {
		_, _ = w.anew() // so that the first look knows which CPUs were there; or at that look
	}
	return g, nil
}

// move moves all threads of a task.
func (w *classWorker) move(to resctrl.Identity, t *model.Task) (resctrl.Moved, error) {
	d, err := w.driver()
	if err != nil {
		return resctrl.Moved{}, err
	}
	group, err := openTask(w.cg.OpenAlone, t)
	if err != nil {
		return resctrl.Moved{}, err
	}
	defer group.Close() //nolint:errcheck // reading is over
	return d.MoveProcesses(to, group.Procs)
}

// value is what a change writes.
func (w *classWorker) value(d *resctrl.Driver, g *classGroup, op *classOp) (want resctrl.Schemata, err error) {
	n, kind, domain := op.change.Value.Amount, op.change.Value.Knob, int(op.change.Domain)
	if kind == model.MemoryBandwidth {
		want.Set(resctrl.MB, domain, uint64(max(n, 0)))
		return want, nil
	}
	if op.change.Domain == model.EveryDomain {
		now, err := d.ReadSchemata(g.id.Name)
		if err != nil {
			return nil, err
		}
		return w.rows(d, kind, int(n), func(r resctrl.Resource) []int { return now.Domains(r) })
	}
	if model.OfServices(op.change.Num) {
		return w.services(d, op)
	}
	return w.rows(d, kind, int(n), func(resctrl.Resource) []int { return []int{domain} })
}

// rows are n ways from the low side of each of some domains. An error where there are no such caches.
func (w *classWorker) rows(d *resctrl.Driver, kind model.KnobKind, n int, domains func(resctrl.Resource) []int) (want resctrl.Schemata, err error) {
	groups, err := d.Groups(resctrl.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range w.caches(kind) {
		taken := takenOf(groups, c)
		for _, domain := range domains(c.Resource) {
			mask, err := rowOf(c, n, taken[domain])
			if err != nil {
				return nil, err
			}
			want.Set(c.Resource, domain, uint64(mask))
		}
	}
	if len(want) == 0 {
		return nil, fmt.Errorf("%s: %w", kind, resctrl.ErrUnsupported)
	}
	return want, nil
}

// takenOf is what others hold of a cache for themselves, by domain.
func takenOf(groups []resctrl.Group, c *resctrl.Cache) map[int]resctrl.Mask {
	return resctrl.TakenBits(groups, c.Resource, func(g resctrl.Group) bool { return g.Ours })
}

// rowOf is a row of n ways from the low side, where the I/O of devices does not go, and none that somebody holds for himself. Who is given so
// many that there are not as many beside those of devices (the two highest of 11 on Intel) has some of them, too: without us it had them all.
// But a class is not pressed onto ways that are mostly theirs: it would fill those more than without us.
func rowOf(c *resctrl.Cache, n int, taken resctrl.Mask) (resctrl.Mask, error) {
	row, err := c.ContiguousMask(n, c.ShareableBits|taken, resctrl.LowWays)
	if errors.Is(err, resctrl.ErrNoRoom) {
		if wider, none := c.ContiguousMask(n, taken, resctrl.LowWays); none == nil && 2*(wider&c.ShareableBits).Ways() < n {
			return wider, nil
		}
	}
	return row, err
}

// amount is what schemata say of a knob, in its unit: of every domain, the least.
func amount(s resctrl.Schemata, k classKnob) (least int64) {
	for _, r := range linesOf(k.kind) {
		for _, line := range s {
			for i := range line.Domains {
				v := &line.Domains[i]
				if line.Resource != r || k.domain != model.EveryDomain && v.Domain != int(k.domain) {
					continue
				}
				n := int64(v.Value)
				if r.IsCache() {
					n = int64(resctrl.Mask(v.Value).Ways())
				}
				if least == 0 || n < least {
					least = n
				}
			}
		}
		if least > 0 {
			return least
		}
	}
	return 0
}

// lost forgets a class's group where an error says that it is gone, or resctrl with it, and it is.
func (w *classWorker) lost(class model.TaskNum, err error) (gone bool) {
	if noResctrl(err) {
		w.drv = nil // as it is now, another time
	} else if !errors.Is(err, resctrl.ErrVanished) {
		return false
	}
	g := w.groups[class]
	if g != nil && !isGone(w.fs, w.point, g.id) {
		return false
	}
	if g != nil && !g.unused() {
		w.gone = append(w.gone, goneGroup{class, g})
	}
	delete(w.groups, class)
	return true
}

// isGone asks for a group itself: a file that could not be read whole says as much of resctrl as that it is not
// mounted.
func isGone(fsys hostfs.FS, point string, id resctrl.Identity) bool {
	inode, err := fsys.Inode(point + "/" + id.Name.Ctrl)
	return errors.Is(err, fs.ErrNotExist) || err == nil && id.Inode != 0 && inode != id.Inode
}

// remove removes a class's group with all that is in it.
func (w *classWorker) remove(class model.TaskNum) error {
	var did resctrl.Removal
	d, err := w.driver()
	if err == nil {
		w.homewards(w.groups[class].id.Name)
		did, err = d.Remove(w.groups[class].id, true)
	}
	// Once the group is gone, what failed afterwards was a look at threads that may have slipped through.
	if err == nil || did.Outcome == resctrl.Removed || w.lost(class, err) {
		delete(w.groups, class)
		return nil
	}
	return err
}

// moveBack moves all threads of a task to the root group.
func (w *classWorker) moveBack(t *model.Task) error {
	d, err := w.driver()
	if err != nil {
		return err
	}
	root, err := d.Root()
	if err == nil {
		w.along(t.Path, root.Name)
		_, err = w.move(root, t)
	}
	return err
}
