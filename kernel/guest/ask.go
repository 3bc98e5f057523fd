package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Address says where the guest of a task is to be found:
//
//	unix:/run/vm/*/commensal.sock    a virtio-serial port's socket
//	hybrid:/run/vc/vm/*/clh.sock     vsock behind a socket (Cloud Hypervisor, Firecracker, Dragonball)
//	vsock                            vsock of the host's kernel; the guest's CID stands in the monitor's command line (QEMU: guest-cid=)
//
// Of the sockets that a pattern names, the task's is the one on which a process of the task listens: whatever names a tenant gives,
// nobody is asked in another's place.
type Address struct {
	kind    string
	pattern string
	last    string // the socket that was the task's
}

const (
	unixKind   = "unix"
	hybridKind = "hybrid"
	vsockKind  = "vsock"
	// maxSockets bounds how many sockets of a pattern are looked at.
	maxSockets = 512
	// socketWithin is how long a socket that may be another task's keeps us.
	socketWithin = 300 * time.Millisecond
)

// ParseAddress reads an address as a configuration has it.
func ParseAddress(s string) (Address, error) {
	kind, pattern, _ := strings.Cut(s, ":")
	a := Address{kind: kind, pattern: pattern}
	if s == vsockKind {
		return a, nil
	}
	if _, err := filepath.Match(pattern, ""); kind != unixKind && kind != hybridKind || !filepath.IsAbs(pattern) || err != nil {
		return a, fmt.Errorf("%.60q; expected unix:/path/of/*/sockets, hybrid:/path/of/*/sockets or vsock", s)
	}
	return a, nil
}

// Dial connects with the guest whose monitor is one of the processes. Without one: ErrNotFound. It remembers the socket, and is not safe for concurrent use.
func (a *Address) Dial(ctx context.Context, fsys hostfs.FS, pids []int32) (io.ReadWriteCloser, error) {
	if a.kind == vsockKind {
		return a.dialVsock(ctx, fsys, pids)
	}
	paths, err := filepath.Glob(a.pattern)
	if err != nil {
		return nil, err
	}
	if at := slices.Index(paths, a.last); at > 0 {
		paths[0], paths[at] = paths[at], paths[0]
	}
	reason := errors.New("other processes listen")
	for _, path := range paths[:min(len(paths), maxSockets)] {
		patience := socketWithin
		if path == a.last {
			patience = time.Hour // as long as ctx has
		}
		conn, err := dialSocket(ctx, path, patience)
		if err != nil {
			reason = err
			continue
		}
		pid, err := listener(conn)
		if err != nil || !slices.Contains(pids, pid) {
			_ = conn.Close() // nothing was written
			continue
		}
		if a.last = path; a.kind == hybridKind {
			err = greet(ctx, conn)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	}
	return nil, fmt.Errorf("%w: of %d sockets %s none is of the task's processes: %w", ErrNotFound, len(paths), a.pattern, reason)
}

// Ask dials, asks one question and hangs up (Ask).
func (a *Address) Ask(ctx context.Context, fsys hostfs.FS, pids []int32, r Request) (Answer, error) {
	conn, err := a.Dial(ctx, fsys, pids)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close() //nolint:errcheck // all was said
	return Ask(ctx, conn, r)
}

// dialSocket connects with a monitor's socket. QEMU takes one client at a time, and lets one more wait; the next is told EAGAIN.
func dialSocket(ctx context.Context, path string, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if !errors.Is(err, unix.EAGAIN) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listener is the process that listens on a socket's other side.
func listener(conn net.Conn) (pid int32, err error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); ctlErr != nil || err != nil {
		return 0, errors.Join(ctlErr, err)
	}
	return cred.Pid, nil
}

// greet asks a monitor for the guest's port: "CONNECT 9311", and "OK 1073741824" comes back. Nothing is read beyond that line.
func greet(ctx context.Context, conn net.Conn) error {
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", VsockPort); err != nil {
		return err
	}
	var line []byte
	for b := make([]byte, 1); len(line) < 64; line = append(line, b[0]) {
		if _, err := io.ReadFull(conn, b); err != nil {
			return fmt.Errorf("%w: its monitor does not connect port %d: %w", ErrNotFound, VsockPort, err)
		}
		if b[0] == '\n' {
			break
		}
	}
	if !bytes.HasPrefix(line, []byte("OK ")) {
		return fmt.Errorf("%w: its monitor says %s", ErrNotFound, printable(string(line)))
	}
	return nil
}

