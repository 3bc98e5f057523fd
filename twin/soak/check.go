package soak

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/record"
	"github.com/commensal-io/commensal/twin/fault"
)

// Check is one thing that is watched in every run.
type Check struct {
	Name  string `json:"name"`
	What  string `json:"what"`  // must hold
	Blind string `json:"blind"` // what it does not verify
}

// The names of the checks.
const (
	checkKnown    = "only known tasks"
	checkLC       = "LC is never held"
	checkApart    = "LC and BE share no core"
	checkEmpty    = "no cpuset is emptied"
	checkJournal  = "journal first"
	checkReadable = "journal is readable"
	checkStorm    = "no write storm"
	checkStranger = "a stranger's word stands"
	checkMadeUp   = "no stranger is made up"
	checkExpiry   = "no claim outlives its expiry"
	checkSwitch   = "the kill switch releases"
	checkBounded  = "bounded memory"
	checkFinite   = "finite numbers"
	checkRestored = "host restored"
	checkReplay   = "the record replays"
	checkPanic    = "no panic"
	checkDoor     = "sockets answer"
	checkReclaim  = "reclaim is asked for"
	checkPages    = "moved pages are asked for"
	checkEnds     = "who is ended was given up"
	checkAgree    = "host and ledger agree"
	checkMoved    = "who is moved stays on its CPUs"
	checkTrials   = "one remedy at a time"
)

// Checks lists what every run is watched for.
func Checks() []Check {
	return []Check{
		{checkKnown, "every write is to a CPU limit, the weight or the cpuset of an LC or BE task or of a group in it", "writes to resctrl, memory.reclaim and cgroup.kill, and pages that are moved, which have checks of their own; reads"},
		{checkLC, "no LC or system task is ever held, by policies or by operators; the quota of an LC task is never below what was found, unless the configuration or a roll-out allows it", "whether the BE task that is held is the one that did the harm; that services have all back once a roll-out that allowed less is over"},
		{checkApart, "LC and BE tasks that are where we put them have no physical core in common, while no change is on its way or refused", "tasks that a stranger moved; on v2, where tasks run whose CPUs are all offline"},
		{checkEmpty, "no write of ours leaves a cpuset without CPUs, but where it was found so", "cpusets that the kernel empties when CPUs go offline"},
		{checkJournal, "when a value of ours reaches the kernel, the journal on disk says what was found and what is meant, for this very group", "that the file outlives its writer: the simulated one does"},
		{checkReadable, "a journal can be read completely, unless its disk had faults", "journals of other versions"},
		{checkStorm, fmt.Sprintf("in any minute a knob of a group is tried to be written at most %d times (a place %d times) for each change of its task's that was decided and each restore, and %d times that; the journal likewise, %d calls for each turn with changes", perChange[model.CPUBandwidth], perChange[model.CPUPlace], retries, perBatch), "how many changes would have been enough"},
		{checkStranger, "a file of a knob that a stranger wrote while the knob was held is not written again until an operator speaks or the agent is a new one", "strangers who write in the very moment between our write and our look at it, or whose last word before anybody looked is what we had left: they cannot be told from us"},
		{checkMadeUp, "a foreign write is reported only of a task of which another program has written a knob that was held, since the last report of that knob", "that each one is reported"},
		{checkExpiry, "while an agent runs nothing of ours stands in the kernel that no claim asks for, but for a few turns, or as long again as faults hindered its release", "while no agent runs and its guardian is dead; that claims are made for good reasons"},
		{checkSwitch, fmt.Sprintf("two turns after the kill-switch file appeared no claim is left and no page is on its way, after %d nothing of ours stands in the kernel where no fault hindered its release, and no claim is made while the file is there", slackTurns), "the file itself: what the agent is told is simulated"},
		{checkBounded, "the engine's memory grows with the tasks there are, the journal with what is held, the record within its bound", "the Go heap; descriptors"},
		{checkFinite, fmt.Sprintf("no NaN, no infinity in what is decided, nor (at each %dth turn) in what the engine remembers", stateEvery), "that numbers are right"},
		{checkRestored, "in the end every limit and every list of CPUs is as it was made or as a stranger left it, also in groups inside tasks, and the journal holds nothing", "on v1, limits for which strangers left no room in the group above, and CPUs that went offline meanwhile"},
		{checkReplay, "every decision in the record comes out again when its inputs are fed in", "turns that the record lost to a full disk, and segments that its bound dropped"},
		{checkDoor, "a command is answered with what became of it, status is a document without holes, and metrics are numbers", "connections and locks: those are tested with real agents"},
		{checkReclaim, "memory.reclaim is written of a task where an operator asked this agent for it, or policy pressure, memory or coldpages wants it, and takes no more bytes than that; pages are taken by their age where coldpages asked somebody for such", "that as much is reclaimed, for the kernel may come up short; that it is done at all"},
		{checkPages, "pages are moved of a best-effort task's processes alone, where an operator asked this agent for it or policy balm or remedy wants it, and none onto the nodes that they are to leave", "how many; which share is left; a move that was under way as an operator freed its task"},
		{checkEnds, "the processes of a best-effort task alone are ended, where policy pressure decided it and the configuration, or a roll-out so far, gives tasks of its importance up", "that memory was short"},
		{checkAgree, "after each turn, of what the host holds the ledger knows that it is held, or has asked for something of it", "what the host holds of classes of service"},
		{checkMoved, "who policy remedy moves is a best-effort task, and is left one or more of the CPUs that it had, and no others; nobody is while policy cpuset enforces", "whether those that it is moved off are the service's; whether it has enough"},
		{checkTrials, "of a task that hard_cap, remedy, balm, io or memory has on trial, or took something of in the last window, no other of them begins to hold anything nor gives a step back; who was frozen, or held by an operator, meanwhile has no verdict", "actions (memory.reclaim, moved pages), and what disturbs a trial beside these; whether what a policy says of its trials is all of them, but for the window after it took something"},
		{checkPanic, "the agent's code does not panic", "what the Go runtime ends without a panic"},
	}
}

