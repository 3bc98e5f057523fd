package kernfs

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// readFunc appends what a file holds.
type readFunc = func(buf []byte) ([]byte, error)

// always makes a reader of one that cannot fail.
func always(f func(buf []byte) []byte) readFunc {
	return func(buf []byte) ([]byte, error) { return f(buf), nil }
}

// addGroupFiles makes the files of a new group.
func (k *Kernel) addGroupFiles(g *group) {
	k.addCoreFiles(g)
	if g.h.v2 {
		k.addV2Core(g)
	}
	for _, c := range g.h.controllers {
		if g.has(c) {
			k.addControllerFiles(g, c)
		}
	}
}

// addControllerFiles makes the files of one controller.
func (k *Kernel) addControllerFiles(g *group, c cgroup.Controller) {
	switch {
	case c == cgroup.CPU && g.h.v2:
		k.addV2CPU(g)
	case c == cgroup.CPU:
		k.addV1CPU(g)
	case c == cgroup.CPUAcct:
		k.addV1CPUAcct(g)
	case c == cgroup.CPUSet && g.h.v2:
		k.addV2CPUSet(g)
	case c == cgroup.CPUSet:
		k.addV1CPUSet(g)
	case c == cgroup.Memory && g.h.v2:
		k.addV2Memory(g)
	case c == cgroup.Memory:
		k.addV1Memory(g)
	case c == cgroup.Freezer:
		k.addV1Freezer(g)
	case c == cgroup.IO:
		k.addIO(g)
	case c == cgroup.PIDs:
		k.addPIDs(g)
	}
}

// addCoreFiles makes the lists of processes and threads.
func (k *Kernel) addCoreFiles(g *group) {
	procs := k.addFile(g.dir, "cgroup.procs", always(func(buf []byte) []byte {
		for i := range g.members {
			buf = number(buf, uint64(g.members[i].p.pid))
		}
		return buf
	}), func(data []byte) error { return k.writeProcs(g, data) })
	procs.cached = !g.h.v2
	name := "tasks"
	if g.h.v2 {
		name = "cgroup.threads"
	}
	threads := k.addFile(g.dir, name, always(func(buf []byte) []byte {
		for i := range g.members {
			p := g.members[i].p
			for tid := range p.threads {
				buf = number(buf, uint64(p.pid)+uint64(tid))
			}
		}
		return buf
	}), func([]byte) error { return unix.EOPNOTSUPP }) // threads do not move alone
	threads.cached = !g.h.v2
	if !g.h.v2 {
		k.addFile(g.dir, "cgroup.clone_children", always(func(buf []byte) []byte { return flag(buf, g.clones) }), func(data []byte) error {
			v, err := integer(data)
			if err != nil || v < 0 {
				return unix.EINVAL
			}
			g.clones = v != 0
			return nil
		})
	}
}

// writeProcs moves a process.
func (k *Kernel) writeProcs(g *group, data []byte) error {
	pid, err := integer(data)
	if err != nil || pid < 0 {
		return unix.EINVAL
	}
	if pid == 0 || pid != int64(int32(pid)) || k.procs[int32(pid)] == nil {
		return unix.ESRCH // the writer is no process of this kernel
	}
	return k.attach(k.procs[int32(pid)], g)
}

// addV2Core makes the files that every v2 group has.
func (k *Kernel) addV2Core(g *group) {
	dir := g.dir
	k.addFile(dir, "cgroup.controllers", always(func(buf []byte) []byte {
		return names(buf, slices.DeleteFunc(slices.Clone(g.h.controllers), func(c cgroup.Controller) bool { return !g.has(c) }))
	}), nil)
	k.addFile(dir, "cgroup.subtree_control", always(func(buf []byte) []byte { return names(buf, g.subtree) }),
		func(data []byte) error { return k.writeSubtree(g, string(data)) })
	k.addFile(dir, "cgroup.stat", always(func(buf []byte) []byte {
		n := -1
		g.each(func(*group) { n++ })
		return append(number(append(buf, "nr_descendants "...), uint64(n)), "nr_dying_descendants 0\n"...)
	}), nil)
	k.addFile(dir, "cpu.stat", always(func(buf []byte) []byte { return k.v2CPUStat(g, buf) }), nil)
	k.addFile(dir, "cgroup.pressure", always(func(buf []byte) []byte { return flag(buf, g.pressure) }),
		func(data []byte) error { return k.setAccounting(g, data) })
	k.addPressureFiles(g)
	if g.up == nil {
		return
	}
	k.addText(dir, "cgroup.type", "domain\n").write = func([]byte) error { return unix.EOPNOTSUPP }
	k.addFile(dir, "cgroup.events", always(g.readEvents), nil).changed = &g.events
	k.addFile(dir, "cgroup.freeze", always(func(buf []byte) []byte { return flag(buf, g.freeze.asked) }),
		func(data []byte) error { return k.setFreeze(g, data) })
	k.addFile(dir, "cgroup.kill", nil, func(data []byte) error {
		if v, err := integer(data); err != nil {
			return err
		} else if v != 1 {
			return unix.ERANGE
		}
		k.kill(g)
		return nil
	})
	g.told = string(g.readEvents(nil))
}

