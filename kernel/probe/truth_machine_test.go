package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/schedwait"
	"github.com/commensal-io/commensal/kernel/taskstats"
)

// tryTaskstats asks for the delay of a process whose threads wait for each other.
func tryTaskstats(t *testing.T, _ *cgroup.Mounts) error {
	n, err := taskstats.DialTaskstats()
	if err != nil {
		return err
	}
	defer n.Close() //nolint:errcheck // it was only read from
	p := begin(testchild.Start(t, "contend"))
	return grows("delay", func() (uint64, error) {
		out := make([]taskstats.Stats, 1)
		err := n.Query([]int32{int32(p.PID())}, out)
		return out[0].DelayNsec, err
	})
}

func tryThreadSchedstat(t *testing.T, _ *cgroup.Mounts) error {
	p := begin(testchild.Start(t, "contend"))
	return grows("delay", func() (delay uint64, err error) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.PID()))
		if err != nil || len(files) == 0 {
			return 0, fmt.Errorf("no schedstat files: %w", err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			f := strings.Fields(string(b))
			if err != nil || len(f) != 3 {
				return 0, fmt.Errorf("%s: %q, %w", file, b, err)
			}
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return 0, err
			}
			delay += n
		}
		return delay, nil
	})
}

// trySchedstats looks for what the scheduler gathers of a thread only with them.
func trySchedstats(*testing.T, *cgroup.Mounts) error {
	b, err := os.ReadFile("/proc/self/sched")
	if err == nil && !strings.Contains(string(b), "wait_sum") {
		err = errors.New("/proc/self/sched: no wait_sum")
	}
	return err
}

// perfOpen opens a counter, counting from the start.
func perfOpen(kind uint32, config uint64, pid, cpu, flags int) (int, error) {
	attr := unix.PerfEventAttr{Type: kind, Config: config}
	attr.Size = uint32(unsafe.Sizeof(attr))
	return unix.PerfEventOpen(&attr, pid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
}

func perfRead(fd int) (uint64, error) {
	var b [8]byte
	if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
		return 0, fmt.Errorf("read of a counter: %d bytes, %w", n, err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// tryEvent counts an event of this thread. Misses come from memory that no cache holds.
func tryEvent(kind uint32, config uint64) attempt {
	return func(*testing.T, *cgroup.Mounts) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fd, err := perfOpen(kind, config, 0, -1, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		size := 1 << 20
		if config == unix.PERF_COUNT_HW_CACHE_MISSES {
			size = 64 << 20
		}
		memory := make([]byte, size)
		return grows("the count", func() (uint64, error) {
			for i := 0; i < len(memory); i += 64 {
				memory[i]++
			}
			return perfRead(fd)
		})
	}
}

// tryNUMA moves a page of this process to another node.
func tryNUMA(*testing.T, *cgroup.Mounts) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer unix.Munmap(page) //nolint:errcheck // the process ends soon
	page[0] = 1
	at, err := movePage(0, page, nil)
	if err != nil {
		return err
	}
	to := int32(1)
	if at == 1 {
		to = 0
	}
	now, err := movePage(0, page, &to)
	if err == nil && now != to {
		err = fmt.Errorf("on node %d, wanted on node %d", now, to)
	}
	return err
}

// movePage moves a page of a process to a node, or asks for its node when that is nil: move_pages(2).
func movePage(pid int, page []byte, node *int32) (int32, error) {
	at := unsafe.Pointer(&page[0])
	status := int32(-1)
	const move = 1 << 1 // MPOL_MF_MOVE
	_, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, uintptr(pid), 1, uintptr(unsafe.Pointer(&at)),
		uintptr(unsafe.Pointer(node)), uintptr(unsafe.Pointer(&status)), move)
	if errno != 0 {
		return 0, fmt.Errorf("move_pages: %w", errno)
	}
	return status, nil
}

func trySMT(*testing.T, *cgroup.Mounts) error {
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%d CPUs, %w", len(files), err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.ContainsAny(string(b), ",-") {
			return nil
		}
	}
	return fmt.Errorf("%d CPUs, each alone on its core", len(files))
}

