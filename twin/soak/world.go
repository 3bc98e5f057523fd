package soak

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/kernel/blkio"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/fault"
	"github.com/commensal-io/commensal/twin/kernfs"
	"github.com/commensal-io/commensal/twin/machine"
)

// world is one run: the machine and everybody on it.
type world struct {
	plan    *plan
	k       *kernfs.Kernel
	machine *machine.Machine
	kernel  []int  // the machine's numbers of the kernel's threads
	booted  uint64 // how often it was booted again
	disk    *fault.Memory
	inj     *fault.Injector
	clock   *fault.Clock
	witness *witness
	boot    string
	records string // folder of the agents' records
	dir     string
	mutate  mutations
	read    struct { // of the journal
		journal.Reader
		at  uint64
		c   *journal.Contents
		err error
	}

	end        int64
	upcoming   int // of plan.events
	killSwitch bool
	switched   int64 // when it was put there
	life       *life // nil: no agent runs
	born       int   // lives so far
	startAt    int64 // without a life: when the next one begins
	stallUntil int64
	unplugged  int64 // when a CPU went the last time
	swapFull   bool  // it has been
	turning    bool  // the agent's code is running
	handed     []handedDown
	host       *linux.Host // of the agent that was started last
	began      int64       // when the agent's last turn did
	class      classWorld
	trials     trials
	reclaims   map[string]int64 // bytes that the agent was asked to take back and has not, by task
	moves      map[string][]int // the memory nodes that it was asked to move pages off, by task
	rolled     *config.Config   // what a roll-out makes of the file; nil: there is none
	rolls      []engine.Params  // of all so far
	learned    engine.Restored  // what the last turn knew, as of that time
	log        trail
	res        Result
	failure    *Failure
	quiet      *slog.Logger
}

// The streams that a seed feeds. Each draws by itself, so that a change to one leaves the
// others as they were.
const (
	streamPlan    = 0x706c616e
	streamFaults  = 0x6661756c
	streamWaits   = 0x77616974
	streamLatency = 0x6c6174656e6379
	streamClasses = 0x636c6173736573
	streamTakers  = 0x74616b657273
	streamHands   = 0x68616e6473
	streamMemory  = 0x6d656d6f7279
	streamCaches  = 0x636163686573
	streamRolls   = 0x726f6c6c73
	streamL2      = 0x6c32
	streamSockets = 0x736f636b657473
	streamFar     = 0x666172
)

func newWorld(seed uint64, dir string, o Options) (*world, error) {
	end := int64(o.Minutes*60e9) / stepNsec * stepNsec
	p := newPlan(source{rand.New(rand.NewPCG(seed, streamPlan))}, end, o.Calm)
	far := source{rand.New(rand.NewPCG(seed, streamFar))}
	p.far = unplayed(seed, pagesFrom) && far.chance(0.2)
	if unplayed(seed, apartFrom) {
		p.drawSockets(source{rand.New(rand.NewPCG(seed, streamSockets))})
	}
	if unplayed(seed, pagesFrom) {
		p.touch()
	}
	if !o.Calm {
		p.drawWaitFaults(source{rand.New(rand.NewPCG(seed, streamWaits))}, end)
		p.drawPromises(source{rand.New(rand.NewPCG(seed, streamLatency))})
	}
	classes := source{rand.New(rand.NewPCG(seed, streamClasses))}
	p.drawClasses(classes, end)
	p.drawL2(source{rand.New(rand.NewPCG(seed, streamL2))})
	p.drawTakers(source{rand.New(rand.NewPCG(seed, streamTakers))}, end)
	p.drawHandDown(source{rand.New(rand.NewPCG(seed, streamHands))}, end)
	if !o.roomy {
		p.drawMemory(source{rand.New(rand.NewPCG(seed, streamMemory))}, end)
		p.drawCaches(source{rand.New(rand.NewPCG(seed, streamCaches))})
	}
	if p.far {
		p.drawFar(far)
	}
	if p.far && unplayed(seed, largeFrom) {
		p.drawLarge(far, end)
	}
	p.drawRollOuts(source{rand.New(rand.NewPCG(seed, streamRolls))}, end)
	if o.only != nil {
		o.only(p)
	}
	if key, why := p.config.Validate(); why != "" {
		return nil, fmt.Errorf("drew an impossible configuration: %s %s", key, why)
	}
	m, err := machine.New(p.machine, seed)
	if err != nil {
		return nil, err
	}
	w := &world{
		machine: m,
		plan:    p, disk: fault.NewMemory(), records: filepath.Join(dir, "record"), dir: dir, mutate: o.mutate, end: end,
		res: Result{Seed: seed, Minutes: o.Minutes, Calm: o.Calm, Setting: p.describe()}, quiet: slog.New(slog.DiscardHandler),
	}
	w.class.draw, w.class.on = classes, p.rdt
	w.class.theirs = map[string]resctrl.Schemata{}
	w.read.Reader = journal.Reader{Disk: w.disk, Path: journalPath}
	if err := w.boots(); err != nil {
		return nil, err
	}
	w.clock = fault.NewClock(w.now, func() int64 { return w.k.WallNsec() }, p.steps)
	w.inj = fault.New(fault.World{
		Now: w.now, Pass: w.pass, Notice: w.notice,
		Write: func(path, s string) error { return w.k.WriteFile(path, []byte(s)) },
	}, p.rules, rand.New(rand.NewPCG(seed, streamFaults)))
	return w, nil
}

