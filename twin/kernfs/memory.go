package kernfs

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/twin/machine"
)

// pageBytes is a page of memory.
const pageBytes = 4096

// noBound is the value of a bound that is "max".
const noBound = math.MaxUint64

// bounds are the memory controller's limits of a group, in bytes.
type bounds struct{ min, low, high, max, swapMax uint64 }

func newBounds() bounds { return bounds{high: noBound, max: noBound, swapMax: noBound} }

// setBound sets one of them, rounded down to pages.
func (k *Kernel) setBound(g *group, of *uint64, data []byte) error {
	text := string(bytes.TrimSpace(data))
	v := uint64(noBound)
	if text != "max" {
		n, err := parseBytes(text)
		if err != nil {
			return err
		}
		v = n / pageBytes * pageBytes
	}
	*of = v
	k.settleMemory(g)
	return nil
}

// parseBytes is memparse: a number, with K, M, G, T for powers of 1024.
func parseBytes(text string) (uint64, error) {
	shift := 0
	if n := len(text); n > 1 {
		switch text[n-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		case 't', 'T':
			shift = 40
		}
		if shift > 0 {
			text = text[:n-1]
		}
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v > noBound>>shift {
		return 0, unix.EINVAL
	}
	return v << shift, nil
}

// settleMemory tells the machine the bounds of processes in a group and below: each has the
// least on its path to itself.
func (k *Kernel) settleMemory(g *group) {
	g.each(func(g *group) {
		high, limit := uint64(noBound), uint64(noBound)
		for up := g; up != nil; up = up.up {
			high, limit = min(high, up.memory.high), min(limit, up.memory.max)
		}
		for i := range g.members {
			// An error means that somebody took the task from the machine.
			_ = k.m.SetMemoryLimits(g.members[i].p.num, orNone(high), orNone(limit))
		}
	})
}

// orNone is a bound as the machine takes it: 0 is none, and one byte the least.
func orNone(v uint64) float64 {
	if v == noBound {
		return 0
	}
	return math.Max(1, float64(v))
}

// held is what memory a group and those below hold.
type held struct {
	anon, file, swap, zswap, inactiveAnon, inactiveFile float64
	faults, reclaimed                                   uint64
}

func (k *Kernel) held(g *group) held {
	var h held
	g.each(func(g *group) {
		for i := range g.members {
			num := g.members[i].p.num
			u, err := k.m.MemoryUse(num)
			if err != nil {
				continue // somebody took the task from the machine
			}
			anon, file, err := k.m.MemoryOlder(num, machine.ActiveNsec)
			if err != nil {
				continue
			}
			h.anon += u.Anon
			h.file += u.File
			h.swap += u.Swap
			h.zswap += u.Zswap
			h.faults += u.FaultPages
			h.reclaimed += u.ReclaimedBytes / pageBytes
			h.inactiveAnon += anon
			h.inactiveFile += file
		}
	})
	return h
}

// reclaimMemory is a write of memory.reclaim: bytes, and perhaps "swappiness=", of which 0 leaves anonymous memory
// alone, and 200 takes it first. It is done at once. Where less is found than was asked for, what was found is gone all the same.
func (k *Kernel) reclaimMemory(g *group, data []byte) error {
	text, how, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	want, err := parseBytes(text)
	if err != nil {
		return err
	}
	anon, first := true, false
	if how != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(how, "swappiness="), 10, 64)
		if err != nil || n > 200 || !strings.HasPrefix(how, "swappiness=") {
			return unix.EINVAL
		}
		anon, first = n > 0, n == 200
	}
	nums, got := k.tasksIn(g), 0.0
	if first {
		got = k.m.ReclaimTogether(nums, float64(want), true, false)
	}
	if got += k.m.ReclaimTogether(nums, float64(want)-got, anon, true); got < float64(want)-pageBytes {
		return unix.EAGAIN
	}
	return nil
}

// wholePages cuts bytes to pages.
func wholePages(bytes float64) uint64 { return uint64(bytes) / pageBytes * pageBytes }

// memoryStat is memory.stat of v2.
func (k *Kernel) memoryStat(g *group, buf []byte) []byte {
	h := k.held(g)
	anon, file := wholePages(h.anon), wholePages(h.file)
	inAnon, inFile := min(anon, wholePages(h.inactiveAnon)), min(file, wholePages(h.inactiveFile))
	for _, line := range []struct {
		name string
		v    uint64
	}{
		{"anon", anon}, {"file", file}, {"kernel", 0}, {"kernel_stack", 0}, {"pagetables", 0}, {"sock", 0}, {"shmem", 0},
		{"file_mapped", 0}, {"file_dirty", 0}, {"file_writeback", 0}, {"swapcached", 0},
		{"inactive_anon", inAnon}, {"active_anon", anon - inAnon}, {"inactive_file", inFile}, {"active_file", file - inFile},
		{"unevictable", 0}, {"slab_reclaimable", 0}, {"slab_unreclaimable", 0},
		{"workingset_refault_anon", 0}, {"workingset_refault_file", h.faults},
		{"pgscan", h.reclaimed}, {"pgsteal", h.reclaimed}, {"pgfault", anon/pageBytes + file/pageBytes + h.faults}, {"pgmajfault", h.faults},
	} {
		buf = number(append(append(buf, line.name...), ' '), line.v)
	}
	if k.m.Config().ZswapShare > 0 {
		buf = number(append(buf, "zswap "...), uint64(h.zswap))
		buf = number(append(buf, "zswapped "...), wholePages(h.swap))
	}
	return buf
}

// memoryStatV1 is memory.stat of v1, as far as it says what v2's says: the lines with those below.
func (k *Kernel) memoryStatV1(g *group, buf []byte) []byte {
	h := k.held(g)
	buf = number(append(buf, "total_cache "...), wholePages(h.file))
	buf = number(append(buf, "total_rss "...), wholePages(h.anon))
	buf = number(append(buf, "total_inactive_file "...), min(wholePages(h.file), wholePages(h.inactiveFile)))
	buf = number(append(buf, "total_workingset_refault_anon "...), 0)
	return number(append(buf, "total_workingset_refault_file "...), h.faults)
}

// memoryEvents is memory.events, and memory.events.local, which here says the same: of a group and those below.
func (k *Kernel) memoryEvents(g *group, buf []byte) []byte {
	h := k.held(g)
	high := uint64(0)
	if g.memory.high != noBound {
		high = h.reclaimed
	}
	return fmt.Appendf(buf, "low 0\nhigh %d\nmax %d\noom %d\noom_kill %d\noom_group_kill 0\n", high, g.oomKills, g.oomKills, g.oomKills)
}

// number appends a number and a newline.
func number(buf []byte, v uint64) []byte { return append(strconv.AppendUint(buf, v, 10), '\n') }

// bound appends a bound and a newline.
func appendBound(buf []byte, v uint64) []byte {
	if v == noBound {
		return append(buf, "max\n"...)
	}
	return number(buf, v)
}
