package reclaim

// /sys/module/zswap/parameters, /proc/meminfo, /proc/vmstat, /sys/kernel/debug/zswap: compressed
// memory in front of the swap areas. It needs one: each page in zswap holds a slot of it.
//
// https://docs.kernel.org/admin-guide/mm/zswap.html
//
//	Y                              parameters/enabled
//	lz4                            parameters/compressor
//	20                             parameters/max_pool_percent of all memory
//	Zswap:              5820 kB    meminfo: what the compressed pages take (since 6.0)
//	Zswapped:          10484 kB    meminfo: what they were before
//	zswpwb 0                       vmstat: pages moved on to the swap area (since 6.8)
//	0                              debug/zswap/pool_limit_hit: times the pool was full
//
// debugfs has the other figures too, but needs to be mounted and readable, and makes the
// folder with the first pool. Its files cannot be read at an offset (ESPIPE).

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	zswapParameters = "/sys/module/zswap/parameters/"
	zswapLimitHit   = "/sys/kernel/debug/zswap/pool_limit_hit"
	meminfoPath     = "/proc/meminfo"
	vmstatPath      = "/proc/vmstat"
)

// Zswap is the state of zswap on the machine.
type Zswap struct {
	Enabled        bool // takes new pages; pages from before stay when it is switched off
	Compressor     string
	MaxPoolPercent uint64
	Pool           Gauge   // memory that the compressed pages take
	Stored         Gauge   // what they were before
	WrittenBack    Counter // pages moved on to the swap area
	PoolLimitHit   Counter // times the pool was full; not OK without debugfs
}

// ReadZswap reads zswap's state. A kernel without it gives an error that wraps
// cgroup.ErrUnsupported.
func ReadZswap(fsys hostfs.FS) (Zswap, error) {
	var z Zswap
	text, err := readText(fsys, zswapParameters+"enabled")
	if errors.Is(err, fs.ErrNotExist) {
		return z, fmt.Errorf("read zswap: %w: %w", cgroup.ErrUnsupported, err)
	}
	if err != nil {
		return z, fmt.Errorf("read zswap: %w", err)
	}
	if text != "Y" && text != "N" {
		return z, fmt.Errorf("read zswap: %w: enabled is %q", cgroup.ErrMalformed, text)
	}
	z.Enabled = text == "Y"
	if z.Compressor, err = readText(fsys, zswapParameters+"compressor"); err != nil {
		return z, fmt.Errorf("read zswap: %w", err)
	}
	if z.MaxPoolPercent, err = readNumber(fsys, zswapParameters+"max_pool_percent"); err != nil {
		return z, fmt.Errorf("read zswap: %w", err)
	}
	if err := z.addMachine(fsys); err != nil {
		return z, fmt.Errorf("read zswap: %w", err)
	}
	return z, nil
}

// addMachine reads the machine's figures. Lines that are not there stay not OK.
func (z *Zswap) addMachine(fsys hostfs.FS) error {
	data, err := fsys.ReadFile(meminfoPath, nil)
	if err != nil {
		return err
	}
	kib, scale := []byte(" kB"), uint64(1<<10)
	if z.Pool.Bytes, z.Pool.OK, err = figure(data, "Zswap:", kib, scale); err != nil {
		return err
	}
	if z.Stored.Bytes, z.Stored.OK, err = figure(data, "Zswapped:", kib, scale); err != nil {
		return err
	}
	if data, err = fsys.ReadFile(vmstatPath, data); err != nil {
		return err
	}
	if z.WrittenBack.N, z.WrittenBack.OK, err = figure(data, "zswpwb", nil, 1); err != nil {
		return err
	}
	if data, err = readStream(fsys, zswapLimitHit); err == nil {
		z.PoolLimitHit.N, err = parseUint(data)
		z.PoolLimitHit.OK = err == nil
	}
	return nil // that debugfs is not there is no error: it says an extra
}

// figure finds the line that begins with a key and reads its number, in units of scale and
// followed by a suffix.
func figure(data []byte, key string, suffix []byte, scale uint64) (n uint64, ok bool, err error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		rest, found := bytes.CutPrefix(line, []byte(key))
		if !found || len(rest) == 0 || rest[0] != ' ' {
			continue
		}
		text, cut := bytes.CutSuffix(bytes.TrimSpace(rest), suffix)
		n, err := strconv.ParseUint(string(text), 10, 53)
		if err != nil || !cut {
			return 0, false, fmt.Errorf("%w: line %q", cgroup.ErrMalformed, clip(line))
		}
		return n * scale, true, nil
	}
	return 0, false, nil
}

// readText reads a file of one line.
func readText(fsys hostfs.FS, path string) (string, error) {
	data, err := fsys.ReadFile(path, nil)
	return strings.TrimSpace(string(data)), err
}

// readNumber reads a file of one number.
func readNumber(fsys hostfs.FS, path string) (uint64, error) {
	data, err := fsys.ReadFile(path, nil)
	if err != nil {
		return 0, err
	}
	n, err := parseUint(data)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// readStream reads the little that a file says that cannot be read at an offset. hostfs
// reads at offsets only, but for descriptors that it gives for writing too; nothing is
// written.
func readStream(fsys hostfs.FS, path string) (data []byte, err error) {
	opener, ok := fsys.(hostfs.WriteOpener)
	if !ok {
		return nil, fmt.Errorf("read %s: %w: this file access reads no streams", path, cgroup.ErrUnsupported)
	}
	fd, closeFD, err := opener.OpenReadWrite(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeFD()) }()
	buf := make([]byte, 64)
	n, err := unix.Read(fd, buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return buf[:n], nil
}