// watch gives the run its witness.
func (w *world) watch(fs hostfs.FS) error {
	mounts, err := cgroup.Discover(fs)
	if err != nil {
		return err
	}
	cg, err := cgroup.Open(fs, mounts)
	if err != nil {
		return err
	}
	v := &witness{w: w, cg: cg, strangers: map[taskKnob]int64{}, renamed: map[string]model.Class{}, from: map[string]string{}, storm: storm{changes: map[taskKnob][]int64{}}}
	w.witness = v
	for kind, c := range map[model.KnobKind]cgroup.Controller{model.CPUBandwidth: cgroup.CPU, model.CPUPlace: cgroup.CPUSet, model.CPUWeight: cgroup.CPU, model.GroupFreeze: cgroup.Freezer} {
		v.mounts[kind] = mounts.Unified
		if mounts.Layout != cgroup.LayoutV2 {
			v.mounts[kind] = mounts.V1[c]
		}
	}
	if v.io, err = blkio.Open(fs, mounts); err == nil { // machines without a disk have none
		v.mounts[model.IOMaxKnob] = mounts.Unified
	}
	if v.memory, err = reclaim.Open(fs, mounts); err == nil && v.memory.V2() {
		v.mounts[model.MemoryHigh] = mounts.Unified
	} else {
		v.memory = nil
	}
	return nil
}

func (w *world) now() int64 { return w.k.NowNsec() }

// pass lets a time pass, in whole steps of the physics, at least one. Where it passes in a call
// of the agent its guardian may lose its patience; then the call ends with the agent.
func (w *world) pass(nsec int64) {
	steps := max(1, (nsec+stepNsec-1)/stepNsec)
	if at, ok := w.watched(); ok && w.turning && w.now()+steps*stepNsec > at {
		w.advance(max(0, at-w.now()+stepNsec-1) / stepNsec * stepNsec)
		w.hung()
		return
	}
	w.advance(steps * stepNsec)
}

// next lets the time pass to whatever comes next, and does it.
func (w *world) next() {
	at := w.end
	if w.upcoming < len(w.plan.events) {
		at = min(at, w.plan.events[w.upcoming].at)
	}
	if w.life == nil {
		at = min(at, w.startAt)
	} else {
		turn := max(w.life.Due(), w.stallUntil)
		if end, ok := w.watched(); ok {
			turn = min(turn, end)
		}
		if at = min(at, turn); w.life.Stalls() != nil {
			at = min(at, max(w.now()+agent.WatchNsec, w.stallUntil))
		}
		if len(w.class.work) > 0 {
			at = min(at, max(w.class.at, w.stallUntil))
		}
	}
	if at > w.now() {
		if w.pass(at - w.now()); w.life != nil {
			w.life.Hark()
		}
		return
	}
	if w.upcoming < len(w.plan.events) && w.plan.events[w.upcoming].at <= w.now() {
		e := &w.plan.events[w.upcoming]
		w.upcoming++
		w.do(e)
		return
	}
	if w.life == nil {
		w.start()
		return
	}
	if w.now() < w.stallUntil {
		w.hung()
		return
	}
	if len(w.class.work) > 0 && w.now() >= w.class.at {
		w.beside()
		return
	}
	w.turn()
}

