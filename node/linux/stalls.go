package linux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/psi"
	"github.com/commensal-io/commensal/model"
)

// StallSource says when programs wait for memory.
type StallSource interface {
	// Stalls returns what is ready to be received from when they did; the same each time.
	Stalls() <-chan struct{}
	Close() error
}

// Look implements node.Looking: three reads for the machine, and one a best-effort task.
func (h *Host) Look(l *model.Look) {
	*l = model.Look{MonoNsec: h.opt.Clock.MonoNsec(), Tasks: l.Tasks[:0]}
	h.room.observe(&l.Node)
	for _, w := range h.tasks {
		if w.gone || w.task.Class != model.BE {
			continue
		}
		for _, r := range w.readers {
			if u, ok := r.(*inUse); ok && u.meter != nil {
				if bytes, err := u.meter.Current(); err == nil {
					l.Tasks = append(l.Tasks, model.TaskMemory{Num: w.task.Num, Bytes: bytes})
				}
			}
		}
	}
}

// Watch implements node.Looking, by PSI triggers of the machine. Where one of two is refused the other serves.
func (h *Host) Watch(some, full float64) error {
	open := h.opt.Stalls
	if open == nil {
		open = func(some, full float64) (StallSource, error) {
			return watchStalls(some, full, func(kind psi.Kind, stall, window time.Duration) (waiter, error) {
				return psi.OpenTrigger(h.opt.FS, psi.Memory.Path(), kind, stall, window)
			})
		}
	}
	s, err := open(some, full)
	if s != nil {
		h.stalls = s
	}
	return err
}

// Stalls implements node.Looking.
func (h *Host) Stalls() <-chan struct{} {
	if h.stalls == nil {
		return nil
	}
	return h.stalls.Stalls()
}

// waiter is a psi.Trigger.
type waiter interface {
	Wait(ctx context.Context) error
	Close() error
}

// triggers are PSI triggers, each with a goroutine that waits for it.
type triggers struct {
	woken   chan struct{}
	list    []waiter
	waiting sync.WaitGroup
}

// watchStalls arms a trigger for each kind of stall: of a share of a second, or where the kernel takes that of nobody without
// CAP_SYS_RESOURCE, of two.
func watchStalls(some, full float64, arm func(kind psi.Kind, stall, window time.Duration) (waiter, error)) (StallSource, error) {
	t := &triggers{woken: make(chan struct{}, 1)}
	var errs []error
	for _, want := range [...]struct {
		kind  psi.Kind
		share float64
	}{{psi.Some, some}, {psi.Full, full}} {
		var w waiter
		var err error
		for _, window := range [...]time.Duration{time.Second, 2 * time.Second} {
			stall := min(window, max(time.Millisecond, time.Duration(want.share*float64(window))))
			if w, err = arm(want.kind, stall, window); !errors.Is(err, unix.EINVAL) {
				break
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", want.kind, err))
			continue
		}
		t.list = append(t.list, w)
		t.waiting.Go(func() { t.wait(w) })
	}
	if len(t.list) == 0 {
		return nil, errors.Join(errs...)
	}
	return t, errors.Join(errs...)
}

// wait passes on that a trigger has fired, until it is closed or cannot fire any more.
func (t *triggers) wait(w waiter) {
	for w.Wait(context.Background()) == nil {
		select {
		case t.woken <- struct{}{}:
		default: // the loop did not hear of the last one yet
		}
	}
}

func (t *triggers) Stalls() <-chan struct{} { return t.woken }

func (t *triggers) Close() error {
	var errs []error
	for _, w := range t.list {
		errs = append(errs, w.Close())
	}
	t.waiting.Wait()
	return errors.Join(errs...)
}
