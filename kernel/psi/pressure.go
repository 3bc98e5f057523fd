// Package psi reads pressure stall information: how much time tasks lost because a
// resource was short.
package psi

// /proc/pressure/{cpu,memory,io}: the whole machine's (a v2 group's: cgroup_pressure.go).
//
// https://docs.kernel.org/accounting/psi.html
//
//	some avg10=0.00 avg60=0.08 avg300=0.23 total=15195051
//	full avg10=0.00 avg60=0.06 avg300=0.17 total=13849730
//
// "some": at least one task was stalled; "full": all that were not idle were. avgN are
// percentages of wall time over N seconds, total is microseconds since boot. The kernel
// updates total on every read, the averages every two seconds: rates are to be derived
// from totals. cpu has had no "full" line before Linux 5.13, and since then has one that
// is always zero system-wide.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// What callers branch on.
var (
	// ErrUnsupported: this kernel has no PSI, or it is switched off (CONFIG_PSI,
	// psi=0, psi_default_disabled), or the file access cannot do what is asked.
	ErrUnsupported = errors.New("pressure stall information is not available")
	// ErrMalformed: the file does not read as its documentation says.
	ErrMalformed = errors.New("malformed pressure file")
)

// Resource is what tasks may wait for.
type Resource string

// The resources.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
	IO     Resource = "io"
)

// Path returns the resource's system-wide file.
func (r Resource) Path() string { return "/proc/pressure/" + string(r) }

// Kind is one of the two lines.
type Kind string

// The kinds.
const (
	Some Kind = "some" // at least one task is stalled
	Full Kind = "full" // all tasks that are not idle are stalled
)

// Line is one line of a pressure file. Averages are percent of wall time (0 to 100).
type Line struct {
	Avg10, Avg60, Avg300 float64
	TotalUsec            uint64 // stalled since boot (a group's: since it was made)
}

// Pressure is one pressure file.
type Pressure struct {
	Some    Line
	Full    Line // meaningless unless HasFull
	HasFull bool
}

// Totals is the part of a pressure file that rates are derived from.
type Totals struct {
	SomeUsec uint64
	FullUsec uint64 // meaningless unless HasFull
	HasFull  bool
}

// Read reads a pressure file once: Resource.Path(), or a v2 group's, for which Group.Read
// knows more reasons to fail.
func Read(fs hostfs.FS, path string) (Pressure, error) { return read(fs, path, wrap) }

func read(fs hostfs.FS, path string, wrap wrapFunc) (Pressure, error) {
	data, err := fs.ReadFile(path, nil)
	if err != nil {
		return Pressure{}, wrap("read", err)
	}
	p, err := parsePressure(data)
	if err != nil {
		return Pressure{}, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

// Reader reads the totals of one pressure file again and again through one descriptor.
// It is not safe for concurrent use.
type Reader struct {
	path string
	file hostfs.File
	wrap wrapFunc
	buf  []byte
}

// readBuffer holds two lines with numbers of any size.
const readBuffer = 512

// Open opens a pressure file for repeated reading.
func Open(fs hostfs.FS, path string) (*Reader, error) { return open(fs, path, wrap) }

func open(fs hostfs.FS, path string, wrap wrapFunc) (*Reader, error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, wrap("open", err)
	}
	return &Reader{path: path, file: file, wrap: wrap, buf: make([]byte, 0, readBuffer)}, nil
}

// Totals reads the totals. It does not allocate.
func (r *Reader) Totals() (Totals, error) {
	var err error
	if r.buf, err = r.file.ReadRecord(r.buf); err != nil {
		return Totals{}, r.wrap("read", err)
	}
	t, err := parseTotals(r.buf)
	if err != nil {
		return Totals{}, fmt.Errorf("read %s: %w", r.path, err)
	}
	return t, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// wrapFunc gives a failed operation its sentinel.
type wrapFunc func(op string, err error) error

// wrap names the ways in which a kernel without PSI answers: no such file, or, when PSI
// is built and switched off, EOPNOTSUPP from open or read.
func wrap(op string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s pressure: %w: %w", op, ErrUnsupported, err)
	}
	return fmt.Errorf("%s pressure: %w", op, err)
}

func parsePressure(data []byte) (Pressure, error) {
	var p Pressure
	err := eachLine(data, func(kind Kind, rest []byte) error {
		line := &p.Some
		if kind == Full {
			line, p.HasFull = &p.Full, true
		}
		return parseLine(rest, line)
	})
	if err != nil {
		return Pressure{}, err
	}
	return p, nil
}

// parseTotals does without the averages, which cost a float conversion each.
func parseTotals(data []byte) (Totals, error) {
	var t Totals
	err := eachLine(data, func(kind Kind, rest []byte) error {
		i := bytes.LastIndex(rest, []byte("total="))
		if i < 0 {
			return fmt.Errorf("%w: no total in %q", ErrMalformed, clip(rest))
		}
		v, err := strconv.ParseUint(string(rest[i+len("total="):]), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: total in %q", ErrMalformed, clip(rest))
		}
		if kind == Full {
			t.FullUsec, t.HasFull = v, true
		} else {
			t.SomeUsec = v
		}
		return nil
	})
	if err != nil {
		return Totals{}, err
	}
	return t, nil
}

// eachLine hands the lines "some" and "full" to f, each at most once. "some" must be
// there; a line of another kind is passed over.
func eachLine(data []byte, f func(kind Kind, rest []byte) error) error {
	var some, full bool
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		name, rest, _ := bytes.Cut(line, []byte(" "))
		var kind Kind
		var seen *bool
		switch string(name) {
		case "some":
			kind, seen = Some, &some
		case "full":
			kind, seen = Full, &full
		default:
			continue
		}
		if *seen {
			return fmt.Errorf("%w: two lines %q", ErrMalformed, name)
		}
		*seen = true
		if err := f(kind, rest); err != nil {
			return err
		}
	}
	if !some {
		return fmt.Errorf("%w: no line \"some\"", ErrMalformed)
	}
	return nil
}

func parseLine(rest []byte, l *Line) error {
	seen := 0
	for _, field := range bytes.Fields(rest) {
		key, value, _ := bytes.Cut(field, []byte("="))
		var err error
		bit := 0
		switch string(key) {
		case "avg10":
			bit = 1
			l.Avg10, err = parsePercent(value)
		case "avg60":
			bit = 2
			l.Avg60, err = parsePercent(value)
		case "avg300":
			bit = 4
			l.Avg300, err = parsePercent(value)
		case "total":
			bit = 8
			l.TotalUsec, err = strconv.ParseUint(string(value), 10, 64)
		}
		if err != nil {
			return fmt.Errorf("%w: %q", ErrMalformed, clip(field))
		}
		seen |= bit
	}
	if seen != 15 {
		return fmt.Errorf("%w: line %q lacks a figure", ErrMalformed, clip(rest))
	}
	return nil
}

// parsePercent reads "12.34". ParseFloat alone would take "NaN" and "1e300" as well.
func parsePercent(b []byte) (float64, error) {
	v, err := strconv.ParseFloat(string(b), 64)
	if err == nil && !(v >= 0 && v <= 100) {
		err = strconv.ErrRange
	}
	return v, err
}

func clip(b []byte) []byte { return b[:min(len(b), 64)] }
