package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/guest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// guests asks the guests of tasks that are virtual machines (model.Task.Guest) how long their memory lay idle, and to give it back.
//
// A guest is believed nothing that the host can measure. What it says is idle is at most what the host charges to the task; what it says it gave back is at most
// what the host then charges less. One that says it gave much more than that, twice in a row, or that three times in a row is not there, does not answer in
// time, floods or talks nonsense is put aside: nobody asks it for ten minutes, twice as long each time, up to 64 times. What a guest can reach by lies is so
// that its own memory is left alone, or its own cold pages are not so cold.
type guests struct {
	fs     hostfs.FS
	cg     cgroup.Driver
	memory *reclaim.Memory // nil: the host measures nothing, and nobody is asked
	clock  Clock
	run    func(work func()) // nil: in a goroutine
	pause  func(ctx context.Context, d time.Duration)

	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu   sync.Mutex
	by   map[string]*guestTask // by path
	busy bool                  // the turn of the window is under way
}

const (
	statWithin    = 3 * time.Second
	agesWithin    = 20 * time.Second
	reclaimWithin = 40 * time.Second
	// settleWithin is how long the host may take to see what a guest gave: it reports what is free every two seconds, a part at a time.
	settleWithin = 15 * time.Second
	settleLook   = 250 * time.Millisecond
	// A guest lies that says it gave lieLeast or more, of which the host sees less than a quarter.
	lieLeast     = 8 << 20
	mostMute     = 3
	mostLies     = 2
	asideNsec    = 600e9
	mostAsides   = 6 // doublings
	guestsOutage = "guests of tasks do not answer as they should"
)

// guestTask is what is known of one guest.
type guestTask struct {
	talk    sync.Mutex // of one conversation at a time; address and inode are under it
	address guest.Address
	inode   uint64

	// Under guests.mu.
	why         string // it does not answer as it should; "": it does
	mute, lies  int    // in a row
	asides      int    // how often it was put aside
	untilNsec   int64  // it is put aside until then
	refaults    model.Counter
	stalledNsec model.Counter
	// What it last said, and when.
	saidRefaults, saidStallUsec uint64
	saidNsec                    int64
	sumRefaults, sumStallUsec   uint64 // of what can be
}

// mostRefaults is how many pages a second may come back to a guest: 32 GiB, more than disks and compressed memory give.
const mostRefaults = 8 << 20

// longest is for how long a guest may have run when it is asked first, in nanoseconds: ten years.
const longest = 10 * 365 * 24 * 3600e9

// hear takes in what a guest says came back to it, and for how long it stalled. The figures are sums of what can be since it last said something: more
// is no figure, and where it goes on from there nothing of the jump is in the next one.
func (one *guestTask) hear(a *guest.Answer, nowNsec int64) {
	most := float64(nowNsec-one.saidNsec) + 1e9 // an answer is a while on its way
	if one.saidNsec == 0 {
		most = longest
	}
	refaults, stallUsec := a.Refaults-min(a.Refaults, one.saidRefaults), a.StallUsec-min(a.StallUsec, one.saidStallUsec)
	one.saidRefaults, one.saidStallUsec, one.saidNsec = a.Refaults, a.StallUsec, nowNsec
	if float64(refaults) > most/1e9*mostRefaults || float64(stallUsec) > most/1e3 {
		one.refaults, one.stalledNsec = model.Counter{}, model.Counter{}
		one.why = fmt.Sprintf("since it was last asked %d pages came back to it, it says, and it waited %d us for memory, which cannot be", refaults, stallUsec)
		return
	}
	one.sumRefaults, one.sumStallUsec = one.sumRefaults+refaults, one.sumStallUsec+stallUsec
	one.refaults, one.stalledNsec = model.Read(one.sumRefaults), model.Read(one.sumStallUsec*1000)
}

// errAside: a guest is not asked for a while.
var errAside = errors.New("the guest is put aside")

func newGuests(m *cgroup.Mounts, cg cgroup.Driver, o *Options) *guests {
	g := &guests{fs: o.FS, cg: cg, clock: o.Clock, run: o.Beside, pause: rest, by: map[string]*guestTask{}}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if mem, err := reclaim.Open(o.FS, m); err == nil {
		g.memory = mem
	}
	return g
}