const (
	minuteNsec = 60e9
	// slackTurns: a claim that expires is released in that turn; a cap that an operator
	// overrules in the next; and one that is held by the result of the last.
	slackTurns = 3
	// slackNsec is what a retry may be late for its turn.
	slackNsec = 6e9
	// maxJournal is above what a few dozen groups fill when none is put back. It is written anew at
	// the next intent once it is longer than 1 KiB (fault.Memory.CompactBytes) and than twice what is outstanding.
	maxJournal = 1 << 17
)

// write is told of each attempt of ours to write a group's knob.
func (v *witness) write(w *world, g *watchedGroup, e *fault.Event, before model.Setting) {
	w.res.Checks++
	k := &g.knobs[before.Knob]
	switch {
	case g.class == model.System:
		w.fail(checkKnown, fmt.Sprintf("%s wrote %s, which is part of no LC or BE task", e.Who, e.Path))
	case e.Took && k.now != before && slices.Contains(k.wild, filepath.Base(e.Path)):
		w.fail(checkStranger, fmt.Sprintf("%s wrote %q to %s; a stranger had left %s there", e.Who, e.Data, e.Path, before))
	case e.Took && g.class == model.LC && k.kind == model.CPUBandwidth:
		v.notBelow(w, g, e)
	case e.Took && k.now.Knob == model.CPUPlace && k.now.CPUs.Empty() && !v.isRightful(g, k.now):
		w.fail(checkEmpty, fmt.Sprintf("%s wrote %q to %s", e.Who, e.Data, e.Path))
	}
	k.writes = append(k.writes, w.now())
	ahead := e.Took && v.goesAhead(g, k, before)
	k.unnoted = k.unnoted || ahead
	if e.Took && v.ours(g, k.kind) {
		if !ahead {
			v.journaled(w, g, k, before)
		}
	}
}

// notBelow looks whether an LC task is left with less than was found.
func (v *witness) notBelow(w *world, g *watchedGroup, e *fault.Event) {
	k := &g.knobs[model.CPUBandwidth]
	if w.ever(func(p *engine.Params) bool { return p.CPU.CPUPool.BelowOriginal }) || k.mixed || len(k.rightful) == 0 {
		return
	}
	least := math.Inf(1)
	for _, r := range k.rightful {
		least = min(least, r.Ratio())
	}
	if k.now.Ratio() < least*(1-1e-9) {
		w.fail(checkLC, fmt.Sprintf("%s wrote %q to %s: %s is less than what was found, %v", e.Who, e.Data, e.Path, k.now, k.rightful))
	}
}

