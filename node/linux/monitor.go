package linux

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
)

// What each task has of the last-level caches and moves to and from memory (model.DomainSample), from a monitoring group of
// resctrl for each. A group takes a number (an RMID), of which a machine has some hundred or some thirty, and other tools
// want some, too: what may be made is counted before, and tasks stand in line (see chooseCounted).
//
// A monitoring group changes nothing for its threads but what they are counted under. It lies in a control group: in that of
// the task's class, or in the root group. A task that changes its class takes its group along, with its number and what was
// counted, where the kernel can (Linux 6.4); elsewhere the group is made anew in the new class and what it counts has a
// new beginning. Threads in groups of others stay there, and their task is not counted.
//
// The journal has one intent for all groups: their names say whose they are.

// everyThreadLooks is how often processes are looked for threads that somebody moved elsewhere, in looks: who only starts threads
// and processes leaves them where he is.
const everyThreadLooks = 12

// counted is the worker's side.
type counted struct {
	groups map[string]*monGroup // by the task's path
	left   bool                 // an earlier agent's may be there yet
	looks  int
	lacks  map[model.TaskNum]string // why a task is not counted
}

// monGroup is one task's monitoring group.
type monGroup struct {
	id        resctrl.Identity
	task      model.Task
	sinceNsec int64
	procs     []int32 // the task's, when its threads were last all looked at
	settled   bool    // and all were there
	lost      bool    // its threads are elsewhere: it is to be made anew
	foreign   int     // threads of the task in groups of others
}

// countWish is a task that may have a group.
type countWish struct {
	task model.Task
	rank countRank
	cpu  float64 // CPU-sec/sec
}

// countRank is who comes first.
type countRank uint8

// The ranks: services that keep a target, those that may do harm, and the rest.
const (
	rankTarget countRank = iota
	rankBE
	rankOther
)

// chooseCounted returns who has a group where there is room for so many: by rank, and then by the CPU time that they use. Who has one
// counts twice, so that two of about the same size do not take turns.
func chooseCounted(want []countWish, has func(path string) bool, room int) []countWish {
	weight := func(c *countWish) float64 {
		if has(c.task.Path) {
			return 2 * c.cpu
		}
		return c.cpu
	}
	slices.SortStableFunc(want, func(a, b countWish) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), -cmp.Compare(weight(&a), weight(&b)), cmp.Compare(a.task.Num, b.task.Num))
	})
	return want[:min(len(want), max(room, 0))]
}

// monitorPath is what the journal calls all groups of ours.
const monitorPath = classPath + "mon_groups"

// monitorLimit is what the journal has of them: that there are some, and were none before.
func monitorLimit(own string) journal.Limit {
	none := model.InClass(model.ClassFound)
	return journal.Limit{Path: monitorPath + own, Found: none, Before: none, Intended: model.InClass(model.ClassBE)}
}

// monitorsOf lists the groups of one journal.
func monitorsOf(d *resctrl.Driver, own string) ([]resctrl.Identity, error) {
	all, err := d.MonGroups()
	return slices.DeleteFunc(all, func(id resctrl.Identity) bool { return !strings.HasSuffix(id.Name.Mon, own) }), err
}

// removeMonitors removes the groups that a journal has, wherever they are.
func removeMonitors(d *resctrl.Driver, own string) (node.RestoreKind, error) {
	all, err := monitorsOf(d, own)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return node.LeftGone, nil
	}
	done, err := d.RemoveAll(all, true)
	for i := range done {
		// Once a group is gone, what failed afterwards was a look at threads that may have slipped through.
		if o := done[i].Outcome; o != resctrl.Removed && o != resctrl.WasGone {
			return "", cmp.Or(err, fmt.Errorf("%s was made anew meanwhile", done[i].Name))
		}
	}
	return node.Restored, nil
}

// count hands the tasks in that are to be counted.
func (c *classes) count(want []countWish) {
	c.queue = slices.DeleteFunc(c.queue, func(op classOp) bool { return op.count })
	c.queue = append(c.queue, classOp{count: true, want: want})
	c.wanted = len(want)
}

// takeDomains returns the last reading, once.
func (c *classes) takeDomains() (list []model.DomainSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, c.domains = c.domains, nil
	return list
}

// uncounted says why a task is not counted; "": it is, or nobody knows yet.
func (c *classes) uncounted(task model.TaskNum) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[task]
}

