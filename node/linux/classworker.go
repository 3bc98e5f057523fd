package linux

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

// classWorker does what classes of service ask of resctrl, beside the loop. Its descriptors are its own.
type classWorker struct {
	fs     hostfs.FS
	mounts *cgroup.Mounts
	clock  resctrl.Clock // nil: the driver's own
	own    string

	cg     cgroup.Driver
	drv    *resctrl.Driver // nil: not open (any more)
	point  string          // where resctrl was mounted when it was
	info   *resctrl.Info
	groups map[model.TaskNum]*classGroup
	left   map[model.TaskNum]bool // of an earlier agent, not yet removed
}

// classGroup is one class's control group.
type classGroup struct {
	id    resctrl.Identity
	found resctrl.Schemata               // as the kernel made it
	tasks map[string]model.Task          // in it, by path
	limit map[classKnob]resctrl.Schemata // what was written
}

// classKnob is one value of a class.
type classKnob struct {
	kind   model.KnobKind
	domain int32
}

func (g *classGroup) unused() bool { return len(g.tasks) == 0 && len(g.limit) == 0 }

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

// driver opens the drivers, once for each mount.
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
	return drv, nil
}

// have says what the machine has; an empty answer: nothing.
func (w *classWorker) have() *model.Classes {
	have := &model.Classes{}
	d, err := w.driver()
	if err != nil {
		return have
	}
	root, err := d.ReadSchemata(resctrl.Name{})
	if err != nil {
		return have
	}
	domains := func(r resctrl.Resource) (list []int32) {
		for _, d := range root.Domains(r) {
			list = append(list, int32(d))
		}
		return list
	}
	if caches := w.caches(); len(caches) > 0 {
		c := caches[0]
		have.Caches, have.Ways, have.Least = domains(c.Resource), c.FullMask.Ways(), max(c.MinBits, 1)
	}
	if b := w.info.Bandwidth(resctrl.MB); b != nil && b.Max > 0 {
		have.Memory, have.LeastLevel, have.MostLevel = domains(b.Resource), int(b.Min), int(b.Max)
	}
	return have
}

// caches are the lines of the last-level cache: one, or one for code and one for data.
func (w *classWorker) caches() []*resctrl.Cache {
	var list []*resctrl.Cache
	for i := range w.info.Caches {
		if c := &w.info.Caches[i]; c.Resource == resctrl.L3 || c.Resource == resctrl.L3Code || c.Resource == resctrl.L3Data {
			list = append(list, c)
		}
	}
	return list
}