// journaled makes sure that the journal speaks of what stands in a group.
func (v *witness) journaled(w *world, g *watchedGroup, k *watchedKnob, before model.Setting) {
	_, err := w.journal()
	at := v.limitOf(g, k.kind)
	if at == nil {
		w.fail(checkJournal, fmt.Sprintf("%s is %s, and the journal does not know of it (%v)", g.path, k.now, err))
		return
	}
	l := *at
	l.ReadBack = nil // not yet: this is the write
	// What is put back does not wait for the journal's disk: then it is on its way to what was found,
	// from wherever it was when the agent died.
	back := l
	back.Before, back.Intended = before, l.Found
	unsaid := v.unwritten && (v.onTheWay(&back, k.now) || v.fitted(g, at, k.now))
	if k.kind == model.CPUPlace && v.lost(at, k.now.CPUs) {
		return // what stood before, from which the kernel had struck what is offline: a growth was taken back
	}
	if !k.mixed && !v.onTheWay(&l, k.now) && k.now != l.Found && !unsaid {
		w.fail(checkJournal, fmt.Sprintf("%s is %s, and the journal says from %s to %s", g.path, k.now, l.Before, l.Intended))
	}
	if v.unwritten && !at.Ours(k.now) {
		return // who comes after us takes what stands for a stranger's, and leaves it
	}
	if !v.isRightful(g, l.Found) {
		w.fail(checkJournal, fmt.Sprintf("%s: the journal would put back %s; rightful is %v", g.path, l.Found, k.rightful))
	}
}

// goesAhead says of a write that it does not wait for the journal: a service that is to have CPUs back
// has them also when the journal's disk refuses the note, since that it waits would be the worse harm. Who comes
// after a crash in between takes its list for somebody else's and leaves it, which is more than it was to
// be left with (unnoted).
func (v *witness) goesAhead(g *watchedGroup, k *watchedKnob, before model.Setting) bool {
	return g.class == model.LC && k.kind == model.CPUPlace && v.unwritten && before.CPUs.Within(k.now.CPUs)
}

// onTheWay reports whether a limit may stand while it is written from one to another. By
// journal.Limit.Ours it may be none at all, which v1 alone needs: there quota and period are
// two writes, and between some values the quota has to be lifted.
func (v *witness) onTheWay(l *journal.Limit, now model.Setting) bool {
	return l.Ours(now) && (!v.flat() || now.Knob != model.CPUBandwidth || now.QuotaUsec >= 0 || l.Before.QuotaUsec < 0 || l.Intended.QuotaUsec < 0)
}

// checkTurn looks after a turn.
func (w *world) checkTurn(l *life, out *engine.Output) {
	w.res.Checks++
	s := l.Engine.State
	for i := range out.Changes {
		c := &out.Changes[i]
		if t := s.Tasks.Get(c.Task()); c.Kind == model.Hold && t != nil && t.Class != model.BE {
			w.fail(checkLC, fmt.Sprintf("%s task %s is to be held", t.Class, t.Path))
		}
		w.res.Ended += bit(c.Kind == model.Stop)
	}
	for i := range out.Decisions {
		if d := &out.Decisions[i]; d.Kind == model.DecideForeign {
			w.reported(l, d)
		}
	}
	if _, err := json.Marshal(out); err != nil {
		w.fail(checkFinite, err.Error())
	}
	if w.res.Turns%stateEvery == 0 {
		w.checkState(s)
	}
	if w.killSwitch {
		l.offTurns++
	} else {
		l.offTurns = 0
	}
	if l.offTurns > 2 && w.k.Machine().Copies() {
		w.fail(checkSwitch, fmt.Sprintf("%d turns after the kill switch pages are on their way", l.offTurns))
	}
	for i := range s.Ledger.Knobs {
		if k := &s.Ledger.Knobs[i]; l.offTurns > 2 && len(k.Claims) > 0 {
			w.fail(checkSwitch, fmt.Sprintf("%d turns after the kill switch there is a claim on %s", l.offTurns, s.Tasks.Name(k.Task())))
		}
	}
	w.witness.forgotten()
	for _, g := range w.witness.list {
		for kind := range model.OfCgroups {
			if l.offTurns > slackTurns && !w.troubled(g) && w.witness.ours(g, kind) && w.room(g, kind) {
				w.fail(checkSwitch, fmt.Sprintf("%d turns after the kill switch %s has %s; rightful: %v", l.offTurns, g.path, g.knobs[kind].now, g.knobs[kind].rightful))
			}
			w.checkLoose(l, g, kind)
		}
	}
	w.checkApart(l)
	w.checkMoved(l)
	w.checkClasses(l)
	w.checkBounds(s)
	w.checkStorm()
	w.checkAgree(l)
	w.lookAtTrials(l, out)
}

