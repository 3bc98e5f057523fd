package load

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo/memcached"
	"github.com/commensal-io/commensal/slo/probe"
)

// keyPrefix begins every key, so that the keys of a run are known in a server's dump.
const keyPrefix = "commensal-load-"

// keyDigits makes all keys of one length, so that requests differ in nothing but the key.
const keyDigits = 8

// outLimit is how much of the waiting requests is turned into bytes ahead of the socket.
const outLimit = 64 << 10

// readBytes is what a connection's buffer begins with; values that are larger make it grow.
const readBytes = 64 << 10

// conn is one connection. fd and the writing side change only under mu; the reading side
// belongs to the receiver.
type conn struct {
	index int
	fd    atomic.Int32 // -1: none
	queue *queue

	mu      sync.Mutex
	out     []byte // requests that the socket has not yet taken
	blocked bool   // the socket is full; the receiver goes on when it is not
	value   []byte
	setTail []byte // " 0 0 <bytes>\r\n"

	in   []byte
	fill int
}

func newConn(index int, c *Config) *conn {
	n := &conn{
		index: index, queue: newQueue(),
		out: make([]byte, 0, outLimit+c.ValueBytes+64),
		in:  make([]byte, readBytes),
	}
	n.fd.Store(-1)
	n.value = fillValue(c.ValueBytes)
	n.setTail = []byte(" 0 0 " + strconv.Itoa(c.ValueBytes) + "\r\n")
	return n
}

// fillValue returns a value that looks like nothing in particular and ends its line.
func fillValue(n int) []byte {
	v := make([]byte, n, n+2)
	for i := range v {
		v[i] = 'a' + byte(i*7%26)
	}
	return append(v, '\r', '\n')
}

func appendKey(b []byte, key uint32) []byte {
	b = append(b, keyPrefix...)
	at := len(b)
	b = append(b, "00000000"...)
	for i := at + keyDigits - 1; key > 0; i-- {
		b[i] = byte('0' + key%10)
		key /= 10
	}
	return b
}

func (c *conn) appendRequest(b []byte, r request) []byte {
	if !r.set {
		return append(appendKey(append(b, "get "...), r.key), '\r', '\n')
	}
	b = append(appendKey(append(b, "set "...), r.key), c.setTail...)
	return append(b, c.value...)
}

// enqueue enters a request and writes what the socket takes.
func (c *conn) enqueue(r request, epoll int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.push(r)
	c.flush(epoll)
}

// flush writes what is waiting until the socket is full. Call it under mu. A write that
// fails shuts the socket down: the receiver notices and does the rest.
func (c *conn) flush(epoll int) {
	fd := int(c.fd.Load())
	if fd < 0 || c.blocked {
		return
	}
	for {
		for len(c.out) < outLimit {
			r, ok := c.queue.write()
			if !ok {
				break
			}
			c.out = c.appendRequest(c.out, r)
		}
		if len(c.out) == 0 {
			return
		}
		n, err := unix.Write(fd, c.out)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			c.blocked = true
			c.watch(epoll, unix.EPOLL_CTL_MOD, unix.EPOLLOUT)
			return
		case err != nil:
			c.blocked = true
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
			return
		default:
			c.out = c.out[:copy(c.out, c.out[n:])]
		}
	}
}

// unblock goes on writing after the socket has taken what it had.
func (c *conn) unblock(epoll int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.blocked || c.fd.Load() < 0 {
		return
	}
	c.blocked = false
	c.watch(epoll, unix.EPOLL_CTL_MOD, 0)
	c.flush(epoll)
}

// watch sets what epoll reports of the connection: replies, and what else is asked for.
// Asking for writability only while blocked spares a wake-up for each request that a
// unix socket's peer takes.
func (c *conn) watch(epoll, op int, more uint32) {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | more, Fd: int32(c.index)}
	fd := int(c.fd.Load())
	if err := unix.EpollCtl(epoll, op, fd, &ev); err != nil {
		// Only a lack of memory or watches: the connection is of no use.
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// open begins to use a connected socket.
func (c *conn) open(fd, epoll int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out, c.blocked = c.out[:0], false
	c.fd.Store(int32(fd))
	c.watch(epoll, unix.EPOLL_CTL_ADD, 0)
	c.flush(epoll)
}

// drop closes the socket. What was written of the queue will not be answered.
func (c *conn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd := int(c.fd.Swap(-1)); fd >= 0 {
		_ = unix.Close(fd) // takes it out of epoll too
	}
	c.out, c.fill = c.out[:0], 0
}

// read takes once what has arrived; an error means that the connection is over.
func (c *conn) read() error {
	if c.fill == len(c.in) {
		r, ok := c.queue.peek()
		if !ok {
			return errUnasked
		}
		need := memcached.NeedBytes(c.in, r.command())
		c.in = append(c.in, make([]byte, max(need-len(c.in), len(c.in)))...)
	}
	n, err := unix.Read(int(c.fd.Load()), c.in[c.fill:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("load: read: %w", err)
	case n == 0:
		return fmt.Errorf("load: read: the server closed the connection: %w", io.EOF)
	}
	c.fill += n
	return nil
}

var errUnasked = fmt.Errorf("%w: a reply that nobody asked for", memcached.ErrProtocol)

// parse calls answered for every whole reply in the buffer and keeps the rest. All of them
// were there at one moment, and so share it.
func (c *conn) parse(answered func(r request, o memcached.Outcome)) error {
	taken := 0
	for taken < c.fill {
		r, ok := c.queue.peek()
		if !ok {
			return errUnasked
		}
		reply, n, err := memcached.ParseReply(c.in[taken:c.fill], r.command())
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if reply.Outcome == memcached.Hit && !isKey(reply.Key, r.key) {
			return fmt.Errorf("%w: value of key %q, asked for %d", memcached.ErrProtocol, reply.Key, r.key)
		}
		c.queue.pop()
		answered(r, reply.Outcome)
		taken += n
	}
	c.fill = copy(c.in, c.in[taken:c.fill])
	return nil
}

func (r request) command() memcached.Command {
	if r.set {
		return memcached.CommandSet
	}
	return memcached.CommandGet
}

// isKey reports whether b is the key of that number, without building it.
func isKey(b []byte, key uint32) bool {
	if len(b) != len(keyPrefix)+keyDigits || string(b[:len(keyPrefix)]) != keyPrefix {
		return false
	}
	for i := len(b) - 1; i >= len(keyPrefix); i-- {
		if b[i] != byte('0'+key%10) {
			return false
		}
		key /= 10
	}
	return true
}

// dial opens a connection and waits for it at most dialTimeout.
func dial(e probe.Endpoint) (int, error) {
	fd, inProgress, err := e.Dial()
	if err != nil || !inProgress {
		return fd, err
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(dialTimeout.Milliseconds()))
	switch {
	case err != nil:
	case n == 0:
		err = errors.New("no answer in time")
	default:
		err = probe.ConnectError(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("load: connect: %w", err)
	}
	return fd, nil
}
