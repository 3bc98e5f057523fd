package numa

// A survey: which pages of a process can be moved, where they are, and what is left
// alone.

import (
	"context"
	"errors"
	"fmt"
)

// Reason says why pages are left alone.
type Reason uint8

// The reasons.
const (
	// LeftFile: pages of files and of shared memory. They belong to nobody in particular:
	// a library's page serves every process on the machine, and where it lies was decided
	// by who read it first. Moving them would be felt by tasks that are none of ours.
	LeftFile Reason = iota
	// LeftShared: anonymous pages that other processes have mapped too: since a fork, or
	// merged (KSM).
	LeftShared
	// LeftHugeTLB: hugetlb pages come from a pool that somebody set aside on that node.
	LeftHugeTLB
	// LeftBound: the process asked for its nodes (bind), and the target is none of them.
	LeftBound
	// LeftLocked: mlocked; who locks memory wants no fault on it, and moving causes one.
	LeftLocked

	numReasons
)

var reasonNames = [numReasons]string{"file", "shared", "hugetlb", "bound", "locked"}

// String returns the reason as it is printed in reports.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "unknown reason"
}

// LeftAlone counts pages by reason: index it with a Reason. Zero pages, swapped pages and
// device memory are in none.
type LeftAlone [numReasons]uint64

// survey is where a process's pages are, in base pages.
type survey struct {
	movable Counts // private anonymous pages that only this process has mapped
	left    LeftAlone
}

// maxRanges bounds the mappings with movable pages that are kept of a process: 24 bytes
// each. A process has at most 65,530 mappings unless vm.max_map_count was raised.
const maxRanges = 1 << 17

// span is a mapping with movable pages.
type span struct {
	start, end uint64
	pages      uint64 // movable ones, when it was surveyed
}

// surveyor surveys processes, keeping its buffers.
type surveyor struct {
	scan   *scanner
	onto   []int  // nodes that pages are to go to
	bound  bool   // take what is bound elsewhere, too
	each   bool   // look at each page also where numa_maps says enough: for simulated Calls
	most   uint64 // anonymous pages of a process that is surveyed; 0: no bound
	found  survey
	spans  []span
	looked uint64 // pages that were looked at
}

// run surveys an open process on which the scanner is open. The result stands in found
// and spans.
func (s *surveyor) run(ctx context.Context, p *Process) (err error) {
	s.found, s.spans, s.looked = survey{}, s.spans[:0], 0
	mem, err := p.memory()
	if err != nil {
		return fmt.Errorf("survey process %d: %w", p.pid, err)
	}
	if pages := mem.anonBytes / s.scan.pageSize; s.most > 0 && pages > s.most {
		return fmt.Errorf("survey process %d: %w: %d anonymous pages, at most %d are wanted", p.pid, ErrTooLarge, pages, s.most)
	}
	j, err := p.openJoined(mem.lockedBytes > 0)
	if err != nil {
		return fmt.Errorf("survey process %d: %w", p.pid, err)
	}
	defer func() { err = errors.Join(err, j.close()) }()
	for seen := false; ; seen = true {
		a, m, err := j.next()
		if err != nil {
			return fmt.Errorf("survey process %d: %w", p.pid, err)
		}
		if m == nil && !seen {
			return fmt.Errorf("survey process %d: %w: it has no memory", p.pid, ErrVanished)
		}
		if m == nil {
			return s.scan.alive()
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("survey process %d: %w", p.pid, err)
		}
		if err := s.mapping(ctx, &a, m); err != nil {
			return fmt.Errorf("survey process %d: %w", p.pid, err)
		}
	}
}

// mapping takes one mapping in.
func (s *surveyor) mapping(ctx context.Context, a *area, m *Mapping) error {
	pages := m.Pages.Total()
	if pages == 0 || a.special {
		return nil
	}
	s.looked += pages
	switch {
	case m.Huge:
		s.found.left[LeftHugeTLB] += pages * (m.UnitBytes / s.scan.pageSize)
	case !a.private:
		s.found.left[LeftFile] += pages
	case a.locked:
		s.found.left[LeftLocked] += pages
	case s.elsewhere(&m.Policy):
		s.found.left[LeftBound] += pages
	case m.File == nil && m.MapMax == 1 && !s.each:
		// numa_maps has counted just the pages that can be moved.
		s.found.movable = s.found.movable.AddAll(m.Pages)
		return s.keep(a, pages)
	case m.AnonPages == 0:
		s.found.left[LeftFile] += pages
	default:
		return s.look(ctx, a, pages)
	}
	return nil
}

// elsewhere says whether the policy forbids a page to lie where it is to go.
func (s *surveyor) elsewhere(p *Policy) bool {
	if s.bound {
		return false
	}
	for _, node := range s.onto {
		if p.Binds(node) {
			return true
		}
	}
	return false
}

func (s *surveyor) keep(a *area, pages uint64) error {
	if len(s.spans) == maxRanges {
		return fmt.Errorf("%w: more than %d that can be moved", ErrTooManyMappings, maxRanges)
	}
	s.spans = append(s.spans, span{start: a.start, end: a.end, pages: pages})
	return nil
}

// look looks at each page of a mapping of which only some can be moved.
func (s *surveyor) look(ctx context.Context, a *area, pages uint64) error {
	var movable, hidden, file uint64
	for at := a.start; at < a.end && ctx.Err() == nil; {
		end := min(s.scan.windowEnd(at), a.end)
		w, err := s.scan.load(at, end, a.end)
		if err != nil {
			return err
		}
		file += uint64(w.file)
		hidden += uint64(w.hidden)
		for i := range w.n {
			if w.node[i] >= 0 {
				s.found.movable = s.found.movable.Add(int(w.node[i]), 1)
				movable++
			}
		}
		at = end
	}
	s.found.left[LeftFile] += file
	s.found.left[LeftShared] += pages - min(pages, file+movable+hidden)
	if movable == 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	return s.keep(a, movable)
}
