package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// What a group above hands down is not for us to say: systemd takes a controller from all groups in another as soon as
// the last unit that needs it stops, and with it go the files, and what stood in them. On v1 a group's directory in one
// hierarchy may go alone.

// controllers are those that can be taken, with the knobs that go with them.
var controllers = map[cgroup.Controller][]model.KnobKind{
	cgroup.CPU:    {model.CPUBandwidth, model.CPUWeight},
	cgroup.CPUSet: {model.CPUPlace},
	cgroup.Memory: {model.MemoryHigh},
	cgroup.IO:     {model.IOMaxKnob},
}

// handedDown is a group from whose children a controller was taken.
type handedDown struct {
	path string
	c    cgroup.Controller
}

// drawHandDown has controllers taken from groups, and (v2) mostly handed down again. It draws from a stream of its own, as
// it came after the others.
func (p *plan) drawHandDown(r source, end int64) {
	if !r.chance(0.6) {
		return
	}
	for range r.count(1, 8) {
		e := event{at: r.seconds(0, float64(end)/1e9), do: handDown, task: r.IntN(len(p.tasks)), pick: r.Uint64()}
		p.events = append(p.events, e)
		if r.chance(0.8) {
			e.at += r.seconds(0.2, pick[float64](r, 2, 30))
			e.both = true
			p.events = append(p.events, e)
		}
	}
	sortEvents(p.events)
}

// alone are the knobs that go without their task: with a controller on v2, with a directory on v1.
func (v *witness) alone() []model.KnobKind {
	if v.flat() {
		return []model.KnobKind{model.CPUBandwidth, model.CPUPlace, model.CPUWeight, model.IOMaxKnob, model.MemoryHigh}
	}
	return []model.KnobKind{model.CPUPlace, model.GroupFreeze}
}

// handDown takes a controller from a task, and from all beside it or only from the groups in it; rather from one of
// which two knobs are held. Of an event that has both, what was taken first is handed down again.
func (w *world) handDown(e *event) {
	if e.both {
		w.handBack()
		return
	}
	r := source{rand.New(rand.NewPCG(e.pick, 8))}
	task, kinds := w.plan.tasks[e.task].path, w.witness.alone()
	if several := w.heldSeveral(); len(several) > 0 && r.chance(0.8) {
		task = several[r.IntN(len(several))]
		if held := slices.DeleteFunc(slices.Clone(kinds), func(kind model.KnobKind) bool { return !w.heldHere(task, kind) }); len(held) > 0 {
			kinds = held
		}
	}
	kind, inIt, anew := kinds[r.IntN(len(kinds))], r.chance(0.2), r.chance(0.5)
	if !w.witness.flat() {
		w.takeDirectory(task, kind, anew)
		return
	}
	above := parentOf(task)
	if inIt {
		above = task
	}
	for c, of := range controllers { // one of them has it
		if slices.Contains(of, kind) {
			w.takeController(above, c)
		}
	}
}

// heldHere reports whether the agent takes a task's knob for held.
func (w *world) heldHere(task string, kind model.KnobKind) bool {
	return w.life != nil && holds(w.life.Engine.State, &watchedGroup{task: task}, kind)
}

// heldSeveral lists the tasks of which the agent holds two knobs or more, of which one can go without the task.
func (w *world) heldSeveral() (tasks []string) {
	for i := range w.plan.tasks {
		n, alone := 0, false
		for kind := range model.OfCgroups {
			if w.heldHere(w.plan.tasks[i].path, kind) {
				n++
				alone = alone || slices.Contains(w.witness.alone(), kind)
			}
		}
		if n > 1 && alone {
			tasks = append(tasks, w.plan.tasks[i].path)
		}
	}
	return tasks
}

// takeDirectory removes a task's directories from the one hierarchy (v1) that has a knob, as who moved its processes to the
// group above may, and may make the task's own anew.
func (w *world) takeDirectory(task string, kind model.KnobKind, anew bool) {
	mount := w.witness.mounts[kind]
	for _, g := range w.witness.in(task) {
		procs, _ := w.k.ReadFile(mount+g.path+"/cgroup.procs", nil) // one that is gone has none
		for _, pid := range strings.Fields(string(procs)) {
			_ = w.inj.Stranger(mount+parentOf(task)+"/cgroup.procs", pid) // where they cannot be moved it stays
		}
		if w.k.Rmdir(mount+g.path) != nil {
			continue
		}
		if anew && g.path == task {
			_ = w.k.Mkdir(mount+task, 0o755)
		}
		w.witness.taken(g, kind)
		w.inj.Note("directory-gone", "")
	}
}

// in lists the groups of one and below, the deepest first.
func (v *witness) in(top string) (list []*watchedGroup) {
	for _, g := range v.list {
		if within(g.path, top) {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b *watchedGroup) int { return strings.Count(b.path, "/") - strings.Count(a.path, "/") })
	return list
}

// takeController takes a controller from the groups in one: the kernel wants it taken from those below first.
func (w *world) takeController(above string, c cgroup.Controller) {
	for _, g := range w.witness.in(above) {
		if w.delegate(g.path, "-", c) {
			w.handed = append(w.handed, handedDown{g.path, c})
		}
	}
	for _, g := range w.witness.in(above) {
		for _, kind := range controllers[c] {
			if g.path != above {
				w.witness.taken(g, kind)
			}
		}
	}
	w.inj.Note("controller-taken", above)
}

