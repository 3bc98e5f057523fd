package slo

import (
	"context"
	"errors"
	"sync"
)

// ErrStarted is returned by a second Start of a source, and by one after Close.
var ErrStarted = errors.New("the source was already started or closed")

// Life is Start and Close of a source that measures in one goroutine, which ends with its context.
type Life struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil: not started
	closed bool
	done   chan struct{}
}

// Start runs it.
func (l *Life) Start(ctx context.Context, run func(context.Context)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil || l.closed {
		return ErrStarted
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		run(ctx)
	}()
	return nil
}

// Close ends it, and waits until it has ended.
func (l *Life) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
	return nil
}
