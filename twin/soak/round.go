package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/fault"
)

// A round is a short run with one fault: tasks come, are held by policies and by an operator,
// then the fault befalls them, and whatever ends the holding follows. What is measured is how
// long it takes from there until the kernel is as it was found.

// Fault is what a round is about.
type Fault uint8

// The faults.
const (
	AgentKilled Fault = iota
	BothKilled
	AgentHung
	DiskFull
	DiskReadOnly
	DiskSlow
	NoDescriptors
	GroupRemade
	GroupRenamed
	StrangerAt20Hz
	CPUUnplugged
	Reboot
	NumFaults
)

var faultNames = [NumFaults]string{
	"agent killed", "agent and guardian killed", "agent hung", "disk full", "disk read-only", "disk slow", "descriptors used up",
	"cgroup removed and made anew", "cgroup renamed (v1)", "stranger at 20 Hz", "CPU unplugged", "reboot",
}

// String names the fault.
func (f Fault) String() string { return faultNames[f] }

// Round is what became of one.
type Round struct {
	Seed     uint64
	Held     int // knobs that stood otherwise than found when the fault came
	Knobs    int // that were looked at in the end
	Wrong    int // of these, not as they should be
	BackNsec int64
	Failure  *Failure // of any checker
}

// The times of a round.
const (
	roundMinutes = 0.5
	capNsec      = 3e9  // operators speak
	waitNsec     = 60e9 // until it counts as never
)

// PlayRound plays a round. Whether something was held when the fault came depends on the seed.
func PlayRound(f Fault, seed uint64) (*Round, error) {
	o := Options{Minutes: roundMinutes, Calm: true, roomy: true}
	dir, err := os.MkdirTemp("", "commensal-round-")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	o.only = func(p *plan) {
		p.mayDie, p.config.Record.Enabled = false, true
		p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.do != arrive })
		for i := range p.events {
			p.events[i].at = 0
		}
		if f == GroupRenamed {
			p.layout = cgroup.LayoutHybrid
		}
	}
	w, err := newWorld(seed, dir, o)
	if err != nil {
		return nil, fmt.Errorf("soak: round %d: %w", seed, err)
	}
	w.end += waitNsec // so that time goes on until it counts as never
	r := &round{world: w, fault: f, draw: source{rand.New(rand.NewPCG(seed, uint64(f)))}}
	w.guarded(r.play)
	r.out.Seed, r.out.Failure = seed, w.failure
	if w.failure != nil && r.out.Wrong == 0 {
		r.out.Wrong = 1
	}
	return &r.out, nil
}

// round is one that is being played.
type round struct {
	*world
	fault Fault
	draw  source
	out   Round
}

func (r *round) play() {
	r.until(capNsec)
	for i := range r.plan.tasks {
		if t := &r.plan.tasks[i]; t.class == model.BE && r.life != nil {
			r.life.Take(agent.Request{Kind: model.CommandCap, Task: t.path, Cap: r.draw.between(0.01, 0.5), Duration: 100}, "operator")
		}
	}
	if r.life != nil {
		r.turnBy(r.life.Hear)
	}
	r.until(capNsec + r.draw.seconds(1, 6))
	r.out.Held = len(r.heldGroups(model.CPUBandwidth)) + len(r.heldGroups(model.CPUPlace))
	from := r.strike()
	for r.failure == nil && !r.back() && r.now() < from+waitNsec {
		r.next()
	}
	r.out.BackNsec = r.now() - from
	r.finish()
	for _, g := range r.witness.list {
		for kind := range model.OfCgroups {
			if g.task == "" {
				continue
			}
			r.out.Knobs++
			if r.witness.ours(g, kind) && r.room(g, kind) {
				r.out.Wrong++
			}
		}
	}
}

// until plays to a time.
func (r *round) until(at int64) {
	for r.failure == nil && r.now() < at {
		r.next()
	}
}

// back reports whether nothing of ours stands.
func (r *round) back() bool {
	for _, g := range r.witness.list {
		for kind := range model.OfCgroups {
			if r.witness.ours(g, kind) && r.room(g, kind) {
				return false
			}
		}
	}
	return true
}

// strike lets the fault come, and after it what ends the holding. It returns when that was.
func (r *round) strike() (from int64) {
	at := func(e *event) int64 {
		from := r.now()
		r.do(e)
		return from
	}
	pick := r.draw.Uint64()
	switch r.fault {
	case AgentKilled, BothKilled:
		// In the midst of its writes, or between them.
		e := &event{do: kill, both: r.fault == BothKilled, pick: pick, nsec: restartNsec}
		if r.life != nil && r.draw.chance(0.5) {
			e.n = uint64(r.draw.count(1, 12))
			r.do(e)
			r.killSwitch = true // it has to write
			for from := r.now(); r.life != nil && r.life.death != nil && r.now() < from+3e9; {
				r.next()
			}
			r.killSwitch = false
		}
		if r.life != nil {
			r.life.death = nil
			e.n = 0
			return at(e)
		}
		return r.now()
	case AgentHung:
		return at(&event{do: stall, nsec: waitNsec})
	case Reboot:
		return at(&event{do: reboot, pick: pick, nsec: restartNsec})
	}
	r.befall(pick)
	return r.end()
}

// befall is a fault that does not end the holding itself.
func (r *round) befall(pick uint64) {
	disk := fault.Rule{Ops: fault.Append, Share: 1, From: r.now()}
	held := func() *watchedGroup {
		if list := append(r.heldGroups(model.CPUBandwidth), r.heldGroups(model.CPUPlace)...); len(list) > 0 {
			return list[pick%uint64(len(list))]
		}
		return nil
	}
	taskOf := func(g *watchedGroup) int {
		return slices.IndexFunc(r.plan.tasks, func(t taskPlan) bool { return g != nil && t.path == g.task })
	}
	switch r.fault {
	case DiskFull:
		disk.Errno = unix.ENOSPC
	case DiskReadOnly:
		disk.Errno = unix.EROFS
	case DiskSlow:
		disk.Kind, disk.Nsec = fault.Slow, r.draw.seconds(0.2, 1)
	case NoDescriptors:
		disk = fault.Rule{Ops: fault.Open | fault.Write, Share: 1, From: r.now(), To: r.now() + r.draw.seconds(3, 5), Kind: fault.Fail, Errno: unix.EMFILE}
	case GroupRemade, GroupRenamed:
		if i := taskOf(held()); i >= 0 {
			r.do(&event{do: map[Fault]deed{GroupRemade: remake, GroupRenamed: renames}[r.fault], task: i, pick: pick})
		}
	case StrangerAt20Hz:
		for end := r.now() + 3e9; r.now() < end && r.failure == nil; {
			deed := strangerPlace
			if r.draw.chance(0.5) {
				deed = stranger
			}
			r.do(&event{do: deed, pick: r.draw.Uint64()})
			r.until(r.now() + 50e6)
		}
	case CPUUnplugged:
		r.do(&event{do: replug, pick: pick})
	}
	if r.fault <= NoDescriptors {
		r.inj.Add(disk)
		r.plan.rules = append(r.plan.rules, disk)
	}
	r.until(r.now() + r.draw.seconds(0, 2))
}

// end ends the holding: the kill switch, SIGTERM or SIGKILL.
func (r *round) end() (from int64) {
	from = r.now()
	switch e := (&event{nsec: restartNsec}); {
	case r.draw.chance(0.33):
		e.do = switchOn
		r.do(e)
	case r.draw.chance(0.5):
		e.do = stop
		r.do(e)
	default:
		e.do = kill
		r.do(e)
	}
	return from
}