// dialVsock finds the guest's CID in a monitor's command line.
func (a *Address) dialVsock(ctx context.Context, fsys hostfs.FS, pids []int32) (io.ReadWriteCloser, error) {
	for _, pid := range pids {
		line, err := fsys.ReadFile("/proc/"+strconv.Itoa(int(pid))+"/cmdline", nil)
		if err != nil {
			continue
		}
		if cid, ok := guestCID(line); ok {
			return connectVsock(ctx, cid, VsockPort)
		}
	}
	return nil, fmt.Errorf("%w: no process of the task has guest-cid= in its command line", ErrNotFound)
}

// guestCID reads "…,guest-cid=3,…". 0 to 2 are no guests.
func guestCID(cmdline []byte) (uint32, bool) {
	_, rest, ok := bytes.Cut(cmdline, []byte("guest-cid="))
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	cid, err := strconv.ParseUint(string(rest), 10, 32)
	return uint32(cid), ok && err == nil && cid > unix.VMADDR_CID_HOST && cid != unix.VMADDR_CID_ANY
}

func connectVsock(ctx context.Context, cid, port uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("vsock: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vsock")
	err = unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: port})
	if errors.Is(err, unix.EINPROGRESS) {
		err = waitConnected(ctx, f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("vsock %d:%d: %w", cid, port, err), f.Close())
	}
	return f, nil
}

func waitConnected(ctx context.Context, f *os.File) error {
	if at, ok := ctx.Deadline(); ok {
		if err := f.SetDeadline(at); err != nil {
			return err
		}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Write(func(fd uintptr) bool {
		// The poller tells of changes, and what came before it was asked is lost or from before the connect: the socket is asked itself each time.
		now := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}} //nolint:gosec // a file's number
		n, err := unix.Poll(now, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(now, 0)
		}
		if n == 0 {
			return false
		}
		code := 0
		if err == nil {
			code, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
		if result = err; err == nil && code != 0 {
			result = unix.Errno(code)
		}
		return true
	})
	return errors.Join(err, result)
}

// Ask asks one question and returns the answer to it; V, ID and WithinMsec are set here. It takes no longer than ctx has, which must have a deadline. An answer to
// an earlier question, which came too late for who asked, is skipped. Errors are ErrMalformed, ErrFlood, ErrRefused, and the connection's
// (os.ErrDeadlineExceeded).
func Ask(ctx context.Context, conn io.ReadWriter, r Request) (Answer, error) {
	at, ok := ctx.Deadline()
	timed, can := conn.(interface{ SetDeadline(t time.Time) error })
	if !ok || !can {
		return Answer{}, errors.New("ask a guest: no deadline")
	}
	if err := timed.SetDeadline(at); err != nil {
		return Answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = timed.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r.V, r.ID, r.WithinMsec = Version, rand.Uint32N(1<<32-2)+1, max(1, time.Until(at).Milliseconds()*3/4)
	if err := r.check(); err != nil {
		return Answer{}, err
	}
	if err := writeLine(conn, &r); err != nil {
		return Answer{}, fmt.Errorf("ask a guest: %w", err)
	}
	in, budget := bufio.NewReader(conn), maxFlood
	for {
		line, err := readLine(in, &budget)
		if errors.Is(err, errLong) {
			err = ErrFlood
		}
		if err != nil {
			return Answer{}, fmt.Errorf("a guest's answer: %w", err)
		}
		var a Answer
		if err := json.Unmarshal(line, &a); err != nil {
			return Answer{}, fmt.Errorf("%w: %s", ErrMalformed, printable(err.Error()))
		}
		if a.ID == r.ID {
			return a, a.check(&r)
		}
	}
}
