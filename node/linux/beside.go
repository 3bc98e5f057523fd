package linux

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
)

// action does what a kind of action asks for and returns what came of it, and whether anything was
// done, which counts beside an error too. It may take seconds; a context that ends makes it stop soon.
type action interface {
	run(ctx context.Context, t model.Task, ask model.Setting) (now model.Setting, did bool, err error)
}

// beside does what may take the kernel seconds beside the loop, so that no pulse waits for
// it. Results are there when they are there. The ledger bounds how many actions are on
// their way.
type beside struct {
	actions [model.NumKnobs]action
	cg      identifier
	clock   Clock
	run     func(work func()) // how work is begun; nil: in a goroutine

	mu     sync.Mutex
	done   []model.Result
	ends   map[errand]context.CancelFunc // of what is under way
	wait   sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc
}

// errand is an action on its way: a target has one of a kind at a time.
type errand struct {
	model.Target
	kind model.KnobKind
}

// maxStopping bounds how long Close waits for actions that are under way.
const maxStopping = 2 * time.Second

func newBeside(m *cgroup.Mounts, cg cgroup.Driver, o *Options, g *guests) *beside {
	b := &beside{cg: cg, clock: o.Clock, run: o.Beside, ends: map[errand]context.CancelFunc{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.actions[model.MemoryReclaim] = &reclaiming{fs: o.FS, mounts: m, guests: g}
	pause := rest
	if o.Beside != nil { // who plays time plays it without us
		pause = func(context.Context, time.Duration) {}
	}
	pages := &movingPages{fs: o.FS, cg: cg, calls: o.Pages, pause: pause}
	if o.Pages == nil {
		pages.calls = numa.Live{}
	}
	end := &ending{cg: cg, ender: o.Ender, pause: pause}
	if o.Ender == nil {
		end.ender = cgroup.Pidfds{}
	}
	b.actions[model.MemoryPages], b.actions[model.GroupKill] = pages, end
	return b
}

// openTask opens a task's group by a driver's Open or OpenAlone, unless it was made anew.
func openTask(open func(path string) (cgroup.Group, error), t *model.Task) (cgroup.Group, error) {
	group, err := open(t.Path)
	if err != nil {
		return nil, err
	}
	if group.Identity().Inode != t.Inode {
		_ = group.Close() // nothing was written
		return nil, fmt.Errorf("%s was made anew: %w", t.Path, cgroup.ErrVanished)
	}
	return group, nil
}

// start begins an action. Its result comes by take.
func (b *beside) start(c model.Change, t model.Task) {
	ctx, end := context.WithCancel(b.ctx)
	key := errand{c.Target, c.Value.Knob}
	b.mu.Lock()
	b.ends[key] = end
	b.mu.Unlock()
	work := func() {
		defer b.wait.Done()
		defer end()
		res := model.Result{Seq: c.Seq, Target: c.Target, Found: model.Ask(c.Value.Knob), Now: model.Ask(c.Value.Knob)}
		if a := b.actions[c.Value.Knob]; a == nil {
			res.Kind, res.Error = model.Refused, fmt.Sprintf("no driver for %s", c.Value.Knob)
		} else if _, err := sameGroup(b.cg, &t); err != nil {
			res.Kind, res.Error = model.Refused, err.Error()
		} else {
			now, did, err := a.run(ctx, t, c.Value)
			if err != nil && ctx.Err() != nil {
				err = node.ErrEnded
			}
			if res.Now = now; err != nil {
				res.Error = err.Error()
			}
			if err != nil && !did {
				res.Kind = model.Refused
			}
		}
		res.MonoNsec = b.clock.MonoNsec()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done = append(b.done, res)
		delete(b.ends, key)
	}
	b.wait.Add(1)
	if b.run != nil {
		b.run(work)
		return
	}
	go work()
}

// end has an action end soon that may be on its way: its result says how far it came.
func (b *beside) end(c *model.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.ends[errand{c.Target, c.Value.Knob}]; end != nil {
		end()
	}
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
