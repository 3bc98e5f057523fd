package linux

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/gpu"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
)

// GPUSource asks the driver of GPUs (gpu.Command). It comes back soon after the context ends.
type GPUSource interface {
	Read(ctx context.Context) (gpu.Reading, error)
}

// What cannot be read of GPUs is said once, and again when it is over.
const gpusOutage = "GPUs cannot be read, and are in no figure"

// gpus reads what GPUs say beside the loop: the driver's command may take seconds, or hang. What it said is in the next window's snapshot.
type gpus struct {
	source GPUSource // nil: nobody asks
	fs     hostfs.FS
	layout cgroup.Layout
	every  int64
	clock  Clock
	run    func(work func()) // nil: in a goroutine
	ctx    context.Context
	cancel context.CancelFunc
	wait   sync.WaitGroup
	next   int64           // when it is due
	seen   map[string]bool // GPUs that were here; of the turn
	last   string          // why there was no figure in the reading before; of the turn

	mu    sync.Mutex
	busy  bool
	ready *model.GPUReading
	fails string // NVIDIA's driver is here, and cannot be asked, or a GPU is lost
}

func (g *gpus) open(h *Host) {
	o := &h.opt
	if o.GPUs == nil || o.GPUEvery <= 0 {
		return
	}
	g.source, g.every, g.fs, g.layout, g.clock, g.run, g.seen = o.GPUs, o.GPUEvery.Nanoseconds(), o.FS, h.cg.Layout(), o.Clock, o.Beside, map[string]bool{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
}

// observe adds what was read since, and begins the next turn.
func (g *gpus) observe(h *Host, mark model.WindowMark, snap *model.Snapshot) {
	if g.source == nil || mark&model.WindowEnd == 0 {
		return
	}
	g.mu.Lock()
	snap.GPUs, g.ready = g.ready, nil
	h.outages.set(h.opt.Log, gpusOutage, g.fails)
	now := g.clock.MonoNsec()
	due := !g.busy && now >= g.next
	g.busy = g.busy || due
	g.mu.Unlock()
	if !due {
		return
	}
	g.next = now + g.every
	tasks := make(map[string]model.TaskNum, len(h.tasks))
	for _, w := range h.tasks {
		if !w.gone {
			tasks[w.task.Path] = w.task.Num
		}
	}
	g.wait.Add(1)
	work := func() { defer g.wait.Done(); g.turn(tasks) }
	if g.run != nil {
		g.run(work)
		return
	}
	go work()
}

// turn reads once. That there is still nothing to read is not said again.
func (g *gpus) turn(tasks map[string]model.TaskNum) {
	r, fails := g.read(tasks)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy = false; g.ctx.Err() != nil {
		return
	}
	g.fails = fails
	if len(r.GPUs) > 0 || r.Why != g.last {
		g.ready = &r
	}
	g.last = r.Why
}

func (g *gpus) read(tasks map[string]model.TaskNum) (r model.GPUReading, fails string) {
	nvidia, why := gpu.Look(g.fs)
	if !nvidia {
		return model.GPUReading{MonoNsec: g.clock.MonoNsec(), Why: why}, ""
	}
	found, err := g.source.Read(g.ctx)
	r = model.GPUReading{MonoNsec: g.clock.MonoNsec(), Why: why}
	if err != nil {
		r.Why = "not read: " + err.Error()
		return r, err.Error()
	}
	for i := range found.GPUs {
		f := &found.GPUs[i]
		g.seen[f.UUID] = true
		busy := f.BusyPercent
		one := model.GPU{UUID: f.UUID, Busy: told(busy), Total: told(f.TotalBytes), Free: told(f.FreeBytes), MIG: f.MIG}
		one.Busy.V /= 100
		g.share(&one, found.Processes, tasks)
		r.GPUs = append(r.GPUs, one)
	}
	if lost := g.lost(r.GPUs); lost != "" {
		r.Why, fails = "not read: "+lost, lost
	}
	return r, fails
}

// lost names the GPUs that were here and are not any more.
func (g *gpus) lost(now []model.GPU) string {
	var list []string
	for uuid := range g.seen {
		if !slices.ContainsFunc(now, func(o model.GPU) bool { return o.UUID == uuid }) {
			list = append(list, uuid)
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.Sort(list)
	return strings.Join(list[:min(len(list), gpu.MaxGPUs)], ", ") + " was here, and the driver does not list it any more"
}

func told(f gpu.Figure) model.Value {
	if !f.Known {
		return model.Missing(model.Unavailable)
	}
	return model.Known(float64(f.V))
}

// share adds up what tasks have on a GPU. A process that has ended meanwhile, or is of no task, is in no sum.
func (g *gpus) share(one *model.GPU, list []gpu.Process, tasks map[string]model.TaskNum) {
	sums := map[model.TaskNum]uint64{}
	for i := range list {
		p := &list[i]
		if p.UUID != one.UUID {
			continue
		}
		if !p.Bytes.Known || p.PID == 0 {
			one.Untold++
			continue
		}
		if num, ok := g.task(p.PID, tasks); ok {
			sums[num] += p.Bytes.V
		}
	}
	for num, bytes := range sums {
		one.Tasks = append(one.Tasks, model.GPUTask{Num: num, Bytes: bytes})
	}
	slices.SortFunc(one.Tasks, func(a, b model.GPUTask) int { return cmp.Compare(a.Num, b.Num) })
}

// task finds the task in whose cgroup, or below it, a process is.
func (g *gpus) task(pid int, tasks map[string]model.TaskNum) (model.TaskNum, bool) {
	paths, err := cgroup.ReadPaths(g.fs, g.layout, strconv.Itoa(pid))
	if err != nil {
		return 0, false
	}
	for _, at := range paths {
		for ; at != "/" && at != "."; at = path.Dir(at) {
			if num, ok := tasks[at]; ok {
				return num, true
			}
		}
	}
	return 0, false
}

// NoGPUs says why nobody looks for GPUs; "": somebody does.
func (h *Host) NoGPUs() string {
	switch {
	case h.gpus.source != nil:
		return ""
	case h.opt.GPUs == nil:
		return "nobody asks their driver"
	}
	return fmt.Sprintf("agent.gpu_every is %s", h.opt.GPUEvery)
}

// close ends a reading that is under way.
func (g *gpus) close() {
	if g.cancel != nil {
		g.cancel()
		g.wait.Wait()
	}
}
