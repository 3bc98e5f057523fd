package reclaim

// /proc/PID/smaps: the mappings of a process, and what of each is in memory.
//
// https://docs.kernel.org/filesystems/proc.html#process-specific-subdirectories
//
//	c000000000-c000400000 rw-p 00000000 00:00 0
//	Size:               4096 kB
//	Rss:                1024 kB
//	...
//	VmFlags: rd wr mr mw me ac sd
//
// Reading it takes the rights of ptrace and walks all page tables.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// mapping is one mapping with something in memory.
type mapping struct {
	Range
	rssBytes uint64
}

// readMappings returns the mappings that have something in memory, by address. A process
// that has ended gives ErrNotWatching.
func readMappings(fsys hostfs.FS, pid int32) ([]mapping, error) {
	path := "/proc/" + strconv.Itoa(int(pid)) + "/smaps"
	data, err := fsys.ReadFile(path, nil)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || err == nil && len(data) == 0 {
		return nil, fmt.Errorf("read mappings of process %d: %w: it has ended", pid, ErrNotWatching)
	}
	if err != nil {
		return nil, fmt.Errorf("read mappings: %w", err)
	}
	list, err := parseSmaps(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

func parseSmaps(data []byte) ([]mapping, error) {
	var list []mapping
	var at mapping
	heading := false
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		word, rest, _ := bytes.Cut(line, []byte(" "))
		switch {
		case string(word) == "Rss:":
			number, ok := bytes.CutSuffix(bytes.TrimSpace(rest), []byte(" kB"))
			n, err := strconv.ParseUint(string(number), 10, 53)
			if err != nil || !ok || !heading {
				return nil, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
			}
			heading = false
			if at.rssBytes = n << 10; n > 0 {
				list = append(list, at)
			}
		case bytes.HasSuffix(word, []byte(":")) || len(line) == 0:
		default:
			from, to, ok := bytes.Cut(word, []byte("-"))
			start, errStart := strconv.ParseUint(string(from), 16, 64)
			end, errEnd := strconv.ParseUint(string(to), 16, 64)
			if !ok || errStart != nil || errEnd != nil || end < start || heading ||
				len(list) > 0 && start < list[len(list)-1].End {
				return nil, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
			}
			at, heading = mapping{Range: Range{Start: start, End: end}}, true
		}
	}
	if heading {
		return nil, fmt.Errorf("%w: a mapping without Rss", cgroup.ErrMalformed)
	}
	return list, nil
}
