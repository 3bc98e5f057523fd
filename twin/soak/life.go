package soak

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/commensal-io/commensal/agent"
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
	*agent.Loop
	owner    *fault.Owner
	rec      *record.Writer
	begun    int64  // when it started
	beat     int64  // when it had its last turn
	guarded  bool   // its guardian lives
	death    *event // that is under way, nil for none
	offTurns int    // turns since the kill switch was put there
}

// keptEvery is after how many turns it is kept anew what an agent has learned: one that ends in between has lost
// what came since.
const keptEvery = 50

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
	w.witness.forgotten()
	o := w.inj.Begin("agent", 0)
	l := &life{owner: o, guarded: true}
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
		g.runsAgain(w.now())
		for k := range g.knobs {
			g.knobs[k].wild = nil // a new agent remembers nothing, and holds nothing
		}
	}
	if w.life = l; w.rolled != nil {
		w.tellRollOut()
	}
}

func (w *world) open(l *life) error {
	w.restores()
	w.reclaims, w.moves = map[string]int64{}, map[string][]int{} // what was asked of an agent ends with it
	c := &w.plan.config
	r := w.restoring(l.owner)
	core, err := agent.Assemble(c, agent.Deps{
		Waits: w.waitsOf(l.owner), SLO: w.latencies,
		FS: r.FS, Journal: r.Journal, Disk: r.Disk, Boot: r.Boot, Clock: r.Clock, Platform: "simulated",
		Delay: l.owner.Source(w.k.Taskstats()), Opener: l.owner.Opener(w.k.Counters()), Latency: w.k.MemoryLatency, Stalls: w.k.WatchStalls,
		Pages:    pageCalls{w.k.PageCalls(), w},
		Ender:    enderCalls{w.k.Ender(), w},
		Beside:   w.begin,
		IDPrefix: strconv.Itoa(w.born) + ".", KillSwitch: func() bool { return w.killSwitch }, Wrap: w.wrapHost,
		Record: func(h record.Header) agent.Recorder {
			h.Program = "soak"
			l.rec = record.NewWriter(w.records, c.Record.MaxBytes, h)
			l.rec.On(func(name string) (io.WriteCloser, error) { return createOn(l.owner, name) })
			return l.rec
		},
	})
	if err != nil {
		return err
	}
	if w.plan.recalls && w.born > 1 {
		before := w.learned
		core.GoOnWith(&before)
	}
	l.Loop, l.begun, l.beat = agent.NewLoop(core), w.now(), w.now()
	return nil
}

// waitsOf is what measures who makes whom wait, nil where it cannot be had.
func (w *world) waitsOf(o *fault.Owner) linux.WaitSource {
	if !w.plan.config.Agent.Waits {
		return nil
	}
	s, err := o.Waits(w.k.Waits)
	if err != nil {
		return nil // and no *fault.Waits that is nil
	}
	return s
}

// turn takes one turn of the loop and lets the checkers look.
func (w *world) turn() {
	l := w.life
	w.turnBy(l.Next)
	if w.life == l {
		l.guarded = true // the loop looks after its guardian
	}
}

// turnBy takes a turn in one of its ways.
func (w *world) turnBy(turn func() *engine.Output) {
	l := w.life
	w.turning, w.began = true, w.now()
	out := turn()
	w.turning = false
	if l.owner.Killed() {
		w.die()
		return
	}
	if out == nil {
		return // a glance showed that no pulse was needed
	}
	w.res.Turns++
	l.beat = w.now()
	if w.mutate.out != nil {
		w.mutate.out(out)
	}
	if w.plan.recalls && w.res.Turns%keptEvery == 0 {
		w.learned = l.Engine.Keep(w.clock.MonoNsec(), w.clock.WallNsec())
	}
	w.count(out)
	w.witness.storm.decided(out, l.pathOf, w.now())
	w.checkTurn(l, out)
}

// pathOf names a task, also one that this very turn took away.
func (l *life) pathOf(n model.TaskNum) string {
	if t := l.Engine.State.Tasks.Get(n); t != nil {
		return t.Path
	}
	return ""
}

// count sums up what a turn led to.
func (w *world) count(out *engine.Output) {
	for i := range out.Decisions {
		if out.Decisions[i].Kind == model.DecideAnomaly {
			w.res.Incidents++
			w.res.Late += bit(slices.ContainsFunc(out.Incidents, func(inc *model.Incident) bool {
				return inc.ID == out.Decisions[i].Incident && inc.Source.Row().Targeted
			}))
		}
	}
	for i := range out.Changes {
		switch c := &out.Changes[i]; {
		case c.Kind == model.Hold && c.Value.Knob == model.GroupFreeze:
			w.res.Freezes++
		case c.Kind == model.Hold && c.Value.Knob == model.IOMaxKnob:
			w.res.DiskCaps++
		case c.Kind == model.Hold && c.Value.Knob == model.MemoryHigh:
			w.res.MemCaps++
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
	w.gone(e)
	// Its descriptors are the kernel's to close, and the record's file is on a real disk.
	_ = l.rec.Close()
	w.witness.ended()
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

// gone takes an agent's process away, and with it what it was about to do.
func (w *world) gone(e *event) {
	w.life, w.class.work = nil, nil
	w.k.Machine().StopCopying()
	w.startAt = w.now() + e.nsec
}

// restores counts that somebody is about to put things back.
func (w *world) restores() {
	w.res.Restores++
	w.witness.storm.restoring(w.now())
}

// guard is a guardian's deed, perhaps cut off at a write.
func (w *world) guard(killAt uint64) {
	if w.mutate.noGuardian {
		return
	}
	o := w.inj.Begin("guardian", killAt)
	w.restores()
	w.witness.ended()
	since := w.now()
	w.turning = true
	run := w.restoring(o).Run
	if w.mutate.guard != nil {
		run = w.mutate.guard
	}
	rep, err := run()
	w.turning = false
	if !o.Killed() {
		w.checkGuarded(since, err)
	}
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
	for len(w.class.work) > 0 { // what is under way comes to its end first
		if w.class.at = w.now(); w.life == l {
			w.beside()
		}
		if w.life != l {
			return
		}
	}
	w.inj.Note("stop", "")
	w.restores()
	since := w.now()
	w.turning = true
	err := l.Restore()
	w.turning = false
	if l.owner.Killed() {
		w.die()
		return
	}
	w.checkStopped(since, err)
	w.gone(e)
	_ = errors.Join(l.Close(), l.rec.Close()) // reading only; the record is checked at the end
	l.owner.Kill()
	w.guard(0)
}

// recordFile is a file of the record on a disk that may refuse it: whole, or in the midst of
// a write.
type recordFile struct {
	*os.File
	o *fault.Owner
}

func createOn(o *fault.Owner, name string) (io.WriteCloser, error) {
	if err := o.Check(fault.Append, recordName); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	return &recordFile{f, o}, err
}

// Write implements io.Writer.
func (f *recordFile) Write(b []byte) (int, error) {
	if err := f.o.Check(fault.Append, recordName); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

// mutations break the agent on purpose, for the tests of the checkers.
type mutations struct {
	host       func(w *world, h node.Host) node.Host
	disk       func(journal.Disk) journal.Disk
	out        func(out *engine.Output)
	guard      func() (node.Report, error) // what guardians do instead
	answer     func(a *answer)             // of a socket
	noGuardian bool
}

func (w *world) wrapHost(h node.Host) node.Host {
	w.host, _ = h.(*linux.Host)
	if unplayed(w.res.Seed, pagesFrom) {
		h = w.k.Late(h)
	}
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
