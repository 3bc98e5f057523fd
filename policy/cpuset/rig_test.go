package cpuset

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/commensal-io/commensal/model"
)

const (
	msec = int64(1e6)
	sec  = int64(1e9)
)

// shape is a machine to build a topology of.
type shape struct {
	sockets, llcs, cores, threads int // llcs a socket, cores a cache, CPUs a core
}

// topology numbers CPUs as Linux on x86 does: the first CPU of every core, then the second.
func (s shape) topology() *model.Topology {
	t := &model.Topology{}
	for th := range s.threads {
		for c := range s.sockets * s.llcs * s.cores {
			t.CPUs = append(t.CPUs, model.CPU{
				ID: th*s.sockets*s.llcs*s.cores + c, Core: c, Socket: c / (s.llcs * s.cores), LLC: c / s.cores,
			})
		}
	}
	t.Possible = t.Online()
	return t
}

// without takes CPUs offline.
func without(t *model.Topology, ids ...int) *model.Topology {
	off := model.CPUSet{}
	for _, id := range ids {
		off.Add(id)
	}
	n := &model.Topology{Possible: t.Possible}
	for _, c := range t.CPUs {
		if !off.Has(c.ID) {
			n.CPUs = append(n.CPUs, c)
		}
	}
	return n
}

func cpus(t testing.TB, list string) model.CPUSet {
	t.Helper()
	s, err := model.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rig is a node on which LC work waits when its set is full, with a ledger that grants
// everything at once.
type rig struct {
	t      testing.TB
	p      Params
	s      *State
	v      model.CPUView
	w      model.Wishes
	pulse  model.Pulse
	claims map[model.TaskNum]model.Claim // places
	caps   map[model.TaskNum]model.Claim

	backlog float64 // CPU-seconds of LC work that wait
	used    float64 // LC's CPU time, nanoseconds
	resizes int     // border moves
	counted int     // claims made
	lastBE  model.CPUSet
	said    []model.Decision
	reload  bool // write the state out and read it back before each step
}

func newRig(t testing.TB, topo *model.Topology, tasks ...model.TaskView) *rig {
	r := &rig{t: t, p: Defaults(), s: &State{}, claims: map[model.TaskNum]model.Claim{}, caps: map[model.TaskNum]model.Claim{}}
	r.v = model.CPUView{NowNsec: 1000 * sec, Mode: model.ModeEnforce, Topology: topo, Tasks: tasks, Changed: true}
	r.pulse.LCUsage = model.Read(0)
	return r
}

func task(num int, class model.Class) model.TaskView {
	var v model.TaskView
	v.Task = model.Task{Num: model.TaskNum(num), Path: fmt.Sprintf("/t%d", num), Class: class}
	for k := range v.Knobs {
		v.Knobs[k] = model.KnobView{Known: true, Found: model.Setting{Knob: model.KnobKind(k)}}
	}
	v.Knobs[model.CPUBandwidth].Found.CPUMax = model.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}
	return v
}

func exclusive(num, cores int, quota float64) model.TaskView {
	v := task(num, model.LC)
	v.Task.Exclusive, v.Task.Cores = true, cores
	if quota > 0 {
		v.Knobs[model.CPUBandwidth].Found.QuotaUsec = int64(quota * 100_000)
	}
	return v
}

func pair() []model.TaskView { return []model.TaskView{task(1, model.LC), task(2, model.BE)} }

// step lets dt pass with LC asking for so many CPUs, then takes a step.
func (r *rig) step(dt int64, want float64) {
	r.t.Helper()
	room := float64(len(r.v.Topology.CPUs))
	if set := r.s.Shared(); !set.Empty() && r.v.Mode == model.ModeEnforce {
		room = float64(set.Len())
	}
	work := r.backlog + want*float64(dt)/1e9
	done := min(work, room*float64(dt)/1e9)
	r.backlog = work - done
	r.used += done * 1e9
	r.v.NowNsec += dt
	r.pulse.MonoNsec = r.v.NowNsec
	if r.pulse.LCUsage.Outcome == model.OK {
		r.pulse.LCUsage.Value = uint64(r.used)
	}
	r.v.Pulse = &r.pulse
	r.tick()
}

