package soak

import (
	"errors"
	"strconv"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/record"
	"github.com/commensal-io/commensal/twin/fault"
)

// life is one agent from its start to its end.
type life struct {
	owner   *fault.Owner
	core    *agent.Core
	host    *linux.Host
	rec     *recorder
	guarded bool // its guardian lives

	schedule cadence.Schedule
	origin   int64
	at       int64 // of the next turn, since origin
	next     cadence.Turn
	death    *event // that is under way, nil for none
	offTurns int    // turns since the kill switch was put there
}

// due is when the next turn is.
func (l *life) due() int64 { return l.origin + l.at }

// restartNsec is what a service manager waits before it starts an agent again that
// refused to start.
const restartNsec = 1e9

// restoring is what a restorer of that name works with.
func (w *world) restoring(o *fault.Owner) linux.Restoring {
	return linux.Restoring{FS: o.FS(w.k), Journal: journalPath, Boot: w.boot, Disk: o.Disk(w.mutate.wrapDisk(w.disk)), Clock: w.clock}
}

// start starts an agent, as Agent.Run does: recover, then open. One that cannot start is
// started again later.
func (w *world) start() {
	w.born++
	w.res.Lives++
	o := w.inj.Begin("agent", 0)
	l := &life{owner: o, at: 0, next: cadence.First(), guarded: true}
	w.turning = true
	err := w.open(l)
	w.turning = false
	w.startAt = w.now() + restartNsec
	w.checkJournal()
	if err != nil || o.Killed() {
		w.inj.Note("failed-start", "")
		return
	}
	for _, g := range w.witness.list {
		for k := range g.knobs {
			g.knobs[k].wild = false // a new agent remembers nothing
		}
	}
	w.life = l
}

func (w *world) open(l *life) error {
	r := w.restoring(l.owner)
	w.res.Restores++
	j, _, err := agent.Recover(r, w.quiet)
	if err != nil {
		return err
	}
	c := &w.plan.config
	params := c.Params("simulated")
	params.Hardcap.IDPrefix = strconv.Itoa(w.born) + "."
	l.host, err = linux.Open(linux.Options{
		FS: l.owner.FS(w.k), Rules: w.rules, Journal: j, DiscoverEvery: c.Agent.DiscoverEvery,
		Counters: params.Sources[model.SourceCPI], Log: w.quiet,
		Delay: l.owner.Source(w.k.Taskstats()), Opener: l.owner.Opener(w.k.Counters()), Clock: w.clock,
	})
	if err != nil {
		return errors.Join(err, j.Close())
	}
	rec, err := record.NewWriter(w.records, c.Record.MaxBytes, record.Header{
		Program: "soak", Boot: w.boot, Profile: c.Profile, Params: params,
	})
	if err != nil {
		return err
	}
	l.rec = &recorder{Writer: rec, o: l.owner}
	jobs := make([]string, len(c.Tasks))
	for i := range c.Tasks {
		jobs[i] = c.Tasks[i].Job
	}
	l.core = agent.NewCore(agent.Parts{
		Host: w.wrapHost(l.host), Engine: engine.New(params), Record: l.rec, Clock: w.clock, Jobs: jobs, Log: w.quiet,
		KillSwitch: func() bool { return w.killSwitch }, KillSwitchPath: "/run/off",
	})
	l.schedule = cadence.New(c.Pace())
	l.origin = w.now()
	return nil
}

// turn is the loop's: one tick, and when the next one is.
func (w *world) turn() {
	l := w.life
	w.turnWith(l.next)
	if w.life != l {
		return
	}
	l.guarded = true // the loop looks after its guardian
	l.at, l.next = l.schedule.Next(max(l.at, w.now()-l.origin))
}

// turnWith takes one turn and lets the checkers look.
func (w *world) turnWith(t cadence.Turn) {
	l := w.life
	w.turning = true
	out := l.core.Turn(t)
	w.turning = false
	w.res.Turns++
	if l.owner.Killed() {
		w.die()
		return
	}
	if w.mutate.out != nil {
		w.mutate.out(out)
	}
	w.count(out)
	w.checkTurn(l, out)
}

