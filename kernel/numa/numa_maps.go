package numa

// /proc/PID/numa_maps: each mapping with its policy and where its pages are.
//
// https://docs.kernel.org/filesystems/proc.html (numa_maps)
//
//	5629a0b3b000 default heap anon=4 dirty=4 active=0 N0=4 kernelpagesize_kB=4
//	7f1ccd5a6000 default file=/usr/lib/libc.so.6 mapped=29 mapmax=10 N0=29 kernelpagesize_kB=4
//	7f2a40000000 bind:0-1 anon=5120 dirty=5120 N0=2560 N1=2560 kernelpagesize_kB=4
//	7f5500000000 prefer:1 file=/anon_hugepage\040(deleted) huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048
//
// Numbers are pages of kernelpagesize_kB, which is the base page also for transparent
// huge pages (they count as 512) and the huge page for hugetlb. The kernel leaves out
// what is zero; "mapped" when it equals anon or dirty, "active" when it equals the sum
// and for hugetlb. Zero pages, swapped pages and device memory are not counted. There is
// no end address.
//
// Each line walks the mapping's page tables while the address space is locked against mmap
// and munmap, and behind such a one that waits, against page faults: some 150 ns a small
// page where it was measured (four seconds for 100 GiB in one mapping), 2 ns a page of a
// huge one. The process feels that, and nobody else.
//
// Reading another user's takes CAP_SYS_PTRACE.

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Mapping is one line of numa_maps. Page numbers are in units of UnitBytes.
type Mapping struct {
	Start  uint64
	Policy Policy
	// File is the mapped file's path as the kernel wrote it, nil for anonymous memory:
	// spaces and the like stand as \040; see hostfs.Unescape.
	File  []byte
	Heap  bool // the brk area
	Stack bool // the main thread's
	Huge  bool // hugetlb
	// AnonPages were written to and belong to the process (or to relatives that have not
	// written since the fork); the rest of Pages are the file's.
	AnonPages, DirtyPages, SwapCachePages, WritebackPages uint64
	// MapMax is by how many mappings the most shared page is mapped; 1 if none is shared.
	MapMax uint64
	// ActivePages are on an active list. Meaningless unless HasActive (hugetlb).
	ActivePages uint64
	HasActive   bool
	Pages       Counts // present pages by node; none if there is none
	UnitBytes   uint64 // 0 when no page is present
}

// ReadNumaMaps hands each mapping of a process to each, in the order of addresses,
// reading in pieces: neither the file nor the mappings are held. The mapping and what it
// points to are valid during the call only. An error of each ends the reading and is
// returned as it is. ErrVanished: the process is gone, or has no memory.
func ReadNumaMaps(root hostfs.FS, pid int32, each func(*Mapping) error) error {
	p, err := OpenProcess(root, pid)
	if err != nil {
		return fmt.Errorf("read numa_maps: %w", err)
	}
	return errors.Join(p.NumaMaps(each), p.Close())
}

// NumaMaps is ReadNumaMaps for a process that is open.
func (p *Process) NumaMaps(each func(*Mapping) error) error {
	r, err := p.openNumaMaps()
	if err != nil {
		return err
	}
	err = r.all(each)
	return errors.Join(err, r.lines.file.close())
}

// numaMaps reads one process's numa_maps.
type numaMaps struct {
	lines   lines
	mapping Mapping
}

func (p *Process) openNumaMaps() (*numaMaps, error) {
	f, err := p.open("numa_maps")
	if err != nil {
		return nil, fmt.Errorf("read numa_maps: %w", err)
	}
	return &numaMaps{lines: lines{file: f, buf: make([]byte, lineBuffer)}}, nil
}

func (r *numaMaps) all(each func(*Mapping) error) error {
	for n := 0; ; n++ {
		m, err := r.next()
		if err != nil {
			return err
		}
		if m == nil && n == 0 {
			return fmt.Errorf("read %s: %w: it has no memory", r.lines.file.path, ErrVanished)
		}
		if m == nil {
			return nil
		}
		if err := each(m); err != nil {
			return err
		}
	}
}

// next returns the next mapping, nil at the end. It is valid until the following call.
func (r *numaMaps) next() (*Mapping, error) {
	line, err := r.lines.next()
	if err != nil || line == nil {
		return nil, err
	}
	if err := r.mapping.parse(line); err != nil {
		return nil, fmt.Errorf("read %s: %w", r.lines.file.path, err)
	}
	return &r.mapping, nil
}

// parse reads a line into m, reusing its memory. Fields that it does not know are passed
// over. It does not allocate once Pages has room, unless it fails.
func (m *Mapping) parse(line []byte) error {
	*m = Mapping{Pages: m.Pages[:0], MapMax: 1}
	address, rest, _ := bytes.Cut(line, []byte(" "))
	start, ok := parseHex(address)
	if !ok {
		return fmt.Errorf("%w numa_maps: address in %q", ErrMalformed, clip(line))
	}
	m.Start = start
	var err error
	if m.Policy, rest, err = cutPolicy(rest); err != nil {
		return fmt.Errorf("numa_maps: %w", err)
	}
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte(" "))
		if !m.parseField(field) {
			return fmt.Errorf("%w numa_maps: field %q", ErrMalformed, clip(field))
		}
	}
	total := m.Pages.Total()
	if total > 0 && m.UnitBytes == 0 {
		return fmt.Errorf("%w numa_maps: no page size in %q", ErrMalformed, clip(line))
	}
	if total > 0 && !m.HasActive && !m.Huge {
		m.ActivePages, m.HasActive = total, true
	}
	return nil
}

func (m *Mapping) parseField(field []byte) bool {
	key, value, hasValue := bytes.Cut(field, []byte("="))
	if !hasValue {
		switch string(key) {
		case "heap":
			m.Heap = true
		case "stack":
			m.Stack = true
		case "huge":
			m.Huge = true
		}
		return true
	}
	var dst *uint64
	switch string(key) {
	case "file":
		m.File = value
		return len(value) > 0
	case "anon":
		dst = &m.AnonPages
	case "dirty":
		dst = &m.DirtyPages
	case "mapmax":
		dst = &m.MapMax
	case "swapcache":
		dst = &m.SwapCachePages
	case "writeback":
		dst = &m.WritebackPages
	case "active":
		dst, m.HasActive = &m.ActivePages, true
	case "kernelpagesize_kB":
		v, ok := parseUint(value)
		m.UnitBytes = v << 10
		return ok && v > 0 && v < 1<<40
	default:
		if node, n, ok := parseNodeCount(field); ok {
			m.Pages = m.Pages.Add(node, n)
			return true
		}
		// A node that does not read is no field to pass over.
		return len(key) < 2 || key[0] != 'N' || key[1] < '0' || key[1] > '9'
	}
	v, ok := parseUint(value)
	*dst = v
	return ok
}

// parseHex reads an address.
func parseHex(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
