package linux

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// How long the pages of each LC and BE task lay idle (model.PageAges), from the multi-generational LRU. It is the
// one source that can be used for a hundred tasks: DAMON takes a thread of the kernel and a mark in a journal for each process.
//
// Reading walks the page tables of the task's processes, so it is done beside the loop, a few tasks at a time, which share the reading of the
// kernel's list of all groups, and rarely. The kernel keeps four
// generations, of which two tell of an age: what was not used since the walk before the last one, and since the one before that.
// So walks come in turns that make these two the ages that are asked for: with 1.5 h and 6 h a walk after 4.5 h, the next one after 1.5 h, and
// each second one tells both; with one age alone, or without swap, for which only the shorter one counts, one each time that passes.
//
// Of file pages the kernel tells no lower bound, but how it has sorted them: what it evicts goes by that, and it spares what was read meanwhile.
//
// However long the walks of a machine take, they have at most agesShare of one CPU: after each turn nobody is walked for as long as makes it so, and
// tasks then wait for longer than that.

const (
	agesShare  = 0.004 // of one CPU; the goal is half a per cent
	agesOutage = "ages of pages that the kernel tells cannot be, and are left out"
)

// ages is the reader's state. What its turn needs it owns while busy.
type ages struct {
	lru    *reclaim.LRUGen // nil: those of guests alone are read
	why    string          // lru is nil though somebody asks
	memory *reclaim.Memory // nil: nobody tells limits of swap
	guests *guests
	gaps   []int64 // until the next walk, in turn; none: nothing is read
	inside []int64 // the same of guests, which have swap of their own, or none
	edges  []time.Duration
	clock  Clock
	run    func(work func()) // nil: in a goroutine
	noSwap bool              // as the agent found it
	cancel context.CancelFunc
	ctx    context.Context
	wait   sync.WaitGroup

	walks map[model.TaskNum]walked

	mu      sync.Mutex
	busy    bool
	rests   int64 // nobody is walked before
	ready   []model.PageAges
	refused map[string][]string // paths by why the last turn had no ages of them; nil: that is told
}

// walked is when a task was last walked, and how often.
type walked struct {
	atNsec int64
	times  int
}

// open finds out whether ages can be told here. Nobody looks while no policy asks.
func (a *ages) open(h *Host, m *cgroup.Mounts) {
	o := &h.opt
	if o.Ages == (model.AskedAges{}) {
		return
	}
	lru := reclaim.NewLRUGen(o.FS)
	if err := lru.Usable(); err != nil {
		h.lacks("ages of pages", err)
		lru, a.why = nil, err.Error()
	}
	a.memory, _ = reclaim.Open(o.FS, m) // without, limits of swap are not told
	a.lru, a.guests, a.clock, a.run, a.walks = lru, h.guests, o.Clock, o.Beside, map[model.TaskNum]walked{}
	a.gaps = []int64{o.Ages.ShortestNsec}
	if more := o.Ages.LongestNsec - o.Ages.ShortestNsec; more > 0 {
		a.gaps = []int64{more, o.Ages.ShortestNsec}
	}
	a.inside = a.gaps
	if areas, err := reclaim.ReadSwaps(o.FS); err != nil || len(areas) == 0 {
		a.noSwap, a.gaps = true, a.gaps[len(a.gaps)-1:]
	}
	for _, edge := range model.AgeEdges {
		a.edges = append(a.edges, time.Duration(edge))
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
}

// NoAges says why this machine does not tell how long pages lay idle; "": it does, or nobody asks.
func (h *Host) NoAges() string { return h.ages.why }

// observe adds what was read since, and begins the next turn.
func (a *ages) observe(h *Host, mark model.WindowMark, snap *model.Snapshot) {
	if a.gaps == nil || mark&model.WindowEnd == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ready) > 0 {
		snap.Ages, a.ready = a.ready, nil
	}
	if a.refused != nil {
		h.outages.setAll(h.opt.Log, agesOutage, a.refused)
		a.refused = nil
	}
	if now := a.clock.MonoNsec(); !a.busy && now >= a.rests {
		if due := a.due(h, now); len(due) > 0 {
			a.busy = true
			a.wait.Add(1)
			work := func() { defer a.wait.Done(); a.turn(due) }
			if a.run == nil {
				go work()
				return
			}
			a.mu.Unlock() // it is done at once
			a.run(work)
			a.mu.Lock()
		}
	}
}

