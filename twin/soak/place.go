package soak

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/twin/machine"
)

// Where groups may run: what of it is rightful, who shares cores, and CPUs that go.

// flat reports whether a group's list is its own affair, as on cgroup v2.
func (v *witness) flat() bool { return v.w.plan.layout == cgroup.LayoutV2 }

// possible are all CPUs of the machine.
func (v *witness) possible() model.CPUSet { return model.FullSet(v.w.plan.machine.CPUs()) }

// stands reports whether a list may stand where another is rightful. On v1 the kernel takes
// no list that names CPUs which are offline now, or which the group above has not: who puts a
// list back leaves them out. (What it struck from a list that stood rightfully is taken in by
// unplug; what had to be left out at a write, by settled.) On v2 a list cannot be emptied
// while somebody lives there, and all CPUs come to the same.
func (v *witness) stands(g *watchedGroup, rightful, now model.CPUSet) bool {
	if now == rightful {
		return true
	}
	if v.flat() {
		return rightful.Empty() && now == v.possible()
	}
	online := v.w.k.Machine().Online()
	if now == rightful.And(online) && !now.Empty() {
		return true
	}
	above, ok := v.above(g)
	if !ok {
		return false
	}
	room := above.And(online)
	got := rightful.And(room)
	if got.Empty() {
		got = room // nothing of it is left: the kernel put its processes where the group above is
	}
	if !got.Within(now) || !now.Within(room) {
		return false
	}
	return now == got || now == got.Or(v.others(g).And(room))
}

// above is the list of the group above; false when it is gone.
func (v *witness) above(g *watchedGroup) (model.CPUSet, bool) {
	path := parentOf(g.path)
	if up := v.group(path); up != nil {
		return up.knobs[model.CPUPlace].now.CPUs, true
	}
	s, err := v.read(path, model.CPUPlace)
	return s.CPUs, err == nil
}

// others are the CPUs of groups in one that stand there rightfully, as a stranger's word: v1 takes
// no list that lacks them.
func (v *witness) others(g *watchedGroup) (all model.CPUSet) {
	for _, o := range v.list {
		if o != g && within(o.path, g.path) && !v.ours(o, model.CPUPlace) {
			all = all.Or(o.knobs[model.CPUPlace].now.CPUs)
		}
	}
	return all
}

// settled takes in that a list was put back as far as there was room for it: who comes
// later finds that.
func (v *witness) settled(g *watchedGroup, k *watchedKnob) {
	if k.kind != model.CPUPlace || v.flat() || slices.Contains(k.rightful, k.now) || !v.isRightful(g, k.now) {
		return
	}
	if up := v.group(parentOf(g.path)); up == nil || !v.ours(up, k.kind) {
		k.rightful = append(k.rightful, k.now)
		for _, o := range v.list { // those below were put back before the one above shrank
			if o != g && within(o.path, g.path) {
				v.settled(o, &o.knobs[k.kind])
			}
		}
	}
}

// forgotten takes in of which knobs the journal knows nothing any more, and what stands in them is
// rightful: whoever holds them next finds that, and nothing else of what may have stood there
// before. A list may have been as near to what was found as it could be, so that nothing was
// written to put it back.
func (v *witness) forgotten() {
	for _, g := range v.list {
		for kind := range model.OfCgroups {
			k := &g.knobs[kind]
			if len(k.rightful) == 0 || len(k.rightful) == 1 && k.rightful[0] == k.now || v.limitOf(g, kind) != nil {
				continue
			}
			switch {
			case kind == model.CPUPlace:
				v.settled(g, k)
			case v.isRightful(g, k.now):
				k.rightful, k.mixed, k.partly = append(k.rightful[:0], k.now), false, false
			}
		}
	}
}

// copied reports whether who copies the list of a group copies one of ours: also of a group that
// itself copied it, or whose own list we cut to what we left the one above. Both stand rightfully as long
// as they are bounded by it. Where ours reads as what a stranger wrote before, nobody can tell which it is.
func (v *witness) copied(g *watchedGroup) bool {
	if v.ours(g, model.CPUPlace) || v.mistakable(g, &g.knobs[model.CPUPlace]) {
		return true
	}
	up, k := v.group(parentOf(g.path)), &g.knobs[model.CPUPlace]
	return up != nil && (up.knobs[k.kind].now == k.now || !slices.Contains(k.rightful, k.now)) && v.copied(up)
}

// unplug takes a CPU away or gives one back. From lists of v1 the kernel strikes those that
// go: where a list stood rightfully what is left is as rightful, also when the CPUs are back.
func (v *witness) unplug(change func() error) error {
	was := make([]bool, len(v.list))
	for i, g := range v.list {
		was[i] = !v.ours(g, model.CPUPlace)
	}
	if err := change(); err != nil {
		return err
	}
	for i, g := range v.list {
		k := &g.knobs[model.CPUPlace]
		now, err := v.read(g.path, model.CPUPlace)
		if err != nil {
			continue
		}
		changed := now != k.now
		if k.now = now; was[i] && changed && !slices.Contains(k.rightful, now) {
			k.rightful = append(k.rightful, now)
		}
		if slices.Contains(k.rightful, now) && v.mistakable(g, k) {
			v.mistaken(g, k)
		}
	}
	return nil
}

