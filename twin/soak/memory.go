package soak

import (
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/pressure"
	"github.com/commensal-io/commensal/twin/machine"
)

// Machines run out of memory: services and batch work grow, swap fills, groups reach their memory.max, and the kernel's OOM
// killer ends processes. Somebody starts them again.

// drawMemory draws what tasks take of memory, on half of the machines. It draws from a stream of its own, as it came after the others.
func (p *plan) drawMemory(r source, end int64) {
	if !r.chance(0.5) {
		return
	}
	p.machine.SwapBytes = pick[float64](r, 0, 0, 64<<20, 512<<20, 4<<30)
	whole := p.machine.MemBytes * float64(p.machine.Sockets)
	rest := whole + p.machine.SwapBytes // that a task can have beside what all of its kind have
	for _, h := range coldMemory {
		rest -= h.Bytes
	}
	for i := range p.tasks {
		t := &p.tasks[i]
		switch {
		case t.class == model.LC:
			t.memory = serviceMemory(r, whole)
		case t.class == model.BE && r.chance(0.6):
			t.memory = append([]machine.Heat{{Bytes: rest * r.between(0.05, 1), EveryNsec: 1e9, OverNsec: r.seconds(3, 150)}}, coldMemory...)
		}
		if t.class != model.System && r.chance(0.2) {
			t.most = int64(r.between(128<<20, whole))
		}
	}
	if r.chance(0.4) { // as it is meant to be used, and not from anywhere within the bounds of its parameters
		c := &p.config.Policies.CPU
		c.PressureMode, c.Pressure = model.ModeEnforce, pressure.Defaults()
		c.Pressure.End = pick(r, policy.EndNobody, policy.EndBatch)
	}
	for _, do := range []deed{sweep, respawn, respawn, respawn, respawn} {
		for range r.count(0, 6) {
			p.events = append(p.events, event{at: r.seconds(0, float64(end)/1e9), do: do, task: r.IntN(len(p.tasks)), nsec: r.seconds(1, 20)})
		}
	}
	sortEvents(p.events)
}

// serviceMemory is what a service has and grows by; some of it may be locked.
func serviceMemory(r source, whole float64) []machine.Heat {
	return []machine.Heat{
		{Bytes: whole * r.between(0.01, 0.06), EveryNsec: 1e9, Locked: r.chance(0.2)},
		{Bytes: whole * r.between(0, 0.04), EveryNsec: 300e9},
		{Bytes: whole * r.between(0, 0.06), EveryNsec: 30e9, File: true},
		{Bytes: whole * r.between(0, pick(r, 0.05, 0.4, 0.8)), EveryNsec: 2e9, OverNsec: r.seconds(5, 200)},
	}
}

// limitMemory gives a task's new group the limit that whoever made it wants.
func (w *world) limitMemory(t *taskPlan) {
	if t.most == 0 {
		return
	}
	file := "/sys/fs/cgroup" + t.path + "/memory.max"
	if w.plan.layout != cgroup.LayoutV2 {
		file = "/sys/fs/cgroup/memory" + t.path + "/memory.limit_in_bytes"
	}
	_ = w.k.WriteFile(file, strconv.AppendInt(nil, t.most, 10)) // where nobody hands the controller down it goes without
}

// advance lets a time pass on the machine, and takes in whom the kernel ended meanwhile.
func (w *world) advance(nsec int64) {
	w.k.Advance(nsec)
	for _, o := range w.k.TakeOOMKills() {
		name := "oom-kill"
		if _, class := w.witness.taskOf(o.Path); class == model.LC {
			name = "oom-kill-LC"
		}
		if o.Limit != "" {
			name += "-of-group"
		}
		w.inj.Note(name, fmt.Sprintf("%s, %.0f MiB", o.Path, o.Bytes/(1<<20)))
	}
	if r := w.machine.MemoryRoom(); !w.swapFull && r.SwapTotal > 0 && r.SwapFree < 4096 {
		w.swapFull = true
		w.inj.Note("swap-full", "")
	}
}

// sweep has a task's processes use all of their memory once.
func (w *world) sweep(t *taskPlan, e *event) {
	for _, pid := range w.k.PIDs(t.path) {
		if num, ok := w.k.Task(pid); ok {
			if err := w.machine.Sweep(num, e.nsec); err != nil {
				w.fail("simulation", err.Error())
			}
		}
	}
	w.inj.Note("memory-swept", t.path)
}

// respawn starts again what has ended in the groups of a task that are there.
func (w *world) respawn(t *taskPlan) {
	again := func(path string, cfg *machine.TaskConfig) {
		if _, err := w.witness.cg.Inode(path); err != nil || cfg == nil || len(w.k.PIDs(path)) > 0 {
			return
		}
		err := w.startProcess(t, path, cfg)
		switch {
		case refusesProcess(err):
			w.inj.Note("failed-arrival", path)
		case err != nil:
			w.fail("simulation", fmt.Sprintf("cannot start in %s: %v", path, err))
		default:
			w.inj.Note("respawned", path)
		}
	}
	if len(t.below) == 0 {
		again(t.path, &t.cfg)
	}
	for i := range t.below {
		again(t.below[i].path, t.below[i].cfg)
	}
	w.look()
}
