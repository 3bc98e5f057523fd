package numa

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
)

// mapAnon maps and touches the child's pages on the node that it was told.
func mapAnon(spec *childSpec) ([]byte, error) {
	if spec.Pages == 0 {
		return nil, nil
	}
	size, huge := spec.Pages*os.Getpagesize(), 2<<20
	mem, err := unix.Mmap(-1, 0, size+huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	// Aligned, so that huge pages fit and windows are cut the same in every run.
	skip := huge - int(address(mem)%uint64(huge))
	mem = mem[skip : skip+size]
	advice := unix.MADV_NOHUGEPAGE
	if spec.Huge {
		advice = unix.MADV_HUGEPAGE
	}
	if err := unix.Madvise(mem, advice); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	mask := cpus.Of(spec.Node)
	if err := mbind(mem, unix.MPOL_BIND, &mask); err != nil {
		return nil, fmt.Errorf("mbind to node %d: %w", spec.Node, err)
	}
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = byte(i>>12) | 1
	}
	if !spec.Bind {
		mode := unix.MPOL_LOCAL
		if spec.Spin {
			mode = unix.MPOL_DEFAULT
		}
		if err := mbind(mem, mode, nil); err != nil {
			return nil, fmt.Errorf("mbind to local: %w", err)
		}
	}
	if spec.Lock {
		return mem, unix.Mlock(mem)
	}
	return mem, nil
}

// mapUntouched maps pages that are only read, or not even that.
func mapUntouched(pages int, read bool) (uint64, error) {
	if pages == 0 {
		return 0, nil
	}
	mem, err := unix.Mmap(-1, 0, pages*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // EINVAL without huge pages, which is as well
	sum := byte(0)
	for i := 0; read && i < len(mem); i += os.Getpagesize() {
		sum += mem[i]
	}
	if sum != 0 {
		return 0, errors.New("fresh memory is not zero")
	}
	return address(mem), nil
}

// mapFile maps a file privately, reads it all and writes to its first page.
func mapFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	sum := byte(0)
	for i := 0; i < len(mem); i += os.Getpagesize() {
		sum += mem[i]
	}
	mem[0] = sum
	return mem, nil
}

// forkSleeper forks, without exec: the child has all pages of this process and sleeps
// until it is killed, or its parent is gone. Go's runtime is not to be used in it.
func forkSleeper() (int, error) {
	runtime.LockOSThread()
	parent := uintptr(os.Getpid())
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid == 0 {
		_, _, _ = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
		for { // until the signal, unless the parent was gone before it was asked for
			if now, _, _ := unix.RawSyscall6(unix.SYS_GETPPID, 0, 0, 0, 0, 0, 0); now != parent {
				_, _, _ = unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
			}
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	// The thread must live: its end would be the parent's.
	return int(pid), nil
}

// mbind is mbind(2), which only a process itself can do: for tests.
func mbind(mem []byte, mode int, nodes *cpus.Set) error {
	bits := uintptr(0)
	if nodes != nil {
		bits = MaxNodes + 1
	}
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)),
		uintptr(mode), uintptr(unsafe.Pointer(nodes)), bits, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
