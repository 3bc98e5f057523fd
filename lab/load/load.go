// Package load generates load on a memcached server and measures what its clients feel.
//
// It is an open loop: when a request is due is decided by a seeded Poisson process before
// the run, not by the replies to earlier ones, and its latency counts from that moment. A
// server that stalls for 500 ms is therefore charged for every request that was due
// meanwhile, where a closed loop would have politely stopped asking (coordinated
// omission). The price is that the client's own delay counts too: it is measured as
// lateness and reported beside every latency, and Protect keeps it small.
//
// Two locked threads do the work. The sender sleeps to the nanosecond (clock_nanosleep)
// until a request is due and writes it; it never waits for a socket. The receiver waits
// in epoll and takes the time on its own thread. How they wait was measured: clock.go and
// receiver.go say what was rejected. Still, a client is not free: below 0.3 CPU at 4,000
// requests/s on a virtual machine, of which most is the kernel's own work to wake it.
package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/slo/probe"
)

// Config is one run. Zero KeyCount, ValueBytes, Connections, Window and Grace take the
// defaults below; RatePerSec and Duration must be given.
type Config struct {
	// Network is "tcp" with a loopback address ("127.0.0.1:11211") or "unix" with a path.
	// Anything else is refused: this is a laboratory's tool, not a weapon.
	Network, Address string

	RatePerSec  float64       // requests per second at the start
	Connections int           // default 8
	KeyCount    int           // default 10,000
	ValueBytes  int           // default 100
	SetFraction float64       // share of requests that are sets, 0 to 1
	Duration    time.Duration // in which requests fall due
	Seed        uint64        // of times, connections, keys and commands

	Window time.Duration // of the per-window figures; default 1 s
	Grace  time.Duration // for the last replies after Duration; default 2 s

	// Rates changes the rate in the course of the run, in order of At.
	Rates []RateStep

	// Protection is what Protect returned. It is reported only where the sender finds
	// itself unprotected: what holds is asked of the kernel.
	Protection string
}

// RateStep is a change of the rate. A rate of zero is a pause.
type RateStep struct {
	At         time.Duration // since the start of the run
	RatePerSec float64
}

// Defaults of Config.
const (
	DefaultConnections = 8
	DefaultKeyCount    = 10_000
	DefaultValueBytes  = 100
	DefaultWindow      = time.Second
	DefaultGrace       = 2 * time.Second
)

// Limits of Config and of a run.
const (
	maxConnections = 1024             // one thread serves them all
	maxKeyCount    = 100_000_000      // the digits in a key
	maxValueBytes  = 1<<20 - 512      // a default memcached refuses items above 1 MiB
	maxRatePerSec  = 1_000_000        // beyond what one thread sends
	maxWindows     = 100_000          // a few KiB of histogram each
	minWindow      = time.Millisecond // shorter ones hold no percentile
	maxOutstanding = 4 << 20          // about 100 MB: the server is gone, not slow
)

// Errors that callers branch on.
var (
	// ErrConfig marks a configuration that cannot be run.
	ErrConfig = errors.New("load: bad configuration")
	// ErrBacklog ends a run whose server lets more than maxOutstanding requests wait.
	ErrBacklog = errors.New("load: too many requests are waiting")
)

func (c Config) withDefaults() (Config, probe.Endpoint, error) {
	c.Connections = orDefault(c.Connections, DefaultConnections)
	c.KeyCount = orDefault(c.KeyCount, DefaultKeyCount)
	c.ValueBytes = orDefault(c.ValueBytes, DefaultValueBytes)
	c.Window = orDefault(c.Window, DefaultWindow)
	c.Grace = orDefault(c.Grace, DefaultGrace)
	endpoint, err := probe.ParseEndpoint(c.Network, c.Address)
	if err != nil {
		return c, endpoint, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	bad := func(format string, args ...any) (Config, probe.Endpoint, error) {
		return c, endpoint, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case !endpoint.Local():
		return bad("%s %s: only loopback and unix sockets are loaded", c.Network, c.Address)
	case c.Connections < 1 || c.Connections > maxConnections:
		return bad("connections %d: expected 1 to %d", c.Connections, maxConnections)
	case c.KeyCount < 1 || c.KeyCount > maxKeyCount:
		return bad("key count %d: expected 1 to %d", c.KeyCount, maxKeyCount)
	case c.ValueBytes < 1 || c.ValueBytes > maxValueBytes:
		return bad("value bytes %d: expected 1 to %d", c.ValueBytes, maxValueBytes)
	case !(c.SetFraction >= 0 && c.SetFraction <= 1):
		return bad("set fraction %v: expected 0 to 1", c.SetFraction)
	case c.Duration <= 0:
		return bad("duration %v: expected a positive one", c.Duration)
	case c.Window < minWindow || c.Duration/c.Window >= maxWindows:
		return bad("window %v: expected at least %v and at most %d of them in %v", c.Window, minWindow, maxWindows, c.Duration)
	case c.Grace < 0:
		return bad("grace %v: expected a positive one", c.Grace)
	}
	if err := checkRates(c.RatePerSec, c.Rates); err != nil {
		return c, endpoint, err
	}
	return c, endpoint, nil
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// checkRates refuses negative, huge and NaN rates, and steps that are out of order.
func checkRates(first float64, steps []RateStep) error {
	last, load := time.Duration(0), first
	for i, s := range append([]RateStep{{0, first}}, steps...) {
		if !(s.RatePerSec >= 0 && s.RatePerSec <= maxRatePerSec) {
			return fmt.Errorf("%w: rate %v/s: expected 0 to %d", ErrConfig, s.RatePerSec, maxRatePerSec)
		}
		if s.At < last || (i > 1 && s.At == last) {
			return fmt.Errorf("%w: rate step at %v: expected steps in order of time", ErrConfig, s.At)
		}
		last, load = s.At, max(load, s.RatePerSec)
	}
	if load == 0 {
		return fmt.Errorf("%w: the rate is zero throughout", ErrConfig)
	}
	return nil
}

// Run loads the server and returns what it measured. It begins when all connections are
// open, and returns when the last reply is in or Duration and Grace are over.
//
// onWindow, if not nil, is called on Run's goroutine with each window in order, as soon as
// all its requests are answered, but at most one window's length after its end: a request
// that is then still unanswered counts with its age and in Pending. The Result has the
// final figures.
//
// One run a process at a time: two would compete for the Ps of clock.go.
//
// A connection that breaks is opened again; its requests in flight count as errors. When
// ctx ends the run does, and Run returns the Result so far together with ctx's error.
// Other errors: ErrConfig, ErrBacklog (with a Result), and failures to connect at the start.
func Run(ctx context.Context, c Config, onWindow func(Window)) (*Result, error) {
	c, endpoint, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	g, err := newGenerator(ctx, c, endpoint)
	if err != nil {
		return nil, err
	}
	defer g.close()
	if onWindow == nil {
		onWindow = func(Window) {}
	}
	return g.run(ctx, onWindow)
}