// tick takes a step as the view is, carries the wishes out and checks what must always hold.
func (r *rig) tick() {
	r.t.Helper()
	if r.reload {
		r.roundTrip()
	}
	r.w.Reset()
	r.s.Step(&r.p, &r.v, &r.w)
	looked := r.v.Changed
	r.v.Changed = false
	if r.s.BECPUs != r.lastBE {
		looked = true
		r.resizes++
		r.lastBE = r.s.BECPUs
	}
	r.said = append(r.said, r.w.Decisions...)
	r.carryOut()
	if looked || len(r.w.Claims)+len(r.w.Drops) > 0 {
		r.check()
	}
}

func (r *rig) roundTrip() {
	b, err := json.Marshal(r.s)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = &State{}
	if err := json.Unmarshal(b, r.s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) carryOut() {
	for _, d := range r.w.Drops {
		if d.Kind == model.ClaimCap {
			delete(r.caps, d.Task)
			r.knob(d.Task, model.CPUBandwidth, func(k *model.KnobView) { k.Ours = false })
			continue
		}
		delete(r.claims, d.Task)
		r.knob(d.Task, model.CPUPlace, func(k *model.KnobView) { k.Ours, k.Now = false, k.Found })
	}
	for _, c := range r.w.Claims {
		r.counted++
		if c.Kind == model.ClaimCap && c.Cap == r.p.ParkCap && c.ExpiresNsec > r.v.NowNsec {
			r.caps[c.Task] = c
			r.knob(c.Task, model.CPUBandwidth, func(k *model.KnobView) { k.Ours = true })
			continue
		}
		if c.CPUs.Empty() || c.ExpiresNsec <= r.v.NowNsec || c.Kind != model.ClaimPlace {
			r.t.Fatalf("a bad claim: %+v", c)
		}
		r.claims[c.Task] = c
		r.knob(c.Task, model.CPUPlace, func(k *model.KnobView) {
			if !k.Refused {
				k.Ours, k.Now = true, model.Place(c.CPUs)
			}
		})
	}
	for num, c := range r.claims {
		if c.ExpiresNsec <= r.v.NowNsec {
			r.t.Fatalf("the claim on task %d ran out", num)
		}
	}
}

func (r *rig) knob(num model.TaskNum, kind model.KnobKind, f func(k *model.KnobView)) {
	for i := range r.v.Tasks {
		if r.v.Tasks[i].Task.Num == num {
			f(&r.v.Tasks[i].Knobs[kind])
			r.v.Changed = true
		}
	}
}

// check holds the state to the promises of the package.
func (r *rig) check() {
	r.t.Helper()
	s := r.s
	if s.Status != Divided {
		return
	}
	m := machineOf(r.v.Topology)
	if s.parked() {
		r.checkParked(m)
		return
	}
	for num := range r.caps {
		r.t.Fatalf("task %d is capped and BE has %d cores", num, s.BE)
	}
	var own model.CPUSet
	for i := range s.Exclusive {
		set := m.cpus(s.Exclusive[i].Cores)
		if set.Empty() || !set.And(own).Empty() {
			r.t.Fatalf("exclusive cores overlap or are none: %+v", s.Exclusive)
		}
		own = own.Or(set)
	}
	sides := [...]model.CPUSet{s.LCCPUs, s.BECPUs, own}
	for i := range m.cores {
		n := 0
		for _, set := range sides {
			switch c := m.cores[i].cpus; {
			case c.Within(set):
				n++
			case !c.And(set).Empty():
				r.t.Fatalf("core %d is divided", m.cores[i].id)
			}
		}
		if n != 1 {
			r.t.Fatalf("core %d belongs to %d sides: LC %s, BE %s, exclusive %s", m.cores[i].id, n, s.LCCPUs, s.BECPUs, own)
		}
	}
	if all := s.LCCPUs.Or(s.BECPUs).Or(own); all != r.v.Topology.Online() {
		r.t.Fatalf("sides are %s, online is %s", all, r.v.Topology.Online())
	}
	if s.BE < s.FloorCores || s.BE < 1 || len(s.Order)-s.BE < s.LeastCores {
		r.t.Fatalf("BE has %d of %d cores, floor %d, LC at least %d", s.BE, len(s.Order), s.FloorCores, s.LeastCores)
	}
	if r.v.Mode != model.ModeEnforce && len(r.w.Claims)+len(r.w.Drops) > 0 {
		r.t.Fatalf("wishes without enforcing: %+v", r.w)
	}
	r.checkClaims(m)
}

// checkParked: LC has every core that no exclusive task has, and each BE task that we place
// is held.
func (r *rig) checkParked(m *machine) {
	s := r.s
	if r.p.FloorCores != 0 || r.p.FloorShare != 0 || s.LeastCores == 0 {
		r.t.Fatalf("BE is parked although its floor is %d, %g", r.p.FloorCores, r.p.FloorShare)
	}
	if s.LCCPUs != m.cpus(s.Order) || s.BECPUs.Empty() || !s.BECPUs.Within(s.LCCPUs) {
		r.t.Fatalf("BE is parked on %s, LC has %s", s.BECPUs, s.LCCPUs)
	}
	for i := range s.Placed {
		e := &s.Placed[i]
		if _, ok := r.caps[e.Task]; ok != (e.Side == sideBE && r.v.Mode == model.ModeEnforce) {
			r.t.Fatalf("task %d of side %d: capped %t while BE is parked", e.Task, e.Side, ok)
		}
	}
}

// checkClaims: no two tasks of different sides share a core.
func (r *rig) checkClaims(m *machine) {
	var at [4]model.CPUSet
	for i := range r.s.Placed {
		if c, ok := r.claims[r.s.Placed[i].Task]; ok && !r.v.Tasks[i].Knobs[model.CPUPlace].Refused {
			at[r.s.Placed[i].Side] = at[r.s.Placed[i].Side].Or(c.CPUs)
		}
	}
	for i := range m.cores {
		n := 0
		for _, which := range []side{sideLC, sideBE, sideOwn} {
			if !at[which].And(m.cores[i].cpus).Empty() {
				n++
			}
		}
		if n > 1 {
			r.t.Fatalf("core %d has tasks of %d sides: LC %s, BE %s, exclusive %s", m.cores[i].id, n, at[sideLC], at[sideBE], at[sideOwn])
		}
	}
}

// run lets LC ask for so many CPUs for a while.
func (r *rig) run(d int64, want float64) {
	r.t.Helper()
	for range d / (50 * msec) {
		r.step(50*msec, want)
	}
}

// needs returns the cores that LC is given for a mean load.
func (r *rig) needs(cpus float64) int { return r.s.size(&r.p, cpus) }

func (r *rig) cores() (lc, be int) { return len(r.s.Order) - r.s.BE, r.s.BE }

// heard counts what was said of a kind.
func (r *rig) heard(kind model.DecisionKind) int {
	n := 0
	for i := range r.said {
		if r.said[i].Kind == kind {
			n++
		}
	}
	return n
}

func sameWishes(a, b *model.Wishes) bool {
	return reflect.DeepEqual(append([]model.Claim{}, a.Claims...), append([]model.Claim{}, b.Claims...)) &&
		reflect.DeepEqual(append([]model.Drop{}, a.Drops...), append([]model.Drop{}, b.Drops...)) &&
		reflect.DeepEqual(append([]model.Decision{}, a.Decisions...), append([]model.Decision{}, b.Decisions...))
}