// do carries a batch out: what is taken back first marks what it leaves, and at the end a group that nobody needs is
// removed, which gives all of it back at once.
func (w *classWorker) do(batch []classOp) (done []model.Result, readings []model.KnobReading) {
	leaving := map[model.TaskNum]*leaving{}
	for i := range batch {
		op := &batch[i]
		class := op.class()
		g := w.groups[class]
		switch {
		case op.tend:
			readings = w.tend(readings)
		case op.gone:
			for class, g := range w.groups {
				delete(g.tasks, op.task.Path)
				leaving[class] = cmp.Or(leaving[class], newLeaving())
			}
		case op.takes():
			if l := leaving[class]; l != nil { // first what was taken back before, in its order
				done = append(done, w.leave(class, l)...)
				delete(leaving, class)
			}
			done = append(done, w.set(class, op))
		default:
			l := cmp.Or(leaving[class], newLeaving())
			leaving[class] = l
			l.add(g, op)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(leaving)) {
		done = append(done, w.leave(class, leaving[class])...)
	}
	return done, readings
}

// class is the class that an operation is about.
func (op *classOp) class() model.TaskNum {
	if op.change.Value.Knob == model.ServiceClass {
		return model.ClassBE
	}
	return op.change.Num
}

// takes reports whether it may make a group.
func (op *classOp) takes() bool {
	return !op.gone && !op.tend && (op.change.Kind == model.Set || op.change.Kind == model.Hold)
}

func (op *classOp) knob() classKnob { return classKnob{op.change.Value.Knob, op.change.Domain} }

// result answers a change.
func (op *classOp) result(found, now int64, err error) model.Result {
	if err != nil {
		return refusal(&op.change, err)
	}
	v := func(n int64) model.Setting { return model.Setting{Knob: op.change.Value.Knob, Amount: n} }
	return model.Result{Seq: op.change.Seq, Target: op.change.Target, Found: v(found), Now: v(now)}
}

// set carries one change out that takes.
func (w *classWorker) set(class model.TaskNum, op *classOp) model.Result {
	g, err := w.group(class)
	if err != nil {
		return op.result(0, 0, err)
	}
	if op.change.Value.Knob == model.ServiceClass {
		r := w.put(g, op)
		w.tidy(class)
		return r
	}
	want, change, err := w.limit(g, op)
	if err != nil {
		w.lost(class, err)
		w.tidy(class)
		return op.result(0, 0, err)
	}
	g.limit[op.knob()] = want
	return op.result(amount(g.found, op.knob()), amount(change.Now, op.knob()), nil)
}

// limit writes what a group gets.
func (w *classWorker) limit(g *classGroup, op *classOp) (want resctrl.Schemata, change resctrl.Change, err error) {
	d, err := w.driver()
	if err == nil {
		want, err = w.value(d, op)
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
	g := &classGroup{id: made.Identity, found: made.Schemata, tasks: map[string]model.Task{}, limit: map[classKnob]resctrl.Schemata{}}
	w.groups[class] = g
	return g, nil
}

// put puts a task into a group.
func (w *classWorker) put(g *classGroup, op *classOp) model.Result {
	moved, err := w.move(g.id, &op.task)
	switch {
	case errors.Is(err, cgroup.ErrVanished):
		r := refusal(&op.change, err)
		r.Kind = model.Vanished
		return r
	case err == nil && moved.Foreign > 0 && moved.Moved+moved.Already == 0:
		err = errors.New("all its threads are in groups that other programs made")
	}
	if err != nil {
		return op.result(0, 0, err)
	}
	g.tasks[op.task.Path] = op.task
	r := op.result(int64(model.ClassFound), int64(model.ClassBE), nil)
	if moved.Foreign > 0 {
		r.Error = fmt.Sprintf("%d of its threads are in groups that other programs made", moved.Foreign)
	}
	return r
}

// move moves all threads of a task.
func (w *classWorker) move(to resctrl.Identity, t *model.Task) (resctrl.Moved, error) {
	d, err := w.driver()
	if err != nil {
		return resctrl.Moved{}, err
	}
	group, err := w.cg.OpenAlone(t.Path)
	if err != nil {
		return resctrl.Moved{}, err
	}
	defer group.Close() //nolint:errcheck // reading is over
	if group.Identity().Inode != t.Inode {
		return resctrl.Moved{}, fmt.Errorf("%s was made anew: %w", t.Path, cgroup.ErrVanished)
	}
	return d.MoveProcesses(to, group.Procs)
}

// value is what a change writes. The ways are a row from the low side, where the I/O of devices does not go, and
// none that somebody holds for himself.
func (w *classWorker) value(d *resctrl.Driver, op *classOp) (want resctrl.Schemata, err error) {
	n, domain := op.change.Value.Amount, int(op.change.Domain)
	if op.change.Value.Knob == model.MemoryBandwidth {
		want.Set(resctrl.MB, domain, uint64(max(n, 0)))
		return want, nil
	}
	groups, err := d.Groups(resctrl.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range w.caches() {
		avoid := c.ShareableBits | resctrl.TakenBits(groups, c.Resource, func(g resctrl.Group) bool { return g.Ours })[domain]
		mask, err := c.ContiguousMask(int(n), avoid, resctrl.LowWays)
		if err != nil {
			return nil, err
		}
		want.Set(c.Resource, domain, uint64(mask))
	}
	return want, nil
}

// amount is what schemata say of a knob, in its unit.
func amount(s resctrl.Schemata, k classKnob) int64 {
	if k.kind == model.MemoryBandwidth {
		v, _ := s.Get(resctrl.MB, int(k.domain))
		return int64(v)
	}
	for _, r := range [...]resctrl.Resource{resctrl.L3, resctrl.L3Data} {
		if v, ok := s.Get(r, int(k.domain)); ok {
			return int64(resctrl.Mask(v).Ways())
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
	if g := w.groups[class]; g != nil && !isGone(w.fs, w.point, g.id) {
		return false
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

// tidy removes a group that nothing came of.
func (w *classWorker) tidy(class model.TaskNum) {
	if g := w.groups[class]; g != nil && g.unused() {
		w.remove(class)
	}
}

// remove removes a class's group with all that is in it.
func (w *classWorker) remove(class model.TaskNum) error {
	d, err := w.driver()
	if err == nil {
		_, err = d.Remove(w.groups[class].id, true)
	}
	if err == nil || w.lost(class, err) {
		delete(w.groups, class)
		return nil
	}
	return err
}

// leaving is what a batch takes back of a class.
type leaving struct {
	ops   []*classOp
	found resctrl.Schemata
	tasks map[string]model.Task
	limit map[classKnob]resctrl.Schemata
}

func newLeaving() *leaving {
	return &leaving{tasks: map[string]model.Task{}, limit: map[classKnob]resctrl.Schemata{}}
}

// add takes a knob out of a group. A stranger's is left as it is (Disown).
func (l *leaving) add(g *classGroup, op *classOp) {
	l.ops = append(l.ops, op)
	if g == nil {
		return
	}
	l.found = g.found
	if t, ok := g.tasks[op.task.Path]; ok && op.change.Value.Knob == model.ServiceClass {
		if delete(g.tasks, op.task.Path); op.change.Kind == model.Release {
			l.tasks[op.task.Path] = t
		}
	}
	if was, ok := g.limit[op.knob()]; ok {
		if delete(g.limit, op.knob()); op.change.Kind == model.Release {
			l.limit[op.knob()] = was
		}
	}
}

// leave gives back what was taken out of a class. What cannot be given back stays in it.
func (w *classWorker) leave(class model.TaskNum, l *leaving) []model.Result {
	errs := map[*classOp]error{}
	if g := w.groups[class]; g != nil && g.unused() {
		if err := w.remove(class); err != nil {
			for _, op := range l.ops {
				errs[op] = err
			}
			maps.Copy(g.tasks, l.tasks)
			maps.Copy(g.limit, l.limit)
		}
	} else if g != nil {
		for _, op := range l.ops {
			errs[op] = w.giveBack(class, g, l, op)
		}
	}
	var done []model.Result
	for _, op := range l.ops {
		if op.change.Kind == model.Disown {
			continue
		}
		now := int64(model.ClassFound)
		if op.change.Value.Knob != model.ServiceClass {
			now = amount(l.found, op.knob())
		}
		done = append(done, op.result(now, now, errs[op]))
	}
	return done
}

// giveBack gives one knob back of a group that stays.
func (w *classWorker) giveBack(class model.TaskNum, g *classGroup, l *leaving, op *classOp) error {
	if t, ok := l.tasks[op.task.Path]; ok && op.change.Value.Knob == model.ServiceClass {
		err := w.moveBack(&t)
		if err == nil || errors.Is(err, cgroup.ErrVanished) || w.lost(class, err) {
			return nil
		}
		g.tasks[t.Path] = t
		return err
	}
	was, ok := l.limit[op.knob()]
	if !ok {
		return nil
	}
	var back resctrl.Schemata
	for _, line := range was {
		if v, ok := g.found.Get(line.Resource, int(op.change.Domain)); ok {
			back.Set(line.Resource, int(op.change.Domain), v)
		}
	}
	d, err := w.driver()
	if err == nil {
		_, err = d.WriteSchemata(g.id, back)
	}
	if err == nil || w.lost(class, err) {
		return nil
	}
	g.limit[op.knob()] = was
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
		_, err = w.move(root, t)
	}
	return err
}

// tend moves who came into a task from outside, and appends what strangers did: a group that is gone, a task whose
// threads are all in another's, a value that is not as it was written.
func (w *classWorker) tend(dst []model.KnobReading) []model.KnobReading {
	for class := range w.left {
		if d, err := w.driver(); err == nil {
			_ = w.clear(class, d) // or at the next look
		}
	}
	for _, class := range slices.Sorted(maps.Keys(w.groups)) {
		g := w.groups[class]
		var change resctrl.Change
		d, err := w.driver()
		if err == nil {
			change, err = d.WriteSchemata(g.id, nil)
		}
		gone := w.lost(class, err)
		if err != nil && !gone {
			continue // locked, say: another time
		}
		for _, path := range slices.Sorted(maps.Keys(g.tasks)) {
			t := g.tasks[path]
			away := gone
			if !gone {
				moved, err := w.move(g.id, &t)
				away = err == nil && moved.Foreign > 0 && moved.Moved+moved.Already == 0
			}
			if away {
				dst = append(dst, model.KnobReading{Target: model.OfTask(t.Num), Value: model.InClass(model.ClassFound), Outcome: model.OK})
			}
		}
		for k, was := range g.limit {
			now := change.Found
			if gone {
				now = g.found
			}
			if len(was.Differences(now)) == 0 {
				continue
			}
			n := amount(now, k)
			if n == amount(was, k) {
				n = -n // as many, and others
			}
			dst = append(dst, model.KnobReading{
				Target: model.Target{Scope: model.ScopeCLOS, Num: class, Domain: k.domain}, Value: model.Setting{Knob: k.kind, Amount: n}, Outcome: model.OK,
			})
		}
	}
	slices.SortFunc(dst, func(a, b model.KnobReading) int {
		if a.Target.Before(b.Target) {
			return -1
		}
		return cmp.Compare(bit(b.Target.Before(a.Target)), 0)
	})
	return dst
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
