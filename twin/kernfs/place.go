package kernfs

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// place is what the cpuset controller keeps of a group: what was asked for. On v2 empty is
// what the group above has; on v1 it is none, and takes no process.
type place struct {
	cpus, mems model.CPUSet
}

func newPlace(k *Kernel, g *group) place {
	if g.up != nil || g.h.v2 {
		return place{}
	}
	c := k.m.Config()
	return place{cpus: k.m.Online(), mems: model.FullSet(c.Sockets)}
}

// inherit copies the lists of the group above, as who makes groups does on v1.
func (p *place) inherit(up *group) {
	if !up.h.v2 {
		*p = up.place
	}
}

// effective returns the CPUs that a group may in fact use.
func (k *Kernel) effective(g *group) model.CPUSet {
	if g.up == nil {
		return k.m.Online()
	}
	above := k.effective(g.up)
	if g.h.v2 && g.place.cpus == (model.CPUSet{}) {
		return above
	}
	own := g.place.cpus.And(above)
	if g.h.v2 && own == (model.CPUSet{}) {
		return above // what it asked for is not to be had
	}
	return own
}

// effectiveMems returns the memory nodes that a group may in fact use.
func (k *Kernel) effectiveMems(g *group) model.CPUSet {
	c := k.m.Config()
	if g.up == nil {
		return model.FullSet(c.Sockets)
	}
	above := k.effectiveMems(g.up)
	own := g.place.mems.And(above)
	if g.h.v2 && own == (model.CPUSet{}) {
		return above
	}
	return own
}

// settlePlace tells the machine where a process may run.
func (k *Kernel) settlePlace(p *process) {
	h := k.with(cgroup.CPUSet)
	allowed := k.effective(p.in[h.i])
	cpus := allowed.And(p.own)
	if cpus == (model.CPUSet{}) {
		cpus = allowed // the kernel gives up an affinity that cannot be kept
	}
	if cpus != p.cpus && k.m.SetCPUs(p.num, cpus) == nil {
		p.cpus = cpus
	}
}

// setCPUs and setMems set what a group asks for.
func (k *Kernel) setCPUs(g *group, data []byte) error {
	c := k.m.Config()
	return k.setList(g, data, c.CPUs(), k.m.Online(), func(p *place) *model.CPUSet { return &p.cpus })
}

func (k *Kernel) setMems(g *group, data []byte) error {
	c := k.m.Config()
	err := k.setList(g, data, c.Sockets, model.FullSet(c.Sockets), func(p *place) *model.CPUSet { return &p.mems })
	if err == nil && g.h.v2 {
		k.followMems(g) // on v1 that takes cpuset.memory_migrate
	}
	return err
}

func (k *Kernel) setList(g *group, data []byte, n int, most model.CPUSet, of func(*place) *model.CPUSet) error {
	if g.up == nil {
		return unix.EACCES
	}
	set, err := parseList(data, n)
	if err != nil {
		return err
	}
	if err := g.validate(set, most, of); err != nil {
		return err
	}
	*of(&g.place) = set
	k.settle()
	return nil
}

// validate is the kernel's validate_change, in its order: on v1 a list names nothing that
// is offline, and lies around those of the groups below and within that of the one above.
// On either a group with processes, in it or below, cannot be left without.
func (g *group) validate(set, most model.CPUSet, of func(*place) *model.CPUSet) error {
	if !g.h.v2 {
		if !set.Within(most) {
			return unix.EINVAL
		}
		for _, c := range g.kids {
			if low := *of(&c.place); !low.Within(set) {
				return unix.EBUSY
			}
		}
		if up := *of(&g.up.place); !set.Within(up) {
			return unix.EACCES
		}
	}
	if set.Empty() && !of(&g.place).Empty() && g.populated() {
		return unix.ENOSPC
	}
	return nil
}

// parseList reads the kernel's list format, of numbers below n.
func parseList(data []byte, n int) (model.CPUSet, error) {
	set, err := model.ParseCPUSet(strings.TrimSpace(string(data)))
	if err != nil {
		return set, unix.EINVAL
	}
	if set.And(model.FullSet(n)) != set {
		return set, unix.ERANGE
	}
	return set, nil
}

// cpusChanged follows CPUs that went or came. On v1 a cpuset loses those that went for
// good, and one that is left without any loses its processes to the group above.
func (k *Kernel) cpusChanged() {
	h := k.with(cgroup.CPUSet)
	if !h.v2 {
		online := k.m.Online()
		h.top.place.cpus = online
		h.top.each(func(g *group) {
			g.place.cpus = g.place.cpus.And(online)
			for up := g.up; up != nil && g.place.cpus == (model.CPUSet{}) && len(g.members) > 0; up = up.up {
				if up.place.cpus != (model.CPUSet{}) {
					k.evict(g, up)
				}
			}
		})
	}
	k.settle()
}

// evict moves all processes of a group to another.
func (k *Kernel) evict(g, to *group) {
	for len(g.members) > 0 {
		if err := k.attach(g.members[0].p, to); err != nil && !errors.Is(err, unix.ENOSPC) {
			return
		}
	}
}

// AllowedCPUs returns the CPUs that a process may run on (sched_getaffinity).
func (k *Kernel) AllowedCPUs(pid int) (model.CPUSet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[int32(pid)]
	if p == nil {
		return model.CPUSet{}, unix.ESRCH
	}
	return p.cpus, nil
}
