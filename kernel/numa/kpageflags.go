package numa

// /proc/kpageflags: eight bytes of flags for each page frame of the machine.
//
// https://docs.kernel.org/admin-guide/mm/pagemap.html
//
//	bit 15  COMPOUND_HEAD    the first page of a large one
//	bit 16  COMPOUND_TAIL    the others
//
// Here it tells how many small pages move when one of them is moved. It takes root; page
// frame numbers to look up take CAP_SYS_ADMIN.

import (
	"encoding/binary"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	kpageHead = 1 << 15
	kpageTail = 1 << 16
)

// pageFlags reads kpageflags.
type pageFlags struct {
	file hostfs.FileAt
	buf  []byte
}

// openPageFlags returns nil where the file cannot be had: see Mover for what is done then.
func openPageFlags(root hostfs.FS, windowPages int) *pageFlags {
	dir, err := hostfs.OpenFolder(root, "/proc")
	if err != nil {
		return nil
	}
	file, err := dir.OpenAt("kpageflags")
	if closeErr := dir.Close(); err == nil && closeErr != nil {
		_ = file.Close()
		return nil
	}
	if err != nil {
		return nil
	}
	return &pageFlags{file: file, buf: make([]byte, 8*windowPages)}
}

func (k *pageFlags) close() error { return k.file.Close() }

// read reads the flags of n page frames from pfn on into buf. It says whether it could.
func (k *pageFlags) read(pfn uint64, n int) bool {
	got, err := k.file.Pread(k.buf[:8*n], int64(8*pfn))
	return err == nil && got == 8*n
}

func (k *pageFlags) flags(i int) uint64 { return binary.NativeEndian.Uint64(k.buf[8*i:]) }

// extent returns the positions [low, high) in the window of the pages that move together
// with the one at position i; ok is false when that cannot be told.
func (k *pageFlags) extent(w *window, i int) (low, high int, ok bool) {
	if k == nil || w.pfn[i] == 0 || !k.read(w.pfn[i], 1) {
		return 0, 0, false
	}
	if k.flags(0)&(kpageHead|kpageTail) == 0 {
		return i, i + 1, true
	}
	// A large page is contiguous, here and there.
	for low = i; low > 0 && w.pfn[low-1] != 0 && w.pfn[low-1] == w.pfn[low]-1; low-- {
	}
	for high = i + 1; high < w.n && w.pfn[high] == w.pfn[high-1]+1; high++ {
	}
	if !k.read(w.pfn[low], high-low) {
		return 0, 0, false
	}
	at := i - low
	head, tail := at, at+1
	for head > 0 && k.flags(head)&kpageHead == 0 {
		head--
	}
	for tail < high-low && k.flags(tail)&kpageTail != 0 {
		tail++
	}
	return low + head, low + tail, true
}
