package memcached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unsafe"

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

// Config says which server to probe and how. Zero durations and counts take the default.
type Config struct {
	// Network and Address as ParseEndpoint takes them.
	Network, Address string

	// Key, where set, makes a probe a `get` of that key. By default a probe is
	// `version`. Both are parsed and answered by the worker thread that owns the
	// connection, and so wait for a CPU and in that thread's event loop as clients'
	// requests do, which is where interference shows. `version` costs least: it takes no
	// lock, touches no item, and above all moves none of the server's hit and miss
	// counters, by which people run their caches; `mn` would do as well but is unknown
	// before 1.6. What `version` does not see is memory: hash and item lookups, a
	// proxy's back end. Set Key to see those, at the price of 50 gets/s in the counters.
	Key string

	Interval       time.Duration // from one probe to the next; default 20 ms
	Window         time.Duration // of the percentiles; default 3 s
	Timeout        time.Duration // a probe without answer counts as this late at least; default 1 s
	MaxOutstanding int           // probes in flight at most; default 64
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Interval, slo.DefaultInterval)
	setDefault(&c.Window, slo.DefaultWindow)
	setDefault(&c.Timeout, DefaultTimeout)
	if c.MaxOutstanding == 0 {
		c.MaxOutstanding = DefaultMaxOutstanding
	}
	switch {
	case c.Key != "" && !ValidKey(c.Key):
		return c, fmt.Errorf("memcached: key %q: expected 1 to 250 bytes without blanks", c.Key)
	case c.Interval < minInterval:
		return c, fmt.Errorf("memcached: interval %v: expected at least %v", c.Interval, minInterval)
	case c.Window < c.Interval || c.Window/c.Interval > maxSamples:
		return c, fmt.Errorf("memcached: window %v: expected 1 to %d intervals of %v", c.Window, maxSamples, c.Interval)
	case c.Timeout < c.Interval || c.Timeout/c.Interval > maxSamples:
		return c, fmt.Errorf("memcached: timeout %v: expected 1 to %d intervals of %v", c.Timeout, maxSamples, c.Interval)
	case c.MaxOutstanding < 0:
		return c, fmt.Errorf("memcached: max outstanding %d: expected a positive number", c.MaxOutstanding)
	}
	return c, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// ErrStarted is returned by a second Start, and by one after Close.
var ErrStarted = errors.New("memcached: source was already started or closed")

// Source probes one memcached server on one kept connection. It is an slo.Source.
//
// One goroutine does everything in a single loop: it sleeps until the next probe is due
// or a reply is there (waiter says how).
type Source struct {
	config   Config
	endpoint Endpoint
	request  []byte
	command  Command

	mu     sync.Mutex // guards what Read shares with the loop
	prober *prober
	reason string // why there is no connection; "" when there is one

	lifecycle sync.Mutex
	started   bool
	closed    bool
	done      chan struct{}
	link      link    // the loop's own
	wait      *waiter // the loop's own, from Start to Close

	wakeMu sync.Mutex // a context may end while Close gives the pipe back
	wake   [2]int     // pipe: a byte ends the loop; -1 when there is none
}

// link is the loop's connection.
type link struct {
	fd         int // -1: none
	connecting bool
	since      time.Time // of connecting
	retryAt    time.Time
	backoff    time.Duration
	out        []byte // asked for but not yet taken by the socket
	in         []byte
	fill       int
}

var _ slo.Source = (*Source)(nil)

// New returns a source that has not yet begun. The error names what is wrong in c.
func New(c Config) (*Source, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	endpoint, err := ParseEndpoint(c.Network, c.Address)
	if err != nil {
		return nil, err
	}
	s := &Source{
		config: c, endpoint: endpoint, prober: newProber(c), reason: "not started",
		request: []byte("version\r\n"), command: CommandVersion,
		wake: [2]int{-1, -1},
		link: link{fd: -1, backoff: minBackoff, in: make([]byte, 16<<10)},
	}
	if c.Key != "" {
		s.request, s.command = []byte("get "+c.Key+"\r\n"), CommandGet
	}
	return s, nil
}

// Start begins to probe. See slo.Source.
func (s *Source) Start(ctx context.Context) error {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.started || s.closed {
		return ErrStarted
	}
	if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("memcached: pipe: %w", err)
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

// Read returns the figures as of now. See slo.Source. While there is no connection the
// samples are still counted, but no percentile is valid.
func (s *Source) Read(now time.Time) slo.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	var r slo.Reading
	s.prober.fill(&r, now)
	if s.reason != "" {
		r.Status = slo.Status{State: slo.StateUnavailable, Reason: s.reason}
		r.Valid, r.P50, r.P99, r.P999 = 0, 0, 0, 0
	}
	return r
}

func (s *Source) setReason(reason string) {
	s.mu.Lock()
	s.reason = reason
	s.mu.Unlock()
}

