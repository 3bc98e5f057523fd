// Package probe asks a server again and again and keeps how long its answers took: the schedule, timeouts,
// reconnection and figures that all latency sources share which ask and are answered.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo"
)

// Defaults of Config.
const (
	DefaultTimeout        = time.Second
	DefaultMaxOutstanding = 64 // more than the 50 that fall due within the default timeout
)

// Limits of Config: a millisecond is the finest schedule that one thread keeps beside
// other work, and the windows hold at most maxSamples so that a sorted insert stays cheap.
const (
	minInterval = time.Millisecond
	maxSamples  = 100_000
)

// Back-off between attempts to connect: from a blink, so that a restarted server is
// seen within a tick or two, to a pace that a broken host does not feel.
const (
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = 2 * time.Second
	connectTimeout = time.Second
)

// Config says how to probe. Zero durations and counts take the default.
type Config struct {
	Interval       time.Duration // from one probe to the next; default 20 ms
	Window         time.Duration // of the percentiles; default 3 s
	Timeout        time.Duration // a probe without answer counts as this late at least; default 1 s
	MaxOutstanding int           // probes in flight at most; default 64
	Quantile       float64       // that is asked for beside the usual ones; 0: none
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Interval, slo.DefaultInterval)
	setDefault(&c.Window, slo.DefaultWindow)
	setDefault(&c.Timeout, DefaultTimeout)
	c.MaxOutstanding = cmp.Or(c.MaxOutstanding, DefaultMaxOutstanding)
	switch {
	case c.Interval < minInterval:
		return c, fmt.Errorf("interval %v: expected at least %v", c.Interval, minInterval)
	case c.Window < c.Interval || c.Window/c.Interval > maxSamples:
		return c, fmt.Errorf("window %v: expected 1 to %d intervals of %v", c.Window, maxSamples, c.Interval)
	case c.Timeout < c.Interval || c.Timeout/c.Interval > maxSamples:
		return c, fmt.Errorf("timeout %v: expected 1 to %d intervals of %v", c.Timeout, maxSamples, c.Interval)
	case c.MaxOutstanding < 0:
		return c, fmt.Errorf("max outstanding %d: expected a positive number", c.MaxOutstanding)
	}
	return c, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// driver is how probes reach the server.
type driver interface {
	// drive sends what is due and waits until the next probe is, or until there is something to do
	// before. Its error is why the server cannot be reached.
	drive(s *Source, now, next time.Time) error
	// end gives everything up.
	end(s *Source, why error)
}

// Source asks one server again and again. It is an slo.Source: one loop, which sleeps until the next
// probe is due or a reply is there (waiter says how).
type Source struct {
	config Config
	driver driver

	mu      sync.Mutex // guards what Read shares with the loop
	prober  *prober
	reason  string    // why there is no connection; "" when there is one
	refusal string    // what the server last refused with; "" since it did as it was asked
	refused time.Time // when
	good    time.Time // when it last did as it was asked

	lifecycle sync.Mutex
	started   bool
	closed    bool
	done      chan struct{}
	wait      *waiter // the loop's own, from Start to Close

	wakeMu sync.Mutex // a context may end while Close gives the pipe back
	wake   [2]int     // pipe: a byte ends the loop; -1 when there is none
}

var _ slo.Source = (*Source)(nil)

func newSource(c Config, d driver) (*Source, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Source{config: c, driver: d, prober: newProber(c), reason: "not started", wake: [2]int{-1, -1}}, nil
}

// Start begins to probe. See slo.Source.
func (s *Source) Start(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.started || s.closed {
		return slo.ErrStarted
	}
	if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("probe: pipe: %w", err)
	}
	var err error
	if s.wait, err = newWaiter(s.wake[0]); err != nil {
		err = errors.Join(err, unix.Close(s.wake[0]), unix.Close(s.wake[1]))
		s.wake = [2]int{-1, -1}
		return err
	}
	s.started = true
	s.done = make(chan struct{})
	stopWatch := context.AfterFunc(ctx, s.interrupt)
	go func() {
		defer close(s.done)
		defer stopWatch()
		s.loop()
	}()
	return nil
}

// interrupt ends the loop. A full pipe already holds the byte that does.
func (s *Source) interrupt() {
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	if s.wake[1] >= 0 {
		_, _ = unix.Write(s.wake[1], []byte{0})
	}
}

// Close ends probing and closes the connection. See slo.Source.
func (s *Source) Close() error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if !s.started {
		return nil
	}
	s.interrupt()
	<-s.done
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	err := errors.Join(s.wait.close(), unix.Close(s.wake[0]), unix.Close(s.wake[1]))
	s.wake = [2]int{-1, -1}
	return err
}

// Read returns the figures as of now. See slo.Source. While there is no connection, and when the server
// refused whatever was asked in the whole window, samples are still counted, but no percentile is valid.
func (s *Source) Read(now time.Time) slo.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r slo.Reading
	s.prober.fill(&r, now)
	switch {
	case s.reason != "":
		return r.Unavailable(s.reason)
	case s.refusal != "" && now.Sub(s.good) >= s.config.Window && now.Sub(s.refused) < s.config.Timeout:
		return r.Unavailable("refuses whatever is asked: " + s.refusal)
	}
	return r
}

func (s *Source) setReason(reason string) {
	s.mu.Lock()
	s.reason = reason
	s.mu.Unlock()
}

// answer notes whether the server did as it was asked; the caller holds mu.
func (s *Source) answer(now time.Time, refusal string) {
	if s.refusal = refusal; refusal == "" {
		s.good = now
	} else {
		s.refused = now
	}
}

// loop runs until a byte arrives on the wake pipe.
func (s *Source) loop() {
	s.setReason("connecting")
	s.mu.Lock()
	s.prober.begin(time.Now())
	s.mu.Unlock()
	for !s.wait.has(s.wake[0]) {
		now := time.Now()
		s.mu.Lock()
		s.prober.advance(now)
		next := s.prober.next
		s.mu.Unlock()
		if err := s.driver.drive(s, now, next); err != nil {
			s.driver.end(s, err)
			time.Sleep(minBackoff) // whatever refuses may go on to: do not spin
		}
	}
	s.driver.end(s, errors.New("closed"))
}