// due are the tasks that have waited longest beyond their time.
func (a *ages) due(h *Host, now int64) []model.Task {
	maps.DeleteFunc(a.walks, func(num model.TaskNum, _ walked) bool { return h.find(num) == nil })
	type waiting struct {
		task model.Task
		late int64
	}
	var list []waiting
	for _, w := range h.tasks {
		if w.gone || w.task.Class != model.LC && w.task.Class != model.BE || a.lru == nil && w.task.Guest == "" {
			continue
		}
		gaps := a.gaps
		if w.task.Guest != "" {
			gaps = a.inside
		}
		last, known := a.walks[w.task.Num]
		late := now // one that is new is walked first
		if known {
			// Never sooner: with a walk that came a second too soon no page would have been idle for as long as was asked for.
			late = now - last.atNsec - gaps[last.times%len(gaps)]
		}
		if late >= 0 {
			list = append(list, waiting{w.task, late})
		}
	}
	slices.SortStableFunc(list, func(x, y waiting) int { return cmp.Compare(y.late, x.late) })
	due := make([]model.Task, 0, reclaim.TurnGroups)
	for _, w := range list[:min(len(list), reclaim.TurnGroups)] {
		due = append(due, w.task)
	}
	return due
}

// turn walks some tasks and reads their ages. A group that is gone has none.
func (a *ages) turn(due []model.Task) {
	var own []model.Task
	for i := range due {
		if due[i].Guest == "" {
			own = append(own, due[i])
		}
	}
	var spent int64
	var read []model.PageAges
	var refused map[string][]string
	if len(own) > 0 {
		read, refused, spent = a.walk(own)
	}
	for i := range due {
		if t := &due[i]; t.Guest != "" { // who waits for it uses no CPU
			found, err := a.guests.ages(a.ctx, t)
			if a.walked(t.Num); err == nil {
				read = append(read, found)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ready = append(a.ready, read...)
	if refused != nil {
		a.refused = refused
	}
	a.busy, a.rests = false, a.clock.MonoNsec()+int64(float64(spent)*(1/agesShare-1))
}

// walked notes that a task's pages were aged.
func (a *ages) walked(num model.TaskNum) {
	a.walks[num] = walked{a.clock.MonoNsec(), a.walks[num].times + 1}
}

// walk walks tasks that are processes of this kernel, and reads the ages of all of them together, and how much its limits leave each of swap.
func (a *ages) walk(tasks []model.Task) (read []model.PageAges, refused map[string][]string, spent int64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := a.clock.MonoNsec
	if c, ok := a.clock.(interface{ ThreadNsec() int64 }); ok { // on a busy machine a walk waits longer for a CPU than it uses one
		used = c.ThreadNsec
	}
	began := used()
	asks := make([]reclaim.AgeAsk, len(tasks))
	for i := range tasks {
		asks[i] = reclaim.AgeAsk{Path: tasks[i].Path, Anon: !a.noSwap}
	}
	refused = map[string][]string{}
	for i, found := range a.lru.AgeAll(a.ctx, asks, a.edges) {
		t := &tasks[i]
		a.walked(t.Num)                  // after all walks: the next one does not come too soon
		spent += found.CPU.Nanoseconds() // walks are made by threads of their own
		if errors.Is(found.Err, reclaim.ErrImpossible) {
			refused[found.Err.Error()] = append(refused[found.Err.Error()], t.Path)
		}
		if found.Err != nil {
			continue
		}
		now := histogram(t.Num, a.clock.MonoNsec(), &found.Ages)
		if a.memory != nil {
			if left, limited, err := a.memory.SwapLeft(t.Path); err == nil && limited {
				now.Limited, now.AnonRoom = true, left
			}
		}
		read = append(read, now)
	}
	return read, refused, spent + used() - began
}

// histogram is what a source told, as samples have it.
func histogram(num model.TaskNum, nowNsec int64, found *reclaim.Ages) model.PageAges {
	h := model.PageAges{Num: num, MonoNsec: nowNsec, Source: found.Source}
	for i := range model.AgeEdges {
		h.Anon[i], h.File[i] = found.Anon[i].AtLeastBytes, found.FileSorted[i]
	}
	return h
}

// close ends a turn that is under way.
func (a *ages) close() {
	if a.cancel != nil {
		a.cancel()
		a.wait.Wait()
	}
}
