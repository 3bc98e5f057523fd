package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Ender ends processes by number. A number is given anew once its process is gone; so whoever ends one holds it first, and looks again
// whether it is the one that was meant.
type Ender interface {
	// End sends SIGKILL to a process if meant still says so once the number can be nobody else's. A process that is gone is no error.
	End(pid int32, meant func() bool) error
}

// Pidfds ends processes of the running kernel by a descriptor of each (pidfd_open(2), pidfd_send_signal(2); Linux 5.3).
type Pidfds struct{}

// End implements Ender.
func (Pidfds) End(pid int32, meant func() bool) error {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_open of process %d: %w", pid, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if !meant() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("SIGKILL to process %d: %w", pid, err)
	}
	return nil
}