// reported looks whether a foreign write that is reported was one: since the last report of
// the knob somebody wrote it while it was held.
func (w *world) reported(l *life, d *model.Decision) {
	s := l.Engine.State
	if in, _ := l.Last(); w.class.deeds > 0 && (d.Task == 0 || ofClass(in, s, d.Task)) {
		return // somebody is at resctrl, too
	}
	found := model.NumKnobs
	for kind := range model.OfCgroups {
		void := slices.ContainsFunc(s.Ledger.Knobs, func(k engine.Knob) bool { return k.Task() == d.Task && k.Kind == kind && k.State == engine.KnobVoid })
		if _, wrote := w.witness.strangers[taskKnob{d.Path, kind}]; wrote && (found == model.NumKnobs || void) {
			found = kind // or one that an operator freed in this very turn
		}
	}
	if found == model.NumKnobs {
		w.fail(checkMadeUp, d.Path+": "+d.Reason)
		return
	}
	// Who writes again while the turn is at its own writes is for the next one to report.
	if w.witness.strangers[taskKnob{d.Path, found}] < w.began {
		delete(w.witness.strangers, taskKnob{d.Path, found})
	}
}

// ofClass reports whether a turn was told of a foreign write to the class of service of a task: by the
// answer to a change, or by a reading after which the knob is void or was freed; where an operator freed it in
// this very turn, a policy may have asked for it again.
func ofClass(in *engine.Input, s *engine.State, task model.TaskNum) bool {
	is := func(of model.Target, kind model.KnobKind) bool { return of.Task() == task && kind.Spec().Class != nil }
	freed := slices.ContainsFunc(in.Commands, func(c model.Command) bool { return c.Kind == model.CommandUncap && c.Task == task })
	return slices.ContainsFunc(in.Results, func(r model.Result) bool { return r.Kind == model.Foreign && is(r.Target, r.Now.Knob) }) ||
		slices.ContainsFunc(in.Knobs, func(k model.KnobReading) bool {
			return is(k.Target, k.Value.Knob) && (freed || !slices.ContainsFunc(s.Ledger.Knobs, func(o engine.Knob) bool {
				return o.Target == k.Target && o.Kind == k.Value.Knob && o.State != engine.KnobVoid
			}))
		})
}

// stateEvery is how many turns there are between two looks whether the engine's state can
// be written: a NaN in it stays.
const stateEvery = 100

// checkState writes the engine's state.
func (w *world) checkState(s *engine.State) {
	if _, err := json.Marshal(s); err != nil {
		w.fail(checkFinite, "the engine's state: "+err.Error())
	}
}

// claimed reports whether a claim that is not over asks for what stands in a group.
func claimed(s *engine.State, g *watchedGroup, kind model.KnobKind, now int64) bool {
	t := s.Tasks.ByPath(g.task)
	if t == nil {
		return false
	}
	for i := range s.Ledger.Knobs {
		if k := &s.Ledger.Knobs[i]; k.Task() == t.Num && k.Kind == kind {
			return slices.ContainsFunc(k.Claims, func(c model.Claim) bool { return now < c.ExpiresNsec })
		}
	}
	return false
}

// checkLoose looks for what stands in a group without a claim.
func (w *world) checkLoose(l *life, g *watchedGroup, kind model.KnobKind) {
	k := &g.knobs[kind]
	stands := w.witness.ours(g, kind)
	if stands && !w.room(g, kind) {
		g.hindered(w.now()) // the kernel refuses it, and it is tried again after pauses that double
		stands = false
	}
	if !stands || claimed(l.Engine.State, g, kind, w.now()) {
		k.loose = 0
		return
	}
	k.loose++
	if k.loose <= slackTurns || w.troubled(g) {
		return
	}
	w.fail(checkExpiry, fmt.Sprintf("%s has %s for %d turns without a claim (rightful: %v; trouble from %.1f s to %.1f s)",
		g.path, k.now, k.loose, k.rightful, float64(g.firstTrouble)/1e9, float64(g.lastTrouble)/1e9))
}

