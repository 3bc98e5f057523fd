package numa

// /proc/zoneinfo: free pages and watermarks of each zone of each node, in pages.
//
// https://docs.kernel.org/filesystems/proc.html
// https://docs.kernel.org/admin-guide/sysctl/vm.html (min_free_kbytes, lowmem_reserve_ratio)
//
//	Node 0, zone   Normal
//	  pages free     3157124
//	        min      16310
//	        low      20388
//	        high     24466
//	        managed  3809850
//	        protection: (0, 0, 0, 0, 0)
//
// Below low the kernel wakes the node's reclaim, which works until high is reached. A page
// that move_pages(2) moves is taken from its target node and from no other
// (__GFP_THISNODE), by direct reclaim if need be. So who moves pages must look first:
// room is what is free above high, as for the kernel's own NUMA balancing. protection is
// what a zone keeps for allocations that can use no other zone. The per-CPU part of the
// file grows with the machine: it is read at most once a step.

import (
	"bytes"
	"fmt"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const zoneinfoPath = "/proc/zoneinfo"

// Zone is one zone of a node, in pages.
type Zone struct {
	Node                            int
	Name                            string // DMA, DMA32, Normal, Movable, Device
	Free, Min, Low, High, Managed   uint64
	ProtectionMax                   uint64 // the greatest of its protections
	hasFree, hasHigh, hasProtection bool
}

// Room returns how many pages can be taken from the zone before it falls below its high
// watermark. Device memory takes no ordinary pages.
func (z *Zone) Room() uint64 {
	keep := z.High + z.ProtectionMax
	if z.Managed == 0 || z.Name == "Device" || z.Free <= keep {
		return 0
	}
	return z.Free - keep
}

// RoomReader tells how much a node can take without being pushed into reclaim. It is not
// safe for concurrent use.
type RoomReader struct {
	root  hostfs.FS
	buf   []byte
	zones []Zone
}

// NewRoomReader returns a reader of /proc/zoneinfo, which is opened at each reading.
func NewRoomReader(root hostfs.FS) *RoomReader { return &RoomReader{root: root} }

// Refresh reads the file. Until it succeeds, every node has no room.
func (r *RoomReader) Refresh() error {
	r.zones = r.zones[:0]
	data, err := r.root.ReadFile(zoneinfoPath, r.buf)
	if cap(data) > cap(r.buf) {
		r.buf = data
	}
	if err != nil {
		return wrapFile("read zones", err, ErrUnsupported)
	}
	zones, err := parseZoneinfo(r.zones, data)
	if err != nil {
		return fmt.Errorf("read %s: %w", zoneinfoPath, err)
	}
	r.zones = zones
	return nil
}

// Zones returns the zones as of the last Refresh, in the kernel's order. The slice is
// the reader's.
func (r *RoomReader) Zones() []Zone { return r.zones }

// Pages returns how many pages the node could take at the last Refresh beyond reserve
// pages that are to stay free above its watermarks. An unknown node has no room.
func (r *RoomReader) Pages(node int, reserve uint64) uint64 {
	var room uint64
	for i := range r.zones {
		if r.zones[i].Node == node {
			room += r.zones[i].Room()
		}
	}
	return room - min(room, reserve)
}

// zoneNames are known, so that reading them allocates nothing.
var zoneNames = [...]string{"DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"}

// parseZoneinfo appends the zones in data to dst. A zone without free pages, watermarks
// or protection is malformed: to take it for an empty one would be harmless, to take a
// missing watermark for zero would not.
func parseZoneinfo(dst []Zone, data []byte) ([]Zone, error) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		if rest, ok := bytes.CutPrefix(line, []byte("Node ")); ok {
			z, err := parseZoneHeader(rest)
			if err != nil {
				return dst, err
			}
			dst = append(dst, z)
			continue
		}
		if len(dst) == 0 {
			continue
		}
		if err := dst[len(dst)-1].parseLine(bytes.TrimSpace(line)); err != nil {
			return dst, err
		}
	}
	if len(dst) == 0 {
		return dst, fmt.Errorf("%w zoneinfo: no zone", ErrMalformed)
	}
	for i := range dst {
		if z := &dst[i]; !z.hasFree || !z.hasHigh || !z.hasProtection {
			return dst, fmt.Errorf("%w zoneinfo: node %d, zone %s lacks free, high or protection", ErrMalformed, z.Node, z.Name)
		}
	}
	return dst, nil
}

// parseZoneHeader reads "0, zone   Normal".
func parseZoneHeader(rest []byte) (Zone, error) {
	number, name, ok := bytes.Cut(rest, []byte(", zone"))
	node, isNumber := parseUint(number)
	if !ok || !isNumber || node >= MaxNodes {
		return Zone{}, fmt.Errorf("%w zoneinfo: line %q", ErrMalformed, clip(rest))
	}
	name = bytes.TrimSpace(name)
	for _, known := range zoneNames {
		if string(name) == known {
			return Zone{Node: int(node), Name: known}, nil
		}
	}
	return Zone{Node: int(node), Name: string(name)}, nil
}

func (z *Zone) parseLine(line []byte) error {
	if list, ok := bytes.CutPrefix(line, []byte("protection: (")); ok {
		return z.parseProtection(list)
	}
	line, _ = bytes.CutPrefix(line, []byte("pages "))
	key, value, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return nil
	}
	var dst *uint64
	switch string(key) {
	case "free":
		dst, z.hasFree = &z.Free, true
	case "min":
		dst = &z.Min
	case "low":
		dst = &z.Low
	case "high":
		dst, z.hasHigh = &z.High, true
	case "managed":
		dst = &z.Managed
	default:
		return nil
	}
	v, ok := parseUint(bytes.TrimSpace(value))
	if !ok {
		return fmt.Errorf("%w zoneinfo: line %q", ErrMalformed, clip(line))
	}
	*dst = v
	return nil
}

// parseProtection reads "0, 2936, 15007, 15007)". The page that is moved may use every
// zone, so of the list the entry of the highest counts, which is the greatest.
func (z *Zone) parseProtection(list []byte) error {
	list, ok := bytes.CutSuffix(list, []byte(")"))
	for more := ok; more; {
		var field []byte
		field, list, more = bytes.Cut(list, []byte(","))
		v, isNumber := parseUint(bytes.TrimSpace(field))
		if !isNumber {
			ok = false
			break
		}
		z.ProtectionMax = max(z.ProtectionMax, v)
	}
	if !ok {
		return fmt.Errorf("%w zoneinfo: protection of node %d, zone %s", ErrMalformed, z.Node, z.Name)
	}
	z.hasProtection = true
	return nil
}