// trySwap asks the kernel to page out memory of this process.
func trySwap(*testing.T, *cgroup.Mounts) error {
	memory, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer unix.Munmap(memory) //nolint:errcheck // the process ends soon
	for i := range memory {
		memory[i] = byte(i * i >> 7)
	}
	if err := unix.Madvise(memory, unix.MADV_PAGEOUT); err != nil {
		return err
	}
	n, err := field("/proc/self/status", "VmSwap:", " ")
	if err == nil && n == 0 {
		err = errors.New("nothing was paged out")
	}
	return err
}

func tryOpen(path string) attempt {
	return func(*testing.T, *cgroup.Mounts) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

// tryPrograms measures for a moment.
func tryPrograms(*testing.T, *cgroup.Mounts) error {
	s, err := schedwait.Open(schedwait.Options{})
	if err != nil {
		return err
	}
	return errors.Join(s.Start(), s.Read(&schedwait.Reading{}, 0), s.Close())
}

// tryBTF reads the magic number that the format begins with.
func tryBTF(*testing.T, *cgroup.Mounts) error {
	f, err := os.Open("/sys/kernel/btf/vmlinux")
	if err != nil {
		return err
	}
	defer f.Close()
	var b [2]byte
	if _, err := f.Read(b[:]); err != nil || binary.NativeEndian.Uint16(b[:]) != 0xeb9f {
		return fmt.Errorf("magic % x, %w", b, err)
	}
	return nil
}

func tryDescriptors(*testing.T, *cgroup.Mounts) error {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	if err == nil && limit.Max < minFiles {
		err = fmt.Errorf("hard limit %d", limit.Max)
	}
	return err
}

// tryRaiseLimit raises the hard limit of descriptors by one, and takes that back.
func tryRaiseLimit(*testing.T, *cgroup.Mounts) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	more := old
	more.Max++
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &more); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
}

func tryRoot(*testing.T, *cgroup.Mounts) error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("user %d", uid)
	}
	return nil
}

// tryFrameNumber looks for the page frame number of a page of ours, which the kernel shows as 0 to others.
func tryFrameNumber(*testing.T, *cgroup.Mounts) error {
	page := make([]byte, os.Getpagesize())
	page[0] = 1
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer f.Close()
	var b [8]byte
	at := int64(uintptr(unsafe.Pointer(&page[0]))) / int64(os.Getpagesize()) * 8
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	runtime.KeepAlive(page)
	if entry := binary.NativeEndian.Uint64(b[:]); entry&(1<<55-1) == 0 {
		return fmt.Errorf("pagemap entry %#x: no frame number", entry)
	}
	return nil
}

// tryNice raises this thread's priority for a moment.
func tryNice(*testing.T, *cgroup.Mounts) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -1); err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 0)
}

// tryRealTime makes this thread real-time for a moment.
func tryRealTime(*testing.T, *cgroup.Mounts) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	real := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, real, 0); err != nil {
		return err
	}
	return unix.SchedSetAttr(0, old, 0)
}

// stranger is a process of another user.
func stranger(t *testing.T) int { return begin(testchild.Start(t, "nobody")).PID() }

// tryPtrace looks at the memory map of another user's process, and asks for the node of a page of it.
func tryPtrace(t *testing.T, _ *cgroup.Mounts) error {
	pid := stranger(t)
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)); err != nil {
		return err
	}
	page := make([]byte, 1) // of our address space; in theirs there may be nothing, which is no refusal
	_, err := movePage(pid, page, nil)
	return err
}

func trySignal(t *testing.T, _ *cgroup.Mounts) error {
	return unix.Kill(stranger(t), 0)
}

// tryForeignFile opens for writing what its owner alone may write.
func tryForeignFile(t *testing.T, _ *cgroup.Mounts) error {
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, nobody, nobody)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