// wishes are the tasks that may be counted, with the CPU time that they used since they were last asked for.
func (h *Host) wishes(nowNsec int64) []countWish {
	want := make([]countWish, 0, len(h.tasks))
	for _, w := range h.tasks {
		if w.gone {
			continue
		}
		c := countWish{task: w.task, rank: rankOther}
		switch {
		case w.task.Class == model.BE:
			c.rank = rankBE
		case slices.Contains(h.opt.Targets, w.task.Job):
			c.rank = rankTarget
		}
		if d, oc := model.Delta(w.usedBefore, w.used); oc == model.OK && nowNsec > w.usedNsec {
			c.cpu = float64(d) / float64(nowNsec-w.usedNsec)
		}
		w.usedBefore, w.usedNsec = w.used, nowNsec
		want = append(want, c)
	}
	return want
}

// count has a group for each task that may have one, and for no other.
func (w *classWorker) count(want []countWish) {
	k := &w.counted
	k.looks++
	k.lacks = map[model.TaskNum]string{}
	d, err := w.driver()
	if err != nil || w.info.Monitoring == nil {
		return // doctor says so
	}
	if k.left {
		_, err := removeMonitors(d, w.own)
		if k.left = err != nil; k.left {
			w.forgetGone(err)
			return
		}
	}
	room, why, err := w.countRoom(d)
	if err != nil {
		w.forgetGone(err)
		return
	}
	chosen := chooseCounted(want, func(path string) bool { return k.groups[path] != nil }, room)
	for i := len(chosen); i < len(want); i++ {
		k.lacks[want[i].task.Num] = why
	}
	keep := map[model.TaskNum]bool{}
	for i := range chosen {
		keep[chosen[i].task.Num] = true
	}
	var drop []*monGroup
	for _, path := range slices.Sorted(maps.Keys(k.groups)) {
		g := k.groups[path]
		g.lost = g.lost || g.id.Name.Ctrl != w.controlOf(path).Ctrl
		if g.lost || !keep[g.task.Num] {
			drop = append(drop, g)
		}
	}
	w.uncount(d, drop)
	for i := range chosen {
		if err := w.countTask(d, &chosen[i].task); err != nil {
			w.forgetGone(err)
			k.lacks[chosen[i].task.Num] = err.Error()
		}
	}
}

// countRoom is for how many groups there is room in all: what is free, less what others and classes of service may yet need.
func (w *classWorker) countRoom(d *resctrl.Driver) (room int, why string, err error) {
	b, err := d.Budget()
	if err != nil {
		return 0, "", err
	}
	why = fmt.Sprintf("no RMID is left: %s, of which %d are kept for others and those of %d classes of service", b.RMIDs, resctrl.DefaultReserveRMIDs, max(0, b.CLOSIDs.Free()-resctrl.DefaultReserveCLOSIDs))
	return len(w.counted.groups) + b.Bound.MonBeside, why, nil
}

// controlOf is the control group that a task is in, of ours or the root group.
func (w *classWorker) controlOf(path string) resctrl.Name {
	for _, g := range w.groups {
		if _, in := g.tasks[path]; in {
			return g.id.Name
		}
	}
	return resctrl.Name{}
}

// countTask has a group for a task, with all its threads in it. An error says why it is not counted.
func (w *classWorker) countTask(d *resctrl.Driver, t *model.Task) error {
	k := &w.counted
	group, err := openTask(w.cg.OpenAlone, t)
	if err != nil {
		return nil // gone: the loop hears of it
	}
	defer group.Close() //nolint:errcheck // reading is over
	procs, err := group.Procs(nil)
	if err != nil || len(procs) == 0 {
		return err // nobody is there to be counted
	}
	g := k.groups[t.Path]
	if g == nil {
		if g, err = w.newMonitor(d, t, procs[0]); err != nil {
			return err
		}
	}
	if !g.settled || k.looks%everyThreadLooks == 0 || !slices.Equal(procs, g.procs) {
		moved, err := d.MoveProcesses(g.id, group.Procs)
		if errors.Is(err, resctrl.ErrVanished) {
			delete(k.groups, t.Path)
			return err
		}
		g.procs, g.settled, g.foreign = procs, err == nil && moved.Moved == 0, moved.Foreign
		if g.sinceNsec == 0 {
			g.sinceNsec = w.meter.now()
		}
	}
	if g.foreign > 0 {
		return fmt.Errorf("%d of its threads are in groups that other programs made", g.foreign)
	}
	return nil
}

// newMonitor makes a task's group, unless a thread of it says that others have it.
func (w *classWorker) newMonitor(d *resctrl.Driver, t *model.Task, pid int32) (*monGroup, error) {
	control := w.controlOf(t.Path)
	at, err := d.GroupOf(pid)
	isOurs := func(part string) bool { return part == "" || strings.HasPrefix(part, resctrl.DefaultPrefix) }
	if err == nil && (!isOurs(at.Ctrl) || !isOurs(at.Mon)) {
		return nil, fmt.Errorf("it is in %s, a group that another program made", at)
	}
	name := fmt.Sprintf("t%d%s", t.Num, w.own)
	made, err := d.CreateMonGroup(control, name, 0)
	if errors.Is(err, fs.ErrExist) {
		w.counted.left = true // of an earlier agent whose journal was lost
	}
	if err != nil {
		return nil, err
	}
	g := &monGroup{id: made.Identity, task: *t}
	if w.counted.groups == nil {
		w.counted.groups = map[string]*monGroup{}
	}
	w.counted.groups[t.Path] = g
	return g, nil
}

