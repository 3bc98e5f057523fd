package linux

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/reclaim"
	"github.com/commensal-io/commensal/model"
)

// action does what a kind of action asks for and returns how much of it was done, which
// counts beside an error too. It may take seconds; a context that ends makes it stop soon.
type action interface {
	run(ctx context.Context, t model.Task, ask model.Setting) (done model.Setting, err error)
}

// beside does what may take the kernel seconds beside the loop, so that no pulse waits for
// it. Results are there when they are there. The ledger bounds how many actions are on
// their way.
type beside struct {
	actions [model.NumKnobs]action
	clock   Clock
	run     func(work func()) // how work is begun; nil: in a goroutine

	mu     sync.Mutex
	done   []model.Result
	wait   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// maxStopping bounds how long Close waits for actions that are under way.
const maxStopping = 2 * time.Second

func newBeside(fs hostfs.FS, m *cgroup.Mounts, clock Clock, run func(func())) *beside {
	b := &beside{clock: clock, run: run}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.actions[model.MemoryReclaim] = &reclaiming{fs: fs, mounts: m}
	return b
}

// start begins an action. Its result comes by take.
func (b *beside) start(c model.Change, t model.Task) {
	work := func() {
		defer b.wait.Done()
		res := model.Result{Seq: c.Seq, Target: c.Target, Found: model.Ask(c.Value.Knob), Now: model.Ask(c.Value.Knob)}
		if a := b.actions[c.Value.Knob]; a == nil {
			res.Kind, res.Error = model.Refused, fmt.Sprintf("no driver for %s", c.Value.Knob)
		} else {
			done, err := a.run(b.ctx, t, c.Value)
			if res.Now = done; err != nil {
				res.Error = err.Error()
			}
			if err != nil && done.Amount == 0 {
				res.Kind = model.Refused
			}
		}
		res.MonoNsec = b.clock.MonoNsec()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done = append(b.done, res)
	}
	b.wait.Add(1)
	if b.run != nil {
		b.run(work)
		return
	}
	go work()
}

// take appends the results that came since.
func (b *beside) take(dst []model.Result) []model.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	dst = append(dst, b.done...)
	b.done = b.done[:0]
	return dst
}

// close ends what is under way. What the kernel does not let go of in time is left to it:
// nothing of an action stands there that would have to be put back.
func (b *beside) close() {
	b.cancel()
	ended := make(chan struct{})
	go func() { b.wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(maxStopping):
	}
}

// reclaiming asks the kernel to take memory back from a task: memory.reclaim of cgroup v2.
type reclaiming struct {
	fs     hostfs.FS
	mounts *cgroup.Mounts
}

func (r *reclaiming) run(ctx context.Context, t model.Task, ask model.Setting) (model.Setting, error) {
	none := model.Ask(model.MemoryReclaim)
	mem, err := reclaim.Open(r.fs, r.mounts)
	if err != nil {
		return none, err
	}
	from, err := mem.OpenReclaimer(t.Path)
	if err != nil {
		return none, err
	}
	defer from.Close() //nolint:errcheck // reading is over
	out, err := from.Reclaim(ctx, reclaim.Ask{Bytes: uint64(max(ask.Amount, 0))})
	return model.Reclaim(max(out.FellBytes, int64(out.AckedBytes))), err
}
