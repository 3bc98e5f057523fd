package linux

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
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
	gone   []goneGroup            // taken away under us, not yet told
	left   map[model.TaskNum]bool // of an earlier agent, not yet removed
	told   *model.Classes         // what the machine has, as last said; nil: nobody asked
	news   bool                   // told is other than before
	online []int                  // CPUs, when it was found out
	born   map[int]uint64         // of each CPU that was ever seen: its caches' inode at the last look, 0: it was offline

	plan classWays // of the batch that is under way

	meter   meter
	metered []model.MemorySample // by the last batch that was to
	moved   bool                 // what is moved to and from memory is to be read
	counted counted
	had     []model.DomainSample // what tasks had, by the last batch that was to read it
}

// classGroup is one class's control group.
type classGroup struct {
	id    resctrl.Identity
	found resctrl.Schemata               // as the kernel made it
	tasks map[string]model.Task          // in it, by path
	limit map[classKnob]resctrl.Schemata // what was written
	away  map[classKnob]bool             // by domain, those whose domain has no CPU, or had none, and what is limited there was not looked at since
}

// goneGroup is a class's group that somebody took away, with what it had.
type goneGroup struct {
	class model.TaskNum
	*classGroup
}

// classKnob is one value of a class.
type classKnob struct {
	kind   model.KnobKind
	domain int32
}

func (g *classGroup) unused() bool { return len(g.tasks) == 0 && len(g.limit) == 0 }

