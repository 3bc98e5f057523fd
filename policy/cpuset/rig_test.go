package cpuset_test

import (
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

const (
	msec = enginetest.Msec
	sec  = enginetest.Sec
)

// rig is a node on which LC work waits when its set is full.
type rig struct {
	*enginetest.Node
	t     testing.TB
	p     *cpuset.Params
	s     *cpuset.State
	pulse model.Pulse

	backlog float64 // CPU-seconds of LC work that wait
	used    float64 // LC's CPU time, nanoseconds
	resizes int     // border moves
	lastBE  model.CPUSet
}

func newRig(t testing.TB, topo *model.Topology, tasks ...*enginetest.Task) *rig {
	n := enginetest.New(enginetest.Params(), topo, tasks...)
	r := &rig{Node: n, t: t, p: &n.Engine.Params.CPU.CPUSet, s: &n.Engine.State.CPU.CPUSet}
	r.mode(model.ModeEnforce)
	r.pulse.LCUsage = model.Read(0)
	n.Pulse = &r.pulse
	return r
}

func (r *rig) mode(m model.Mode) { r.Engine.Params.CPU.CPUSetMode = m }
func (r *rig) enforced() bool    { return r.Engine.Params.CPU.CPUSetMode == model.ModeEnforce }

func task(num int, class model.Class) *enginetest.Task { return enginetest.NewTask(num, class) }

func exclusive(num, cores int, quota float64) *enginetest.Task {
	t := task(num, model.LC)
	t.Exclusive, t.Cores = true, cores
	if quota > 0 {
		t.Quota(int64(quota*100_000), 100_000)
	}
	return t
}

func pair() []*enginetest.Task { return []*enginetest.Task{task(1, model.LC), task(2, model.BE)} }

// step lets dt pass with LC asking for so many CPUs, then takes a step.
func (r *rig) step(dt int64, want float64) *engine.Output {
	r.t.Helper()
	room := float64(len(r.Topology.CPUs))
	if set := r.s.Shared(); !set.Empty() && r.enforced() {
		room = float64(set.Len())
	}
	work := r.backlog + want*float64(dt)/1e9
	done := min(work, room*float64(dt)/1e9)
	r.backlog = work - done
	r.used += done * 1e9
	r.NowNsec += dt
	r.pulse.MonoNsec = r.NowNsec
	if r.pulse.LCUsage.Outcome == model.OK {
		r.pulse.LCUsage.Value = uint64(r.used)
	}
	r.Pulse = &r.pulse
	return r.tick()
}

// tick takes a step as the node is and checks what must always hold.
func (r *rig) tick() *engine.Output {
	r.t.Helper()
	out := r.Beat(0)
	moved := r.s.BECPUs != r.lastBE
	if moved {
		r.resizes++
		r.lastBE = r.s.BECPUs
	}
	if moved || len(out.Changes)+len(out.Decisions) > 0 {
		r.check()
	}
	return out
}

// place returns the CPUs that are claimed for a task, "-" when there are none.
func (r *rig) place(num model.TaskNum) string {
	if c := r.Claim(model.PolicyCPUSet, num, model.CPUPlace); c != nil {
		return c.Value.CPUs.String()
	}
	return "-"
}

// held returns to what BE tasks are held while BE is parked, by task.
func (r *rig) held() map[model.TaskNum]float64 {
	caps := map[model.TaskNum]float64{}
	for _, t := range r.Tasks {
		if c := r.Claim(model.PolicyCPUSet, t.Num, model.CPUBandwidth); c != nil && c.Kind == model.ClaimCap {
			caps[t.Num] = c.Cap
		}
	}
	return caps
}

// coresOf gathers the CPUs of each physical core.
func coresOf(t *model.Topology) map[int]model.CPUSet {
	cores := map[int]model.CPUSet{}
	for _, c := range t.CPUs {
		set := cores[c.Core]
		set.Add(c.ID)
		cores[c.Core] = set
	}
	return cores
}

// check holds the state to the promises of the package.
func (r *rig) check() {
	r.t.Helper()
	s := r.s
	if !r.enforced() && r.Claims() > 0 {
		r.t.Fatalf("%d claims without enforcing", r.Claims())
	}
	if s.Status != cpuset.Divided {
		return
	}
	cores := coresOf(r.Topology)
	if s.Parked() {
		r.checkParked(cores)
		return
	}
	if len(r.held()) > 0 {
		r.t.Fatalf("BE tasks are held and BE has %d cores: %v", s.BE, r.held())
	}
	var own model.CPUSet
	for i := range s.Exclusive {
		for _, id := range s.Exclusive[i].Cores {
			if set := cores[id]; set.Empty() || !set.And(own).Empty() {
				r.t.Fatalf("exclusive cores overlap or are none: %+v", s.Exclusive)
			}
			own = own.Or(cores[id])
		}
	}
	for id := range cores {
		if n := sidesOf(cores[id], s.LCCPUs, s.BECPUs, own); n != 1 {
			r.t.Fatalf("core %d belongs to %d sides: LC %s, BE %s, exclusive %s", id, n, s.LCCPUs, s.BECPUs, own)
		}
	}
	if all := s.LCCPUs.Or(s.BECPUs).Or(own); all != r.Topology.Online() {
		r.t.Fatalf("sides are %s, online is %s", all, r.Topology.Online())
	}
	if s.BE < s.FloorCores || s.BE < 1 || len(s.Order)-s.BE < s.LeastCores {
		r.t.Fatalf("BE has %d of %d cores, floor %d, LC at least %d", s.BE, len(s.Order), s.FloorCores, s.LeastCores)
	}
	r.checkClaims(cores)
}

// sidesOf counts the sides that a core is of, in whole or in part.
func sidesOf(core model.CPUSet, sides ...model.CPUSet) (n int) {
	for _, set := range sides {
		if !core.And(set).Empty() {
			n++
		}
	}
	return n
}

// checkParked: LC has every core that no exclusive task has, and each BE task that we place
// is held.
func (r *rig) checkParked(cores map[int]model.CPUSet) {
	r.t.Helper()
	s, free := r.s, model.CPUSet{}
	if r.p.FloorCores != 0 || r.p.FloorShare != 0 || s.LeastCores == 0 {
		r.t.Fatalf("BE is parked although its floor is %d, %g", r.p.FloorCores, r.p.FloorShare)
	}
	for _, id := range s.Order {
		free = free.Or(cores[id])
	}
	if s.LCCPUs != free || s.BECPUs.Empty() || !s.BECPUs.Within(s.LCCPUs) {
		r.t.Fatalf("BE is parked on %s, LC has %s", s.BECPUs, s.LCCPUs)
	}
	caps := r.held()
	for _, t := range r.Tasks {
		if _, ok := caps[t.Num]; ok != (t.Class == model.BE && r.place(t.Num) != "-") {
			r.t.Fatalf("%s task %d on %s: held %t while BE is parked", t.Class, t.Num, r.place(t.Num), ok)
		}
	}
}

// checkClaims: no two tasks of different sides share a core.
func (r *rig) checkClaims(cores map[int]model.CPUSet) {
	r.t.Helper()
	var lc, be, own model.CPUSet
	for _, t := range r.Tasks {
		c := r.Claim(model.PolicyCPUSet, t.Num, model.CPUPlace)
		if c == nil {
			continue
		}
		if c.Value.CPUs.Empty() || c.ExpiresNsec <= r.NowNsec || c.Kind != model.ClaimPlace {
			r.t.Fatalf("a bad claim: %+v", c)
		}
		at := &lc
		if t.Class == model.BE {
			at = &be
		} else if c.Reason == "cores of its own" {
			at = &own
		}
		*at = at.Or(c.Value.CPUs)
	}
	for id := range cores {
		if sidesOf(cores[id], lc, be, own) > 1 {
			r.t.Fatalf("core %d has tasks of several sides: LC %s, BE %s, exclusive %s", id, lc, be, own)
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

func (r *rig) cores() (lc, be int) { return len(r.s.Order) - r.s.BE, r.s.BE }
