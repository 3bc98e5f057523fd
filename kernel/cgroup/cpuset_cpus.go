package cgroup

// cpuset.cpus and what comes of it: where a group may run.
//
// https://docs.kernel.org/admin-guide/cgroup-v1/cpusets.html
// https://docs.kernel.org/admin-guide/cgroup-v2.html#cpuset
//
//	cpuset.cpus            0-3,8
//	cpuset.effective_cpus  0-3   v1: cpus that are online, within the parent's
//	cpuset.cpus.effective  0-3   v2
//
// Lists are the kernel's list format and are handed through as text without the newline.
// A new group's are empty. On v1 such a group takes no process (ENOSPC); on v2 it has what
// its parent has.
//
// On v1 a list lies within that of the group above (EACCES) and around those of the groups
// below (EBUSY), and names no CPU that is offline (EINVAL). A CPU that goes offline is
// struck from every list, and stays so when it comes back; a list that this leaves empty
// loses its processes to the group above. On v2 a list is kept as it was written.
// A list that has processes cannot be emptied on either (ENOSPC).

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// ReadCPUs returns the group's cpuset.cpus.
func (d *V1) ReadCPUs(path string) (string, error) { return d.readLine(path, "cpuset.cpus") }

// ReadEffectiveCPUs returns the CPUs that the group's processes may in fact use.
func (d *V1) ReadEffectiveCPUs(path string) (string, error) {
	return d.readLine(path, "cpuset.effective_cpus")
}

// WriteCPUs sets the group's cpuset.cpus.
func (d *V1) WriteCPUs(path, list string) error {
	// The newline makes an empty list a write at all.
	return d.write(CPUSet, path, "cpuset.cpus", list+"\n")
}

// PlaceInode implements Driver.
func (d *V1) PlaceInode(path string) (uint64, error) {
	dir, err := d.file(CPUSet, path, "")
	if err != nil {
		return 0, fmt.Errorf("identify the cpuset of cgroup %s: %w", path, err)
	}
	inode, err := d.fs.Inode(dir)
	if err != nil {
		return 0, d.wrap("identify the cpuset of", path, err)
	}
	return inode, nil
}

// PlacesBelow implements Driver. A group may be in the cpuset hierarchy alone.
func (d *V1) PlacesBelow(path string) ([]string, error) {
	top, ok := d.mounts[CPUSet]
	if !ok {
		return nil, fmt.Errorf("list cpusets below cgroup %s: %w: no v1 hierarchy with controller %s", path, ErrUnsupported, CPUSet)
	}
	found, partial, at, err := tree{fs: d.fs, top: top}.descendants(path)
	if err != nil {
		return nil, d.wrap("list cpusets below", at, err)
	}
	return found, partial.orNil()
}

// OpenCPUs implements Driver.
func (d *V1) OpenCPUs(path string) (CPUList, error) {
	dir, err := d.file(CPUSet, path, "")
	if err != nil {
		return nil, fmt.Errorf("open cpuset.cpus of cgroup %s: %w", path, err)
	}
	return openCPUs(d.fs, dir, path, d.wrap)
}

// cpuList is an open cpuset.cpus.
type cpuList struct {
	file  hostfs.File
	inode uint64
	path  string // of the group
	wrap  func(op, path string, err error) error
	buf   []byte
}

// openCPUs makes sure that the list belongs to the directory that it is known by.
func openCPUs(fs hostfs.FS, dir, path string, wrap func(op, path string, err error) error) (CPUList, error) {
	const op = "open cpuset.cpus of"
	before, err := fs.Inode(dir)
	if err != nil {
		return nil, wrap(op, path, err)
	}
	file, err := fs.Open(dir + "/cpuset.cpus")
	if err != nil {
		return nil, wrap(op, path, err)
	}
	after, err := fs.Inode(dir)
	switch {
	case err != nil:
		err = wrap(op, path, err)
	case after != before:
		err = fmt.Errorf("%s cgroup %s: %w: replaced meanwhile", op, path, ErrVanished)
	default:
		return &cpuList{file: file, inode: before, path: path, wrap: wrap}, nil
	}
	return nil, errors.Join(err, file.Close())
}

// Inode implements CPUList.
func (l *cpuList) Inode() uint64 { return l.inode }

// Read implements CPUList.
func (l *cpuList) Read() (string, error) {
	var err error
	if l.buf, err = l.file.ReadRecord(l.buf); err != nil {
		return "", l.wrap("read cpuset.cpus of", l.path, err)
	}
	return string(bytes.TrimSuffix(l.buf, []byte("\n"))), nil
}

// Close implements CPUList.
func (l *cpuList) Close() error { return l.file.Close() }

func (d *V1) readLine(path, name string) (string, error) {
	data, err := d.read(CPUSet, path, name)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(data, []byte("\n"))), nil
}

// PlaceInode implements Driver.
func (d *V2) PlaceInode(path string) (uint64, error) { return d.Inode(path) }

// PlacesBelow implements Driver.
func (d *V2) PlacesBelow(path string) ([]string, error) { return d.Descendants(path) }

// OpenCPUs implements Driver.
func (d *V2) OpenCPUs(path string) (CPUList, error) {
	dir, err := d.file(path, "")
	if err != nil {
		return nil, fmt.Errorf("open cpuset.cpus of cgroup %s: %w", path, err)
	}
	return openCPUs(d.fs, dir, path, d.wrap)
}

// ReadCPUs implements Driver.
func (d *V2) ReadCPUs(path string) (string, error) { return d.readLine(path, "cpuset.cpus") }

// ReadEffectiveCPUs implements Driver. A group without the cpuset controller uses what
// the nearest group above with it does.
func (d *V2) ReadEffectiveCPUs(path string) (string, error) {
	const name = "cpuset.cpus.effective"
	list, err := d.readLine(path, name)
	var absent *AbsentControllerError
	if !errors.As(err, &absent) || absent.StopsAt == "" {
		return list, err
	}
	return d.readLine(absent.StopsAt, name)
}

// WriteCPUs implements Driver. On v2 an empty list is the parent's effective one, and a
// list outside the parent's is kept, and without effect. The kernel does not let the list
// of a group with processes go back to empty (ENOSPC): every CPU is the nearest to it.
func (d *V2) WriteCPUs(path, list string) error { return d.write(path, "cpuset.cpus", list+"\n") }
