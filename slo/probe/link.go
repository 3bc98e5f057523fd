package probe

import (
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Protocol is what one kind of server speaks: requests on a connection, and replies in their order.
type Protocol interface {
	// Request appends the next request.
	Request(dst []byte) []byte
	// Reply takes the first reply in b: how many bytes it has, 0 where b holds only its beginning, and
	// with which words the server refused, "" where it did as it was asked. An error wraps ErrProtocol:
	// nothing that follows can be matched to a request.
	Reply(b []byte) (n int, refusal string, err error)
	// Reset forgets the requests that were not answered: the connection is gone.
	Reset()
}

// ErrProtocol marks bytes that are no proper reply.
var ErrProtocol = errors.New("not a proper reply")

// maxReply bounds what is read of a reply: more measures the network.
const maxReply = 16 << 20

// NewLink returns a source that asks over one kept connection, that of ParseEndpoint.
func NewLink(c Config, network, address string, p Protocol) (*Source, error) {
	endpoint, err := ParseEndpoint(network, address)
	if err != nil {
		return nil, err
	}
	return newSource(c, &link{protocol: p, endpoint: endpoint, fd: -1, backoff: minBackoff, in: make([]byte, 16<<10)})
}

// link is a driver: one connection.
type link struct {
	protocol   Protocol
	endpoint   Endpoint
	fd         int // -1: none
	connecting bool
	silent     bool      // connected, and nothing was answered yet
	since      time.Time // of connecting
	retryAt    time.Time
	backoff    time.Duration
	out        []byte // asked for but not yet taken by the socket
	in         []byte
	fill       int
}

func (l *link) drive(s *Source, now, next time.Time) error {
	l.connect(s, now)
	// That it takes connections proves nothing: it may close each. Who takes one and is silent stalls.
	if l.fd >= 0 && l.silent && now.Sub(l.since) >= s.config.Timeout {
		l.silent = false
		s.setReason("")
	}
	l.send(s)
	interest := uint32(unix.EPOLLIN)
	switch {
	case l.fd < 0:
		if l.retryAt.Before(next) {
			next = l.retryAt
		}
	case l.connecting:
		interest = unix.EPOLLOUT
	case len(l.out) > 0:
		interest |= unix.EPOLLOUT
	}
	if err := s.wait.watch(l.fd, interest); err != nil {
		return err
	}
	if err := s.wait.wait(next); err != nil {
		return err
	}
	if l.fd >= 0 && s.wait.has(l.fd) && !l.connecting {
		l.receive(s)
	}
	return nil
}

// connect moves the connection on: begins an attempt, or looks how one ended.
func (l *link) connect(s *Source, now time.Time) {
	if l.fd < 0 {
		if now.Before(l.retryAt) {
			return
		}
		fd, inProgress, err := l.endpoint.Dial()
		if err != nil {
			l.end(s, err)
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
			l.end(s, fmt.Errorf("probe: connect: no answer in %v", connectTimeout))
		}
		return
	case err == nil:
		err = ConnectError(l.fd)
	}
	if err != nil {
		l.end(s, err)
		return
	}
	l.connecting, l.silent = false, true
}

// end gives the connection up and says when to try again.
func (l *link) end(s *Source, why error) {
	if l.fd >= 0 {
		_ = unix.Close(l.fd) // nothing is lost that was not lost before
		s.wait.forget()
	}
	l.fd, l.connecting, l.silent, l.fill, l.out = -1, false, false, 0, l.out[:0]
	l.protocol.Reset()
	l.retryAt = time.Now().Add(l.backoff)
	l.backoff = min(2*l.backoff, maxBackoff)
	s.mu.Lock()
	s.prober.disconnected()
	s.reason = why.Error()
	s.mu.Unlock()
}

// send asks for the probes that are due. What the socket does not take stays in out.
func (l *link) send(s *Source) {
	if l.fd < 0 || l.connecting {
		return
	}
	s.mu.Lock()
	n := s.prober.wants()
	s.prober.sent(n)
	s.mu.Unlock()
	for range n {
		l.out = l.protocol.Request(l.out)
	}
	if len(l.out) == 0 {
		return
	}
	k, err := brief(unix.SYS_WRITE, uintptr(l.fd), unsafe.Pointer(&l.out[0]), uintptr(len(l.out)))
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	case err != nil:
		l.end(s, fmt.Errorf("probe: write: %w", err))
	default:
		l.out = l.out[:copy(l.out, l.out[k:])]
	}
}

// receive takes what has arrived. One read a call: the loop polls again.
func (l *link) receive(s *Source) {
	k, err := brief(unix.SYS_READ, uintptr(l.fd), unsafe.Pointer(&l.in[l.fill]), uintptr(len(l.in)-l.fill))
	now := time.Now()
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return
	case err != nil:
		l.end(s, fmt.Errorf("probe: read: %w", err))
		return
	case k == 0:
		l.end(s, fmt.Errorf("probe: read: the server closed the connection: %w", io.EOF))
		return
	}
	l.fill += k
	if err := l.parse(s, now); err != nil {
		l.end(s, err)
		return
	}
	if l.fill == len(l.in) {
		if len(l.in) >= maxReply {
			l.end(s, fmt.Errorf("%w: more than %d bytes without an end", ErrProtocol, maxReply))
			return
		}
		l.in = append(l.in, make([]byte, len(l.in))...)
	}
}

// parse enters every whole reply in the buffer and keeps the rest.
func (l *link) parse(s *Source, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := 0
	for {
		n, refusal, err := l.protocol.Reply(l.in[taken:l.fill])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if !s.prober.answered(now, refusal == "") {
			return fmt.Errorf("%w: a reply that nobody asked for", ErrProtocol)
		}
		s.answer(now, refusal)
		// Only an answer proves that the server works again.
		l.backoff, l.silent, s.reason = minBackoff, false, ""
		taken += n
	}
	l.fill = copy(l.in, l.in[taken:l.fill])
	return nil
}