func (g *guests) close() {
	g.cancel()
	g.wait.Wait()
}

// of returns what is known of a task's guest.
func (g *guests) of(t *model.Task) (*guestTask, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.by[t.Path]
	if one == nil || one.inode != t.Inode {
		address, err := guest.ParseAddress(t.Guest)
		if err != nil {
			return nil, err
		}
		one = &guestTask{address: address, inode: t.Inode}
		g.by[t.Path] = one
	}
	if left := one.untilNsec - g.clock.MonoNsec(); left > 0 {
		return nil, fmt.Errorf("%w for %.0f more minutes: %s", errAside, float64(left)/60e9, one.why)
	}
	return one, nil
}

// ask has one conversation with a guest, whose talk is locked.
func (g *guests) ask(ctx context.Context, t *model.Task, one *guestTask, r guest.Request, within time.Duration) (guest.Answer, error) {
	group, err := openTask(g.cg.Open, t)
	if err != nil {
		return guest.Answer{}, err
	}
	defer group.Close() //nolint:errcheck // reading is over
	pids, err := group.Procs(nil)
	if err != nil {
		return guest.Answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	a, err := one.address.Ask(ctx, g.fs, pids, r)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ctx.Err() != nil: // we end, and it is not to blame
	case errors.Is(err, guest.ErrRefused):
		one.mute, one.why = 0, err.Error()
	case err != nil:
		one.refaults, one.stalledNsec = model.Counter{}, model.Counter{}
		one.mute++
		g.blame(one, err.Error(), one.mute >= mostMute)
	default:
		if one.mute = 0; one.lies == 0 {
			one.why = ""
		}
		one.hear(&a, g.clock.MonoNsec())
	}
	return a, err
}

// blame notes what is wrong with a guest, and puts it aside. g.mu is held.
func (g *guests) blame(one *guestTask, why string, aside bool) {
	one.why = why
	if aside {
		one.untilNsec = g.clock.MonoNsec() + asideNsec<<one.asides
		one.asides = min(one.asides+1, mostAsides)
	}
}

// charged is what the host charges to a task, in bytes.
func (g *guests) charged(t *model.Task) (uint64, error) {
	if g.memory == nil {
		return 0, errors.New("the host has no memory controller: nothing that a guest says could be measured")
	}
	meter, err := g.memory.OpenMeter(t.Path)
	if err != nil {
		return 0, err
	}
	defer meter.Close() //nolint:errcheck // it was only read
	return meter.Current()
}

// ages asks how long a guest's memory lay idle.
func (g *guests) ages(ctx context.Context, t *model.Task) (model.PageAges, error) {
	h := model.PageAges{Num: t.Num}
	one, err := g.of(t)
	if err != nil {
		return h, err
	}
	one.talk.Lock()
	defer one.talk.Unlock()
	a, err := g.ask(ctx, t, one, guest.Request{Do: guest.DoAges, EdgesNsec: model.AgeEdges[:]}, agesWithin)
	if err != nil {
		return h, err
	}
	charged, err := g.charged(t)
	if err != nil {
		return h, err
	}
	h.MonoNsec, h.Source, h.Guest, h.AnonRoom = g.clock.MonoNsec(), a.Source+" of the guest", true, min(a.RoomBytes, charged)
	for i := range model.AgeEdges {
		h.Anon[i] = min(a.Anon[i], charged)
		h.File[i] = min(a.File[i], charged-h.Anon[i])
	}
	return h, nil
}

