package reclaim

// memory.current (v2), memory.usage_in_bytes (v1): what is charged to a group and its
// descendants now: anonymous memory, page cache and kernel memory, in bytes.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
//
//	33800192
//
// v2 says it exactly, up to what CPUs hold in advance: each keeps up to 64 pages charged
// for one group. v1's figure for a group with descendants is as exact.

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// statBuffer holds memory.stat: some 1.5 KiB on v2, 3 KiB on v1.
const statBuffer = 8 << 10

// Meter reads the memory of one group again and again through kept descriptors: two, and
// one more each where memory.swap.current and memory.zswap.current exist. It stays bound
// to the group it was opened on: when that is gone, every call returns
// cgroup.ErrVanished. It is not safe for concurrent use.
type Meter struct {
	dir     dir
	name    string // of the file that current is
	current hostfs.File
	stat    hostfs.File
	swap    hostfs.File // nil on v1, and where swap is not accounted
	zswap   hostfs.File // nil where the kernel has none
	buf     []byte
}

// OpenMeter opens a group for repeated reading.
func (m *Memory) OpenMeter(path string) (*Meter, error) {
	d, err := m.open(path)
	if err != nil {
		return nil, fmt.Errorf("open memory of cgroup %s: %w", path, err)
	}
	mt := &Meter{dir: d, buf: make([]byte, 0, statBuffer)}
	if err := mt.open(); err != nil {
		return nil, errors.Join(err, mt.Close())
	}
	return mt, nil
}

func (mt *Meter) open() error {
	mt.name = "memory.current"
	if !mt.dir.m.v2 {
		mt.name = "memory.usage_in_bytes"
	}
	var err error
	if mt.current, err = mt.dir.openFile(mt.name, false); err != nil {
		return err
	}
	if mt.stat, err = mt.dir.openFile("memory.stat", false); err != nil {
		return err
	}
	if mt.dir.m.v2 {
		if mt.swap, err = mt.dir.openFile("memory.swap.current", true); err != nil {
			return err
		}
		if mt.zswap, err = mt.dir.openFile("memory.zswap.current", true); err != nil {
			return err
		}
	}
	return mt.dir.same()
}

// Path returns the group's path below the hierarchy's root.
func (mt *Meter) Path() string { return mt.dir.path }

// Inode returns the inode of the group's directory, which tells it from a later one of
// the same path.
func (mt *Meter) Inode() uint64 { return mt.dir.inode }

// Current returns the bytes charged to the group now. It does not allocate.
func (mt *Meter) Current() (uint64, error) {
	return mt.number(mt.current, mt.name)
}

// Stat reads memory.stat into s. It does not allocate. On an error s is not to be used.
func (mt *Meter) Stat(s *Stat) error {
	var err error
	if mt.buf, err = mt.stat.ReadRecord(mt.buf); err != nil {
		return mt.dir.wrap("read", "memory.stat", err)
	}
	if err := parseStat(mt.buf, mt.dir.m.v2, s); err != nil {
		return mt.dir.wrap("read", "memory.stat", err)
	}
	return nil
}

// Swap returns memory.swap.current: the bytes that the group has in swap, compressed
// (zswap) or not, by their size in memory. Not OK on v1 (see Stat.Swap) and where swap is
// not accounted. It does not allocate.
func (mt *Meter) Swap() (Gauge, error) { return mt.optional(mt.swap, "memory.swap.current") }

// Zswap returns memory.zswap.current: the memory that the group's compressed pages take;
// it counts in Current too. It does not allocate.
func (mt *Meter) Zswap() (Gauge, error) { return mt.optional(mt.zswap, "memory.zswap.current") }

func (mt *Meter) optional(f hostfs.File, name string) (Gauge, error) {
	if f == nil {
		return Gauge{}, nil
	}
	n, err := mt.number(f, name)
	return Gauge{Bytes: n, OK: err == nil}, err
}

func (mt *Meter) number(f hostfs.File, name string) (uint64, error) {
	var err error
	if mt.buf, err = f.ReadRecord(mt.buf); err != nil {
		return 0, mt.dir.wrap("read", name, err)
	}
	n, err := parseUint(mt.buf)
	if err != nil {
		return 0, mt.dir.wrap("read", name, err)
	}
	return n, nil
}

// Close lets go of all descriptors.
func (mt *Meter) Close() error {
	var errs []error
	for _, f := range []*hostfs.File{&mt.current, &mt.stat, &mt.swap, &mt.zswap} {
		if *f != nil {
			errs = append(errs, (*f).Close())
		}
	}
	return errors.Join(errs...)
}