// count sums up what a turn led to.
func (w *world) count(out *engine.Output) {
	for i := range out.Decisions {
		if out.Decisions[i].Kind == model.DecideAnomaly {
			w.res.Incidents++
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; {
		case c.Kind == model.Hold:
			w.res.Caps++
		case c.Kind == model.Set && c.Value.Knob == model.CPUPlace:
			w.res.Places++
		case c.Kind == model.Set:
			w.res.Raises++
		}
	}
}

// mark makes an agent's death sure: now, or in the midst of its writes.
func (w *world) mark(e *event) {
	if w.life == nil || w.life.death != nil {
		return
	}
	w.life.death = e
	if e.n > 0 {
		w.life.owner.DieIn(e.n)
		return
	}
	w.inj.Note(killName, "")
	w.life.owner.Kill()
	w.die()
}

// die is what happens once the agent is gone: its guardian restores, unless it was killed
// too, before it began or in the midst of it; then only the next start does.
func (w *world) die() {
	l := w.life
	e := l.death
	w.life = nil
	w.startAt = w.now() + e.nsec
	// Its descriptors are the kernel's to close, and the record's file is on a real disk.
	_ = l.rec.Close()
	if !l.guarded {
		return
	}
	killAt := uint64(0)
	if e.both {
		killAt = 1 + e.pick%12
		w.inj.Note("guardian-killed", "")
	}
	w.guard(killAt)
}

// guard is a guardian's deed, perhaps cut off at a write.
func (w *world) guard(killAt uint64) {
	if w.mutate.noGuardian {
		return
	}
	o := w.inj.Begin("guardian", killAt)
	w.res.Restores++
	w.turning = true
	rep, err := w.restoring(o).Run()
	w.turning = false
	// What a guardian could not do the next start does.
	if err == nil {
		w.res.Restored += rep.Count(node.Restored)
	}
	o.Kill()
	w.checkJournal()
}

// stop ends an agent as SIGTERM does. Where that fails its guardian tries once more.
func (w *world) stop(e *event) {
	l := w.life
	if l == nil || w.now() < w.stallUntil {
		return
	}
	w.inj.Note("stop", "")
	w.res.Restores++
	w.turning = true
	err := l.core.Restore()
	w.turning = false
	if l.owner.Killed() {
		w.die()
		return
	}
	w.checkStopped(err)
	w.life = nil
	w.startAt = w.now() + e.nsec
	_ = errors.Join(l.host.Close(), l.rec.Close()) // reading only; the record is checked at the end
	l.owner.Kill()
	w.guard(0)
}

// recorder is the record on a disk that may refuse it.
type recorder struct {
	*record.Writer
	o *fault.Owner
}

// Begin implements agent.Recorder.
func (r *recorder) Begin(s *engine.State, wallNsec int64) error {
	if err := r.o.Check(fault.Append, recordName); err != nil {
		return err
	}
	return r.Writer.Begin(s, wallNsec)
}

// Tick implements agent.Recorder. After a write that fails the writer begins a new
// segment; here the old one ends without half a frame.
func (r *recorder) Tick(in *engine.Input, out *engine.Output) error {
	if err := r.o.Check(fault.Append, recordName); err != nil {
		return errors.Join(err, r.Close())
	}
	return r.Writer.Tick(in, out)
}

// mutations break the agent on purpose, for the tests of the checkers.
type mutations struct {
	host       func(w *world, h node.Host) node.Host
	disk       func(journal.Disk) journal.Disk
	out        func(out *engine.Output)
	noGuardian bool
}

func (w *world) wrapHost(h node.Host) node.Host {
	if w.mutate.host != nil {
		return w.mutate.host(w, h)
	}
	return h
}

func (m mutations) wrapDisk(d journal.Disk) journal.Disk {
	if m.disk != nil {
		return m.disk(d)
	}
	return d
}
