package linux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/psi"
)

// fired is a trigger that a test fires.
type fired struct {
	fire chan error // what Wait returns
	done chan struct{}
	once sync.Once
}

func newFired() *fired { return &fired{fire: make(chan error), done: make(chan struct{})} }

func (f *fired) Wait(context.Context) error {
	select {
	case err := <-f.fire:
		return err
	case <-f.done:
		return fs.ErrClosed
	}
}

func (f *fired) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// asked is one try to arm a trigger.
type asked struct {
	kind          psi.Kind
	stall, window time.Duration
}

// What a kernel may refuse: who lacks CAP_SYS_RESOURCE gets a longer window; where one kind is refused the other serves; where both
// are, that is said, and nobody waits.
func TestStallTriggersRefused(t *testing.T) {
	second, two := time.Second, 2*time.Second
	for name, c := range map[string]struct {
		refuse func(a asked) error
		want   []asked
		armed  int
		says   []error
	}{
		"none": {func(asked) error { return nil }, []asked{{psi.Some, second / 10, second}, {psi.Full, time.Millisecond, second}}, 2, nil},
		"EINVAL": {func(a asked) error {
			if a.window == second {
				return unix.EINVAL
			}
			return nil
		}, []asked{{psi.Some, second / 10, second}, {psi.Some, second / 5, two}, {psi.Full, time.Millisecond, second}, {psi.Full, time.Millisecond, two}}, 2, nil},
		"EBUSY": {func(a asked) error {
			if a.kind == psi.Full {
				return unix.EBUSY
			}
			return nil
		}, []asked{{psi.Some, second / 10, second}, {psi.Full, time.Millisecond, second}}, 1, []error{unix.EBUSY}},
		"EPERM":  {func(asked) error { return unix.EPERM }, []asked{{psi.Some, second / 10, second}, {psi.Full, time.Millisecond, second}}, 0, []error{unix.EPERM}},
		"no PSI": {func(asked) error { return psi.ErrUnsupported }, []asked{{psi.Some, second / 10, second}, {psi.Full, time.Millisecond, second}}, 0, []error{psi.ErrUnsupported}},
	} {
		var tried []asked
		var armed []*fired
		s, err := watchStalls(0.1, 0.0001, func(kind psi.Kind, stall, window time.Duration) (waiter, error) {
			a := asked{kind, stall, window}
			tried = append(tried, a)
			if err := c.refuse(a); err != nil {
				return nil, fmt.Errorf("arm: %w", err)
			}
			armed = append(armed, newFired())
			return armed[len(armed)-1], nil
		})
		if !slices.Equal(tried, c.want) || len(armed) != c.armed || (s != nil) != (c.armed > 0) || (err != nil) != (c.says != nil) {
			t.Errorf("%s: tried %v, %d armed, %v", name, tried, len(armed), err)
		}
		for _, e := range c.says {
			if !errors.Is(err, e) {
				t.Errorf("%s: %v, want %v in it", name, err, e)
			}
		}
		if s == nil {
			continue
		}
		for _, f := range armed { // nobody heard of the first one yet: both are one signal, and neither blocks
			f.fire <- nil
		}
		<-s.Stalls()
		armed[0].fire <- psi.ErrTriggerGone // it is let go of, and the others go on
		if len(armed) > 1 {
			armed[1].fire <- nil
			<-s.Stalls()
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
