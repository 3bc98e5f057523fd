package kernfs

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// The multi-generational LRU: /sys/kernel/mm/lru_gen and /sys/kernel/debug/lru_gen. All pages are on node 0. A page is in the generation that was the youngest
// when it was last used, as if the kernel had looked at the moment of the reading: the real one knows what its last walk saw.

// maxGens is MAX_NR_GENS, minGens MIN_NR_GENS.
const (
	maxGens = 4
	minGens = 2
)

// generations are a group's: when each was made, ns, the oldest first.
type generations struct {
	made []int64
	seq  int // of the youngest
}

func newGenerations(nowNsec int64) generations {
	return generations{made: []int64{nowNsec, nowNsec}, seq: minGens - 1}
}

func (k *Kernel) addLRUGen() {
	dir := k.dir("/sys/kernel/mm/lru_gen")
	k.addText(dir, "enabled", "0x0007\n")
	k.addText(dir, "min_ttl_ms", "0\n")
	k.addFile(k.dir("/sys/kernel/debug"), "lru_gen", always(func(buf []byte) []byte {
		k.with(cgroup.Memory).top.each(func(g *group) { buf = k.listGens(g, buf) })
		return buf
	}), k.commandLRUGen)
}

// listGens appends a group's generations, with the pages of its own processes.
func (k *Kernel) listGens(g *group, buf []byte) []byte {
	buf = fmt.Appendf(buf, "memcg %5d %s\n node %5d\n", g.dir.ino, g.path, 0)
	now, n := k.m.NowNsec(), len(g.gens.made)
	var below [2]float64 // anonymous and file memory in older generations
	for i, made := range g.gens.made {
		idle := int64(0)
		if i+1 < n {
			idle = now - g.gens.made[i+1]
		}
		anon, file := k.unused(g, idle)
		buf = fmt.Appendf(buf, " %10d %10d %10d %10d \n", g.gens.seq-n+1+i, (now-made)/1e6, uint64(max(0, anon-below[0]))/pageBytes, uint64(max(0, file-below[1]))/pageBytes)
		below = [2]float64{max(anon, below[0]), max(file, below[1])}
	}
	return buf
}

// unused returns what a group's own processes have not used for so long.
func (k *Kernel) unused(g *group, nsec int64) (anon, file float64) {
	for i := range g.members {
		if a, f, err := k.m.MemoryOlder(g.members[i].p.num, nsec); err == nil {
			anon, file = anon+a, file+f
		}
	}
	return anon, file
}

// commandLRUGen is a write of /sys/kernel/debug/lru_gen: "+ memcg node seq ..." ages, "- memcg node seq swappiness pages" evicts.
func (k *Kernel) commandLRUGen(data []byte) error {
	words := strings.Fields(string(data))
	if len(words) < 4 {
		return unix.EINVAL
	}
	var n []int64
	for _, word := range words[1:] {
		v, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return unix.EINVAL
		}
		n = append(n, v)
	}
	var of *group
	k.with(cgroup.Memory).top.each(func(g *group) {
		if int64(g.dir.ino) == n[0] {
			of = g
		}
	})
	if of == nil || n[1] != 0 {
		return unix.EINVAL
	}
	gens, seq := &of.gens, int(n[2])
	switch {
	case words[0] == "+":
		if seq == gens.seq { // else somebody was quicker
			gens.made, gens.seq = append(gens.made, k.m.NowNsec()), gens.seq+1
			gens.made = gens.made[max(0, len(gens.made)-maxGens):]
		}
		return nil
	case words[0] != "-" || len(n) != 5 || seq > gens.seq-minGens || n[3] < 0 || n[3] > 200:
		return unix.EINVAL
	}
	at := seq - (gens.seq - len(gens.made) + 1)
	left := float64(n[4]) * pageBytes
	for i := range of.members {
		if at >= 0 {
			got, _ := k.m.Reclaim(of.members[i].p.num, left, k.m.NowNsec()-gens.made[at+1], n[3] > 0, n[3] < 200)
			left -= got
		}
	}
	return nil
}

// swaps is /proc/swaps.
func (k *Kernel) swaps(buf []byte) []byte {
	buf = append(buf, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"...)
	if r := k.m.MemoryRoom(); r.SwapTotal > 0 {
		buf = fmt.Appendf(buf, "/dev/vdb                                partition\t%d\t\t%d\t\t-2\n", wholePages(r.SwapTotal)>>10, wholePages(r.SwapTotal-r.SwapFree)>>10)
	}
	return buf
}
