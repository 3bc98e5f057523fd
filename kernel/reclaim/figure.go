package reclaim

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// Gauge is a quantity in bytes as of now. The zero value is "this kernel does not say",
// which is not zero bytes.
type Gauge struct {
	Bytes uint64
	OK    bool
}

// above returns by how much it is more than it was; 0 where either does not say.
func (g Gauge) above(before Gauge) uint64 {
	if !g.OK || !before.OK {
		return 0
	}
	return g.Bytes - min(g.Bytes, before.Bytes)
}

// Counter counts events since the group was made. The zero value is "this kernel does
// not say".
type Counter struct {
	N  uint64
	OK bool
}

// Since returns how many events there were after before. It is false when either reading
// does not say, and when the counter went back.
func (c Counter) Since(before Counter) (n uint64, ok bool) {
	if !c.OK || !before.OK || c.N < before.N {
		return 0, false
	}
	return c.N - before.N, true
}

// Limit is a limit in bytes: none (Max), some bytes, or not said by this kernel (OK
// false).
type Limit struct {
	Bytes uint64 // meaningless with Max
	Max   bool   // "max": no limit
	OK    bool
}

// room returns what is left below the limit; without one, all that a number can say.
func (l Limit) room(used uint64) uint64 {
	if !l.OK || l.Max {
		return math.MaxUint64
	}
	return l.Bytes - min(l.Bytes, used)
}

// parseUint reads a file of one number and a newline. It does not allocate unless it
// fails.
func parseUint(data []byte) (uint64, error) {
	text := bytes.TrimSuffix(data, []byte("\n"))
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number", cgroup.ErrMalformed, clip(text))
	}
	return n, nil
}

// parseLimit reads "max\n" or a number of bytes.
func parseLimit(data []byte) (Limit, error) {
	if string(bytes.TrimSuffix(data, []byte("\n"))) == "max" {
		return Limit{Max: true, OK: true}, nil
	}
	n, err := parseUint(data)
	if err != nil {
		return Limit{}, err
	}
	return Limit{Bytes: n, OK: true}, nil
}

// clip keeps errors short.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }

// pageSize is the kernel's page: figures in pages are of the host that this runs on.
func pageSize() uint64 { return uint64(unix.Getpagesize()) }
