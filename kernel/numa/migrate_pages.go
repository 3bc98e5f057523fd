package numa

// migrate_pages(2): all of a process's pages from one set of nodes to another.
//
// https://man7.org/linux/man-pages/man2/migrate_pages.2.html
//
// It has no bound: the caller waits until the last page is moved, and the target's room
// is not looked at. With CAP_SYS_NICE it moves pages that are shared with others too,
// libraries included. For shares, steps and bounds there is the Mover; this is for giving
// back at once, and for tests.

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
)

// MigrateProcess moves the process's pages from the nodes in from to those in to, and
// returns how many it could not move. The nth node of from is moved to the nth of to.
// ErrNoNode: no node in to has memory and is allowed. ErrVanished, ErrPermission.
func MigrateProcess(calls Calls, pid int32, from, to cpus.Set) (left int, err error) {
	left, err = calls.MigratePages(pid, &from, &to)
	switch {
	case errors.Is(err, unix.EINVAL):
		// Also a process that has no memory; which of the two it is, it does not say.
		return 0, fmt.Errorf("migrate process %d to nodes %v: %w: %w", pid, to.Members(), ErrNoNode, err)
	case err != nil:
		return 0, wrapCall("migrate", pid, err)
	}
	return left, nil
}
