package taskstats

// Generic netlink, family TASKSTATS: Documentation/accounting/taskstats.rst, net/netlink/genetlink.c,
// kernel/taskstats.c. Needs CAP_NET_ADMIN in the first user namespace (GENL_ADMIN_PERM).
//
// Written over the system calls: the netlink libraries allocate several times a query and send one request a
// call. Here a datagram carries up to batchSize requests, one recvmmsg(2) takes the replies, and nothing is
// allocated after the dial. 1,000 thread groups are 32 system calls, two a batch.
//
// Hard cases:
//   - The kernel works a datagram off inside sendmsg, so all replies lie in the socket before the first receive. If
//     the receive buffer overflows, replies are lost, the next receive says ENOBUFS, and the socket takes nothing
//     more until it is empty. We empty it and ask once more, one by one, for what is missing.
//   - A receive times out (SO_RCVTIMEO): the agent must not hang on a socket. Replies that come later belong to
//     sequence numbers of the past and are dropped by the next query.
//   - TASKSTATS resolves ids in the pid namespace of the sender. An agent in its own pid namespace would ask about
//     other processes than it means: it must run in the host's.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of the exchange.
const (
	// batchSize is how many requests go in one datagram. 64 replies take about 128 KiB of receive buffer with the
	// kernel's own bookkeeping, below the 208 KiB that sockets get by default, where SO_RCVBUFFORCE is refused.
	batchSize = 64
	// replySize is the room for one reply. Linux 6.18 needs 604 bytes; the structure grew by 128 bytes in ten years.
	replySize = 2048
	// rcvBuffer is asked of the kernel in bytes; it doubles the number for its bookkeeping.
	rcvBuffer = 1 << 19
	// receiveTimeout bounds one receive. Replies are there already when it starts, so it is never waited out in health.
	receiveTimeout = 200 * time.Millisecond
	// maxStrays bounds how many datagrams that answer nothing we asked are read in one exchange, so that
	// a socket that somebody else feeds cannot keep us busy.
	maxStrays = 1024

	requestSize = nlHeader + genlHeader + attrHeader + 4
)

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// Netlink is the TASKSTATS source. It holds one descriptor and about 140 KiB. Not for concurrent use.
type Netlink struct {
	fd       int
	family   uint16
	seq      uint32 // of the last request sent
	requests []byte
	replies  []byte
	iovecs   []unix.Iovec
	vector   []mmsghdr
	answered []bool
	odd      error // why the last odd answer about a single thread group was not taken

	syscalls uint64 // sends and receives so far, for the benchmark
}

var _ Source = (*Netlink)(nil)

// DialTaskstats opens the socket, resolves the family and asks about this very process, so that a missing
// capability or an unknown structure is found now and not in the first window. Errors wrap ErrPermission
// (CAP_NET_ADMIN) or ErrNotSupported where they apply.
func DialTaskstats() (*Netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
			return nil, fmt.Errorf("taskstats: generic netlink socket: %w: %w", ErrNotSupported, err)
		}
		return nil, fmt.Errorf("taskstats: generic netlink socket: %w", err)
	}
	n := newNetlink(fd)
	if err := n.prepare(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return n, nil
}

func newNetlink(fd int) *Netlink {
	n := &Netlink{
		fd:       fd,
		requests: make([]byte, batchSize*requestSize),
		replies:  make([]byte, batchSize*replySize),
		iovecs:   make([]unix.Iovec, batchSize),
		vector:   make([]mmsghdr, batchSize),
		answered: make([]bool, batchSize),
	}
	for i := range n.vector {
		n.iovecs[i].Base = &n.replies[i*replySize]
		n.iovecs[i].SetLen(replySize)
		n.vector[i].hdr.Iov = &n.iovecs[i]
		n.vector[i].hdr.SetIovlen(1)
	}
	return n
}

// prepare sets the socket up, resolves the family and tries one query.
func (n *Netlink) prepare() error {
	timeout := unix.NsecToTimeval(receiveTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(n.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return fmt.Errorf("taskstats: set receive timeout: %w", err)
	}
	// Best effort: with a smaller buffer a batch may overflow, which is handled, only slower.
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, rcvBuffer); err != nil {
		_ = unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, rcvBuffer)
	}
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Bind(n.fd, kernel); err != nil {
		return fmt.Errorf("taskstats: bind netlink socket: %w", err)
	}
	if err := unix.Connect(n.fd, kernel); err != nil {
		return fmt.Errorf("taskstats: connect to the kernel: %w", err)
	}
	family, err := n.resolve(unix.TASKSTATS_GENL_NAME)
	if err != nil {
		return fmt.Errorf("taskstats: resolve family %s: %w", unix.TASKSTATS_GENL_NAME, err)
	}
	n.family = family
	return n.selfCheck()
}