// delegate hands a controller down to the groups in one (+), or takes it from them (-), and reports whether that was new.
func (w *world) delegate(path, sign string, c cgroup.Controller) bool {
	file := w.witness.mounts[model.CPUBandwidth] + path + "/cgroup.subtree_control"
	now, err := w.k.ReadFile(file, nil)
	if err != nil || slices.Contains(strings.Fields(string(now)), string(c)) != (sign == "-") {
		return false
	}
	return w.inj.Stranger(file, sign+string(c)) == nil // a refusal is his trouble
}

// handBack hands down again the controller that was taken first, from above.
func (w *world) handBack() {
	if len(w.handed) == 0 {
		return
	}
	c := w.handed[0].c
	var back []string
	w.handed = slices.DeleteFunc(w.handed, func(h handedDown) bool {
		if h.c == c {
			back = append(back, h.path)
		}
		return h.c == c
	})
	slices.SortStableFunc(back, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	for _, path := range back {
		w.delegate(path, "+", c)
	}
	w.inj.Note("controller-back", "")
}

// taken takes in that a knob's file went, or came back as the kernel makes it: what stood there is forgotten, which
// whoever held it may take for a stranger's word.
func (v *witness) taken(g *watchedGroup, kind model.KnobKind) {
	k := &g.knobs[kind]
	before := k.now
	now, err := v.read(g.path, kind)
	if err != nil {
		return // a machine without it
	}
	k.kind, k.now, k.rightful, k.mixed, k.partly, k.wild = kind, now, v.inherited(g.path, now), false, false, nil
	if l := v.limitOf(g, kind); l != nil && now != before {
		v.strangers[taskKnob{l.Task, kind}] = v.w.now()
		// It reads as if somebody had written cpu.max and let the burst be, which is ours and comes back. Only the inode number of the file would tell, at
		// a stat of each file in each reading; and what comes back is what somebody had written there, which does nothing without a quota.
		if with := now; kind == model.CPUBandwidth && now.QuotaUsec < 0 && l.Found.BurstUsec != now.BurstUsec {
			with.BurstUsec = l.Found.BurstUsec
			k.rightful = append(k.rightful, with)
		}
	}
	if v.mistakable(g, k) {
		v.mistaken(g, k)
	}
}

// startProcess starts a process in a group of a task, and the witness takes in that the directories that were missing are made, of a group before those in it.
func (w *world) startProcess(t *taskPlan, path string, cfg *machine.TaskConfig) error {
	type groupKnob struct {
		g    *watchedGroup
		kind model.KnobKind
	}
	var gone []groupKnob
	for _, g := range slices.Backward(w.witness.in(t.path)) {
		for kind := range model.OfCgroups {
			if _, err := w.witness.readFile(g.path, kind); err != nil {
				gone = append(gone, groupKnob{g, kind})
			}
		}
	}
	_, err := w.k.Start(path, withMemory(t, *cfg))
	for _, k := range gone {
		w.witness.taken(k.g, k.kind)
	}
	return err
}

// read reads a knob. One that is not there, as the group above does not hand its controller down, is as the kernel makes
// it once it is there.
func (v *witness) read(path string, kind model.KnobKind) (now model.Setting, err error) {
	now, err = v.readFile(path, kind)
	if !errors.Is(err, cgroup.ErrNoController) && !errors.Is(err, cgroup.ErrUnsupported) {
		return now, err
	}
	switch kind {
	case model.CPUBandwidth:
		return model.Bandwidth(twin.Unlimited()), nil
	case model.CPUWeight:
		return model.Weight(model.WeightDefault), nil
	case model.MemoryHigh:
		return model.HighMemory(model.NoMemoryHigh), nil
	}
	return model.Ask(kind), nil
}

// holds reports whether an agent takes a knob for held, or has asked for it. One whose write was refused, or
// who was told of a stranger, holds nothing there, also where something of his is left until it can be put
// back; nor does a new one hold what an earlier one left. Who writes over that writes over no hold: it is what
// the next one begins from.
func holds(s *engine.State, g *watchedGroup, kind model.KnobKind) bool {
	t := s.Tasks.ByPath(g.task)
	return t != nil && slices.ContainsFunc(s.Ledger.Knobs, func(k engine.Knob) bool {
		return k.Task() == t.Num && k.Kind == kind && (k.Ours || k.State == engine.KnobAsked)
	})
}

// checkAgree looks for what the host holds and the ledger has forgotten: nobody would ever give it back.
func (w *world) checkAgree(l *life) {
	if w.host == nil {
		return
	}
	var lost []string
	w.host.EachHeld(func(task string, kind model.KnobKind) {
		if !holds(l.Engine.State, &watchedGroup{task: task}, kind) {
			lost = append(lost, fmt.Sprintf("%s of %s", kind, task))
		}
	})
	if slices.Sort(lost); len(lost) > 0 {
		w.fail(checkAgree, fmt.Sprintf("the host holds what the ledger does not: %v", lost))
	}
}
