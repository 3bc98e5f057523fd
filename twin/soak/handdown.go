package soak

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// What a group above hands down is not for us to say: systemd takes a controller from all groups in another as soon as
// the last unit that needs it stops, and with it go the files, and what stood in them.

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

// drawHandDown has controllers taken from groups, and mostly handed down again. It draws from a stream of its own, as
// it came after the others.
func (p *plan) drawHandDown(r source, end int64) {
	if p.layout != cgroup.LayoutV2 || !r.chance(0.6) {
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

// handDown takes a controller from a task, and from all beside it or only from the groups in it; rather from one of
// which two knobs are held. Of an event that has both, what was taken first is handed down again.
func (w *world) handDown(e *event) {
	if e.both {
		w.handBack()
		return
	}
	r := source{rand.New(rand.NewPCG(e.pick, 8))}
	task, kinds := w.plan.tasks[e.task].path, []model.KnobKind{model.CPUBandwidth, model.CPUPlace, model.MemoryHigh, model.IOMaxKnob}
	if several := w.heldSeveral(); len(several) > 0 && r.chance(0.8) {
		task = several[r.IntN(len(several))]
		kinds = w.heldOf(task)
	}
	kind := kinds[r.IntN(len(kinds))]
	for c, of := range controllers { // one of them has it
		if above := parentOf(task); slices.Contains(of, kind) {
			if r.chance(0.2) {
				above = task
			}
			w.takeController(above, c)
		}
	}
}

// heldOf lists the knobs of a task's groups that the agent takes for held.
func (w *world) heldOf(task string) (kinds []model.KnobKind) {
	for kind := range model.OfCgroups {
		if w.life != nil && kind != model.GroupFreeze && holds(w.life.Engine.State, &watchedGroup{task: task}, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// heldSeveral lists the tasks of which the agent holds two knobs or more.
func (w *world) heldSeveral() (tasks []string) {
	for i := range w.plan.tasks {
		if t := &w.plan.tasks[i]; len(w.heldOf(t.path)) > 1 {
			tasks = append(tasks, t.path)
		}
	}
	return tasks
}

// takeController takes a controller from the groups in one: the kernel wants it taken from those below first.
func (w *world) takeController(above string, c cgroup.Controller) {
	var at []string
	for _, g := range w.witness.list {
		if within(g.path, above) {
			at = append(at, g.path)
		}
	}
	slices.SortStableFunc(at, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	for _, path := range at {
		if w.delegate(path, "-", c) {
			w.handed = append(w.handed, handedDown{path, c})
		}
	}
	for _, g := range w.witness.list {
		if g.path != above && within(g.path, above) {
			for _, kind := range controllers[c] {
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
	k.kind, k.now, k.rightful, k.mixed, k.partly, k.wild = kind, now, []model.Setting{now}, false, false, nil
	if l := v.limitOf(g, kind); l != nil && now != before {
		v.strangers[taskKnob{l.Task, kind}] = v.w.now()
	}
	if v.mistakable(g, k) {
		v.mistaken(g, k)
	}
}
