package kernfs

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
)

// freezing is what a group's own freezer file was written.
type freezing struct{ asked bool }

// frozen says whether a group is frozen, by itself or by one above: at once, since no task
// of the machine is ever inside the kernel.
func (g *group) frozen() bool {
	for ; g != nil; g = g.up {
		if g.freeze.asked {
			return true
		}
	}
	return false
}

// settleFreezers tells the machine who is frozen, and who waits for it what changed.
func (k *Kernel) settleFreezers() {
	for _, pid := range k.pids {
		p := k.procs[pid]
		frozen := slices.ContainsFunc(p.in, (*group).frozen)
		if frozen != p.frozen && k.m.SetFrozen(p.num, frozen) == nil {
			p.frozen = frozen
		}
	}
	k.unified().top.each(func(g *group) {
		if now := string(g.readEvents(nil)); g.up != nil && now != g.told {
			g.told = now
			g.events.tell()
		}
	})
}

// readEvents is cgroup.events.
func (g *group) readEvents(buf []byte) []byte {
	buf = flag(append(buf, "populated "...), g.populated())
	return flag(append(buf, "frozen "...), g.frozen())
}

func flag(buf []byte, on bool) []byte {
	if on {
		return append(buf, "1\n"...)
	}
	return append(buf, "0\n"...)
}

// setFreeze is a write of cgroup.freeze.
func (k *Kernel) setFreeze(g *group, data []byte) error {
	v, err := integer(data)
	if err != nil {
		return err
	}
	if v != 0 && v != 1 {
		return unix.ERANGE
	}
	g.freeze.asked = v == 1
	k.settle()
	return nil
}

// setFreezerState is a write of v1's freezer.state.
func (k *Kernel) setFreezerState(g *group, data []byte) error {
	switch cgroup.FreezerState(bytes.TrimSpace(data)) {
	case cgroup.Frozen:
		g.freeze.asked = true
	case cgroup.Thawed:
		g.freeze.asked = false
	default:
		return unix.EINVAL
	}
	k.settle()
	return nil
}