// do carries an event out.
func (w *world) do(e *event) {
	t := &w.plan.tasks[e.task]
	switch e.do {
	case arrive:
		w.arrive(t)
	case leave:
		w.remove(t.path)
	case remake:
		w.remove(t.path)
		w.arrive(t)
	case childLeave:
		if len(t.below) > 0 {
			w.remove(t.below[e.pick%uint64(len(t.below))].path)
		}
	case renames:
		w.rename(e)
	case stranger:
		w.strangerWrites(e)
	case strangerPlace:
		w.strangerPlaces(e)
	case strangerDisk:
		w.strangerLimits(e)
	case strangerWeight:
		w.strangerWeighs(e)
	case strangerClass:
		w.strangerDoes(e)
	case replug:
		w.plug(e)
	case operate:
		w.operator(e)
	case switchOn, switchOff:
		if on := e.do == switchOn; on != w.killSwitch {
			w.killSwitch, w.switched = on, w.now()
			w.inj.Note("kill-switch", "")
		}
	case stall:
		w.stallUntil = w.now() + e.nsec
		w.unplugged += e.nsec // nobody looks meanwhile
		for _, g := range w.witness.list {
			if w.troubled(g) { // nor tries again
				g.firstTrouble, g.lastTrouble = g.firstTrouble+e.nsec, g.lastTrouble+e.nsec
			}
		}
		w.inj.Note("stall", "")
	case kill:
		w.mark(e)
	case reboot:
		w.reboot(e)
	case stop:
		w.stop(e)
	case taken:
		w.take(e)
	case handDown:
		w.handDown(e)
	case rollOut:
		w.rollOut(e)
	case sweep:
		w.sweep(t, e)
	case respawn:
		w.respawn(t)
	case guardDies:
		if w.life != nil {
			w.life.guarded = false
			w.inj.Note("guardian-killed", "")
		}
	}
}

// arrive makes what is missing of a task.
func (w *world) arrive(t *taskPlan) {
	cg := w.witness.cg
	made := false
	begin := func(path string, cfg *machine.TaskConfig, found model.CPUMax, cpus model.CPUSet) {
		if _, err := cg.Inode(path); err == nil {
			return
		}
		err := error(nil)
		if cfg != nil {
			err = w.startProcess(t, path, cfg)
		} else {
			err = cg.Mkdir(path)
		}
		if refusesProcess(err) {
			w.inj.Note("failed-arrival", path)
			return
		}
		if err != nil {
			w.fail("simulation", fmt.Sprintf("cannot make %s: %v", path, err))
			return
		}
		made = true
		// Where there is no room for it the group goes without, as it would in life.
		_ = cg.WriteCPUMax(path, cgroup.CPUMax(found))
		w.placeNew(path, cpus)
	}
	if len(t.below) == 0 {
		begin(t.path, &t.cfg, t.found, t.cpus)
	} else if _, err := cg.Inode(t.path); err != nil {
		// The first group in it brings it about.
		c := &t.below[0]
		begin(c.path, c.cfg, twin.Unlimited(), model.CPUSet{})
		_ = cg.WriteCPUMax(t.path, cgroup.CPUMax(t.found))
		_ = cg.WriteCPUMax(c.path, cgroup.CPUMax(c.found))
		w.placeNew(c.path, c.cpus)
		w.placeNew(t.path, t.cpus)
	}
	for i := range t.below {
		if c := &t.below[i]; w.parentLives(c.path) {
			begin(c.path, c.cfg, c.found, c.cpus)
		}
	}
	if made {
		w.limitMemory(t)
		w.inj.Note("group-made", t.path)
	}
	w.look()
}

// refusesProcess reports whether a group takes no process. On v1 one without CPUs does not, nor do those in it: all of its list is
// offline. On v2 nobody hands down a controller that was taken from the group above.
func refusesProcess(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOENT)
}

func (w *world) parentLives(path string) bool {
	_, err := w.witness.cg.Inode(path[:strings.LastIndexByte(path, '/')])
	return err == nil
}

// remove takes a group with all in it.
func (w *world) remove(path string) {
	if _, err := w.witness.cg.Inode(path); err != nil {
		return
	}
	if err := w.k.Stop(path); err != nil {
		w.fail("simulation", fmt.Sprintf("cannot remove %s: %v", path, err))
	}
	w.inj.Note("group-gone", path)
	w.look()
}

func (w *world) look() {
	if err := w.witness.look(); err != nil {
		w.fail("simulation", "the witness cannot look: "+err.Error())
	}
}

// someGroup is the group whose knob a stranger writes, rather one that is held; nil without any.
func (w *world) someGroup(r source, kind model.KnobKind) *watchedGroup {
	list := w.witness.list
	if len(list) == 0 {
		return nil
	}
	g := list[r.IntN(len(list))]
	if held := w.heldGroups(kind); len(held) > 0 && r.chance(0.6) {
		g = held[r.IntN(len(held))]
	}
	return g
}

// strangerWrites writes some group's limit as another program would.
func (w *world) strangerWrites(e *event) {
	r := source{rand.New(rand.NewPCG(e.pick, 1))}
	g := w.someGroup(r, model.CPUBandwidth)
	if g == nil {
		return
	}
	name := "/cpu.max"
	if w.plan.layout != cgroup.LayoutV2 {
		name = "/cpu.cfs_quota_us"
	}
	// A value for which there is no room is refused, which is the stranger's trouble.
	_ = w.inj.Stranger(w.witness.mounts[model.CPUBandwidth]+g.path+name, pick(r, w.plan.strangerTexts()...))
}