// troubled reports whether a release in a group may still wait for faults that hindered it:
// what was refused is tried again after pauses that double.
func (w *world) troubled(g *watchedGroup) bool {
	return g.lastTrouble > 0 && w.now()-g.lastTrouble <= slackNsec+(g.lastTrouble-g.firstTrouble)
}

// classKnobs are what classes of service have at each cache: best-effort tasks' ways and bandwidth, and the ways of services that have their own, and of parts of them.
// wideKnobs are those of all domains at once, of BE; of a task alone they are among its own.
const classKnobs, wideKnobs = 3 + model.MaxParts, 1

// checkBounds looks at what the engine and the disks hold.
func (w *world) checkBounds(s *engine.State) {
	tasks := len(s.Tasks.Tasks)
	jobs := len(w.plan.config.Tasks)
	for _, b := range []struct {
		what    string
		n, most int
	}{
		{"tasks", tasks, len(w.plan.tasks) + len(w.witness.renamed)},
		{"tracks", len(s.Tracks), tasks},
		{"knobs", len(s.Ledger.Knobs), tasks*int(model.NumKnobs) + classKnobs*w.plan.machine.Caches() + wideKnobs},
		{"bases", len(s.Ledger.Bases), tasks*int(model.NumKnobs) + classKnobs*w.plan.machine.Caches() + wideKnobs},
		{"failures", len(s.Ledger.Failures), 64},
		{"exemptions", len(s.Ledger.Exemptions), tasks},
		{"incidents", len(s.Hardcap.Incidents), tasks},
		{"victims in peace", len(s.Hardcap.Peace), tasks},
		{"specs", len(s.Specs.Entries), jobs * int(model.NumSources)},
		{"pairs of jobs", len(s.Hardcap.Pairs), maxPairs},
		{"services that remedy looks at", len(s.CPU.Remedy.Victims), tasks},
		{"holds of remedy", len(s.CPU.Remedy.Holds), 3 * tasks},
		{"pairs that remedy knows", len(s.CPU.Remedy.Known), 64},
		{"jobs without protection", len(s.ProtectOff), jobs + 1},
		{"bytes of journal", int(w.disk.Size(journalPath)), maxJournal},
	} {
		if b.n > b.most {
			w.fail(checkBounded, fmt.Sprintf("%d %s; expected at most %d", b.n, b.what, b.most))
		}
	}
}

// checkJournal looks whether the journal can be read.
func (w *world) checkJournal() {
	w.res.Checks++
	c, err := w.journal()
	if err != nil && len(c.Bad) > 0 && !w.diskFaults() {
		w.fail(checkReadable, err.Error())
	}
}

// diskFaults reports whether the journal's disk ever failed.
func (w *world) diskFaults() bool {
	return slices.ContainsFunc(w.plan.rules, func(r fault.Rule) bool { return r.Ops&fault.Append != 0 })
}

// checkStopped looks after a clean end, which puts back everything but what the kernel
// refused while it did: where there was no trouble since, nothing of ours stands.
func (w *world) checkStopped(since int64, err error) {
	w.res.Checks++
	w.checkNoClasses(since, "a clean end", err)
	for _, g := range w.witness.list {
		for kind := range model.OfCgroups {
			if w.witness.ours(g, kind) && w.room(g, kind) && (err == nil || g.lastTrouble < since) {
				w.fail(checkRestored, fmt.Sprintf("after a clean end (%v) %s has %s; rightful: %v", err, g.path, g.knobs[kind].now, g.knobs[kind].rightful))
			}
		}
	}
}

