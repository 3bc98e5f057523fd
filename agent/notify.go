package agent

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// notifier tells the service manager that the agent is ready and that its loop moves: datagrams
// to the socket that the environment names.
//
// https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
type notifier struct {
	socket string        // NOTIFY_SOCKET; "": nobody wants to be told
	every  time.Duration // between signs of life; 0: nobody wants any
	ready  bool
	told   time.Time // of the last sign of life
}

// watchdogShare is how many signs of life fit into the time after which the service manager
// takes the agent for dead: sd_watchdog_enabled(3) recommends two, and one may be lost.
const watchdogShare = 4

// newNotifier reads what the service manager wants from the environment.
func newNotifier() *notifier {
	n := &notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.every = time.Duration(usec) * time.Microsecond / watchdogShare
	}
	return n
}

// turn is called by the loop after each of its turns. It never waits: a message that the
// service manager has no room for is sent again after the next turn.
func (n *notifier) turn() error {
	if n.socket == "" {
		return nil
	}
	now := time.Now()
	state := ""
	switch {
	case !n.ready:
		state = "READY=1"
	case n.every > 0 && now.Sub(n.told) >= n.every:
		state = "WATCHDOG=1"
	default:
		return nil
	}
	switch err := n.send(state); {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		n.socket = "" // said once
		return err
	}
	n.ready, n.told = true, now
	return nil
}

func (n *notifier) send(state string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd) //nolint:errcheck // what was sent is sent
	// A name that begins with @ is an abstract one; unix.SockaddrUnix knows that.
	err = unix.Sendto(fd, []byte(state), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: n.socket})
	return os.NewSyscallError("sendto "+n.socket, err)
}
