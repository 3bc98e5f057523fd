package kernfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// process is a thread group: a task of the machine.
type process struct {
	pid     int32
	num     int // of the machine
	threads int
	name    string
	kernel  bool         // a kernel thread
	own     model.CPUSet // its affinity
	in      []*group     // by hierarchy
	last    usage        // as last read

	// What the machine was told last.
	limit  machine.CPUMax
	bound  *group  // whose quota that is; nil: none
	began  usage   // when that began
	part   float64 // of the quotas on its path, in CPUs
	shares int64
	idle   bool
	frozen bool
	io     machine.DiskLimit
	cpus   model.CPUSet
	dir    *node // in /proc
	space  *addressSpace
}

// member is a process in a group, and what it had used when it came.
type member struct {
	p  *process
	at usage
}

// Start makes the group of a path where it is not there, with those above, and in it a
// process that the configuration describes: on v1 in every hierarchy and in the cgroup2
// one. On v2 the groups above hand all controllers down. A new group has the
// configuration's shares and CPUs. It returns the process's id.
func (k *Kernel) Start(path string, cfg machine.TaskConfig) (pid int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path = "/" + strings.Trim(path, "/")
	c := k.m.Config()
	if err := cfg.Check(&c); err != nil {
		return 0, fmt.Errorf("kernfs: start in %s: %w", path, err)
	}
	var in []*group
	for _, h := range k.hiers {
		made := h.at(path) == nil
		g, err := k.makeGroup(h, path)
		if err != nil {
			return 0, fmt.Errorf("kernfs: start in %s: %w", path, err)
		}
		if made {
			g.configure(&cfg)
		}
		in = append(in, g)
	}
	cfg.Shares, cfg.CPUs = 0, model.CPUSet{} // the groups have them
	p, err := k.spawn(cfg)
	if err != nil {
		return 0, err
	}
	for _, g := range in {
		if err := k.move(p, g); err != nil {
			k.end(p)
			return 0, fmt.Errorf("kernfs: start in %s%s: %w", g.h.mount, path, err)
		}
	}
	k.settle()
	return int(p.pid), nil
}

// configure gives a new group what the configuration of its process says.
func (g *group) configure(cfg *machine.TaskConfig) {
	if cfg.Shares > 0 && g.has(cgroup.CPU) {
		g.bandwidth.shares = min(max(cfg.Shares, minShares), maxShares)
	}
	if cfg.CPUs != (model.CPUSet{}) && g.has(cgroup.CPUSet) {
		g.place.cpus = cfg.CPUs
	}
}

// Spawn makes a process in the root groups, as one whose parent is there.
func (k *Kernel) Spawn(cfg machine.TaskConfig) (pid int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p, err := k.spawn(cfg)
	if err != nil {
		return 0, err
	}
	k.settle()
	return int(p.pid), nil
}

func (k *Kernel) spawn(cfg machine.TaskConfig) (*process, error) {
	num, err := k.m.Add(cfg)
	if err != nil {
		return nil, fmt.Errorf("kernfs: %w", err)
	}
	p := &process{
		pid: k.lastPID + 1, num: num, threads: cfg.Threads, name: cfg.Name, kernel: cfg.Kernel, own: cfg.CPUs,
		limit: noLimit(), shares: defaultShares, in: make([]*group, len(k.hiers)),
	}
	if cfg.Shares > 0 {
		p.shares = cfg.Shares // as the machine has it until settle
	}
	c := k.m.Config()
	if p.own == (model.CPUSet{}) {
		p.own = model.FullSet(c.CPUs())
	}
	p.cpus = p.own
	k.lastPID += int32(max(1, cfg.Threads))
	k.procs[p.pid] = p
	k.pids = append(k.pids, p.pid) // the highest so far
	for i, h := range k.hiers {
		p.in[i] = h.top
		h.top.members = append(h.top.members, member{p: p})
	}
	k.addProcess(p)
	k.addMemory(p)
	return p, nil
}

// makeGroup returns the group of a path, made with those above it where it is not there.
func (k *Kernel) makeGroup(h *hierarchy, path string) (*group, error) {
	g := h.top
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" {
			continue
		}
		next := g.kids[name]
		if next == nil {
			if h.v2 && len(g.members) == 0 {
				if err := k.enable(g, h.controllers); err != nil {
					return nil, err
				}
			}
			if err := k.mkdirGroup(g, name); err != nil {
				return nil, err
			}
			next = g.kids[name]
			next.place.inherit(g)
		}
		g = next
	}
	return g, nil
}