// reclaim asks a guest to give memory back, and returns what its pages had, as it says, and what of that the host does not have. Neither is more than was asked for.
func (g *guests) reclaim(ctx context.Context, t *model.Task, ask model.Setting) (got, kept int64, err error) {
	one, err := g.of(t)
	if err != nil {
		return 0, 0, err
	}
	one.talk.Lock()
	defer one.talk.Unlock()
	before, err := g.charged(t)
	if err != nil {
		return 0, 0, err
	}
	r := guest.Request{Do: guest.DoReclaim, Bytes: uint64(max(ask.Amount, 0)), OlderNsec: ask.OlderNsec}
	switch ask.Pages {
	case model.AnonPages:
		r.Pages = guest.AnonPages
	case model.FilePages:
		r.Pages = guest.FilePages
	}
	a, err := g.ask(ctx, t, one, r, reclaimWithin)
	if err != nil {
		return 0, 0, err
	}
	fell, err := g.fell(ctx, t, before, min(a.FreedBytes, r.Bytes))
	if err != nil {
		return 0, 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.FreedBytes >= lieLeast && fell < min(a.FreedBytes, r.Bytes)/4 {
		one.lies++
		err := fmt.Errorf("the guest says that it gave %d MiB, and the host has %d MiB of them (does its balloon report free pages?)", a.FreedBytes>>20, fell>>20)
		g.blame(one, err.Error(), one.lies >= mostLies)
		return 0, 0, err
	}
	if fell > 0 {
		one.lies, one.asides = 0, 0
	}
	taken := max(fell, min(a.TakenBytes, r.Bytes))
	return int64(taken), int64(taken - fell), nil
}

// fell waits until the host charges so much less than before, for a while, and returns what it is of that.
func (g *guests) fell(ctx context.Context, t *model.Task, before, want uint64) (uint64, error) {
	var most uint64
	for waited := time.Duration(0); ; waited += settleLook {
		now, err := g.charged(t)
		if err != nil {
			return most, err
		}
		most = max(most, before-min(before, now))
		if most >= want || waited >= settleWithin || ctx.Err() != nil {
			return min(most, want), nil
		}
		g.pause(ctx, settleLook)
	}
}

// observe begins the turn in which all guests are asked for what came back to them, and tells which do not answer. What they say is in the next window.
func (g *guests) observe(h *Host, mark model.WindowMark) {
	if mark&model.WindowEnd == 0 {
		return
	}
	var tasks []model.Task
	var bad map[string][]string
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range h.tasks {
		if w.task.Guest == "" || w.gone {
			continue
		}
		tasks = append(tasks, w.task)
		if one := g.by[w.task.Path]; one != nil && one.why != "" {
			why := one.why
			if one.untilNsec > g.clock.MonoNsec() {
				why = "put aside: " + why
			}
			if bad == nil {
				bad = map[string][]string{}
			}
			bad[why] = append(bad[why], w.task.Path)
		}
	}
	if len(tasks) == 0 && len(g.by) == 0 {
		return
	}
	maps.DeleteFunc(g.by, func(path string, _ *guestTask) bool {
		return !slices.ContainsFunc(tasks, func(t model.Task) bool { return t.Path == path })
	})
	h.outages.setAll(h.opt.Log, guestsOutage, bad)
	if g.busy || len(tasks) == 0 || !h.opt.InUse {
		return
	}
	g.busy = true
	g.wait.Add(1)
	work := func() { defer g.wait.Done(); g.turn(tasks) }
	if g.run == nil {
		go work()
		return
	}
	g.mu.Unlock() // it is done at once
	g.run(work)
	g.mu.Lock()
}

func (g *guests) turn(tasks []model.Task) {
	for i := range tasks {
		one, err := g.of(&tasks[i])
		if err != nil || !one.talk.TryLock() { // it is busy with more
			continue
		}
		_, _ = g.ask(g.ctx, &tasks[i], one, guest.Request{Do: guest.DoStat}, statWithin) // it is noted what is wrong
		one.talk.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = false
}

// told adds to a sample what came back to the task's guest, and for how long its programs waited for memory, which the host cannot see.
func (g *guests) told(path string, s *model.TaskSample) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.by[path]
	if one == nil {
		return
	}
	s.C[model.CountRefaults] = plusGuest(s.C[model.CountRefaults], one.refaults)
	s.C[model.CountMemoryStall] = plusGuest(s.C[model.CountMemoryStall], one.stalledNsec)
}

// plusGuest adds what a guest tells; where it tells nothing there is nothing to judge by.
func plusGuest(host, guest model.Counter) model.Counter {
	if guest.Outcome == model.OK && host.Outcome == model.OK {
		guest.Value += host.Value
	}
	return guest
}
