// Package cputopology reads which CPUs are online and what they share: core, package,
// NUMA node and last-level cache. Numbers are those that a cpus.Set can hold.
package cputopology

// /sys/devices/system/cpu: one folder a CPU.
//
// https://docs.kernel.org/admin-guide/cputopology.html
// https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-devices-system-cpu
// https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-system-cpu (cache)
//
//	online                              0-1
//	possible                            0-1
//	cpu0/topology/physical_package_id   0
//	cpu0/topology/core_id               0        (unique within its package and die only)
//	cpu0/topology/die_id                0
//	cpu0/topology/core_cpus_list        0        (before Linux 5.3: thread_siblings_list)
//	cpu0/node0                          a link to the NUMA node
//	cpu0/cache/index3/level             3
//	cpu0/cache/index3/type              Unified  (or Data, Instruction)
//	cpu0/cache/index3/id                0        (resctrl's domain id)
//	cpu0/cache/index3/size              32768K
//	cpu0/cache/index3/shared_cpu_list   0-1

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// ErrMalformed is returned when a file does not read as its documentation says.
var ErrMalformed = errors.New("malformed")

const cpuDir = "/sys/devices/system/cpu"

// Unknown stands for a number that this kernel or hypervisor does not give.
const Unknown = -1

// CPU is one online CPU. Numbers that the kernel does not give are Unknown.
type CPU struct {
	ID       int
	Package  int
	Die      int   // unique within its package
	Core     int   // unique within its package and die
	Siblings []int // CPUs of the same core, itself included; nil if not known
	Node     int   // NUMA node
	LLC      Cache // the last-level cache it uses
}

// Cache is a cache as one of its CPUs sees it. Level 0: the kernel shows no cache.
type Cache struct {
	Level     int
	ID        int   // resctrl's domain id; Unknown on kernels without
	SizeBytes int64 // Unknown if not given
	Shared    []int // CPUs that share it
}

// Topology is the online CPUs, ascending by ID.
type Topology struct {
	CPUs []CPU
}

