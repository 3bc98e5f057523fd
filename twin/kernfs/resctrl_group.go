package kernfs

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
)

const (
	monGroupsName = "mon_groups"
	monDataName   = "mon_data"
)

// addGroupFiles fills a group's directory.
func (r *resctrlFS) addGroupFiles(g *resctrlGroup) {
	show := func(name string, read func(buf []byte) ([]byte, error), write func(data []byte) error) *node {
		n := r.k.addFile(g.dir, name, nil, nil)
		n.read = func(buf []byte) ([]byte, error) {
			r.sync()
			return read(buf)
		}
		if write != nil {
			n.write = func(data []byte) error {
				r.sync()
				return write(data)
			}
		}
		return n
	}
	show("tasks", func(buf []byte) ([]byte, error) { return r.showTasks(g, buf), nil }, func(data []byte) error { return r.writeTasks(g, data) })
	show("cpus", func(buf []byte) ([]byte, error) { return r.showCPUMask(g, buf), nil }, func(data []byte) error { return r.writeCPUs(g, data, parseCPUMask) })
	show("cpus_list", func(buf []byte) ([]byte, error) { return append(append(buf, g.cpus.String()...), '\n'), nil },
		func(data []byte) error { return r.writeCPUs(g, data, model.ParseCPUSet) })
	if r.mount.Debug {
		show("mon_hw_id", func(buf []byte) ([]byte, error) { return appendLine(buf, g.rmid), nil }, nil)
	}
	g.monData = r.k.addDir(g.dir, monDataName)
	for d, on := range r.online {
		if on {
			r.addMonDomain(g, d)
		}
	}
	if g.isMon() {
		g.dir.rmdir = func() error { r.sync(); r.removeMon(g); return nil }
		return
	}
	show("schemata", func(buf []byte) ([]byte, error) { return r.showSchemata(g, buf), nil }, func(data []byte) error { return r.writeSchemata(g, data) })
	show("mode", func(buf []byte) ([]byte, error) { return append(append(buf, g.mode...), '\n'), nil }, func(data []byte) error { return r.writeMode(g, data) })
	show("size", func(buf []byte) ([]byte, error) { return r.showSize(g, buf), nil }, nil)
	if r.mount.Debug {
		show("ctrl_hw_id", func(buf []byte) ([]byte, error) { return appendLine(buf, g.closid), nil }, nil)
	}
	mon := r.k.addDir(g.dir, monGroupsName)
	mon.mkdir = func(name string) error { r.sync(); return r.makeMon(g, mon, name) }
	if g == r.root {
		g.dir.mkdir = func(name string) error { r.sync(); return r.makeCtrl(name) }
		return
	}
	g.dir.rmdir = func() error { r.sync(); r.removeCtrl(g); return nil }
}

// appendLine appends a number and a newline.
func appendLine(buf []byte, v int) []byte {
	return append(strconv.AppendInt(buf, int64(v), 10), '\n')
}

// checkGroupName refuses what no group may be called.
func checkGroupName(name string) error {
	switch {
	case strings.Contains(name, "\n"):
		return unix.EINVAL
	case len(name) > unix.NAME_MAX:
		return unix.ENAMETOOLONG
	}
	return nil
}

// makeCtrl makes a control group: a CLOSID first, then an RMID, then ways. As on 6.12, mkdir
// appends to last_cmd_status what it has to say.
func (r *resctrlFS) makeCtrl(name string) error {
	if err := checkGroupName(name); err != nil {
		return err
	}
	closid, err := r.allocCLOSID()
	if err != nil {
		return err
	}
	rmid, err := r.allocRMID()
	if err != nil {
		return err
	}
	g := &resctrlGroup{name: name, closid: closid, rmid: rmid, mode: resctrl.Shareable}
	g.ctrl = g
	if err := r.initAllocation(g); err != nil {
		r.freeRMID(rmid)
		return err
	}
	g.dir = r.k.addDir(r.root.dir, name)
	r.groups = append(r.groups, g)
	r.startCounting(g)
	r.addGroupFiles(g)
	return nil
}

// makeMon makes a monitoring group of a control group.
func (r *resctrlFS) makeMon(ctrl *resctrlGroup, in *node, name string) error {
	if err := checkGroupName(name); err != nil {
		return err
	}
	if name == monGroupsName {
		return unix.EPERM // the kernel takes it for the directory itself
	}
	rmid, err := r.allocRMID()
	if err != nil {
		return err
	}
	g := &resctrlGroup{name: name, ctrl: ctrl, closid: ctrl.closid, rmid: rmid, dir: r.k.addDir(in, name)}
	ctrl.mon = append(ctrl.mon, g)
	r.startCounting(g)
	r.addGroupFiles(g)
	return nil
}

