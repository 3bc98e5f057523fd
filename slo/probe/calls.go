package probe

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Refusal is the error of a call that the server answered, but not as it should have.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// NewCalls returns a source that calls a function for each probe, several at a time where one takes
// longer than an interval. The context that the function is given ends at the probe's timeout. An error
// that is neither a Refusal nor that end says that the server cannot be reached. release is called once
// nothing is under way any more.
func NewCalls(c Config, call func(context.Context) error, release func()) (*Source, error) {
	d := &calls{call: call, release: release}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return newSource(c, d)
}

// calls is a driver: a goroutine a probe.
type calls struct {
	call    func(context.Context) error
	release func()
	ctx     context.Context //nolint:containedctx // of everything that is under way, until the end
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (d *calls) drive(s *Source, _, next time.Time) error {
	s.mu.Lock()
	for range s.prober.wants() {
		p := *s.prober.probe(s.prober.inFlight)
		s.prober.sent(1)
		d.running.Go(func() { d.ask(s, p) })
	}
	s.mu.Unlock()
	return s.wait.wait(next)
}

func (d *calls) ask(s *Source, p due) {
	ctx, cancel := context.WithDeadline(d.ctx, p.at.Add(s.config.Timeout))
	defer cancel()
	err := d.call(ctx)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prober.finished(p.id, now, err == nil)
	var refusal Refusal
	switch {
	case err == nil || errors.As(err, &refusal):
		s.reason = ""
		s.answer(now, string(refusal))
	case ctx.Err() == nil:
		s.reason = err.Error()
	case s.reason == "connecting": // it is there, and does not answer in time
		s.reason = ""
	}
}

// end of a loop that goes on leaves what is under way alone.
func (d *calls) end(s *Source, why error) {
	if s.wait.has(s.wake[0]) {
		d.cancel()
		d.running.Wait()
		d.release()
	}
	s.setReason(why.Error())
}