// ReadOnline returns the numbers of the online CPUs, ascending.
func ReadOnline(root hostfs.FS) ([]int, error) {
	ids, err := readList(root, cpuDir+"/online")
	if err != nil {
		return nil, fmt.Errorf("read online CPUs: %w", err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("read online CPUs: %s/online: %w: no CPU", cpuDir, ErrMalformed)
	}
	return ids, nil
}

// ReadPossible returns the numbers of all CPUs that could ever be online, ascending.
func ReadPossible(root hostfs.FS) ([]int, error) {
	ids, err := readList(root, cpuDir+"/possible")
	if err != nil {
		return nil, fmt.Errorf("read possible CPUs: %w", err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("read possible CPUs: %s/possible: %w: no CPU", cpuDir, ErrMalformed)
	}
	return ids, nil
}

// Read returns the topology of the online CPUs. It is read at start and when CPUs come
// or go, never on a hot path.
func Read(root hostfs.FS) (*Topology, error) {
	ids, err := ReadOnline(root)
	if err != nil {
		return nil, err
	}
	t := &Topology{CPUs: make([]CPU, 0, len(ids))}
	for _, id := range ids {
		c, err := readCPU(root, id)
		if err != nil {
			return nil, fmt.Errorf("read topology of CPU %d: %w", id, err)
		}
		t.CPUs = append(t.CPUs, c)
	}
	return t, nil
}

func readCPU(root hostfs.FS, id int) (CPU, error) {
	dir := cpuDir + "/cpu" + strconv.Itoa(id)
	c := CPU{ID: id}
	var err error
	for _, number := range []struct {
		name string
		dst  *int
	}{{"physical_package_id", &c.Package}, {"die_id", &c.Die}, {"core_id", &c.Core}} {
		if *number.dst, err = readNumber(root, dir+"/topology/"+number.name); err != nil {
			return CPU{}, err
		}
	}
	for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
		if c.Siblings, err = readList(root, dir+"/topology/"+name); err == nil {
			break
		}
		if !isAbsent(err) {
			return CPU{}, err
		}
	}
	if c.Node, err = readNode(root, dir); err != nil {
		return CPU{}, err
	}
	if c.LLC, err = readCache(root, cachesOf(id), 0); err != nil {
		return CPU{}, err
	}
	return c, nil
}

// readNode finds the entry nodeN; a kernel without CONFIG_NUMA has none.
func readNode(root hostfs.FS, dir string) (int, error) {
	entries, err := root.ReadDir(dir)
	if isAbsent(err) {
		return Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if n, ok := numbered(e.Name, "node"); ok {
			return n, nil
		}
	}
	return Unknown, nil
}

// ReadCache returns an online CPU's cache of a level that holds data; Level 0: it shows none.
func ReadCache(root hostfs.FS, cpu, level int) (Cache, error) {
	return readCache(root, cachesOf(cpu), level)
}

// CachesInode returns the number of the directory of a CPU's caches, which the kernel makes anew each time that the CPU comes online
// (drivers/base/cacheinfo.c); 0 where it shows none.
func CachesInode(root hostfs.FS, cpu int) (uint64, error) {
	inode, err := root.Inode(cachesOf(cpu))
	if isAbsent(err) {
		return 0, nil
	}
	return inode, err
}

func cachesOf(cpu int) string { return cpuDir + "/cpu" + strconv.Itoa(cpu) + "/cache" }

// readCache returns the cache of a level that holds data, 0: the highest. Many VMs show no caches at all.
func readCache(root hostfs.FS, dir string, of int) (Cache, error) {
	none := Cache{ID: Unknown, SizeBytes: Unknown}
	entries, err := root.ReadDir(dir)
	if isAbsent(err) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	best, bestDir := none, ""
	for _, e := range entries {
		if _, ok := numbered(e.Name, "index"); !ok {
			continue
		}
		kind, err := readText(root, dir+"/"+e.Name+"/type")
		if err != nil && !isAbsent(err) {
			return none, err
		}
		level, err := readNumber(root, dir+"/"+e.Name+"/level")
		if err != nil {
			return none, err
		}
		if kind != "Instruction" && (level == of || of == 0 && level > best.Level) {
			best.Level, bestDir = level, dir+"/"+e.Name
		}
	}
	if bestDir == "" {
		return none, nil
	}
	if best.ID, err = readNumber(root, bestDir+"/id"); err != nil {
		return none, err
	}
	if best.Shared, err = readList(root, bestDir+"/shared_cpu_list"); err != nil && !isAbsent(err) {
		return none, err
	}
	size, err := readText(root, bestDir+"/size")
	if isAbsent(err) {
		return best, nil
	}
	if err != nil {
		return none, err
	}
	if best.SizeBytes, err = parseSize(size); err != nil {
		return none, fmt.Errorf("%s/size: %w", bestDir, err)
	}
	return best, nil
}

// parseSize reads "32768K"; the kernel writes no other unit. "0K" is how some
// hypervisors say that they do not tell.
func parseSize(s string) (int64, error) {
	digits, ok := strings.CutSuffix(s, "K")
	v, err := strconv.ParseUint(digits, 10, 40)
	if !ok || err != nil {
		return 0, fmt.Errorf("%w cache size %q", ErrMalformed, s[:min(len(s), 64)])
	}
	if v == 0 {
		return Unknown, nil
	}
	return int64(v) << 10, nil
}

// numbered reads the number of a name such as "node12".
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

func readText(root hostfs.FS, path string) (string, error) {
	data, err := root.ReadFile(path, nil)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}

// readNumber reads one number; Unknown when the file is absent or says -1 itself.
func readNumber(root hostfs.FS, path string) (int, error) {
	text, err := readText(root, path)
	if isAbsent(err) {
		return Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || v < Unknown {
		return 0, fmt.Errorf("%s: %w number %q", path, ErrMalformed, text[:min(len(text), 64)])
	}
	return int(v), nil
}

func readList(root hostfs.FS, path string) ([]int, error) {
	text, err := readText(root, path)
	if err != nil {
		return nil, err
	}
	set, err := cpus.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrMalformed, err)
	}
	return set.Members(), nil
}

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
