// Package procstat reads what a host says of itself as a whole under /proc: CPU time,
// boot, kernel and CPU type.
package procstat

// /proc/stat: CPU time since boot, summed over CPUs and for each online CPU.
//
// https://docs.kernel.org/filesystems/proc.html#miscellaneous-kernel-statistics-in-proc-stat
//
//	cpu  23433 12 9177 269858 1658 0 150 63 0 0
//	cpu0 10926 4 3846 137213 106 0 18 24 0 0
//	cpu1 12506 8 5330 132644 1552 0 131 39 0 0
//	intr 635604 0 0 ...
//
// The columns are user, nice, system, idle, iowait, irq, softirq, steal, guest and
// guest_nice, in ticks of USER_HZ: 100 a second on every architecture that Go runs on,
// whatever the kernel's own HZ. guest is contained in user and guest_nice in nice, so
// adding them counts them twice. Between two readings each figure is exact to a tick (10
// ms) at best. iowait, and idle on some kernels, are known to fall at times.

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// TickNsec is one tick of /proc/stat in nanoseconds (1 s / USER_HZ).
const TickNsec = 10_000_000

const statPath = "/proc/stat"

// statBuffer is what /proc/stat takes on small hosts; it grows once on larger ones.
const statBuffer = 16 << 10

// ErrMalformed is returned when a file does not read as its documentation says.
var ErrMalformed = errors.New("malformed")

// CPUTimes is where CPU time went since boot, in ticks (see TickNsec).
type CPUTimes struct {
	UserTicks      uint64 // contains GuestTicks
	NiceTicks      uint64 // contains GuestNiceTicks
	SystemTicks    uint64
	IdleTicks      uint64
	IowaitTicks    uint64 // idle, with I/O outstanding
	IrqTicks       uint64
	SoftirqTicks   uint64
	StealTicks     uint64 // wanted, and used by the hypervisor for others
	GuestTicks     uint64
	GuestNiceTicks uint64
}

// BusyTicks returns the time that this host's CPUs worked: neither idle nor stolen.
func (c CPUTimes) BusyTicks() uint64 {
	return c.UserTicks + c.NiceTicks + c.SystemTicks + c.IrqTicks + c.SoftirqTicks
}

// BusyNsec returns BusyTicks in nanoseconds, in steps of TickNsec.
func (c CPUTimes) BusyNsec() uint64 { return c.BusyTicks() * TickNsec }

// StealNsec returns StealTicks in nanoseconds, in steps of TickNsec.
func (c CPUTimes) StealNsec() uint64 { return c.StealTicks * TickNsec }

// Stat is what is read of /proc/stat.
type Stat struct {
	Total CPUTimes // over all CPUs, also those that went offline since boot
	CPUs  int      // number of online CPUs
}

// Reader reads /proc/stat again and again through one descriptor. It is not safe for
// concurrent use.
type Reader struct {
	file hostfs.File
	buf  []byte
}

// Open opens /proc/stat.
func Open(fs hostfs.FS) (*Reader, error) {
	file, err := fs.Open(statPath)
	if err != nil {
		return nil, fmt.Errorf("open CPU statistics: %w", err)
	}
	return &Reader{file: file, buf: make([]byte, 0, statBuffer)}, nil
}

// Read reads the statistics. It does not allocate, but for growing its buffer at first.
func (r *Reader) Read() (Stat, error) {
	var err error
	if r.buf, err = r.file.ReadAll(r.buf); err != nil {
		return Stat{}, fmt.Errorf("read CPU statistics: %w", err)
	}
	s, err := parseStat(r.buf)
	if err != nil {
		return Stat{}, fmt.Errorf("read %s: %w", statPath, err)
	}
	return s, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// parseStat reads the cpu lines, which come first, and leaves the rest (an interrupt
// line of many kilobytes) alone.
func parseStat(data []byte) (Stat, error) {
	var s Stat
	for n := 0; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if !bytes.HasPrefix(line, []byte("cpu")) {
			break
		}
		if n > 0 {
			s.CPUs++
			continue
		}
		if !bytes.HasPrefix(line, []byte("cpu ")) {
			break
		}
		if err := parseCPUTimes(line[len("cpu "):], &s.Total); err != nil {
			return Stat{}, err
		}
	}
	if s.CPUs == 0 {
		return Stat{}, fmt.Errorf("%w: it does not begin with a line \"cpu\" and one for each CPU", ErrMalformed)
	}
	return s, nil
}

// parseCPUTimes needs all ten columns, which Linux has had since 2.6.33: a host that
// shows fewer leaves open which time is in which, and no column is taken for zero.
func parseCPUTimes(rest []byte, c *CPUTimes) error {
	columns := [...]*uint64{
		&c.UserTicks, &c.NiceTicks, &c.SystemTicks, &c.IdleTicks, &c.IowaitTicks,
		&c.IrqTicks, &c.SoftirqTicks, &c.StealTicks, &c.GuestTicks, &c.GuestNiceTicks,
	}
	left := rest
	for i, dst := range columns {
		var field []byte
		field, left, _ = bytes.Cut(bytes.TrimLeft(left, " "), []byte(" "))
		v, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: column %d of line \"cpu %s\"", ErrMalformed, i+1, rest[:min(len(rest), 200)])
		}
		*dst = v
	}
	return nil
}
