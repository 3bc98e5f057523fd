package numa

// /proc/PID/maps and smaps: where a mapping ends and what kind it is.
//
// https://docs.kernel.org/filesystems/proc.html
//
//	7f1ccd5a6000-7f1ccd5fc000 r--p 00000000 fe:00 248001      /usr/lib/locale/C.utf8/LC_CTYPE
//	VmFlags: rd wr mr mw me ac lo          (smaps only)
//
// maps costs the kernel next to nothing. smaps walks every page table, and is read only
// for a process that has locked memory, to find which mappings (lo).

import (
	"bytes"
	"errors"
	"fmt"
)

// area is one mapping as maps or smaps show it.
type area struct {
	start, end uint64
	private    bool
	// locked, and special (VM_IO, VM_PFNMAP), are known from smaps only.
	locked, special bool
}

// areas reads maps or smaps.
type areas struct {
	lines  lines
	detail bool // smaps
	held   area // of smaps: the mapping whose lines are being read
	has    bool
}

func (p *Process) openAreas(detail bool) (*areas, error) {
	name := "maps"
	if detail {
		name = "smaps"
	}
	f, err := p.open(name)
	if err != nil {
		return nil, fmt.Errorf("read mappings: %w", err)
	}
	return &areas{lines: lines{file: f, buf: make([]byte, lineBuffer)}, detail: detail}, nil
}

// next returns the next mapping; ok is false at the end.
func (r *areas) next() (a area, ok bool, err error) {
	for {
		line, err := r.lines.next()
		if err != nil {
			return area{}, false, err
		}
		if line == nil {
			a, ok = r.held, r.has
			r.has = false
			return a, ok, nil
		}
		next, isHeader, err := parseArea(line)
		switch {
		case err != nil:
			return area{}, false, fmt.Errorf("read %s: %w", r.lines.file.path, err)
		case !isHeader && r.has:
			r.held.parseVMFlags(line)
			continue
		case !isHeader:
			return area{}, false, fmt.Errorf("read %s: %w: line %q before the first mapping", r.lines.file.path, ErrMalformed, clip(line))
		case !r.detail:
			return next, true, nil
		}
		a, ok = r.held, r.has
		r.held, r.has = next, true
		if ok {
			return a, true, nil
		}
	}
}

// parseArea reads a mapping's first line. A line of smaps that is none begins with an
// upper-case name and a colon.
func parseArea(line []byte) (a area, isHeader bool, err error) {
	if len(line) > 0 && line[0] >= 'A' && line[0] <= 'Z' {
		return area{}, false, nil
	}
	span, rest, _ := bytes.Cut(line, []byte(" "))
	low, high, _ := bytes.Cut(span, []byte("-"))
	var okLow, okHigh bool
	a.start, okLow = parseHex(low)
	a.end, okHigh = parseHex(high)
	if !okLow || !okHigh || a.end <= a.start || len(rest) < 4 || (rest[3] != 'p' && rest[3] != 's') {
		return area{}, false, fmt.Errorf("%w maps: line %q", ErrMalformed, clip(line))
	}
	a.private = rest[3] == 'p'
	return a, true, nil
}

func (a *area) parseVMFlags(line []byte) {
	rest, ok := bytes.CutPrefix(line, []byte("VmFlags:"))
	if !ok {
		return
	}
	for flag := range bytes.FieldsSeq(rest) {
		switch string(flag) {
		case "lo":
			a.locked = true
		case "io", "pf":
			a.special = true
		}
	}
}

// joined walks a process's mappings with what maps (or smaps) and numa_maps say of each.
// A mapping that only one of them shows came or went meanwhile, and is passed over.
type joined struct {
	areas *areas
	numa  *numaMaps
}

func (p *Process) openJoined(detail bool) (*joined, error) {
	a, err := p.openAreas(detail)
	if err != nil {
		return nil, err
	}
	n, err := p.openNumaMaps()
	if err != nil {
		return nil, errors.Join(err, a.lines.file.close())
	}
	return &joined{areas: a, numa: n}, nil
}

// next returns the next mapping; m is nil at the end, and valid until the following call.
func (j *joined) next() (a area, m *Mapping, err error) {
	a, ok, err := j.areas.next()
	if err != nil || !ok {
		return area{}, nil, err
	}
	if m, err = j.numa.next(); err != nil {
		return area{}, nil, err
	}
	for m != nil && a.start != m.Start {
		if a.start < m.Start {
			a, ok, err = j.areas.next()
		} else {
			m, err = j.numa.next()
		}
		if err != nil || !ok {
			return area{}, nil, err
		}
	}
	return a, m, nil
}

func (j *joined) close() error {
	return errors.Join(j.areas.lines.file.close(), j.numa.lines.file.close())
}
