package soak

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// What befalls the whole agent, or the whole machine: hangs, reboots.

// deadline is for how long a guardian hears no beat until it ends the agent.
func (p *plan) deadline() int64 {
	return max(5*time.Second, 20*p.config.Agent.Pulse).Nanoseconds()
}

// watched returns when the guardian loses its patience: with an agent that has one, and that
// has not had its turn.
func (w *world) watched() (at int64, ok bool) {
	l := w.life
	if l == nil || !l.guarded || w.mutate.noGuardian || l.owner.Killed() {
		return 0, false
	}
	return l.beat + w.plan.deadline(), true
}

// hung is what a guardian does about an agent that gave no beat for too long: it ends it, and
// puts back what was held. An agent that hangs in a call ends there.
func (w *world) hung() {
	l := w.life
	w.inj.Note("hang-ended", "")
	l.owner.Kill()
	l.death = &event{do: kill, nsec: restartNsec}
	inCall := w.turning
	w.guard(0)
	w.turning = inCall
	l.guarded = false // it has done its work
	w.stallUntil = 0
	if !inCall {
		w.die()
	}
}

// reboot ends everything: processes, groups and settings. The machine comes back with another
// boot id and the same inode numbers; the journal is gone, as it lived in memory, or, from an
// agent of an older version, still there.
func (w *world) reboot(e *event) {
	if l := w.life; l != nil {
		l.owner.Kill()
		_ = l.rec.Close() // its file is on a real disk
		w.life = nil
	}
	w.inj.Note("reboot", "")
	lived := map[string]bool{}
	for _, g := range w.witness.list {
		lived[g.path] = true
		if strings.Count(g.path, "/") == 1 && g.path != "/" {
			if err := w.k.Stop(g.path); err != nil {
				w.fail("simulation", err.Error())
			}
		}
	}
	for cpu := 1; cpu < w.plan.machine.CPUs(); cpu++ { // the first one never goes
		if err := w.machine.SetOnline(cpu, true); err != nil {
			w.fail("simulation", err.Error())
		}
	}
	if e.pick%2 == 0 {
		_ = w.disk.Remove(journalPath) // there may be none
	}
	w.booted++
	w.handed = nil
	if err := w.boots(); err != nil {
		w.fail("simulation", err.Error())
		return
	}
	for i := range w.plan.tasks {
		if t := &w.plan.tasks[i]; lived[t.path] {
			w.arrive(t)
		}
	}
	w.stallUntil, w.startAt = 0, w.now()+e.nsec
}

// rename gives a task's group another name, as v1 allows: one that a rule still matches, or
// one that none does. What we hold there goes with it.
func (w *world) rename(e *event) {
	t := &w.plan.tasks[e.task]
	i := strings.LastIndexByte(t.path, '/')
	name := t.path[i+1:] + "r"
	if e.pick%2 == 0 {
		name = "was-" + t.path[i+1:]
	}
	to := t.path[:i+1] + name
	v := w.witness
	if v.flat() || t.class == model.System || v.group(t.path) == nil || v.group(to) != nil {
		return
	}
	for _, c := range []cgroup.Controller{cgroup.CPU, cgroup.CPUAcct, cgroup.CPUSet, cgroup.Memory, cgroup.Freezer, cgroup.PIDs} {
		mount := "/sys/fs/cgroup/" + string(c)
		if err := w.k.Rename(mount+t.path, mount+to); err != nil && !errors.Is(err, unix.ENOENT) { // handDown took it
			w.fail("simulation", err.Error())
		}
	}
	w.inj.Note("renamed", t.path)
	v.renamed[to], v.from[to] = t.class, t.path
	for kind := range model.OfCgroups {
		v.storm.changes[taskKnob{to, kind}] = v.storm.changes[taskKnob{t.path, kind}]
	}
	for _, g := range v.list {
		if !within(g.path, t.path) {
			continue
		}
		g.path, g.task = to+g.path[len(t.path):], to
		for kind := range model.OfCgroups {
			g.knobs[kind].wild = nil // to the agent it is a new task, of which it knows no stranger
		}
		// Until the agent lists the groups again, at the first window after that is due, it
		// cannot know; nor while it is stopped.
		c := &w.plan.config
		g.lastTrouble = max(w.now(), w.stallUntil)
		g.firstTrouble = g.lastTrouble - c.Agent.DiscoverEvery.Nanoseconds() - c.Sampling.Frequency.Nanoseconds()
	}
}

// boots starts the kernel on the machine, with a witness.
func (w *world) boots() error {
	var err error
	id := fmt.Sprintf("c0ffee00-7319-4e5a-8000-%012x", 1+w.booted)
	if w.k, err = kernfs.New(w.machine, kernfs.Options{Layout: w.plan.layout, PMU: w.plan.pmu, BootID: id, RDT: w.class.on, Resctrl: kernfs.ResctrlOptions{L2Ways: w.plan.l2Ways}}); err != nil {
		return err
	}
	if err := w.kernelThreads(); err != nil {
		return err
	}
	w.mountClasses(resctrl.MountOptions{})
	if w.boot, err = procstat.ReadBootID(w.k); err != nil {
		return err
	}
	return w.watch(w.k)
}

// checkGuarded looks after a guardian that was let finish: it puts back everything but what
// the kernel refused while it did.
func (w *world) checkGuarded(since int64, err error) {
	w.res.Checks++
	w.checkNoClasses(since, "a guardian", err)
	for _, g := range w.witness.list {
		for kind := range model.OfCgroups {
			if w.witness.ours(g, kind) && w.room(g, kind) && g.lastTrouble < since {
				w.fail(checkRestored, fmt.Sprintf("after a guardian (%v) %s has %s; rightful: %v", err, g.path, g.knobs[kind].now, g.knobs[kind].rightful))
			}
		}
	}
}