// uncount removes groups. What they counted is no less counted by the groups that they are in.
func (w *classWorker) uncount(d *resctrl.Driver, list []*monGroup) {
	if len(list) == 0 {
		return
	}
	var ids []resctrl.Identity
	for _, g := range list {
		w.carry(d, g.id.Name, resctrl.Name{}, false)
		ids = append(ids, g.id)
	}
	done, err := d.RemoveAll(ids, true)
	w.forgetGone(err)
	for i, g := range list {
		if o := done[i].Outcome; o != resctrl.Refused && w.counted.groups[g.task.Path] == g {
			delete(w.counted.groups, g.task.Path)
		}
	}
}

// along takes a task's group along to another control group, before its threads go there. Where that cannot be, it is made
// anew at the next look.
func (w *classWorker) along(path string, to resctrl.Name) {
	g := w.counted.groups[path]
	if g == nil || g.lost || g.id.Name.Ctrl == to.Ctrl {
		return
	}
	d, err := w.driver()
	if err == nil {
		w.carry(d, g.id.Name, to, true)
		g.id, err = d.MoveMonGroup(g.id, to)
	}
	g.lost = err != nil
}

// homewards takes the groups along that are in a control group which is to be removed.
func (w *classWorker) homewards(of resctrl.Name) {
	for _, path := range slices.Sorted(maps.Keys(w.counted.groups)) {
		if g := w.counted.groups[path]; g.id.Name.Ctrl == of.Ctrl {
			w.along(path, resctrl.Name{})
		}
	}
}

// carry brings the meter of memory in line with a monitoring group that leaves its control group, whose counts it is part
// of: what they fall by nobody took back, and what those of the group that it goes to grow by nobody moved.
func (w *classWorker) carry(d *resctrl.Driver, mon, to resctrl.Name, goes bool) {
	if !w.meter.begun {
		return
	}
	counts, _, err := monitored(d, mon)
	if err != nil {
		return
	}
	w.meter.shift(d, mon.Parent(), counts, false)
	if goes {
		w.meter.shift(d, to, counts, true)
	}
}

// readDomains reads all groups.
func (w *classWorker) readDomains() (list []model.DomainSample) {
	d, err := w.driver()
	if err != nil {
		return nil
	}
	groups := slices.SortedFunc(maps.Values(w.counted.groups), func(a, b *monGroup) int { return cmp.Compare(a.task.Num, b.task.Num) })
	for _, g := range groups {
		if g.lost || g.foreign > 0 || g.sinceNsec == 0 {
			continue
		}
		was, err := w.meter.fresh[g.id.Name], error(nil) // by the meter, a moment ago
		if was.list == nil {
			was.list, was.id, err = monitored(d, g.id.Name)
		}
		counts, id := was.list, was.id
		if err == nil && id != g.id || errors.Is(err, resctrl.ErrVanished) {
			delete(w.counted.groups, g.task.Path) // a stranger's doing: it is made anew at the next look
			continue
		}
		if err != nil {
			w.forgetGone(err)
			continue
		}
		for i := range counts {
			m := &counts[i]
			s := model.DomainSample{Num: g.task.Num, Domain: int32(m.Domain), SinceNsec: g.sinceNsec, MonoNsec: w.meter.now()}
			s.C = [model.NumDomainCounters]model.Counter{
				model.CountOccupancy: domainCounter(m.Occupancy), model.CountMovedTotal: domainCounter(m.Total), model.CountMovedLocal: domainCounter(m.Local),
			}
			list = append(list, s)
		}
	}
	w.meter.fresh = nil
	slices.SortFunc(list, func(a, b model.DomainSample) int { return a.Compare(&b) })
	return list
}

// domainCounter is one value. The hardware may have none at present, which is no zero.
func domainCounter(c resctrl.Count) model.Counter {
	switch c.State {
	case resctrl.Counted:
		return model.Read(c.Bytes)
	case resctrl.Absent:
		return model.Counter{} // this machine does not count it
	}
	return model.Counter{Outcome: model.Absent}
}

// monitorsGone reports whether there is no resctrl any more in which groups could be.
func monitorsGone(fsys hostfs.FS, point string) bool {
	return isGone(fsys, point, resctrl.Identity{Name: resctrl.Name{Ctrl: "info"}})
}