// loop runs until a byte arrives on the wake pipe.
func (s *Source) loop() {
	s.setReason("connecting")
	s.mu.Lock()
	s.prober.begin(time.Now())
	s.mu.Unlock()
	for {
		now := time.Now()
		s.mu.Lock()
		s.prober.advance(now)
		next := s.prober.next
		s.mu.Unlock()
		s.connect(now)
		s.send()
		interest := uint32(unix.EPOLLIN)
		switch {
		case s.link.fd < 0:
			if s.link.retryAt.Before(next) {
				next = s.link.retryAt
			}
		case s.link.connecting:
			interest = unix.EPOLLOUT
		case len(s.link.out) > 0:
			interest |= unix.EPOLLOUT
		}
		err := s.wait.watch(s.link.fd, interest)
		if err == nil {
			err = s.wait.wait(next)
		}
		if err != nil {
			s.disconnect(err)
			// Whatever refuses may go on to: do not spin.
			time.Sleep(minBackoff)
		}
		if s.wait.has(s.wake[0]) {
			s.disconnect(errors.New("closed"))
			return
		}
		if s.link.fd >= 0 && s.wait.has(s.link.fd) && !s.link.connecting {
			s.receive()
		}
	}
}

// connect moves the connection on: begins an attempt, or looks how one ended.
func (s *Source) connect(now time.Time) {
	l := &s.link
	if l.fd < 0 {
		if now.Before(l.retryAt) {
			return
		}
		fd, inProgress, err := s.endpoint.Dial()
		if err != nil {
			s.disconnect(err)
			return
		}
		l.fd, l.connecting, l.since = fd, true, now
		if inProgress {
			return
		}
	}
	if !l.connecting {
		return
	}
	fds := [1]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLOUT}}
	_, err := unix.Ppoll(fds[:], &unix.Timespec{}, nil)
	switch {
	case fds[0].Revents == 0: // not yet, or interrupted
		if now.Sub(l.since) >= connectTimeout {
			s.disconnect(fmt.Errorf("memcached: connect: no answer in %v", connectTimeout))
		}
		return
	case err == nil:
		err = ConnectError(l.fd)
	}
	if err != nil {
		s.disconnect(err)
		return
	}
	l.connecting = false
	s.setReason("")
}

// disconnect gives the connection up and says when to try again.
func (s *Source) disconnect(why error) {
	l := &s.link
	if l.fd >= 0 {
		_ = unix.Close(l.fd) // nothing is lost that was not lost before
		s.wait.forget()
	}
	l.fd, l.connecting, l.fill, l.out = -1, false, 0, l.out[:0]
	l.retryAt = time.Now().Add(l.backoff)
	l.backoff = min(2*l.backoff, maxBackoff)
	s.mu.Lock()
	s.prober.disconnected()
	s.reason = why.Error()
	s.mu.Unlock()
}

// send asks for the probes that are due. What the socket does not take stays in out.
func (s *Source) send() {
	l := &s.link
	if l.fd < 0 || l.connecting {
		return
	}
	s.mu.Lock()
	n := s.prober.wants()
	s.prober.sent(n)
	s.mu.Unlock()
	for range n {
		l.out = append(l.out, s.request...)
	}
	if len(l.out) == 0 {
		return
	}
	k, err := brief(unix.SYS_WRITE, uintptr(l.fd), unsafe.Pointer(&l.out[0]), uintptr(len(l.out)))
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	case err != nil:
		s.disconnect(fmt.Errorf("memcached: write: %w", err))
	default:
		l.out = l.out[:copy(l.out, l.out[k:])]
	}
}

// receive takes what has arrived. One read a call: the loop polls again.
func (s *Source) receive() {
	l := &s.link
	k, err := brief(unix.SYS_READ, uintptr(l.fd), unsafe.Pointer(&l.in[l.fill]), uintptr(len(l.in)-l.fill))
	now := time.Now()
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil:
		s.disconnect(fmt.Errorf("memcached: read: %w", err))
		return
	case k == 0:
		s.disconnect(fmt.Errorf("memcached: read: the server closed the connection: %w", io.EOF))
		return
	}
	l.fill += k
	if err := s.parse(now); err != nil {
		s.disconnect(err)
		return
	}
	if l.fill == len(l.in) {
		need := NeedBytes(l.in[:l.fill], s.command)
		l.in = append(l.in, make([]byte, max(need-len(l.in), len(l.in)))...)
	}
}

// parse enters every whole reply in the buffer and keeps the rest.
func (s *Source) parse(now time.Time) error {
	l := &s.link
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for {
		r, n, err := ParseReply(l.in[taken:l.fill], s.command)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if r.Outcome == Hit && string(r.Key) != s.config.Key {
			return fmt.Errorf("%w: value of key %q, asked for %q", ErrProtocol, r.Key, s.config.Key)
		}
		if !s.prober.answered(now, r.Outcome != ServerError) {
			return fmt.Errorf("%w: a reply that nobody asked for", ErrProtocol)
		}
		// Only an answer proves that the server works again.
		l.backoff = minBackoff
		taken += n
	}
	l.fill = copy(l.in, l.in[taken:l.fill])
	return nil
}