// finish ends the run: no more faults but those of disks, for which nothing that undoes us may
// wait; one more agent or the one that is there, which ends cleanly, and then the last looks.
func (w *world) finish() {
	w.inj.Calm(fault.Append)
	w.stallUntil = 0
	if w.life != nil && w.plan.mayDie && w.res.Seed%2 == 0 {
		w.mark(&event{do: kill, both: w.res.Seed%4 == 0, nsec: stepNsec})
	}
	for range 3 {
		if w.life == nil {
			w.pass(restartNsec)
			w.start()
		}
	}
	if w.life == nil {
		w.fail(checkRestored, "without faults no agent starts")
		return
	}
	for range slackTurns {
		w.pass(1e9)
		if w.life == nil { // it hung on a disk
			w.start()
			continue
		}
		w.turn()
	}
	if w.failure != nil {
		return
	}
	w.stop(&event{do: stop})
	w.checkEnd()
}

// checkEnd looks at what is left behind.
func (w *world) checkEnd() {
	w.checkNoClasses(w.now(), "all", nil)
	for _, g := range w.witness.list {
		for kind := range model.OfCgroups {
			w.res.Checks++
			k := &g.knobs[kind]
			if now, err := w.witness.read(g.path, kind); err == nil {
				k.now = now
			}
			if w.witness.ours(g, kind) && w.room(g, kind) {
				w.fail(checkRestored, fmt.Sprintf("%s has %s; rightful: %v", g.path, k.now, k.rightful))
			}
		}
	}
	if w.failure == nil && w.diskFaults() {
		// A disk that takes nothing cannot be told that all is put back. Once it does, the next
		// agent sees that and forgets.
		w.inj.Calm(0)
		w.pass(restartNsec)
		w.start()
		w.stop(&event{do: stop})
	}
	c, err := w.journal()
	switch {
	case err != nil:
		w.fail(checkReadable, err.Error())
	case len(c.Limits) > 0 && slices.ContainsFunc(c.Limits, func(l journal.Limit) bool {
		g := w.witness.group(l.Path)
		return g == nil || w.room(g, l.Found.Knob)
	}):
		w.fail(checkRestored, fmt.Sprintf("the journal still holds %+v", c.Limits))
	}
	w.checkRecord()
}

// room reports whether the groups above and below leave room for what should stand in a
// group; on v2 they always do. What of a list has no room is left out (stands).
func (w *world) room(g *watchedGroup, kind model.KnobKind) bool {
	if w.plan.layout == cgroup.LayoutV2 || kind != model.CPUBandwidth {
		return true
	}
	fits := func(v model.Setting) bool {
		for _, o := range w.witness.list {
			now := &o.knobs[kind].now
			above, below := len(o.path) < len(g.path) && within(g.path, o.path), within(o.path, g.path) && o != g
			switch {
			case v.QuotaUsec < 0 || now.QuotaUsec < 0:
			case above && v.Ratio() > now.Ratio(), below && now.Ratio() > v.Ratio():
				return false
			}
		}
		return true
	}
	// What a restore would write, where the journal says so.
	if l := w.witness.limitOf(g, kind); l != nil {
		return fits(l.Found)
	}
	return slices.ContainsFunc(g.knobs[kind].rightful, fits)
}

// within reports whether a path is another or lies below it.
func within(path, up string) bool {
	return path == up || len(path) > len(up) && path[:len(up)] == up && path[len(up)] == '/'
}

// checkRecord replays what was recorded.
func (w *world) checkRecord() {
	w.res.Checks++
	files, err := record.Segments(w.records)
	if err != nil || len(files) == 0 {
		return // no agent lived long enough, or its disk was full all the time
	}
	rep, err := record.Run(w.records)
	switch {
	case err != nil:
		w.fail(checkReplay, err.Error())
	case len(rep.Damaged) > 0:
		w.fail(checkReplay, rep.Damaged[0].Error)
	case rep.First != nil:
		d := rep.First
		w.fail(checkReplay, fmt.Sprintf("%s, turn %d, %s %d: recorded %s, replayed %s", filepath.Base(d.Segment), d.Seq, d.What, d.Index, d.Recorded, d.Replayed))
	}
	total := int64(0)
	for _, f := range files {
		if st, err := os.Stat(f); err == nil {
			total += st.Size()
		}
	}
	if total > w.plan.config.Record.MaxBytes {
		w.fail(checkBounded, fmt.Sprintf("%d bytes of record; %d are allowed", total, w.plan.config.Record.MaxBytes))
	}
}
