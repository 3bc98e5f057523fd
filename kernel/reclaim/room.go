package reclaim

// Where anonymous memory can go. Reclaim drops clean file pages and writes dirty ones
// back; anonymous memory and shared memory (tmpfs) must go to swap, and without swap stay
// where they are, whatever is asked. So before a request for anonymous memory comes the
// question how much of it there is room for, and for whom.
//
// The room is the smallest of: what the swap areas have free, and what the group and each
// ancestor may still swap (memory.swap.max less memory.swap.current). Compressed swap
// gives back only a part of what it takes: its own memory is memory too.

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const (
	swappinessPath = "/proc/sys/vm/swappiness"
	// ratioBytes is how much data in zram says something of how it compresses: a new
	// swap area holds one page, its heading.
	ratioBytes = 1 << 20
)

// Room says how much anonymous memory of a group can be reclaimed at most.
type Room struct {
	// AnonBytes of anonymous memory fit into swap; 0: reclaim file memory only.
	AnonBytes uint64
	// Why says what sets AnonBytes, in one line.
	Why string
	// Areas are the machine's swap areas.
	Areas []SwapArea
	// Compressed says that what is swapped stays in memory, smaller: zswap is on, or
	// an area is zram.
	Compressed bool
	// KeptRatio is the share of the data in zram and zswap that its compressed copy
	// still takes of the machine's memory: what is gained is one less this. A group's
	// own figures do not show it (zram's memory is charged to nobody, and of zswap's
	// only the compressed bytes, not the pool: 6.1's zbud pool was measured to take
	// all of what it held). Negative: not known, for want of data in them.
	KeptRatio float64
	// NoWriteback says that memory.zswap.writeback is 0 for the group or an
	// ancestor: what zswap does not take stays in memory.
	NoWriteback bool
	// Swappiness is vm.swappiness. At 0 the kernel leaves anonymous memory alone
	// while there is file memory, unless a request says otherwise.
	Swappiness uint64
}

// Room answers for a group.
func (m *Memory) Room(path string) (Room, error) {
	if err := cgroup.CheckPath(path); err != nil {
		return Room{}, err
	}
	areas, err := ReadSwaps(m.fs)
	if errors.Is(err, fs.ErrNotExist) {
		return Room{KeptRatio: -1, Why: "no swap: the kernel has no " + swapsPath}, nil
	}
	if err != nil {
		return Room{}, err
	}
	room := Room{Areas: areas, KeptRatio: -1}
	if room.Swappiness, err = readNumber(m.fs, swappinessPath); err != nil {
		return Room{}, fmt.Errorf("room for anonymous memory: %w", err)
	}
	if len(areas) == 0 {
		room.Why = "no swap: " + swapsPath + " lists no area"
		return room, nil
	}
	if err := room.addAreas(m.fs); err != nil {
		return Room{}, err
	}
	if err := room.addLimits(m, path); err != nil {
		return Room{}, err
	}
	return room, nil
}

// addAreas counts the machine's swap.
func (r *Room) addAreas(fsys hostfs.FS) error {
	var orig, kept uint64
	for _, a := range r.Areas {
		r.AnonBytes += a.FreeBytes()
		name := a.Zram()
		if name == "" {
			continue
		}
		z, err := ReadZram(fsys, name)
		if err != nil {
			return err
		}
		r.Compressed = true
		orig += z.OrigBytes
		kept += z.UsedBytes
	}
	r.Why = fmt.Sprintf("swap areas: %d, free: %d MiB", len(r.Areas), r.AnonBytes>>20)
	z, err := ReadZswap(fsys)
	if err != nil && !errors.Is(err, cgroup.ErrUnsupported) {
		return err
	}
	r.Compressed = r.Compressed || z.Enabled
	orig += z.Stored.Bytes
	kept += z.Pool.Bytes
	if orig >= ratioBytes {
		r.KeptRatio = float64(kept) / float64(orig)
	}
	return nil
}

// SwapLeft is what the limits of a group and of those above it leave it of swap, in bytes; limited is false where there is no limit.
func (m *Memory) SwapLeft(path string) (left uint64, limited bool, err error) {
	if err := cgroup.CheckPath(path); err != nil {
		return 0, false, err
	}
	r := Room{AnonBytes: math.MaxUint64}
	err = r.addLimits(m, path)
	return r.AnonBytes, r.AnonBytes < math.MaxUint64, err
}

// addLimits goes up from the group to below the root.
func (r *Room) addLimits(m *Memory, path string) error {
	if !m.v2 {
		return nil // see memory_swap.go: v1 has no limit that swapping meets
	}
	for at := path; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		l, err := m.ReadSwapLimits(at)
		if err != nil {
			return err
		}
		r.NoWriteback = r.NoWriteback || !l.Writeback
		if !l.Swap.OK || l.Swap.Max {
			continue
		}
		d, err := m.open(at)
		if err != nil {
			return err
		}
		data, err := d.read("memory.swap.current")
		if err != nil || data == nil {
			return err
		}
		used, err := parseUint(data)
		if err != nil {
			return d.wrap("read", "memory.swap.current", err)
		}
		if left := l.Swap.room(used); left < r.AnonBytes {
			r.AnonBytes = left
			r.Why = fmt.Sprintf("memory.swap.max of %s: %d MiB, used: %d MiB", at, l.Swap.Bytes>>20, used>>20)
		}
	}
	return nil
}