// names lists controllers.
func names(buf []byte, list []cgroup.Controller) []byte {
	for i, c := range list {
		if i > 0 {
			buf = append(buf, ' ')
		}
		buf = append(buf, c...)
	}
	return append(buf, '\n')
}

// writeSubtree is a write of cgroup.subtree_control: all or nothing.
func (k *Kernel) writeSubtree(g *group, text string) error {
	var on, off []cgroup.Controller
	for word := range strings.FieldsSeq(text) {
		c := cgroup.Controller(word[1:])
		switch {
		case word[0] != '+' && word[0] != '-' || !slices.Contains(append([]cgroup.Controller{"io", "hugetlb", "rdma", "misc"}, v2Controllers...), c):
			return unix.EINVAL
		case word[0] == '+' && !g.has(c):
			return unix.ENOENT
		case word[0] == '+' && !slices.Contains(g.subtree, c):
			on = append(on, c)
		case word[0] == '-' && slices.Contains(g.subtree, c):
			off = append(off, c)
		}
	}
	for _, kid := range g.kids {
		for _, c := range off {
			if slices.Contains(kid.subtree, c) {
				return unix.EBUSY
			}
		}
	}
	if len(on) > 0 && g.up != nil && len(g.members) > 0 {
		return unix.EBUSY
	}
	for _, c := range off {
		k.disable(g, c)
	}
	return k.enable(g, on)
}

// enable hands controllers to a group's children.
func (k *Kernel) enable(g *group, list []cgroup.Controller) error {
	for _, c := range list {
		if slices.Contains(g.subtree, c) {
			continue
		}
		if !g.has(c) {
			return unix.ENOENT
		}
		g.subtree = append(g.subtree, c)
		for _, kid := range g.sorted() {
			k.addControllerFiles(kid, c)
		}
	}
	slices.SortFunc(g.subtree, func(a, b cgroup.Controller) int {
		return slices.Index(v2Controllers, a) - slices.Index(v2Controllers, b)
	})
	return nil
}

// disable takes a controller from a group's children, and with it what they had set.
func (k *Kernel) disable(g *group, c cgroup.Controller) {
	g.subtree = slices.DeleteFunc(g.subtree, func(o cgroup.Controller) bool { return o == c })
	for _, kid := range g.sorted() {
		for name, n := range kid.dir.children {
			if strings.HasPrefix(name, string(c)+".") && name != "cpu.stat" && !strings.HasSuffix(name, ".pressure") {
				k.remove(n)
			}
		}
		switch c {
		case cgroup.CPU:
			for len(kid.bandwidth.bound) > 0 {
				k.unbind(kid.bandwidth.bound[0])
			}
			kid.bandwidth = newBandwidth()
		case cgroup.CPUSet:
			kid.place = newPlace(k, kid)
		case cgroup.Memory:
			kid.memory = newBounds()
			k.settleMemory(kid)
		case cgroup.IO:
			kid.io = machine.DiskLimit{}
		}
	}
	k.settle()
}

// addPIDs makes the pids controller's files.
func (k *Kernel) addPIDs(g *group) {
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "pids.current", always(func(buf []byte) []byte {
		n := 0
		g.each(func(g *group) {
			for i := range g.members {
				n += g.members[i].p.threads
			}
		})
		return number(buf, uint64(n))
	}), nil)
}

// signed appends a number that may be negative, and a newline.
func signed(buf []byte, v int64) []byte { return append(strconv.AppendInt(buf, v, 10), '\n') }

// trim cuts what is around a written value.
func trim(data []byte) string { return string(bytes.TrimSpace(data)) }