// lost reports whether a list is what a journal's limit says less CPUs that went offline.
func (v *witness) lost(l *journal.Limit, now model.CPUSet) bool {
	of := []model.CPUSet{l.Before.CPUs, l.Intended.CPUs, l.Before.CPUs.Or(l.Intended.CPUs)}
	if l.ReadBack != nil {
		of = []model.CPUSet{l.ReadBack.CPUs}
	}
	return !v.flat() && slices.ContainsFunc(of, func(c model.CPUSet) bool { return now.Within(c) && c.Without(now).Within(v.gone) })
}

// fitted reports whether a list is what was found less what the group above has not, as v1 takes none that is wider than that one, or that
// and ours in one: nor does it take a list that lacks CPUs of a group below, which has ours still.
func (v *witness) fitted(g *watchedGroup, l *journal.Limit, now model.Setting) bool {
	room, ok := v.above(g)
	if v.flat() || now.Knob != model.CPUPlace || !ok {
		return false
	}
	fits := l.Found.CPUs.And(room)
	return now.CPUs == fits || slices.ContainsFunc(l.Left(), func(left model.Setting) bool { return now.CPUs == left.CPUs.Or(fits) })
}

// The plans of the seeds between playedFrom and another of these are in what came with that one as they were when they were played, with those that failed once (mended).
const playedFrom, apartFrom, pagesFrom, largeFrom = 26112460000000, 26113910000000, 26114000000000, 26114000020000

func unplayed(seed, from uint64) bool { return seed < playedFrom || seed >= from }

// drawSockets has tasks of most machines with two sockets run on one of them, as who knows of memory nodes has it: where services run at all
// memories there is nowhere for pages to go.
func (p *plan) drawSockets(r source) {
	switch {
	case p.far:
		p.machine.Sockets = 2
	case p.machine.Sockets < 2 || !r.chance(0.8):
		return
	}
	if p.far || r.chance(0.5) { // with room at both memories
		p.machine.MemBytes *= 8
	}
	var cpus [2]model.CPUSet
	for cpu := range p.machine.CPUs() {
		cpus[p.machine.SocketOf(cpu)].Add(cpu)
	}
	for i := range p.tasks {
		t, home := &p.tasks[i], pick(r, 0, 0, 1)
		own := t.class == model.System || t.class == model.BE && r.chance(0.2) || !t.cpus.Empty()
		if !own && !slices.ContainsFunc(t.below, func(c childPlan) bool { return !c.cpus.Empty() }) {
			t.cpus = cpus[home]
		}
	}
}

// touch has pages lie beside the CPUs of who touched them first, as a kernel has it.
func (p *plan) touch() {
	place := func(c *machine.TaskConfig, cpus model.CPUSet) {
		if c != nil && !cpus.Empty() {
			c.Pages = p.machine.PagesBeside(cpus)
		}
	}
	for i := range p.tasks {
		t := &p.tasks[i]
		place(&t.cfg, t.cpus)
		for j := range t.below {
			c := &t.below[j]
			place(c.cfg, cmp.Or(c.cpus, t.cpus))
		}
	}
}

// parentOf returns the group above.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// inherited is what is rightful in a new group. One that was made with the list of the
// group above, while that was ours, has what it would have had without us. So may one that has it after a guardian
// put the group above back and ended before it was done: lists bear no time, and whoever goes on from the journal, in which the
// hold still is, cannot tell a copy of it from the same list that somebody gave a moment later.
func (v *witness) inherited(path string, now model.Setting) []model.Setting {
	up := v.group(parentOf(path))
	if now.Knob == model.CPUPlace && !v.flat() && up != nil && (up.knobs[now.Knob].now == now && v.copied(up) || v.heldStill(up, now)) {
		list := slices.Clone(up.knobs[now.Knob].rightful)
		if v.w.plan.cpusOf(path) == now.CPUs {
			list = append(list, now) // it is its own: nobody can tell
		}
		return list
	}
	return []model.Setting{now}
}

// heldStill reports whether the journal still says that a group is held to a list.
func (v *witness) heldStill(g *watchedGroup, list model.Setting) bool {
	l := v.limitOf(g, model.CPUPlace)
	return l != nil && l.Ours(list)
}

// cpusOf returns the list that a group is made with, none for that of the group above.
func (p *plan) cpusOf(path string) model.CPUSet {
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.path == path {
			return t.cpus
		}
		for j := range t.below {
			if t.below[j].path == path {
				return t.below[j].cpus
			}
		}
	}
	return model.CPUSet{}
}

// seenNsec is how long a CPU is away before it comes back, with an agent that looks. Of one
// that is back before anybody looked nobody can tell that the kernel struck it from a list.
const seenNsec = 10e9

