package procstat

// /proc/meminfo: the machine's memory as of now.
//
// https://docs.kernel.org/filesystems/proc.html#meminfo
//
//	MemTotal:        8140368 kB
//	MemFree:          381200 kB
//	MemAvailable:    6702416 kB
//	...
//	SwapTotal:             0 kB
//	SwapFree:              0 kB
//
// "kB" is KiB. MemAvailable is the kernel's estimate of what programs could have without swapping: free
// memory less what it keeps for itself, and the page cache and slabs that it could drop. It is in every
// kernel since 3.14.

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const meminfoPath = "/proc/meminfo"

// meminfoBuffer is more than /proc/meminfo takes: some 1.5 KiB.
const meminfoBuffer = 4 << 10

// Meminfo is what is read of /proc/meminfo, in bytes.
type Meminfo struct {
	Total     uint64
	Available uint64 // what programs could have without swapping
	SwapTotal uint64 // 0: no swap
	SwapFree  uint64
}

// MeminfoReader reads /proc/meminfo again and again through one descriptor. It is not safe for concurrent use.
type MeminfoReader struct {
	file hostfs.File
	buf  []byte
}

// OpenMeminfo opens /proc/meminfo.
func OpenMeminfo(fs hostfs.FS) (*MeminfoReader, error) {
	file, err := fs.Open(meminfoPath)
	if err != nil {
		return nil, fmt.Errorf("open the machine's memory: %w", err)
	}
	return &MeminfoReader{file: file, buf: make([]byte, 0, meminfoBuffer)}, nil
}

// Read reads the figures. It does not allocate unless it fails.
func (r *MeminfoReader) Read() (Meminfo, error) {
	var err error
	if r.buf, err = r.file.ReadRecord(r.buf); err != nil {
		return Meminfo{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	m, err := parseMeminfo(r.buf)
	if err != nil {
		return Meminfo{}, fmt.Errorf("read %s: %w", meminfoPath, err)
	}
	return m, nil
}

// Close closes the file.
func (r *MeminfoReader) Close() error { return r.file.Close() }

// meminfoLines are the lines that are read, in the order in which the kernel has always had them.
var meminfoLines = [...]string{"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"}

// parseMeminfo needs all four figures: none is taken for zero.
func parseMeminfo(data []byte) (Meminfo, error) {
	var bytesOf [len(meminfoLines)]uint64
	found := 0
	for len(data) > 0 && found < len(meminfoLines) {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, rest, _ := bytes.Cut(line, []byte(":"))
		if string(key) != meminfoLines[found] {
			continue
		}
		text, ok := bytes.CutSuffix(bytes.TrimLeft(rest, " "), []byte(" kB"))
		v, err := strconv.ParseUint(string(text), 10, 54)
		if err != nil || !ok {
			return Meminfo{}, fmt.Errorf("%w: line %q", ErrMalformed, line[:min(len(line), 100)])
		}
		bytesOf[found] = v << 10
		found++
	}
	if found < len(meminfoLines) {
		return Meminfo{}, fmt.Errorf("%w: no line %q", ErrMalformed, meminfoLines[found])
	}
	return Meminfo{Total: bytesOf[0], Available: bytesOf[1], SwapTotal: bytesOf[2], SwapFree: bytesOf[3]}, nil
}
