package probe

// Memory: /proc/swaps, Documentation/admin-guide/mm/zswap.rst, .../mm/multigen_lru.rst, .../mm/damon/usage.rst,
// .../mm/idle_page_tracking.rst.
//
// DAMON's number of kernel threads is one for the machine: who writes it ends the instances of everybody
// else. With one there, it is somebody's, and we keep our hands off.

import (
	"fmt"
	"strconv"

	"github.com/commensal-io/commensal/kernel/reclaim"
)

// memoryFindings answers about the means to find and move cold pages.
func (p *prober) memoryFindings() []Finding {
	return []Finding{p.swap(), p.zswap(), p.mglru(), p.damon(), p.idlePages()}
}

// swap decides what reclaim can take: without it, or when it is full, anonymous memory has nowhere to go.
func (p *prober) swap() Finding {
	const file = "/proc/swaps"
	f := Finding{Name: Swap, Gives: []string{RemedyReclaim}, Needs: "a swap device, or zram, for anonymous memory"}
	if _, err := p.read(file); err != nil {
		u := unread(Swap, err, "CONFIG_SWAP")
		u.Gives = f.Gives
		return u
	}
	areas, err := reclaim.ReadSwaps(p.fs)
	switch {
	case err != nil:
		f.Answer, f.Why = CouldNotTell, oneLine(err.Error())
		return f
	case len(areas) == 0:
		f.Answer, f.Why = No, file+": areas: 0"
		if p.exists("/sys/block/zram0") {
			f.Why += "; /sys/block/zram0 is there, and no swap"
			f.Needs = "mkswap and swapon of /dev/zram0 (a size in /sys/block/zram0/disksize first), or another swap device"
		}
	default:
		free := uint64(0)
		for _, a := range areas {
			free += a.FreeBytes()
		}
		f.Answer, f.Why = yesNo(free > 0), fmt.Sprintf("%s: areas: %d, free: %d KiB", file, len(areas), free>>10)
	}
	return settled(f)
}

// zswap compresses pages on their way to swap. Context only: without swap it does nothing.
func (p *prober) zswap() Finding {
	const file = "/sys/module/zswap/parameters/enabled"
	text, err := p.read(file)
	if err != nil {
		return unread(Zswap, err, "CONFIG_ZSWAP")
	}
	f := Finding{Name: Zswap, Answer: yesNo(text == "Y"), Why: file + ": " + oneLine(text), Needs: "Y in " + file}
	if text != "Y" && text != "N" {
		f.Answer = CouldNotTell
	}
	return settled(f)
}

// mglru is the multi-generational LRU. Context only: its aging makes memory.reclaim choose better.
func (p *prober) mglru() Finding {
	const file = "/sys/kernel/mm/lru_gen/enabled"
	text, err := p.read(file)
	if err != nil {
		return unread(MGLRU, err, "CONFIG_LRU_GEN")
	}
	bits, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return Finding{Name: MGLRU, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q", file, oneLine(text))}
	}
	f := Finding{Name: MGLRU, Answer: yesNo(bits&1 != 0), Why: file + ": " + text, Needs: "y in " + file}
	return settled(f)
}

const damonCount = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"

// damonModules are DAMON users that are configured as modules, each with a parameter "enabled".
var damonModules = []string{"damon_reclaim", "damon_lru_sort", "damon_stat"}

// damon says whether DAMON is there, and whether somebody runs it.
func (p *prober) damon() Finding {
	for _, module := range damonModules {
		path := "/sys/module/" + module + "/parameters/enabled"
		if text, err := p.read(path); err == nil && text == "Y" {
			return Finding{Name: DAMON, Answer: Owned, Why: path + ": Y", Needs: "its owner to leave it; we never touch a running instance"}
		}
	}
	text, err := p.read(damonCount)
	if err != nil {
		return unread(DAMON, err, "CONFIG_DAMON_SYSFS")
	}
	n, err := strconv.ParseUint(text, 10, 31)
	switch {
	case err != nil:
		return Finding{Name: DAMON, Answer: CouldNotTell, Why: fmt.Sprintf("%s: %q", damonCount, oneLine(text))}
	case n > 0:
		return Finding{Name: DAMON, Answer: Owned, Why: fmt.Sprintf("%s: %d", damonCount, n),
			Needs: "its owner to leave it; we never touch a running instance"}
	}
	return Finding{Name: DAMON, Answer: Yes, Why: damonCount + ": 0, nobody uses it"}
}

// idlePages is idle page tracking. Context only.
func (p *prober) idlePages() Finding {
	const file = "/sys/kernel/mm/page_idle/bitmap"
	if p.exists(file) {
		return Finding{Name: IdlePages, Answer: Yes, Why: file + ": there"}
	}
	return Finding{Name: IdlePages, Answer: No, Why: file + ": not there", Needs: "CONFIG_IDLE_PAGE_TRACKING"}
}