// plug takes a CPU away or brings one back; half of them stay.
func (w *world) plug(e *event) {
	m := w.k.Machine()
	cpu := 1 + int(e.pick%uint64(w.plan.machine.CPUs()-1))
	online := m.Online()
	on := !online.Has(cpu)
	switch {
	case on && (w.life == nil || w.now() < w.stallUntil || w.now()-max(w.unplugged, w.life.begun) < seenNsec),
		!on && online.Len() <= (w.plan.machine.CPUs()+1)/2:
		return
	case !on:
		w.unplugged = w.now()
		w.witness.gone.Add(cpu)
	}
	if err := w.witness.unplug(func() error { return w.k.SetOnline(cpu, on) }); err != nil {
		w.fail("simulation", err.Error())
		return
	}
	w.inj.Note(map[bool]string{false: "cpu-gone", true: "cpu-back"}[on], fmt.Sprintf("cpu%d", cpu))
}

// placeNew gives a group that is being made a list of its own.
func (w *world) placeNew(path string, cpus model.CPUSet) {
	if !cpus.Empty() {
		// Where some are offline, or the group above has not got them, it goes without.
		_ = w.witness.cg.WriteCPUs(path, cpus.String())
	}
}

// strangerList is a list of CPUs that somebody might write: some of those that are online.
func (w *world) strangerList(r source) string {
	var some model.CPUSet
	online := w.k.Machine().Online()
	list := online.Members()
	from := r.IntN(len(list))
	for i := range r.count(1, len(list)) {
		some.Add(list[(from+i)%len(list)])
	}
	return some.String()
}

// checkApart looks whether LC and BE tasks share a core: of those that are where we put
// them, while nothing is on its way.
func (w *world) checkApart(l *life) {
	s := l.Engine.State
	held := [2][]*watchedGroup{} // LC, BE
	for i := range s.Ledger.Knobs {
		k := &s.Ledger.Knobs[i]
		if k.Kind != model.CPUPlace {
			continue
		}
		t := s.Tasks.Get(k.Task())
		g := (*watchedGroup)(nil)
		if t != nil {
			g = w.witness.group(t.Path)
		}
		if g == nil || k.State != engine.KnobHeld || k.Failures > 0 || !k.Ours || g.knobs[k.Kind].now != k.Written {
			continue
		}
		held[bit(t.Class == model.BE)] = append(held[bit(t.Class == model.BE)], g)
	}
	c := &w.plan.machine
	cores := map[int]*watchedGroup{}
	for _, g := range held[0] {
		for _, cpu := range g.knobs[model.CPUPlace].now.CPUs.Members() {
			cores[c.CoreOf(cpu)] = g
		}
	}
	for _, g := range held[1] {
		for _, cpu := range g.knobs[model.CPUPlace].now.CPUs.Members() {
			if lc := cores[c.CoreOf(cpu)]; lc != nil {
				w.fail(checkApart, fmt.Sprintf("%s has CPUs %s and %s has CPUs %s: core %d is in both",
					lc.path, lc.knobs[model.CPUPlace].now.CPUs, g.path, g.knobs[model.CPUPlace].now.CPUs, c.CoreOf(cpu)))
				return
			}
		}
	}
}

// checkMoved looks where policy remedy has tasks run.
func (w *world) checkMoved(l *life) {
	s := l.Engine.State
	for i := range s.Ledger.Knobs {
		k := &s.Ledger.Knobs[i]
		for j := range k.Claims {
			c := &k.Claims[j]
			if k.Kind != model.CPUPlace || c.Owner != model.OwnerPolicy || c.Policy != model.PolicyRemedy {
				continue
			}
			had := w.witness.possible()
			if k.Ours && !k.Found.CPUs.Empty() {
				had = k.Found.CPUs
			}
			t := s.Tasks.Get(k.Task())
			if t == nil || t.Class != model.BE || c.Value.CPUs.Empty() || !c.Value.CPUs.Within(had) || l.Engine.Params.CPU.CPUSetMode == model.ModeEnforce {
				w.fail(checkMoved, fmt.Sprintf("remedy moves %s to CPUs %s; it had %s, and policy cpuset is in mode %s", s.Tasks.Name(k.Task()), c.Value.CPUs, had, l.Engine.Params.CPU.CPUSetMode))
			}
			w.res.Moved++
		}
	}
}

// drawCPUs draws a list that a task has of its own, or none.
func (p *plan) drawCPUs(r source, some float64, within model.CPUSet) model.CPUSet {
	if !r.chance(some) {
		return model.CPUSet{}
	}
	if within.Empty() {
		within = model.FullSet(p.machine.CPUs())
	}
	var cpus model.CPUSet
	list := within.Members()
	for _, i := range rand.New(rand.NewPCG(r.Uint64(), 3)).Perm(len(list))[:r.count(1, len(list))] {
		cpus.Add(list[i])
	}
	return cpus
}
