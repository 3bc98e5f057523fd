package numa

// /proc/PID/pagemap: eight bytes for each page of the address space.
//
// https://docs.kernel.org/admin-guide/mm/pagemap.html
//
//	bit 63     present
//	bit 62     swapped
//	bit 61     a file's page, or shared anonymous memory
//	bit 56     mapped by this process only (Linux 4.2)
//	bits 0-54  page frame number if present; zero without CAP_SYS_ADMIN
//
// The kernel walks two megabytes at a time under the lock of the address space, unlike
// numa_maps, which walks a mapping whole. A read that gets nothing means that the address
// space is gone: the process ended, or runs another program.

import (
	"encoding/binary"
	"fmt"
)

const (
	pagemapPresent   = 1 << 63
	pagemapFile      = 1 << 61
	pagemapExclusive = 1 << 56
	pagemapPFN       = 1<<55 - 1
)

// chunkWindows is how many windows one read of pagemap covers: with small pages 32 MiB of
// addresses in 64 KiB, so that holes go by quickly.
const chunkWindows = 16

// window is a stretch of a process's addresses, at most as long as a transparent huge
// page and aligned like one, with what there is on each of its pages. Arrays are by
// position, one a page from start.
type window struct {
	start  uint64
	n      int
	node   []int32  // of a page that can be moved; negative for all others
	pfn    []uint64 // page frame numbers; zero where not known
	usable int      // pages that can be moved
	hidden int      // pages that the kernel does not look up; see TargetState
	file   int      // pages of files and of shared memory
}

// scanner walks a process's pages.
type scanner struct {
	calls    Calls
	pid      int32
	pagemap  *procFile
	pageSize uint64
	window   window
	chunk    []byte
	chunkAt  uint64 // address of the chunk's first page
	chunkLen int    // bytes of the chunk that were read
	position []int  // of each page that is asked about
	pages    []uintptr
	status   []int32
}

func newScanner(calls Calls, pageSize uint64, windowPages int) *scanner {
	return &scanner{
		calls: calls, pageSize: pageSize,
		window:   window{node: make([]int32, windowPages), pfn: make([]uint64, windowPages)},
		chunk:    make([]byte, 8*chunkWindows*windowPages),
		position: make([]int, windowPages), pages: make([]uintptr, 0, windowPages), status: make([]int32, windowPages),
	}
}

// open turns the scanner to a process. It holds a descriptor until close.
func (s *scanner) open(p *Process) error {
	f, err := p.open("pagemap")
	if err != nil {
		return fmt.Errorf("read pagemap: %w", err)
	}
	s.pid, s.pagemap, s.chunkLen = p.pid, f, 0
	return nil
}

func (s *scanner) close() error {
	f := s.pagemap
	s.pagemap = nil
	if f == nil {
		return nil
	}
	return f.close()
}

// alive returns ErrVanished when the address space that was opened is gone.
func (s *scanner) alive() error {
	var entry [8]byte
	n, err := s.pagemap.readAt(entry[:], 0)
	if err == nil && n == 0 {
		err = fmt.Errorf("read %s: %w", s.pagemap.path, ErrVanished)
	}
	return err
}

// windowEnd returns where the window that holds the address ends.
func (s *scanner) windowEnd(address uint64) uint64 {
	size := s.pageSize * uint64(len(s.window.node))
	return address - address%size + size
}

// load fills the window with the pages from start to end, which lie in one window of a
// mapping that ends at limit. It does not allocate.
func (s *scanner) load(start, end, limit uint64) (*window, error) {
	w := &s.window
	*w = window{start: start, n: int((end - start) / s.pageSize), node: w.node, pfn: w.pfn}
	if start < s.chunkAt || end > s.chunkAt+uint64(s.chunkLen/8)*s.pageSize {
		if err := s.readChunk(start, limit); err != nil {
			return nil, err
		}
	}
	entries := s.chunk[8*(start-s.chunkAt)/s.pageSize : s.chunkLen]
	w.n = min(w.n, len(entries)/8)
	s.pages = s.pages[:0]
	for i := range w.n {
		e := binary.NativeEndian.Uint64(entries[8*i:])
		w.node[i], w.pfn[i] = -1, 0
		switch {
		case e&pagemapPresent == 0:
		case e&pagemapFile != 0:
			w.file++
		case e&pagemapExclusive == 0: // others have it mapped too; or the zero page
		default:
			w.pfn[i] = e & pagemapPFN
			s.position[len(s.pages)] = i
			s.pages = append(s.pages, uintptr(start+uint64(i)*s.pageSize))
		}
	}
	return w, s.locate()
}

// readChunk reads entries from start on, to the chunk's size or limit.
func (s *scanner) readChunk(start, limit uint64) error {
	size := min(uint64(len(s.chunk)), (limit-start)/s.pageSize*8)
	s.chunkLen = 0
	n, err := s.pagemap.readAt(s.chunk[:size], int64(start/s.pageSize*8))
	if err != nil {
		return err
	}
	if n < 8 {
		return fmt.Errorf("read %s: %w", s.pagemap.path, ErrVanished)
	}
	s.chunkAt, s.chunkLen = start, n&^7
	return nil
}

// locate asks the kernel for the nodes of the window's pages.
func (s *scanner) locate() error {
	status := s.status[:len(s.pages)]
	if err := query(s.calls, s.pid, s.pages, status); err != nil {
		return err
	}
	for k, st := range status {
		s.window.node[s.position[k]] = st
		if st >= 0 {
			s.window.usable++
		} else {
			s.window.hidden++
		}
	}
	return nil
}
