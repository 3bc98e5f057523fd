package kernfs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// hierarchy is a tree of groups: of one controller on v1, of all on v2.
type hierarchy struct {
	i           int // among the kernel's
	mount       string
	v2          bool
	controllers []cgroup.Controller
	top         *group
}

// v1Controllers each have a hierarchy of their own.
var v1Controllers = []cgroup.Controller{cgroup.CPU, cgroup.CPUAcct, cgroup.CPUSet, cgroup.Memory, cgroup.Freezer, cgroup.PIDs}

// v2Controllers in the kernel's order.
var v2Controllers = []cgroup.Controller{cgroup.CPUSet, cgroup.CPU, cgroup.Memory, cgroup.PIDs}

const cgroupDir = "/sys/fs/cgroup"

// mountCgroups makes the hierarchies with their root groups.
func (k *Kernel) mountCgroups() {
	if k.opt.Layout == cgroup.LayoutV2 {
		k.mountCgroup(cgroupDir, true, v2ControllersOf(k.m))
		return
	}
	for _, c := range v1Controllers {
		k.mountCgroup(cgroupDir+"/"+string(c), false, []cgroup.Controller{c})
	}
	k.mountCgroup(cgroupDir+"/unified", true, nil)
}

func (k *Kernel) mountCgroup(mount string, v2 bool, controllers []cgroup.Controller) {
	h := &hierarchy{i: len(k.hiers), mount: mount, v2: v2, controllers: controllers}
	k.hiers = append(k.hiers, h)
	h.top = &group{h: h, path: "/", dir: k.dir(mount), kids: map[string]*group{}}
	h.top.init(k)
	h.top.subtree = slices.Clone(controllers) // as a service manager leaves it
	k.addGroupFiles(h.top)
}

// mountinfo lists the mounts.
func (k *Kernel) mountinfo(buf []byte) ([]byte, error) {
	buf = append(buf, "21 1 0:20 / / rw,relatime - ext4 /dev/vda1 rw\n22 21 0:4 / /proc rw,relatime - proc proc rw\n23 21 0:21 / /sys rw,relatime - sysfs sysfs rw\n"...)
	parent := 23
	if k.opt.Layout != cgroup.LayoutV2 {
		buf = append(buf, "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"...)
		parent = 31
	}
	for i, h := range k.hiers {
		id := 32 + i
		if h.v2 {
			buf = fmt.Appendf(buf, "%d %d 0:%d / %s rw,relatime - cgroup2 cgroup2 rw\n", id, parent, id-3, h.mount)
			continue
		}
		buf = fmt.Appendf(buf, "%d %d 0:%d / %s rw,relatime - cgroup cgroup rw,%s\n", id, parent, id-3, h.mount, h.controllers[0])
	}
	if k.resctrl != nil {
		buf = append(buf, k.resctrl.mountLine(32+len(k.hiers), 23)...)
	}
	return buf, nil
}

// with returns the hierarchy that holds a controller, nil for none.
func (k *Kernel) with(c cgroup.Controller) *hierarchy {
	for _, h := range k.hiers {
		if slices.Contains(h.controllers, c) {
			return h
		}
	}
	return nil
}

// unified returns the cgroup2 hierarchy.
func (k *Kernel) unified() *hierarchy { return k.hiers[len(k.hiers)-1] }

// at returns the group of a path, nil for none.
func (h *hierarchy) at(path string) *group {
	g := h.top
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		if g = g.kids[name]; g == nil {
			return nil
		}
	}
	return g
}

// group is a control group of one hierarchy.
type group struct {
	h    *hierarchy
	up   *group // nil: the root
	path string
	dir  *node
	kids map[string]*group

	members []member // by id
	past    usage    // of processes that left or ended, and of groups below that went
	offset  uint64   // cpuacct.usage was set to 0 then

	bandwidth bandwidth
	place     place
	freeze    freezing
	memory    bounds
	gens      generations
	oomKills  uint64 // of processes in it and below
	io        machine.DiskLimit

	clones bool // cgroup.clone_children, of v1: a new cpuset below begins with these lists

	// Of v2.
	subtree  []cgroup.Controller // handed to its children
	events   signal              // of cgroup.events
	told     string              // what cgroup.events said at the last change
	pressure bool                // PSI is accounted
	unseen   machine.Pressure    // stalls that its accounting missed
}

// init gives a new group what it begins with.
func (g *group) init(k *Kernel) {
	g.bandwidth = newBandwidth()
	g.place = newPlace(k, g)
	g.memory = newBounds()
	g.gens = newGenerations(k.m.NowNsec())
	g.pressure = true
	g.dir.mkdir = func(name string) error { return k.mkdirGroup(g, name) }
	if g.up != nil {
		g.dir.rmdir = func() error { return k.rmdirGroup(g) }
	}
}

// has says whether the group has a controller's files.
func (g *group) has(c cgroup.Controller) bool {
	if g.up != nil && g.h.v2 {
		return slices.Contains(g.up.subtree, c)
	}
	return slices.Contains(g.h.controllers, c)
}

func (k *Kernel) mkdirGroup(up *group, name string) error {
	if strings.ContainsAny(name, "\n") || len(name) > 255 {
		return unix.EINVAL
	}
	path := up.path + "/" + name
	if up.up == nil {
		path = "/" + name
	}
	g := &group{h: up.h, up: up, path: path, dir: k.addDir(up.dir, name), kids: map[string]*group{}}
	g.init(k)
	if g.clones = up.clones; g.clones {
		g.place = up.place
	}
	up.kids[name] = g
	k.addGroupFiles(g)
	return nil
}

func (k *Kernel) rmdirGroup(g *group) error {
	if len(g.members) > 0 || len(g.kids) > 0 {
		return unix.EBUSY
	}
	g.up.past.add(g.past)
	delete(g.up.kids, g.dir.name)
	k.remove(g.dir)
	return nil
}

// renameGroup is the kernel's cgroup1_rename: v1 alone has it, and only within the group above.
// The directory stays the one that it was.
func (k *Kernel) renameGroup(n, in *node, name string) error {
	g := k.groupOf(n)
	switch {
	case g == nil || g.up == nil || g.h.v2:
		return unix.EPERM
	case g.up.dir != in:
		return unix.EIO
	case strings.Contains(name, "\n"):
		return unix.EINVAL
	case in.children[name] != nil:
		return unix.EEXIST
	}
	delete(in.children, n.name)
	delete(g.up.kids, n.name)
	n.name = name
	in.children[name], g.up.kids[name] = n, g
	g.each(func(g *group) {
		g.path = strings.TrimSuffix(g.up.path, "/") + "/" + g.dir.name
	})
	return nil
}

// each calls f for a group and those below it, in the order of their names.
func (g *group) each(f func(*group)) {
	f(g)
	for _, c := range g.sorted() {
		c.each(f)
	}
}

func (g *group) sorted() []*group {
	return slices.SortedFunc(maps.Values(g.kids), func(a, b *group) int { return strings.Compare(a.path, b.path) })
}

// populated says whether a process is in the group or below.
func (g *group) populated() bool {
	if len(g.members) > 0 {
		return true
	}
	for _, c := range g.kids {
		if c.populated() {
			return true
		}
	}
	return false
}