// selfCheck asks about this process, which certainly ran.
func (n *Netlink) selfCheck() error {
	self := []int32{int32(unix.Getpid())}
	out := make([]Stats, 1)
	if err := n.Query(self, out); err != nil {
		return err
	}
	if out[0].Status != OK {
		return fmt.Errorf("taskstats: asked about our own process, got %q: %w", out[0].Status, ErrNotSupported)
	}
	return nil
}

// Name returns "taskstats".
func (n *Netlink) Name() string { return "taskstats" }

// KeepsDeadThreads is true: the kernel adds a thread's counters to its group's when the thread exits.
func (n *Netlink) KeepsDeadThreads() bool { return true }

// Close closes the socket.
func (n *Netlink) Close() error {
	if err := unix.Close(n.fd); err != nil {
		return fmt.Errorf("taskstats: close: %w", err)
	}
	return nil
}

// Query asks the kernel about each thread group. Gone is ESRCH; Unavailable is a zombie of a single thread, a
// process that never ran, a reply that was lost twice, or one that makes no sense. Only where no reply makes
// sense it is an error. It does not allocate unless something is odd.
func (n *Netlink) Query(tgids []int32, out []Stats) error {
	if len(out) < len(tgids) {
		return fmt.Errorf("taskstats: query: %d results for %d: %w", len(out), len(tgids), ErrShortOutput)
	}
	n.odd = nil
	answers := out[:len(tgids)]
	for len(tgids) > 0 {
		size := min(batchSize, len(tgids))
		if err := n.queryBatch(tgids[:size], out[:size]); err != nil {
			return fmt.Errorf("taskstats: query: %w", err)
		}
		tgids, out = tgids[size:], out[size:]
	}
	if n.odd != nil && !slices.ContainsFunc(answers, func(s Stats) bool { return s.Status != Unavailable }) {
		return fmt.Errorf("taskstats: query: %w", n.odd)
	}
	return nil
}

