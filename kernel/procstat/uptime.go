package procstat

// /proc/uptime: how long the machine has run, suspended or not, and how long its CPUs were idle, in seconds.
//
// https://docs.kernel.org/filesystems/proc.html#kernel-data
//
//	1523.47 5892.12
//
// In a time namespace, and where lxcfs is mounted over it, it is the container's.

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const uptimePath = "/proc/uptime"

// ReadUptime returns how long the machine has run.
func ReadUptime(fs hostfs.FS) (time.Duration, error) {
	return hostfs.ReadAs(fs, "read uptime", uptimePath, parseUptime)
}

func parseUptime(data []byte) (time.Duration, error) {
	text, _, ok := bytes.Cut(data, []byte(" "))
	sec, err := strconv.ParseFloat(string(text), 64)
	if !ok || err != nil || !(sec >= 0) || sec >= math.MaxInt64/1e9 {
		return 0, fmt.Errorf("%w: uptime %q", ErrMalformed, data[:min(len(data), 64)])
	}
	return time.Duration(sec * 1e9), nil
}
