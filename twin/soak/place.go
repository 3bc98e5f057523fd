package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
)

// Where groups may run: what of it is rightful, who shares cores, and CPUs that go.

// flat reports whether a group's list is its own affair, as on cgroup v2.
func (v *witness) flat() bool { return v.w.plan.layout == cgroup.LayoutV2 }

// possible are all CPUs of the machine.
func (v *witness) possible() model.CPUSet { return model.FullSet(v.w.plan.machine.CPUs()) }

// stands reports whether a list may stand where another is rightful. On v1 the kernel
// strikes CPUs that go offline, and who puts a list back cannot give what is offline, or
// what the group above has not any more. On v2 a list cannot be emptied while somebody
// lives there, and all CPUs come to the same.
func (v *witness) stands(g *watchedGroup, rightful, now model.CPUSet) bool {
	if now == rightful {
		return true
	}
	if v.flat() {
		return rightful.Empty() && now == v.possible()
	}
	if now.Within(rightful) && rightful.Without(now).Within(v.gone) {
		return true
	}
	above, err := v.read(parentOf(g.path), model.CPUPlace)
	if err != nil {
		return false
	}
	room := above.CPUs
	near := func(cpus model.CPUSet) bool {
		return now.Within(cpus) && cpus.Without(now).Within(v.gone)
	}
	if got := rightful.And(room); !got.Empty() && near(got) {
		return true
	}
	return rightful.And(room).Without(v.gone).Empty() && near(room)
}

// settled takes in that a list was put back as far as there was room for it: who comes
// later finds that.
func (v *witness) settled(g *watchedGroup, k *watchedKnob) {
	if k.kind != model.CPUPlace || v.flat() || slices.Contains(k.rightful, k.now) || !v.isRightful(g, k.now) {
		return
	}
	if up := v.group(parentOf(g.path)); up == nil || !v.ours(up, k.kind) {
		k.rightful = append(k.rightful, k.now)
	}
}

// struck reports whether a list is what a journal's limit says less CPUs that went offline.
func (v *witness) struck(l *journal.Limit, now model.CPUSet) bool {
	of := []model.CPUSet{l.Before.CPUs, l.Intended.CPUs, l.Before.CPUs.Or(l.Intended.CPUs)}
	if l.ReadBack != nil {
		of = []model.CPUSet{l.ReadBack.CPUs}
	}
	return !v.flat() && slices.ContainsFunc(of, func(c model.CPUSet) bool { return now.Within(c) && c.Without(now).Within(v.gone) })
}

// parentOf returns the group above.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// inherited is what is rightful in a new group. One that was made with the list of the
// group above, while that was ours, has what it would have had without us.
func (v *witness) inherited(path string, now model.Setting) []model.Setting {
	up := v.group(parentOf(path))
	if now.Knob == model.CPUPlace && !v.flat() && up != nil && up.knobs[now.Knob].now == now && v.ours(up, now.Knob) {
		list := slices.Clone(up.knobs[now.Knob].rightful)
		if v.w.plan.cpusOf(path) == now.CPUs {
			list = append(list, now) // it is its own: nobody can tell
		}
		return list
	}
	return []model.Setting{now}
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
	if err := w.k.SetOnline(cpu, on); err != nil {
		w.fail("simulation", err.Error())
		return
	}
	for _, g := range w.witness.list { // on v1 the kernel wrote their lists
		if now, err := w.witness.read(g.path, model.CPUPlace); err == nil {
			g.knobs[model.CPUPlace].now = now
		}
	}
	w.witness.alike()
	w.inj.Note(map[bool]string{false: "cpu-gone", true: "cpu-back"}[on], fmt.Sprintf("cpu%d", cpu))
}

// alike: on v1 a CPU that goes offline is struck from every cpuset, and a group's own list
// may become equal to the list that we wrote in the group above. Nobody can tell such a list
// from a copy of ours, so from then on our values above are right in the group, too.
func (v *witness) alike() {
	if v.flat() {
		return
	}
	for _, g := range v.list {
		up := v.group(parentOf(g.path))
		if up == nil {
			continue
		}
		k, above := &g.knobs[model.CPUPlace], &up.knobs[model.CPUPlace]
		if k.now != above.now || slices.Contains(above.rightful, above.now) {
			continue
		}
		for _, r := range above.rightful {
			if !slices.Contains(k.rightful, r) {
				k.rightful = append(k.rightful, r)
			}
		}
	}
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
		if k.State == engine.KnobAsked || k.Failures > 0 {
			return
		}
		t := s.Tasks.Get(k.Task())
		g := (*watchedGroup)(nil)
		if t != nil {
			g = w.witness.group(t.Path)
		}
		if g == nil || k.State != engine.KnobHeld || !k.Ours || g.knobs[k.Kind].now != k.Written {
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