// queryBatch sends one datagram and collects its replies; what the socket had no room for is asked again alone.
func (n *Netlink) queryBatch(tgids []int32, out []Stats) error {
	for i := range tgids {
		out[i] = Stats{Status: Unavailable}
		n.answered[i] = false
	}
	missing, err := n.exchange(tgids, out, n.answered[:len(tgids)])
	if err != nil || missing == 0 {
		return err
	}
	for i := range tgids {
		if n.answered[i] {
			continue
		}
		if _, err := n.exchange(tgids[i:i+1], out[i:i+1], n.answered[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends the requests and reads until each is answered, or nothing more comes. It returns how many
// are missing; the socket is then empty.
func (n *Netlink) exchange(tgids []int32, out []Stats, answered []bool) (int, error) {
	first := n.seq + 1
	n.seq += uint32(len(tgids))
	if err := n.send(n.encode(tgids, first)); err != nil {
		return 0, err
	}
	missing, flags := len(tgids), unix.MSG_WAITFORONE
	for strays := 0; missing > 0 && strays < maxStrays; {
		got, err := n.receive(flags)
		switch {
		case errors.Is(err, unix.ENOBUFS): // replies were lost; take what is left without waiting for the rest
			flags = unix.MSG_DONTWAIT
			strays++
			continue
		case errors.Is(err, unix.EAGAIN):
			return missing, nil
		case err != nil:
			return 0, fmt.Errorf("receive: %w", err)
		}
		for i := range got {
			taken, err := n.take(i, first, tgids, out, answered)
			if err != nil {
				return 0, err
			}
			missing -= taken
			if taken == 0 {
				strays++
			}
		}
	}
	return missing, nil
}

// encode writes one TASKSTATS_CMD_GET request a thread group, numbered from first.
func (n *Netlink) encode(tgids []int32, first uint32) []byte {
	b := n.requests[:len(tgids)*requestSize]
	for i, tgid := range tgids {
		r := b[i*requestSize:][:requestSize]
		putHeaders(r, n.family, first+uint32(i), unix.TASKSTATS_CMD_GET, unix.TASKSTATS_GENL_VERSION)
		binary.NativeEndian.PutUint16(r[20:], attrHeader+4)
		binary.NativeEndian.PutUint16(r[22:], unix.TASKSTATS_CMD_ATTR_TGID)
		binary.NativeEndian.PutUint32(r[24:], uint32(tgid))
	}
	return b
}

// putHeaders writes struct nlmsghdr and struct genlmsghdr for a request that fills r. NLM_F_ACK is not set:
// a request yields one message, its reply or its error.
func putHeaders(r []byte, family uint16, seq uint32, cmd, version uint8) {
	binary.NativeEndian.PutUint32(r[0:], uint32(len(r)))
	binary.NativeEndian.PutUint16(r[4:], family)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(r[8:], seq)
	binary.NativeEndian.PutUint32(r[12:], 0) // port: the kernel knows whom to answer
	r[16], r[17], r[18], r[19] = cmd, version, 0, 0
}

// take reads the i-th datagram received: for each message that answers one of the requests numbered from first it
// fills out, and it returns how many were answered. Other messages are replies of an earlier query that timed out.
// What makes no sense answers its request as Unavailable: one odd reply is no reason to have none.
func (n *Netlink) take(i int, first uint32, tgids []int32, out []Stats, answered []bool) (int, error) {
	taken := 0
	for rest := n.replies[i*replySize:][:min(n.vector[i].len, replySize)]; len(rest) > 0; {
		m, after, err := nextMessage(rest)
		if n.vector[i].hdr.Flags&unix.MSG_TRUNC != 0 {
			err = fmt.Errorf("a reply is longer than %d bytes: %w", replySize, ErrNotSupported)
		}
		if err != nil && len(rest) < nlHeader {
			n.odd = err
			return taken, nil
		}
		at := binary.NativeEndian.Uint32(rest[8:]) - first // wraps to a large number for what came before
		rest = after
		if at >= uint32(len(tgids)) || answered[at] {
			continue
		}
		if err == nil {
			out[at], err = n.answer(m, tgids[at])
		}
		switch {
		case errors.Is(err, errSource):
			return taken, err
		case err != nil:
			out[at], n.odd = Stats{Status: Unavailable}, err
		}
		answered[at] = true
		taken++
	}
	return taken, nil
}

// errSource: an answer that any question would get.
var errSource = errors.New("no answers from this source")

// answer turns the message that answers for one thread group into its Stats.
func (n *Netlink) answer(m message, tgid int32) (Stats, error) {
	switch m.kind {
	case unix.NLMSG_ERROR:
		errno, err := parseErrno(m.payload)
		if err != nil {
			return Stats{}, err
		}
		return statsOfErrno(errno)
	case n.family:
		id, s, err := parseReply(m.payload)
		if errors.Is(err, errLayout) {
			return Stats{}, fmt.Errorf("%w: %w: %w", errSource, ErrNotSupported, err)
		}
		if err != nil {
			return Stats{}, err
		}
		if id != tgid {
			return Stats{}, fmt.Errorf("asked about thread group %d, was told about %d", tgid, id)
		}
		return s, nil
	default:
		return Stats{}, fmt.Errorf("unexpected netlink message type %d", m.kind)
	}
}

// statsOfErrno sorts a refusal: about the thread group, passing, or about the source.
func statsOfErrno(errno unix.Errno) (Stats, error) {
	switch errno {
	case unix.ESRCH:
		return Stats{Status: Gone}, nil
	case unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN, 0:
		return Stats{Status: Unavailable}, nil
	case unix.EPERM, unix.EACCES:
		return Stats{}, fmt.Errorf("%w: needs CAP_NET_ADMIN in the first user namespace: %w: %w", errSource, ErrPermission, errno)
	case unix.ENOENT, unix.EOPNOTSUPP:
		return Stats{}, fmt.Errorf("%w: %w: %w", errSource, ErrNotSupported, errno)
	default:
		return Stats{}, fmt.Errorf("kernel refused: %w", errno)
	}
}

// send writes one datagram.
func (n *Netlink) send(b []byte) error {
	for {
		n.syscalls++
		wrote, err := unix.Write(n.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("send: %w", err)
		case wrote != len(b):
			return fmt.Errorf("send: %d of %d bytes", wrote, len(b))
		}
		return nil
	}
}

// receive fills the vector and returns how many datagrams came. x/sys has no recvmmsg, hence the bare call; the
// buffers it points to belong to n, which the caller holds.
func (n *Netlink) receive(flags int) (int, error) {
	for {
		for i := range n.vector {
			n.vector[i].hdr.Flags = 0
		}
		n.syscalls++
		got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(n.fd),
			uintptr(unsafe.Pointer(&n.vector[0])), uintptr(len(n.vector)), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(got), nil
		case unix.EINTR: // the Go runtime's preemption signal; the timeout starts anew, and signals do not come forever
			continue
		}
		return 0, errno
	}
}
