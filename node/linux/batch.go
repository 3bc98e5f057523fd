package linux

import (
	"errors"
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// A batch is changes that are planned together, stand in the journal by one append, and are
// then written in their order. A change that fails does not keep the others from being made.
//
// Where the journal cannot be written nothing new is taken. What gives something back goes
// ahead: the journal knew what was found before the first write, and a crash in the midst
// leaves, at worst, a list of CPUs that was to be grown further.

// op is a change of a task's knob.
type op struct {
	change *model.Change
	task   *model.Task
}

// job is one op, or one restore, on its way.
type job struct {
	op
	kind model.KnobKind
	res  model.Result

	journaled bool // something of this knob was in the journal before
	plan      []journal.Limit
	steps     []step
	at        []model.Setting // what each limit of the plan says now
	errs      []error         // of each limit of the plan
	notes     []journal.Note

	back  bool               // a restore: each limit by itself, whatever becomes of the others
	short []string           // of a restore: what each limit of the plan is short of
	items []node.Restoration // of a restore: what was settled without a write
	// blind has the tasks of which not all groups below could be looked at, and why.
	blind map[string]error
	// foreign has the groups in which another program wrote, and only the rest is put back.
	foreign []string
	err     error
	kept    bool // nothing was written
}

// apply carries changes out and appends a result for each but the disowned.
func (k *Knobs) apply(ops []op, dst []model.Result) []model.Result {
	var jobs []*job
	flush := func() {
		k.carryOut(jobs)
		for _, j := range jobs {
			if j.change.Kind != model.Disown {
				dst = append(dst, j.res)
			}
		}
		jobs = jobs[:0]
	}
	k.begin()
	for _, o := range ops {
		for _, j := range jobs {
			if j.task.Path == o.task.Path && j.kind == o.change.Value.Knob {
				flush() // its plan depends on what becomes of the first
				break
			}
		}
		jobs = append(jobs, k.prepare(o))
	}
	flush()
	return dst
}

func (k *Knobs) begin() {
	for kind := range model.OfCgroups {
		k.kinds[kind].begin()
		k.paths[kind] = paths{}
	}
}

// prepare plans a change. Nothing is written.
func (k *Knobs) prepare(o op) *job {
	j := &job{op: o, kind: o.change.Value.Knob}
	j.res = model.Result{Seq: o.change.Seq, Target: o.change.Target, Found: model.Ask(j.kind), Now: model.Ask(j.kind)}
	switch o.change.Kind {
	case model.Disown:
		k.letGo(o.task.Path, j.kind)
		k.prepareBack(j, k.j.Of(o.task.Path, j.kind))
	case model.Release:
		k.prepareRelease(j)
	default:
		key := heldKey{o.task.Path, j.kind}
		_, refused := k.refused[key]
		if j.err = k.prepareSet(j); errors.Is(j.err, errForeign) && !refused && k.held[key] == nil {
			// Nobody holds it: the caller was told of that stranger when it let go, or he came
			// before our time. What could not be left to him then is now.
			k.restore(k.j.Of(key.task, key.knob))
			if j.err = k.prepareSet(j); errors.Is(j.err, errForeign) {
				j.err = errNotLeft
			}
		}
	}
	return j
}

// errNotLeft: of a stranger's setting the caller knows.
var errNotLeft = errors.New("another program's setting is not yet left to it")

// prepareRelease plans to put a task's knob back.
func (k *Knobs) prepareRelease(j *job) {
	limits := k.j.Of(j.task.Path, j.kind)
	if inode, err := k.identify(j.task, j.kind); err == nil {
		if of, err := k.limits(j.task, j.kind, inode); err == nil {
			limits = of
		}
		if own := limitAt(limits, j.task.Path, inode); own != nil {
			j.res.Found = own.Found
		}
	}
	k.prepareBack(j, limits)
}

// prepareSet plans to bring a task's knob to a value.
func (k *Knobs) prepareSet(j *job) error {
	d, t := k.kinds[j.kind], j.task
	if k.refused[heldKey{t.Path, j.kind}] {
		if now, err := d.read(t.Path); err == nil {
			j.res.Found, j.res.Now = now, now
		}
		return errForeign // which lets go of the knob, and forgets this
	}
	inode, err := k.identify(t, j.kind)
	if err != nil {
		return err
	}
	limits, err := k.limits(t, j.kind, inode)
	if err != nil {
		return err
	}
	j.journaled = len(limits) > 0
	now, err := d.read(t.Path)
	if err != nil {
		return err
	}
	j.res.Found, j.res.Now = now, now
	if own := limitAt(limits, t.Path, inode); own != nil {
		j.res.Found = own.Found
		if !d.ours(own, now) {
			return errForeign
		}
	}
	// Found is what stands there, or what stood there before an earlier change that was left half done.
	if base := j.change.Base; base != nil && j.res.Found != *base {
		j.res.Now = j.res.Found
		return errStale
	}
	want, note, err := d.want(t.Path, j.change, j.res.Found)
	if err != nil {
		return err
	}
	j.res.Error = note
	own := journal.Limit{Task: t.Path, Path: t.Path, Inode: inode, Found: j.res.Found, Before: now, Intended: want}
	below, err := d.below(&own, limits)
	if err != nil {
		return err
	}
	if at := k.leftElsewhere(below); at != nil {
		k.restore(k.j.Of(at.Task, j.kind)) // which follows it to the path that it has now
		if at = k.leftElsewhere(below); at != nil {
			return fmt.Errorf("found as %s: %w", at.Path, errElsewhere)
		}
		return k.prepareSet(j)
	}
	if now != want {
		j.plan = append(j.plan, own)
	}
	j.plan = append(j.plan, below...)
	k.ready(j)
	return nil
}

// ready orders a plan.
func (k *Knobs) ready(j *job) {
	j.steps = slices.DeleteFunc(k.kinds[j.kind].order(j.plan), func(s step) bool {
		l := &j.plan[s.limit]
		return s.value == l.Before && l.Before == l.Intended // it is noted, and stands already
	})
	j.errs = make([]error, len(j.plan))
	j.at = make([]model.Setting, len(j.plan))
	for i := range j.plan {
		j.at[i] = j.plan[i].Before
	}
}

// carryOut journals all plans, writes them and notes what became of them.
func (k *Knobs) carryOut(jobs []*job) {
	var all []journal.Limit
	for _, j := range jobs {
		all = append(all, j.plan...)
	}
	if len(all) > 0 {
		if err := k.j.Intent(all); err != nil {
			for _, j := range jobs {
				if j.back || j.grows() {
					k.j.Assume(j.plan)
				} else {
					j.refuse(err)
				}
			}
		}
	}
	var notes []journal.Note
	for _, j := range jobs {
		k.carry(j)
		j.res.MonoNsec = k.clock.MonoNsec()
		if j.back {
			j.settle()
			k.keepBelow(j)
		}
		notes = append(notes, j.notes...)
	}
	k.j.Note(notes)
	for _, j := range jobs {
		k.finish(j)
	}
}

// grows says whether a change only gives CPUs to a service from which some were taken. The
// groups below follow it.
func (j *job) grows() bool {
	return j.journaled && j.kind == model.CPUPlace && j.task.Class == model.LC &&
		!slices.ContainsFunc(j.plan, func(l journal.Limit) bool {
			return l.Path == j.task.Path && !l.Before.CPUs.Within(l.Intended.CPUs)
		})
}

// refuse gives a job up before its first write.
func (j *job) refuse(err error) {
	if len(j.plan) > 0 {
		j.kept, j.err = true, err
	}
}

// giveBack notes limits of which some part of ours is taken back, on file where that can be.
func (k *Knobs) giveBack(limits []journal.Limit) {
	if k.j.Intent(limits) != nil {
		k.j.Assume(limits)
	}
}

// carry writes a job's steps.
func (k *Knobs) carry(j *job) {
	if j.err != nil {
		return
	}
	for _, s := range j.steps {
		i := s.limit
		if j.errs[i] != nil {
			continue
		}
		if j.errs[i] = k.take(j, s); j.errs[i] == nil {
			continue
		}
		if j.back {
			k.stays(j, i)
			continue
		}
		if errors.Is(j.errs[i], cgroup.ErrVanished) && j.plan[i].Path != j.task.Path {
			continue // a group below that went away needs no limit
		}
		j.err = j.errs[i]
		return
	}
}

// stays notes that a limit stands as it did before it was to be put back: then what another program
// writes there, until it can be, is not taken for half of that.
func (k *Knobs) stays(j *job, i int) {
	l := &j.plan[i]
	if now, err := k.read(j.kind, l.Path, l.Inode); err == nil && now == l.Before && !errors.Is(j.errs[i], errForeign) {
		j.notes = append(j.notes, journal.Note{Key: l.Key(), ReadBack: &l.Before})
	}
}

// take carries one step out. It looks first: since the plan was made others were carried
// out. That the group is still the one that is meant is looked at after the write, as the plan did.
func (k *Knobs) take(j *job, s step) error {
	d, l := k.kinds[j.kind], &j.plan[s.limit]
	now, err := d.read(l.Path)
	if err == nil && now != j.at[s.limit] {
		j.at[s.limit] = now
		err = fmt.Errorf("%s: %w", l.Path, errForeign)
	}
	if err == nil {
		err = d.write(l.Path, now, s.value)
	}
	if err != nil && (!j.back || !onlyBurst(err, now, s.value)) {
		return err
	}
	if now, err = k.read(j.kind, l.Path, l.Inode); err != nil {
		return err
	}
	before := j.at[s.limit]
	j.at[s.limit] = now
	switch {
	case !s.last:
		return nil
	case d.took(l, now):
		if j.back && j.kind == model.CPUBandwidth && now != s.value {
			j.short[s.limit] = fmt.Sprintf("the kernel takes no burst of %d us with this quota: it is %d us", s.value.BurstUsec, now.BurstUsec)
		}
		if !j.back {
			j.notes = append(j.notes, journal.Note{Key: l.Key(), ReadBack: &j.at[s.limit]})
		}
		return nil
	case now == before:
		return errors.New("the write was taken and changed nothing")
	case !j.back:
		// The kernel keeps settings as they are written, so another value is another
		// writer's. Taken for ours it would later be overwritten.
		k.unmix(l, now)
	}
	return fmt.Errorf("%s reads back otherwise than it was written: %w", l.Path, errForeign)
}

// unmix takes back our part of a limit that another program wrote in the midst of our
// writes, which are several: his quota may now stand with our period, or our quota with
// his. What is his stays, and the rest becomes as it was found; where that fails, later.
func (k *Knobs) unmix(l *journal.Limit, now model.Setting) {
	d := k.kinds[now.Knob]
	want := d.others(l, now)
	if want == now {
		return
	}
	mixed := journal.Limit{Task: l.Task, Path: l.Path, Inode: l.Inode, Found: want, Before: now, Intended: want}
	k.giveBack([]journal.Limit{mixed})
	if d.write(l.Path, now, want) == nil { // else restore finds it in the journal
		k.j.Done(l.Key())
	}
}

// finish turns what became of a job into its result.
func (k *Knobs) finish(j *job) {
	if j.back {
		if j.change != nil && j.change.Kind == model.Release {
			k.released(j)
		}
		return
	}
	for i := range j.plan {
		if j.plan[i].Path == j.task.Path {
			j.res.Now = j.at[i]
		}
	}
	if j.err != nil {
		k.failed(j)
		return
	}
	j.res.Kind = model.Applied
	delete(k.refused, heldKey{j.task.Path, j.kind})
	k.kinds[j.kind].keep(j.task.Path)
	k.held[heldKey{j.task.Path, j.kind}] = &holding{
		told: j.res.Now, now: j.res.Now, journaled: j.journaled || len(j.plan) > 0,
	}
}

// failed turns an error into a result.
func (k *Knobs) failed(j *job) {
	j.res.Error = j.err.Error()
	switch {
	case errors.Is(j.err, cgroup.ErrVanished) && !k.lives(j.task):
		j.res.Kind = model.Vanished
		k.disown(j.task.Path, j.kind)
	case errors.Is(j.err, errForeign):
		j.res.Kind = model.Foreign
		k.disown(j.task.Path, j.kind)
	case errors.Is(j.err, errStale):
		j.res.Kind = model.Stale
	default:
		j.res.Kind = model.Refused
		if !j.journaled {
			// Nothing of ours may remain of a hold that was refused. What stands in the journal when it
			// was not even planned is of an earlier one.
			if of := k.j.Of(j.task.Path, j.kind); len(of) > 0 && len(j.plan) > 0 {
				k.refused[heldKey{j.task.Path, j.kind}] = false
				k.restoreRefused(of)
			}
			return
		}
		if !j.kept {
			k.takeBack(j)
		}
	}
}

// takeBack makes a held knob again what it was before a change that was refused half way.
// What the kernel refuses of that, too, stays as it is until the knob is released.
func (k *Knobs) takeBack(j *job) {
	back := &job{op: j.op, kind: j.kind}
	for i := range j.plan {
		l := j.plan[i]
		now, err := k.read(j.kind, l.Path, l.Inode)
		switch {
		case err != nil:
		case now == l.Before:
			back.notes = append(back.notes, journal.Note{Key: l.Key(), ReadBack: &l.Before})
		case k.kinds[j.kind].ours(&l, now):
			l.Before, l.Intended = now, l.Before
			back.plan = append(back.plan, l)
		}
	}
	if len(back.plan) > 0 {
		k.giveBack(back.plan)
	}
	k.ready(back)
	k.carry(back)
	k.j.Note(back.notes)
}