// strangerWeighs writes some group's weight, or makes it idle or normal, as another program would.
func (w *world) strangerWeighs(e *event) {
	r := source{rand.New(rand.NewPCG(e.pick, 5))}
	g := w.someGroup(r, model.CPUWeight)
	if g == nil {
		return
	}
	name, text := "/cpu.idle", pick(r, "0", "1")
	if r.chance(0.5) {
		if name, text = "/cpu.weight", pick(r, "1", "50", "100", "300"); w.plan.layout != cgroup.LayoutV2 {
			name, text = "/cpu.shares", pick(r, "2", "512", "1024", "3072")
		}
	}
	_ = w.inj.Stranger(w.witness.mounts[model.CPUWeight]+g.path+name, text) // an idle group takes no weight
}

// strangerLimits writes what some group may do on the disk, or how much memory it may have, as another program would.
func (w *world) strangerLimits(e *event) {
	r := source{rand.New(rand.NewPCG(e.pick, 6))}
	if g := w.someGroup(r, model.MemoryHigh); g != nil && w.witness.memory != nil && r.chance(0.3) {
		_ = w.inj.Stranger(w.witness.mounts[model.MemoryHigh]+g.path+"/memory.high", pick(r, "max", "1073741824", "3221225472"))
		return
	}
	if g := w.someGroup(r, model.IOMaxKnob); g != nil {
		_ = w.inj.Stranger(w.witness.mounts[model.IOMaxKnob]+g.path+"/io.max", twin.Disk.String()+pick(r,
			" rbps=max wbps=max riops=max wiops=max", " rbps=50000000 wbps=max riops=max wiops=max", " rbps=max wbps=20000000 riops=300 wiops=40"))
	}
}

// strangerPlaces writes some group's CPUs as another program would.
func (w *world) strangerPlaces(e *event) {
	r := source{rand.New(rand.NewPCG(e.pick, 4))}
	list := slices.DeleteFunc(slices.Clone(w.witness.list), func(g *watchedGroup) bool { return g.task == "" })
	if held := w.heldGroups(model.CPUPlace); len(held) > 0 && r.chance(0.6) {
		list = held
	}
	if len(list) == 0 {
		return
	}
	g := list[r.IntN(len(list))]
	_ = w.inj.Stranger(w.witness.mounts[model.CPUPlace]+g.path+"/cpuset.cpus", w.strangerList(r)) // a refusal is his trouble
}

// heldGroups are the groups in which something of ours stands.
func (w *world) heldGroups(kind model.KnobKind) []*watchedGroup {
	var held []*watchedGroup
	for _, g := range w.witness.list {
		if w.witness.ours(g, kind) {
			held = append(held, g)
		}
	}
	return held
}

// operator speaks through the door that operators use.
func (w *world) operator(e *event) {
	if w.life == nil || w.now() < w.stallUntil {
		return
	}
	if e.pick%4 == 2 {
		w.fleetSays(e.pick)
	}
	r := source{rand.New(rand.NewPCG(e.pick, 2))}
	t := &w.plan.tasks[e.task]
	req := agent.Request{Kind: pick(r, model.CommandCap, model.CommandCap, model.CommandCap, model.CommandUncap, model.CommandProtectOff, model.CommandProtectOn)}
	switch req.Kind {
	case model.CommandCap:
		req.Task, req.Cap, req.Duration = t.path, pick(r, 0.001, 0.01, 0.1, 0.5, 2, 64, -1), pick(r, 0.3, 2, 10, 40, 120)
		if e.pick%8 == 0 {
			req.Kind, req.Cap = model.CommandDemote, 0
		}
		switch {
		case e.pick%8 == 5 && w.plan.moves:
			req = movesOf(r, t.path)
		case e.pick%8 == 1:
			req = reclaimOf(r, t.path)
		}
	case model.CommandUncap:
		req.Task = t.path
	default:
		req.Job = pick(r, "", "web0", "web1", "nobody")
	}
	if !w.ask(req) {
		return
	}
	w.log.add(fmt.Sprintf("%9.3f operator %+v", float64(w.now())/1e9, req))
	w.inj.Note("operator", req.Task)
	switch req.Kind {
	case model.CommandReclaim:
		w.reclaims[t.path] += req.Bytes
	case model.CommandMovePages:
		w.moves[t.path] = append(w.moves[t.path], req.Node)
	}
	if req.Task != "" && req.Kind != model.CommandUncap && t.class == model.LC {
		w.fail("LC is never held", "an operator's "+req.Kind+" of "+t.path+" was taken")
	}
	if req.Task != "" {
		for _, g := range w.witness.list {
			if g.task == t.path {
				for kind := range model.OfCgroups {
					g.knobs[kind].wild = nil // the operator's word is stronger than the stranger's
				}
			}
		}
	}
	w.turnBy(w.life.Hear)
}