// startCounting lets a group's counters begin at zero.
func (r *resctrlFS) startCounting(g *resctrlGroup) {
	g.base = make([][2]float64, r.cfg.Caches())
	for d := range g.base {
		g.base[d] = r.traffic(g.rmid, d)
		delete(r.control.last, mbaKey{g.rmid, d})
	}
}

// removeCtrl removes a control group with its monitoring groups: tasks and CPUs fall to the
// root group.
func (r *resctrlFS) removeCtrl(g *resctrlGroup) {
	r.moveAll(func(id resctrlIDs) bool { return id.closid == g.closid }, resctrlIDs{})
	for i := range g.cpus {
		r.root.cpus[i] |= g.cpus[i]
	}
	r.freeRMID(g.rmid)
	for _, m := range g.mon {
		r.freeRMID(m.rmid)
	}
	r.groups = slices.DeleteFunc(r.groups, func(o *resctrlGroup) bool { return o == g })
	r.k.remove(g.dir)
}

// removeMon removes a monitoring group: its tasks fall to its control group.
func (r *resctrlFS) removeMon(g *resctrlGroup) {
	r.moveAll(func(id resctrlIDs) bool { return id.rmid == g.rmid }, resctrlIDs{g.ctrl.closid, g.ctrl.rmid})
	r.freeRMID(g.rmid)
	g.ctrl.mon = slices.DeleteFunc(g.ctrl.mon, func(o *resctrlGroup) bool { return o == g })
	r.k.remove(g.dir)
}

// moveAll gives the threads for which which says so other numbers.
func (r *resctrlFS) moveAll(which func(resctrlIDs) bool, to resctrlIDs) {
	r.k.eachProcess(func(p *process) {
		moved := false
		for tid := range p.tids() {
			if which(r.ids[tid]) {
				r.ids[tid] = to
				moved = true
			}
		}
		if moved {
			r.follow(p)
		}
	})
}

// groupAt finds the group whose directory a node is.
func (r *resctrlFS) groupAt(n *node) *resctrlGroup {
	var found *resctrlGroup
	if r.mounted {
		r.eachGroup(func(g *resctrlGroup) {
			if g.dir == n {
				found = g
			}
		})
	}
	return found
}

// rename is rename(2) of a monitoring group into another control group's mon_groups, which the
// kernel can since 6.4. The group keeps its directory, its RMID and its counts.
func (r *resctrlFS) rename(from, in *node, name string) error {
	r.sync()
	r.clearStatus()
	g := r.groupAt(from)
	to := r.groupAt(in.parent)
	refuse := func(text string) error {
		r.say(text)
		return unix.EPERM
	}
	switch {
	case from.children == nil || in.children == nil:
		return refuse("Source and destination must be directories")
	case g == nil || !g.isMon():
		return refuse("Source must be a MON group\n")
	case to == nil || in.name != monGroupsName || name == monGroupsName:
		return refuse("Destination must be a mon_groups subdirectory\n")
	case g.cpus != model.CPUSet{} && to != g.ctrl:
		return refuse("Cannot move a MON group that monitors CPUs\n")
	case in.children[name] == from:
		return nil
	case in.children[name] != nil:
		return unix.EEXIST
	}
	delete(from.parent.children, from.name)
	from.parent.subdirs--
	from.name, from.parent = name, in
	in.children[name] = from
	in.subdirs++
	g.ctrl.mon = slices.DeleteFunc(g.ctrl.mon, func(o *resctrlGroup) bool { return o == g })
	to.mon = append(to.mon, g)
	g.name, g.ctrl, g.closid = name, to, to.closid
	r.moveAll(func(id resctrlIDs) bool { return id.rmid == g.rmid }, resctrlIDs{to.closid, g.rmid})
	return nil
}

// groupsOf renders /proc/TID/cpu_resctrl_groups. A thread whose numbers are no group's (any more)
// cannot be read.
func (r *resctrlFS) groupsOf(tid int32, buf []byte) ([]byte, error) {
	if !r.mounted {
		return append(buf, "res:\nmon:\n"...), nil
	}
	id := r.ids[tid]
	g := r.byCLOSID(id.closid)
	if g == nil {
		return buf, unix.ENOENT
	}
	buf = append(buf, "res:"...)
	if g == r.root {
		buf = append(buf, '/')
	}
	buf = append(buf, g.name...)
	buf = append(buf, "\nmon:"...)
	for _, m := range g.mon {
		if m.rmid == id.rmid {
			buf = append(buf, m.name...)
		}
	}
	return append(buf, '\n'), nil
}
