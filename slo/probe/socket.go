package probe

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ErrAddress marks an address that cannot be used as it is written.
var ErrAddress = errors.New("probe: bad address")

// Endpoint is where a server listens: a unix socket or an IP address with a port. Names
// are refused on purpose: looking one up may block for seconds, and a probe must not.
type Endpoint struct {
	sa       unix.Sockaddr
	domain   int
	loopback bool
}

// ParseEndpoint takes network "unix" with a path (or "@name" in the abstract namespace),
// or "tcp" with "127.0.0.1:11211" or "[::1]:11211". The error wraps ErrAddress.
func ParseEndpoint(network, address string) (Endpoint, error) {
	switch network {
	case "unix":
		// sun_path holds 108 bytes and a terminating zero.
		if address == "" || len(address) > 107 {
			return Endpoint{}, fmt.Errorf("%w: unix %q: a path takes 1 to 107 bytes", ErrAddress, address)
		}
		return Endpoint{&unix.SockaddrUnix{Name: address}, unix.AF_UNIX, true}, nil
	case "tcp":
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return Endpoint{}, fmt.Errorf("%w: tcp %q: %w", ErrAddress, address, err)
		}
		if ap.Port() == 0 || ap.Addr().Zone() != "" {
			return Endpoint{}, fmt.Errorf("%w: tcp %q: needs a port and no zone", ErrAddress, address)
		}
		ip := ap.Addr().Unmap()
		if ip.Is4() {
			return Endpoint{&unix.SockaddrInet4{Port: int(ap.Port()), Addr: ip.As4()}, unix.AF_INET, ip.IsLoopback()}, nil
		}
		return Endpoint{&unix.SockaddrInet6{Port: int(ap.Port()), Addr: ip.As16()}, unix.AF_INET6, ip.IsLoopback()}, nil
	}
	return Endpoint{}, fmt.Errorf("%w: network %q: expected tcp or unix", ErrAddress, network)
}

// Local reports whether the endpoint is a unix socket or a loopback address.
func (e Endpoint) Local() bool { return e.loopback }

// Dial opens a non-blocking socket and begins to connect it. inProgress says that the
// connection is not yet there: the socket becomes writable when it is or has failed, and
// ConnectError tells which. The caller owns fd. Raw sockets and not package net: a
// reply's time is taken on the thread that waits for it, with no poller in between.
func (e Endpoint) Dial() (fd int, inProgress bool, err error) {
	fd, err = unix.Socket(e.domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("probe: socket: %w", err)
	}
	if e.domain != unix.AF_UNIX {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
			_ = unix.Close(fd)
			return -1, false, fmt.Errorf("probe: set TCP_NODELAY: %w", err)
		}
	}
	err = unix.Connect(fd, e.sa)
	if err == unix.EINPROGRESS {
		return fd, true, nil
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, false, fmt.Errorf("probe: connect: %w", err)
	}
	return fd, false, nil
}

// ConnectError returns how the attempt to connect fd ended: nil when it is connected.
func ConnectError(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("probe: read SO_ERROR: %w", err)
	}
	if errno != 0 {
		return fmt.Errorf("probe: connect: %w", unix.Errno(errno))
	}
	return nil
}
