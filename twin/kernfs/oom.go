package kernfs

import (
	"slices"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// The kernel's OOM killer: where nothing is left to reclaim, of the machine or of a group at its memory.max, the process with
// most memory ends. Its group stays, and counts it in memory.events. Left out: oom_score_adj, memory.oom.group, oom_control of v1.

// oomEveryNsec is how often it is looked: as often as tasks grow.
const oomEveryNsec = 100e6

// OOMKill is a process that the OOM killer ended.
type OOMKill struct {
	Path string // of its group with the memory controller
	PID  int
	// Limit is the group whose memory.max was reached; "": the machine had no memory left.
	Limit string
	Bytes float64 // that it had
}

// TakeOOMKills returns whom the OOM killer ended since the last call.
func (k *Kernel) TakeOOMKills() []OOMKill {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.oom.kills
	k.oom.kills = nil
	return list
}

// oomKiller is what there is to know of it.
type oomKiller struct {
	at    int64 // when it is looked again
	kills []OOMKill
}

// killOOM ends whom the machine has no memory for, and who has most in a group above its memory.max.
func (k *Kernel) killOOM() {
	if k.m.NowNsec() < k.oom.at {
		return
	}
	k.oom.at = k.m.NowNsec() + oomEveryNsec
	h := k.with(cgroup.Memory)
	for _, pid := range slices.Clone(k.pids) {
		p := k.procs[pid]
		if use, err := k.m.MemoryUse(p.num); err == nil && use.Killed {
			k.oomKill(p, h, "")
		}
	}
	h.top.each(func(g *group) {
		if g.memory.max == noBound {
			return
		}
		nums := k.tasksIn(g)
		over := func() float64 {
			h := k.held(g)
			return h.anon + h.file - float64(g.memory.max)
		}
		if n := over(); n > pageBytes {
			k.m.ReclaimTogether(nums, n, true, true)
		}
		for over() > pageBytes {
			k.oomKill(k.largest(g), h, g.path)
		}
	})
}

// largest is the process in a group and below that has most memory.
func (k *Kernel) largest(g *group) (largest *process) {
	most := -1.0
	g.each(func(g *group) {
		for i := range g.members {
			p := g.members[i].p
			if use, err := k.m.MemoryUse(p.num); err == nil && use.Anon+use.File > most {
				largest, most = p, use.Anon+use.File
			}
		}
	})
	return largest
}

func (k *Kernel) oomKill(p *process, h *hierarchy, limit string) {
	use, _ := k.m.MemoryUse(p.num) // it lives
	g := p.in[h.i]
	for up := g; up != nil; up = up.up {
		up.oomKills++
	}
	k.oom.kills = append(k.oom.kills, OOMKill{Path: g.path, PID: int(p.pid), Limit: limit, Bytes: use.Anon + use.File})
	k.end(p)
}

// tasksIn are the machine's numbers of the processes in a group and below.
func (k *Kernel) tasksIn(g *group) (nums []int) {
	g.each(func(g *group) {
		for i := range g.members {
			nums = append(nums, g.members[i].p.num)
		}
	})
	return nums
}