// Stop ends the processes in a group and below and removes the groups.
func (k *Kernel) Stop(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := false
	for _, h := range k.hiers {
		g := h.at(path)
		if g == nil || g.up == nil {
			continue
		}
		found = true
		k.kill(g)
		if err := k.removeTree(g); err != nil {
			return fmt.Errorf("kernfs: stop %s: %w", path, err)
		}
	}
	if !found {
		return fmt.Errorf("kernfs: stop %s: %w", path, unix.ENOENT)
	}
	return nil
}

func (k *Kernel) removeTree(g *group) error {
	for _, c := range g.sorted() {
		if err := k.removeTree(c); err != nil {
			return err
		}
	}
	return k.rmdirGroup(g)
}

// Kill ends one process; it leaves its groups.
func (k *Kernel) Kill(pid int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[int32(pid)]
	if p == nil {
		return fmt.Errorf("kernfs: kill %d: %w", pid, unix.ESRCH)
	}
	k.end(p)
	return nil
}

// kill ends the processes in a group and below.
func (k *Kernel) kill(g *group) {
	g.each(func(g *group) {
		for len(g.members) > 0 {
			k.end(g.members[0].p)
		}
	})
}

// end ends a process.
func (k *Kernel) end(p *process) {
	k.foldWaits()
	now := k.used(p)
	k.unbind(p)
	for _, g := range p.in {
		g.leave(p, now)
	}
	if err := k.m.Remove(p.num); err != nil && !errors.Is(err, machine.ErrNoTask) {
		panic("a task that lives can be removed: " + err.Error())
	}
	if k.resctrl != nil {
		k.resctrl.exited(p)
	}
	delete(k.procs, p.pid)
	k.pids = slices.DeleteFunc(k.pids, func(pid int32) bool { return pid == p.pid })
	k.remove(p.dir)
	k.settle()
}

// attach moves a process into a group of one hierarchy.
func (k *Kernel) attach(p *process, to *group) error {
	err := k.move(p, to)
	if err == nil {
		k.settle()
	}
	return err
}

// move is attach without telling the machine.
func (k *Kernel) move(p *process, to *group) error {
	from := p.in[to.h.i]
	if from == to {
		return nil
	}
	if err := k.mayAttach(p, to); err != nil {
		return err
	}
	if to.has(cgroup.CPU) {
		k.foldWaits()
		defer k.watchWaits()
	}
	now := k.used(p)
	from.leave(p, now)
	p.in[to.h.i] = to
	i, _ := slices.BinarySearchFunc(to.members, p.pid, func(m member, pid int32) int { return int(m.p.pid - pid) })
	to.members = slices.Insert(to.members, i, member{p: p, at: now})
	return nil
}

// mayAttach refuses what the kernel refuses.
func (k *Kernel) mayAttach(_ *process, to *group) error {
	switch {
	case to.h.v2 && to.up != nil && len(to.subtree) > 0:
		return unix.EBUSY // no internal processes
	case !to.h.v2 && to.has(cgroup.CPUSet) && (k.effective(to) == (model.CPUSet{}) || to.place.mems == (model.CPUSet{})):
		return unix.ENOSPC
	}
	return nil
}

// leave takes a process out of a group; what it used there stays.
func (g *group) leave(p *process, now usage) {
	g.members = slices.DeleteFunc(g.members, func(m member) bool {
		if m.p == p {
			g.past.add(now.since(m.at))
		}
		return m.p == p
	})
}

// PIDs returns the processes in a group and below of the hierarchy with the cpu controller,
// sorted.
func (k *Kernel) PIDs(path string) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []int
	if g := k.with(cgroup.CPU).at(path); g != nil {
		g.each(func(g *group) {
			for _, m := range g.members {
				list = append(list, int(m.p.pid))
			}
		})
	}
	slices.Sort(list)
	return list
}

// Task returns the number by which the machine knows a process.
func (k *Kernel) Task(pid int) (num int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.procs[int32(pid)]
	if p == nil {
		return 0, false
	}
	return p.num, true
}
