package numa

// move_pages(2) and migrate_pages(2), which golang.org/x/sys/unix does not wrap: the only
// file of this package that uses unsafe.
//
// https://man7.org/linux/man-pages/man2/move_pages.2.html
// https://man7.org/linux/man-pages/man2/migrate_pages.2.html

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
)

// Calls are the kernel calls by which pages are found and moved. Live is the running
// kernel; a simulated one implements the same. Errors are errnos. Addresses are those of
// the process, never of the caller.
type Calls interface {
	// MovePages is move_pages(2). With nodes nil it fills status with each page's node,
	// or a negative errno. Otherwise it moves page i to nodes[i] and returns how many
	// pages it left where they are, of which some were not even tried; status is then
	// only partly written. The slices have one length (nodes may be nil); flags are
	// unix.MPOL_MF_MOVE or MPOL_MF_MOVE_ALL.
	MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (left int, err error)
	// MigratePages is migrate_pages(2): it moves all of a process's pages from one set
	// of nodes to another and returns how many it left.
	MigratePages(pid int32, from, to *cpus.Set) (left int, err error)
}

// Live makes the calls of the running kernel.
type Live struct{}

// MovePages implements Calls.
func (Live) MovePages(pid int32, pages []uintptr, nodes, status []int32, flags int) (int, error) {
	if len(status) != len(pages) || (nodes != nil && len(nodes) != len(pages)) {
		return 0, unix.EINVAL
	}
	left, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, uintptr(pid), uintptr(len(pages)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))), uintptr(unsafe.Pointer(unsafe.SliceData(nodes))),
		uintptr(unsafe.Pointer(unsafe.SliceData(status))), uintptr(flags))
	if errno != 0 {
		return 0, errno
	}
	return int(left), nil
}

// MigratePages implements Calls. The kernel wants one more than the number of bits.
func (Live) MigratePages(pid int32, from, to *cpus.Set) (int, error) {
	left, _, errno := unix.Syscall6(unix.SYS_MIGRATE_PAGES, uintptr(pid), MaxNodes+1,
		uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(to)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(left), nil
}