// do carries a batch out: what is taken back first marks what it leaves, and at the end a group that nobody needs is
// removed, which gives all of it back at once.
func (w *classWorker) do(batch []classOp) (done []model.Result, readings []model.KnobReading) {
	leaving := map[model.TaskNum]*leaving{}
	w.plan = planOf(batch)
	for i := range batch {
		op := &batch[i]
		class := w.classOf(op)
		g := w.groups[class]
		switch {
		case op.meter:
			if w.moved {
				w.metered = w.readMemory()
			}
			w.had = w.readDomains()
		case op.count:
			w.count(op.want)
		case op.again:
			w.putAway()
		case op.tend:
			readings = w.tend(readings)
			w.recount()
		case op.gone:
			for _, g := range w.gone {
				delete(g.tasks, op.task.Path)
			}
			for class, g := range w.groups {
				delete(g.tasks, op.task.Path)
				leaving[class] = cmp.Or(leaving[class], newLeaving())
			}
		case op.takes():
			if l := leaving[class]; l != nil { // first what was taken back before, in its order
				done = append(done, w.leave(class, l)...)
				delete(leaving, class)
			}
			if done = append(done, w.set(class, op)); done[len(done)-1].Kind == model.Refused {
				w.recount()
			}
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

// class is the class that an operation is about, as far as the operation says it.
func (op *classOp) class() model.TaskNum {
	if op.change.Value.Knob == model.ServiceClass {
		return model.TaskNum(op.change.Value.Amount)
	}
	return op.change.Num
}

// classOf is the class that an operation is about: where a task leaves, the one that it is in.
func (w *classWorker) classOf(op *classOp) model.TaskNum {
	if op.change.Value.Knob == model.ServiceClass && !op.takes() {
		for class, g := range w.groups {
			if _, in := g.tasks[op.task.Path]; in {
				return class
			}
		}
	}
	return op.class()
}

// takes reports whether it may make a group.
func (op *classOp) takes() bool {
	return !op.gone && !op.again && !op.tend && !op.meter && !op.count && (op.change.Kind == model.Set || op.change.Kind == model.Hold)
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
		for other, was := range w.groups { // of a task that is gone nobody asks for anything back
			if _, in := was.tasks[op.task.Path]; in && (r.Kind == model.Applied && other != class || r.Kind == model.Vanished) {
				delete(was.tasks, op.task.Path)
				w.tidy(other)
			}
		}
		w.tidy(class)
		return r
	}
	want, change, err := w.limit(g, op)
	if err != nil {
		w.lost(class, err)
		w.tidy(class)
		return op.result(0, 0, err)
	}
	g.came(want, change.Found)
	g.limit[op.knob()] = asTaken(want, change.Now)
	maps.DeleteFunc(g.away, func(k classKnob, _ bool) bool {
		return k.kind == op.change.Value.Knob && (k.domain == op.change.Domain || op.change.Domain == model.EveryDomain)
	})
	return op.result(amount(g.found, op.knob()), amount(change.Now, op.knob()), nil)
}

// each ranges over the values of schemata.
func each(s resctrl.Schemata) iter.Seq2[resctrl.Resource, resctrl.Value] {
	return func(yield func(resctrl.Resource, resctrl.Value) bool) {
		for _, line := range s {
			for _, v := range line.Domains {
				if !yield(line.Resource, v) {
					return
				}
			}
		}
	}
}

// came notes what was found in a domain that was offline when the group was made, before the first limit there.
func (g *classGroup) came(want, found resctrl.Schemata) {
	for r, v := range each(want) {
		if _, known := g.found.Get(r, v.Domain); known {
			continue
		}
		if was, ok := found.Get(r, v.Domain); ok {
			g.found.Set(r, v.Domain, was)
		}
	}
}

// asTaken is what the kernel made of what was written: it rounds levels.
func asTaken(want, now resctrl.Schemata) (taken resctrl.Schemata) {
	for r, v := range each(want) {
		if is, ok := now.Get(r, v.Domain); ok {
			taken.Set(r, v.Domain, is)
		}
	}
	return taken
}

// put puts a task into a group. One that starts threads as fast as they are moved is in it, as far as it is: who is born there stays there, and the rest
// are moved at the next looks.
func (w *classWorker) put(g *classGroup, op *classOp) model.Result {
	w.along(op.task.Path, g.id.Name)
	moved, err := w.move(g.id, &op.task)
	growing := errors.Is(err, resctrl.ErrStillGrowing)
	switch {
	case errors.Is(err, cgroup.ErrVanished):
		r := refusal(&op.change, err)
		r.Kind = model.Vanished
		return r
	case (err == nil || growing) && moved.Foreign > 0 && moved.Moved+moved.Already == 0:
		return op.result(0, 0, errors.New("all its threads are in groups that other programs made"))
	case err != nil && !growing:
		return op.result(0, 0, err)
	}
	g.tasks[op.task.Path] = op.task
	r := op.result(int64(model.ClassFound), op.change.Value.Amount, nil)
	switch {
	case growing:
		r.Error = err.Error() + ": the rest follow"
	case moved.Foreign > 0:
		r.Error = fmt.Sprintf("%d of its threads are in groups that other programs made", moved.Foreign)
	}
	return r
}

// tidy removes a group that nothing came of. Where that cannot be it is tried again (putAway).
func (w *classWorker) tidy(class model.TaskNum) {
	if g := w.groups[class]; g != nil && g.unused() {
		_ = w.remove(class)
	}
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
	for r, v := range each(was) {
		if found, ok := g.found.Get(r, v.Domain); ok {
			back.Set(r, v.Domain, found)
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

// waste reports whether groups are there that nobody needs: they could not be removed.
func (w *classWorker) waste() bool {
	for _, g := range w.groups {
		if g.unused() {
			return true
		}
	}
	return len(w.left) > 0
}

// putAway removes groups that nobody needs, as far as that can be.
func (w *classWorker) putAway() {
	for class := range w.left {
		if d, err := w.driver(); err == nil {
			_ = w.clear(class, d) // or the next time
		}
	}
	for _, class := range slices.Sorted(maps.Keys(w.groups)) {
		w.tidy(class)
	}
}

// tend moves who came into a task from outside, and appends what strangers did: a group that is gone, a task whose
// threads are all in another's, a value that is not as it was written.
func (w *classWorker) tend(dst []model.KnobReading) []model.KnobReading {
	w.putAway()
	anew, bornErr := w.anew()
	for _, g := range w.groups { // each remembers it until its schemata are read, which may be at a later look
		maps.Copy(g.away, anew)
	}
	for _, class := range slices.Sorted(maps.Keys(w.groups)) {
		g := w.groups[class]
		var change resctrl.Change
		d, err := w.driver()
		if err == nil {
			change, err = d.WriteSchemata(g.id, nil)
		}
		if err != nil {
			w.lost(class, err)
			continue // it is gone, or locked, say: another time
		}
		for _, path := range slices.Sorted(maps.Keys(g.tasks)) {
			t := g.tasks[path]
			if moved, err := w.move(g.id, &t); err == nil && moved.Foreign > 0 && moved.Moved+moved.Already == 0 {
				dst = append(dst, atHome(&t))
			}
		}
		if bornErr != nil {
			continue // whether the kernel forgot it is not known: another time
		}
		w.writeAgain(g, d, change.Found)
		dst = g.strange(dst, class, change.Found)
	}
	dst = w.tellGone(dst)
	slices.SortFunc(dst, func(a, b model.KnobReading) int {
		switch {
		case a.Before(b.Target):
			return -1
		case b.Before(a.Target):
			return 1
		}
		return cmp.Compare(a.Value.Knob, b.Value.Knob)
	})
	return dst
}

// atHome is that a task is where it was found.
func atHome(t *model.Task) model.KnobReading {
	return model.KnobReading{Target: model.OfTask(t.Num), Value: model.InClass(model.ClassFound), Outcome: model.OK}
}

// tellGone appends what groups had that were taken away since the last look, but for what was done anew meanwhile.
func (w *classWorker) tellGone(dst []model.KnobReading) []model.KnobReading {
	for _, g := range w.gone {
		now := w.groups[g.class]
		for _, path := range slices.Sorted(maps.Keys(g.tasks)) {
			t := g.tasks[path]
			if !slices.ContainsFunc(slices.Collect(maps.Values(w.groups)), func(o *classGroup) bool { _, in := o.tasks[path]; return in }) {
				dst = append(dst, atHome(&t))
			}
		}
		if now != nil {
			maps.DeleteFunc(g.limit, func(k classKnob, _ resctrl.Schemata) bool { _, again := now.limit[k]; return again })
		}
		dst = g.strange(dst, g.class, g.found)
	}
	w.gone = nil
	return dst
}

// strange appends what is not as it was written, by somebody else.
func (g *classGroup) strange(dst []model.KnobReading, class model.TaskNum, now resctrl.Schemata) []model.KnobReading {
	for k, was := range g.limit {
		other := slices.DeleteFunc(was.Differences(now), func(r resctrl.Ref) bool { return g.away[classKnob{k.kind, int32(r.Domain)}] })
		if len(other) == 0 {
			continue
		}
		at := classKnob{k.kind, int32(other[0].Domain)}
		n := amount(now, at)
		if n == amount(was, at) {
			n = -n // as many, and others
		}
		dst = append(dst, model.KnobReading{
			Target: model.Target{Scope: model.ScopeCLOS, Num: class, Domain: k.domain}, Value: model.Setting{Knob: k.kind, Amount: n}, Outcome: model.OK,
		})
	}
	return dst
}
