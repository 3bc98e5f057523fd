package kernfs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/twin/machine"
)

// usage is what a process, or those of a group, have used.
type usage struct {
	machine.Counters
	stall machine.Pressure
	disk  machine.DiskUse
}

func (u *usage) add(o usage) {
	u.UsageNsec += o.UsageNsec
	u.DelayNsec += o.DelayNsec
	u.Cycles += o.Cycles
	u.RefCycles += o.RefCycles
	u.Instructions += o.Instructions
	u.LLCReferences += o.LLCReferences
	u.LLCMisses += o.LLCMisses
	u.MemBytes += o.MemBytes
	u.Periods += o.Periods
	u.Throttled += o.Throttled
	u.ThrottledNsec += o.ThrottledNsec
	u.Bursts += o.Bursts
	u.BurstNsec += o.BurstNsec
	u.stall.CPUSome += o.stall.CPUSome
	u.stall.CPUFull += o.stall.CPUFull
	u.stall.MemorySome += o.stall.MemorySome
	u.stall.MemoryFull += o.stall.MemoryFull
	u.stall.IOSome += o.stall.IOSome
	u.stall.IOFull += o.stall.IOFull
	u.disk = u.disk.Plus(o.disk, 1)
}

// since returns what was used after an earlier reading.
func (u usage) since(o usage) usage {
	u.UsageNsec -= o.UsageNsec
	u.DelayNsec -= o.DelayNsec
	u.Cycles -= o.Cycles
	u.RefCycles -= o.RefCycles
	u.Instructions -= o.Instructions
	u.LLCReferences -= o.LLCReferences
	u.LLCMisses -= o.LLCMisses
	u.MemBytes -= o.MemBytes
	u.Periods -= o.Periods
	u.Throttled -= o.Throttled
	u.ThrottledNsec -= o.ThrottledNsec
	u.Bursts -= o.Bursts
	u.BurstNsec -= o.BurstNsec
	u.stall.CPUSome -= o.stall.CPUSome
	u.stall.CPUFull -= o.stall.CPUFull
	u.stall.MemorySome -= o.stall.MemorySome
	u.stall.MemoryFull -= o.stall.MemoryFull
	u.stall.IOSome -= o.stall.IOSome
	u.stall.IOFull -= o.stall.IOFull
	u.disk = u.disk.Plus(o.disk, -1)
	return u
}

// used returns what a process has used; of one whose task somebody took from the machine,
// what it had.
func (k *Kernel) used(p *process) usage {
	c, err := k.m.Counters(p.num)
	if err == nil {
		p.last.Counters = c
		p.last.stall, _ = k.m.Pressure(p.num) // the task is there
		p.last.disk, _ = k.m.DiskUse(p.num)
	}
	return p.last
}

// sum returns what was used in a group and below since it was made.
func (k *Kernel) sum(g *group) usage {
	u := g.past
	for i := range g.members {
		m := &g.members[i]
		u.add(k.used(m.p).since(m.at))
	}
	for _, c := range g.kids {
		u.add(k.sum(c))
	}
	return u
}

// ResetCounters lets the CPU time and throttling of a group, and of those below, begin at
// zero again, as if the kernel had lost them. Those of the groups above go on.
func (k *Kernel) ResetCounters(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := false
	for _, h := range k.hiers {
		if g := h.at(path); g != nil {
			found = true
			g.each(func(g *group) {
				k.fold(g)
				g.offset, g.bandwidth.past = k.sum(g).UsageNsec, throttling{}
			})
		}
	}
	if !found {
		return fmt.Errorf("kernfs: reset counters of %s: %w", path, unix.ENOENT)
	}
	return nil
}
