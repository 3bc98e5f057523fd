package reclaim

// /proc/PID/clear_refs, /proc/PID/smaps_rollup: the accessed bits of one process, by hand.
//
// https://docs.kernel.org/filesystems/proc.html#process-specific-subdirectories
//
//	1                                   written to clear_refs: forget all accesses
//
//	00400000-7ffd1b5f2000 ---p 00000000 00:00 0        [rollup]
//	Rss:               66012 kB
//	Shared_Clean:       1204 kB
//	Referenced:         4096 kB
//	Anonymous:         64780 kB
//
// What is not Referenced some time after clear_refs has not been used since. It works on
// every kernel and sees one process. The price: clearing walks all of the process's page
// tables under its mmap_lock and flushes its translation buffers. Measured on a VM with two
// busy cores, of 512 MiB: 20 ms to clear, 10 to 20 ms to read, and the next use of each page
// 0.2 to 0.4 µs slower (all of it once: 30 to 50 ms in place of 3). And it takes from the
// kernel what that knows of the process: whatever reclaim comes next finds all of its
// pages unused, the hot ones too. Shared pages are forgotten for everybody. So this is for
// a person who asks, or a lab; no Source does it, and a process with more than
// MaxForgetBytes is refused.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// MaxForgetBytes bounds the memory of a process whose accessed bits are cleared.
const MaxForgetBytes = 4 << 30

// References is how much of a process's memory was used since its bits were cleared, or
// since it began.
type References struct {
	RssBytes        uint64 // in memory
	ReferencedBytes uint64 // of this, used
	AnonymousBytes  uint64 // of Rss
}

// IdleBytes returns what was not used.
func (r References) IdleBytes() uint64 { return r.RssBytes - min(r.RssBytes, r.ReferencedBytes) }

// ReadReferences reads smaps_rollup of a process, which walks its page tables. A process
// that has ended gives fs.ErrNotExist.
func ReadReferences(fsys hostfs.FS, pid int32) (References, error) {
	path := "/proc/" + strconv.Itoa(int(pid)) + "/smaps_rollup"
	data, err := fsys.ReadFile(path, nil)
	if errors.Is(err, unix.ESRCH) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return References{}, fmt.Errorf("read references: %w", err)
	}
	r, err := parseReferences(data)
	if err != nil {
		return References{}, fmt.Errorf("read %s: %w", path, err)
	}
	return r, nil
}

// ForgetReferences clears the accessed bits of a process. Larger than MaxForgetBytes:
// ErrBadAsk.
func ForgetReferences(fsys hostfs.FS, pid int32) error {
	now, err := ReadReferences(fsys, pid)
	if err != nil {
		return err
	}
	if now.RssBytes > MaxForgetBytes {
		return fmt.Errorf("clear references of process %d: %w: it has %d MiB", pid, ErrBadAsk, now.RssBytes>>20)
	}
	if err := fsys.WriteFile("/proc/"+strconv.Itoa(int(pid))+"/clear_refs", []byte("1")); err != nil {
		return fmt.Errorf("clear references: %w", err)
	}
	return nil
}

func parseReferences(data []byte) (References, error) {
	var r References
	seen := 0
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(":"))
		var dst *uint64
		switch string(key) {
		case "Rss":
			dst = &r.RssBytes
		case "Referenced":
			dst = &r.ReferencedBytes
		case "Anonymous":
			dst = &r.AnonymousBytes
		default:
			continue
		}
		number, ok := bytes.CutSuffix(bytes.TrimSpace(value), []byte(" kB"))
		n, err := strconv.ParseUint(string(number), 10, 53)
		if err != nil || !ok {
			return References{}, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
		}
		*dst = n << 10
		seen++
	}
	if seen != 3 {
		return References{}, fmt.Errorf("%w: no line Rss, Referenced or Anonymous, or two", cgroup.ErrMalformed)
	}
	return r, nil
}
