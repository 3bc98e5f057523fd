package reclaim

// /sys/kernel/mm/lru_gen/enabled, min_ttl_ms: the switches of the multi-generational LRU
// (MGLRU, since Linux 6.1; some kernels build it and leave it off).
//
// https://docs.kernel.org/admin-guide/mm/multigen_lru.html
//
//	0x0007        enabled: 1 the LRU itself, 2 clears accessed bits in leaf entries in
//	              batches, 4 also in entries above; 0x0000 is off
//	0             min_ttl_ms: memory used within so many ms is not evicted; rather the
//	              OOM killer runs. 0 is off
//
// The switch is the machine's: turning it moves every page of every group to other lists,
// under locks, and changes how all reclaim chooses. Nothing here does so by itself.

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

const (
	lruGenEnabled = "/sys/kernel/mm/lru_gen/enabled"
	lruGenMinTTL  = "/sys/kernel/mm/lru_gen/min_ttl_ms"
	lruGenDebug   = "/sys/kernel/debug/lru_gen"
)

// LRUGenBits are the parts of the multi-generational LRU that are on.
type LRUGenBits uint32

// The parts.
const (
	LRUGenCore        LRUGenBits = 1 << iota // the LRU itself
	LRUGenMMWalk                             // clears accessed bits of leaf entries in batches
	LRUGenNonleafBits                        // clears accessed bits above the leaves
	LRUGenAll         = LRUGenCore | LRUGenMMWalk | LRUGenNonleafBits
)

// String returns the bits as the kernel writes them.
func (b LRUGenBits) String() string { return fmt.Sprintf("0x%04x", uint32(b)) }

// LRUGen is the multi-generational LRU of a host. It keeps a buffer and nothing open. It
// is not safe for concurrent use.
type LRUGen struct {
	fs   hostfs.FS
	buf  []byte
	node LRUNode
}

// NewLRUGen returns access to the multi-generational LRU, whether it is there or not.
func NewLRUGen(fsys hostfs.FS) *LRUGen { return &LRUGen{fs: fsys} }

// Enabled returns what is on; 0 when it is built and switched off. A kernel without it
// gives ErrNoMGLRU.
func (g *LRUGen) Enabled() (LRUGenBits, error) {
	text, err := readText(g.fs, lruGenEnabled)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: the kernel is built without it (CONFIG_LRU_GEN): %w", ErrNoMGLRU, err)
	}
	if err != nil {
		return 0, fmt.Errorf("read state of the multi-generational LRU: %w", err)
	}
	b, err := parseLRUGenBits(text)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", lruGenEnabled, err)
	}
	return b, nil
}

// Usable says what keeps ages from being told here; nil: nothing does. It is built, switched on, and debugfs is mounted.
func (g *LRUGen) Usable() error {
	bits, err := g.Enabled()
	if err != nil {
		return err
	}
	if bits&LRUGenCore == 0 {
		return errors.New("the multi-generational LRU is switched off (y in /sys/kernel/mm/lru_gen/enabled switches it on)")
	}
	if _, err := procstat.ReadUptime(g.fs); err != nil { // nothing bounds what is told
		return err
	}
	return g.Scan(func(*LRUNode) error { return nil })
}

// SetEnabled switches parts on and off for the whole machine and returns what was on
// before, which is to be put back some day. The hardware may lack parts: read back what
// came of it with Enabled.
func (g *LRUGen) SetEnabled(b LRUGenBits) (before LRUGenBits, err error) {
	if before, err = g.Enabled(); err != nil {
		return 0, err
	}
	if err := g.fs.WriteFile(lruGenEnabled, []byte(b.String())); err != nil {
		return before, fmt.Errorf("switch the multi-generational LRU: %w", err)
	}
	return before, nil
}

// MinTTL returns how long memory is protected after use; 0 is no protection.
func (g *LRUGen) MinTTL() (time.Duration, error) {
	n, err := readNumber(g.fs, lruGenMinTTL)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNoMGLRU, err)
	}
	if err != nil {
		return 0, fmt.Errorf("read protection of the multi-generational LRU: %w", err)
	}
	return msec(n), nil
}

func parseLRUGenBits(text string) (LRUGenBits, error) {
	hex, ok := strings.CutPrefix(text, "0x")
	n, err := strconv.ParseUint(hex, 16, 32)
	if !ok || err != nil {
		return 0, fmt.Errorf("%w: %q is no 0x number", cgroup.ErrMalformed, clip([]byte(text)))
	}
	return LRUGenBits(n), nil
}

// msec turns the kernel's milliseconds into a duration, without overflow.
func msec(n uint64) time.Duration {
	const most = uint64(1<<63-1) / uint64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}
