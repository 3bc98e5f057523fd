package numa

// /sys/devices/system/node/nodeN/meminfo: what a node's memory is used for.
//
// https://docs.kernel.org/filesystems/proc.html#meminfo (the same fields, system-wide)
//
//	Node 0 MemTotal:       15296728 kB
//	Node 0 MemFree:        12628496 kB
//	Node 0 AnonPages:         19092 kB
//	Node 0 HugePages_Free:      0
//
// kB are 1024 bytes; HugePages_* are numbers of pages of the default huge page size.
// AnonPages counts mapped anonymous memory, huge pages with it; FilePages is page cache,
// shmem with it. Which lines there are depends on version and configuration.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// NodeMeminfo is what the drivers and policies use of a node's meminfo.
type NodeMeminfo struct {
	TotalBytes        uint64
	FreeBytes         uint64
	AnonBytes         uint64 // mapped anonymous memory
	FileBytes         uint64 // page cache, shmem and swap cache
	ShmemBytes        uint64
	InactiveFileBytes uint64 // page cache that reclaim would take first
	MlockedBytes      uint64
	// HasHugePages says whether the kernel has hugetlb pools; the counts are pages of
	// the default huge page size.
	HasHugePages                  bool
	HugePagesTotal, HugePagesFree uint64
}

// ReadNodeMeminfo reads a node's meminfo. A node that is not there is ErrNoNode.
func ReadNodeMeminfo(root hostfs.FS, node int) (NodeMeminfo, error) {
	path := nodePath(node) + "/meminfo"
	data, err := root.ReadFile(path, nil)
	if err != nil {
		return NodeMeminfo{}, wrapFile("read node meminfo", err, ErrNoNode)
	}
	m, err := parseNodeMeminfo(data)
	if err != nil {
		return NodeMeminfo{}, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}

// parseNodeMeminfo passes over lines that it does not know; those that every kernel has
// must be there.
func parseNodeMeminfo(data []byte) (NodeMeminfo, error) {
	var m NodeMeminfo
	kb := map[string]*uint64{
		"MemTotal": &m.TotalBytes, "MemFree": &m.FreeBytes, "AnonPages": &m.AnonBytes, "FilePages": &m.FileBytes,
		"Shmem": &m.ShmemBytes, "Inactive(file)": &m.InactiveFileBytes, "Mlocked": &m.MlockedBytes,
	}
	need := len(kb)
	huge := map[string]*uint64{"HugePages_Total": &m.HugePagesTotal, "HugePages_Free": &m.HugePagesFree}
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) < 4 || string(f[0]) != "Node" || !bytes.HasSuffix(f[2], []byte(":")) {
			continue
		}
		name := string(f[2][:len(f[2])-1])
		v, ok := parseUint(f[3])
		switch dst, isHuge := kb[name], huge[name]; {
		case dst == nil && isHuge == nil:
		case !ok, dst != nil && (len(f) != 5 || string(f[4]) != "kB" || v > 1<<53):
			return NodeMeminfo{}, fmt.Errorf("%w meminfo: line %q", ErrMalformed, clip(line))
		case isHuge != nil:
			*isHuge, m.HasHugePages = v, true
		default:
			*dst, need = v<<10, need-1
			delete(kb, name)
		}
	}
	if need != 0 {
		return NodeMeminfo{}, fmt.Errorf("%w meminfo: %d lines are missing", ErrMalformed, need)
	}
	return m, nil
}
