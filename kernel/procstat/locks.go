package procstat

// /proc/locks: the file locks of the whole system, as far as this process's PID namespace
// contains their owners.
//
// https://docs.kernel.org/filesystems/proc.html (table 1-5), fs/locks.c lock_get_status
//
//	1: OFDLCK ADVISORY  READ -1 fe:00:5357825 201 201
//	5: FLOCK  ADVISORY  WRITE 9270 fe:00:5317844 0 EOF
//	5: -> FLOCK  ADVISORY  WRITE 9311 fe:00:5317844 0 EOF
//
// The fields are number, kind, whether it is advisory, READ (shared) or WRITE, the process that
// took it, device (hexadecimal major and minor) and inode, first and last byte. A line with an
// arrow waits for the one above.

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const locksPath = "/proc/locks"

// FlockHolders returns the processes that took a lock of flock(2) on a file, which may have handed
// it on and ended since. Those outside of this process's PID namespace are missing.
func FlockHolders(fs hostfs.FS, st *unix.Stat_t) ([]int, error) {
	data, err := fs.ReadFile(locksPath, nil)
	if err != nil {
		return nil, fmt.Errorf("read file locks: %w", err)
	}
	pids, err := parseFlocks(string(data), fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", locksPath, err)
	}
	return pids, nil
}

// parseFlocks finds who has flock's lock on a file.
func parseFlocks(text, file string) (pids []int, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 {
			return nil, fmt.Errorf("%w: lock %q", ErrMalformed, line)
		}
		if f[1] != "FLOCK" || f[5] != file {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			return nil, fmt.Errorf("%w: lock %q", ErrMalformed, line)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
