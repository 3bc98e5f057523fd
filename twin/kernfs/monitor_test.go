package kernfs_test

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/linux"
)

// window takes the readings of a window of one second and returns what it says of tasks and memory.
func (c *classed) window() *model.Observation {
	c.t.Helper()
	return c.observed(func() {})
}

// observed is a window in which something happens.
func (c *classed) observed(happens func()) *model.Observation {
	c.t.Helper()
	at := func() *model.Snapshot {
		var s model.Snapshot
		must(c.t, c.h.Observe(model.WindowStart|model.WindowEnd, &s))
		for _, task := range s.Added {
			c.nums[task.Path] = task.Num
		}
		c.h.Results(nil)
		c.rest()
		return &s
	}
	c.k.Advance(1e9)
	at()
	happens()
	c.k.Advance(1e9)
	before := at() // has what was read before that
	c.k.Advance(1e9)
	var o model.Observation
	model.Observe(before, at(), &o)
	return &o
}

// monitors are the monitoring groups that there are.
func (c *classed) monitors() (names []string) {
	c.t.Helper()
	for _, g := range c.listed() {
		if g.Name.IsMon() {
			names = append(names, g.Name.String())
		}
	}
	return names
}

// in is what a window says of a task in both domains together.
func (c *classed) in(o *model.Observation, path string) (occupancy, total model.Value) {
	c.t.Helper()
	list := o.In(c.nums[path])
	if len(list) != 2 {
		c.t.Fatalf("%s: %+v", path, list)
	}
	sum := func(a, b model.Value) model.Value {
		if a.Outcome != model.OK {
			return a
		}
		return model.Value{V: a.V + b.V, Outcome: b.Outcome}
	}
	return sum(list[0].Occupancy, list[1].Occupancy), sum(list[0].Total, list[1].Total)
}

// Each task has a group, whose counts are the machine's; who comes into a task from outside is counted, too; and all is given back at
// the end.
func TestTasksAreCounted(t *testing.T) {
	c := openCounted(t, true)
	c.window()
	o := c.window()
	if got := c.monitors(); len(got) != 3 || len(c.j.Outstanding()) != 1 {
		t.Fatalf("groups %v; journal %+v", got, c.j.Outstanding())
	}
	stream, streams := c.in(o, "/c-stream")
	registers, moves := c.in(o, "/b-registers")
	if stream.Outcome != model.OK || !(stream.V > 10*registers.V) || !(streams.V > 1e8) || !(moves.V < streams.V/10) {
		t.Errorf("%+v and %+v bytes of the caches, %+v and %+v bytes a second", stream, registers, streams, moves)
	}
	whole, all := 0.0, 0.0
	for _, m := range o.Memory {
		all += m.Total.V
	}
	for i := range o.Domains {
		whole += o.Domains[i].Total.V
	}
	if math.Abs(whole-all) > 0.01*all {
		t.Errorf("tasks move %g bytes a second, the machine's groups %g", whole, all)
	}
	pid, err := c.k.Spawn(antagonist())
	must(t, err)
	must(t, c.k.WriteFile("/sys/fs/cgroup/b-registers/cgroup.procs", []byte(strconv.Itoa(pid)+"\n")))
	c.k.Advance(11e9)
	c.window()
	if _, moves = c.in(c.window(), "/b-registers"); !(moves.V > 1e8) {
		t.Errorf("with a newcomer it moves %+v bytes a second", moves)
	}
	rep, err := c.h.Restore()
	if left := c.monitors(); err != nil || !rep.Complete() || len(left) > 0 || len(c.j.Outstanding()) > 0 {
		t.Errorf("left %v, journal %+v: %+v, %v", left, c.j.Outstanding(), rep, err)
	}
}

// A task that goes into a class takes its count along, and home again; where the kernel cannot do that what it counts begins anew. What
// the machine's memory moves is the same throughout.
func TestCountedThroughClasses(t *testing.T) {
	for _, old := range []bool{false, true} {
		c := openCounted(t, true)
		c.fs.old = old
		c.window()
		check := func(what, group string, o *model.Observation) {
			t.Helper()
			got := c.monitors()
			if i := slices.IndexFunc(got, func(n string) bool {
				return strings.Contains(n, "/commensal-t"+strconv.Itoa(int(c.nums["/c-stream"]))+"-")
			}); i < 0 || !strings.HasPrefix(got[i], group) {
				t.Errorf("old kernel %v, %s: groups %v", old, what, got)
			}
			sum := 0.0
			for _, m := range o.Memory {
				if m.Total.Outcome != model.OK || m.BE.Outcome == model.GoneBackwards {
					t.Errorf("old kernel %v, %s: %+v", old, what, m)
				}
				sum += m.Total.V
			}
			tasks := 0.0
			for i := range o.Domains {
				tasks += o.Domains[i].Total.V
			}
			if math.Abs(sum-tasks) > 0.01*sum {
				t.Errorf("old kernel %v, %s: %g bytes a second, of which tasks %g", old, what, sum, tasks)
			}
			if _, total := c.in(o, "/c-stream"); total.Outcome != model.OK {
				t.Errorf("old kernel %v, %s: %+v", old, what, total)
			}
		}
		settle := func() *model.Observation {
			if old { // at the next look
				c.k.Advance(11e9)
				c.window()
				c.window()
			}
			return c.window()
		}
		o := c.observed(func() { c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1) })
		if !old {
			check("goes", "/commensal-be-", o)
		} else if list := o.In(c.nums["/c-stream"]); len(list) > 0 {
			t.Errorf("an old kernel: while it is counted nowhere: %+v", list)
		}
		o = settle()
		check("is there", "/commensal-be-", o)
		o = c.window()
		if _, total := c.in(o, "/c-stream"); total.Outcome != model.OK || !(total.V > 1e8) {
			t.Errorf("old kernel %v: in its class %+v", old, total)
		}
		c.all(model.Applied, c.do(c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass))), 1)
		o = settle()
		check("is home", "/mon_groups/", o)
	}
}

// Where numbers are short those with a target come first, then BE by its CPU time; who goes without is told, and numbers that others
// take are given up.
func TestCountedInLine(t *testing.T) {
	c := openCounted(t, true)
	// 64 numbers: the root group's, 4 for others, 6 for classes of service: 53 are left, of which others take 51.
	for i := range 51 {
		must(t, c.k.Mkdir("/sys/fs/resctrl/mon_groups/his-"+strconv.Itoa(i), 0o755))
	}
	for range 2 {
		c.k.Advance(11e9)
		c.window()
	}
	names := func() (list []string) {
		for _, l := range c.h.Lacks(nil) {
			if l.What == linux.LackMonitor {
				list = append(list, l.Path)
			}
		}
		return list
	}
	less := "/b-registers"
	if used(t, c.k, c.d, "/c-stream") < used(t, c.k, c.d, less) {
		less = "/c-stream"
	}
	if got := names(); !slices.Equal(got, []string{less}) {
		t.Errorf("not counted: %v; groups %v", got, c.monitors())
	}
	must(t, c.k.Mkdir("/sys/fs/resctrl/mon_groups/his-51", 0o755))
	c.k.Advance(11e9)
	c.window()
	if got := names(); !slices.Equal(got, []string{"/b-registers", "/c-stream"}) && !slices.Equal(got, []string{"/c-stream", "/b-registers"}) {
		t.Errorf("not counted: %v", got)
	}
	ours := slices.DeleteFunc(c.monitors(), func(n string) bool { return !strings.Contains(n, "commensal-") })
	if len(ours) != 1 || len(c.monitors()) != 53 {
		t.Errorf("ours are %v of %d", ours, len(c.monitors()))
	}
}

// What the hardware has no value of is absent, and a task in somebody else's group stays there and is told.
func TestCountedNotAtAll(t *testing.T) {
	c := openCounted(t, true)
	c.window()
	at := slices.IndexFunc(c.listed(), func(g resctrl.Group) bool {
		return strings.Contains(g.Name.Mon, "-t"+strconv.Itoa(int(c.nums["/c-stream"]))+"-")
	})
	if at < 0 {
		t.Fatalf("groups %v", c.monitors())
	}
	for rmid := 1; rmid < 8; rmid++ {
		c.k.SetMonitorAnswer(rmid, "Unavailable")
	}
	if occupancy, total := c.in(c.window(), "/c-stream"); occupancy != model.Missing(model.Absent) || total != occupancy {
		t.Errorf("%+v, %+v", occupancy, total)
	}
	must(t, c.k.Mkdir("/sys/fs/resctrl/mon_groups/pqos-1-0", 0o755))
	g, err := c.d.OpenAlone("/c-stream")
	must(t, err)
	ids, err := g.Procs(nil)
	must(t, errors.Join(err, g.Close()))
	tids, err := c.k.ReadDir("/proc/" + strconv.Itoa(int(ids[0])) + "/task")
	must(t, err)
	for _, tid := range tids {
		must(t, c.k.WriteFile("/sys/fs/resctrl/mon_groups/pqos-1-0/tasks", []byte(tid.Name+"\n")))
	}
	for range 13 { // threads are looked at one by one now and then
		c.k.Advance(11e9)
		c.window()
	}
	lacks := c.h.Lacks(nil)
	if i := slices.IndexFunc(lacks, func(l linux.Lack) bool { return l.Path == "/c-stream" && l.What == linux.LackMonitor }); i < 0 || !strings.Contains(lacks[i].Why, "other programs") {
		t.Errorf("%+v", lacks)
	}
	if at, err := c.resctrl().GroupOf(ids[0]); err != nil || at.Mon != "pqos-1-0" {
		t.Errorf("his task is in %s, %v", at, err)
	}
	if list := c.window().In(c.nums["/c-stream"]); len(list) > 0 {
		t.Errorf("%+v", list)
	}
}

// Whoever comes after a crash removes the groups, and no other's: at any time.
func TestCountedAfterACrash(t *testing.T) {
	for name, crash := range map[string]func(c *classed){
		"begun":      func(c *classed) {},
		"made":       func(c *classed) { c.window() },
		"in a class": func(c *classed) { c.window(); c.do(c.change(model.Set, c.task("/c-stream"), inBE)) },
		"out of it": func(c *classed) {
			c.window()
			c.do(c.change(model.Set, c.task("/c-stream"), inBE))
			c.do(c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass)))
		},
		"unmounted": func(c *classed) {
			c.window()
			must(c.t, c.k.UnmountResctrl())
			must(c.t, c.k.MountResctrl(resctrl.MountOptions{}))
		},
		"journal kept": func(c *classed) { c.window() },
	} {
		t.Run(name, func(t *testing.T) {
			c := openCounted(t, true)
			crash(c)
			his := "/sys/fs/resctrl/mon_groups/commensal-t1-00000000" // of another agent
			must(t, c.k.Mkdir(his, 0o755))
			c.work = nil
			must(t, c.j.Close())
			boot, err := procstat.ReadBootID(c.k)
			must(t, err)
			if name != "journal kept" {
				rep, err := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Run()
				if err != nil || !rep.Complete() {
					t.Errorf("%+v, %v", rep, err)
				}
				if left := c.monitors(); len(left) != 1 || len(c.groups()) != 1 {
					t.Errorf("left: %v", left)
				}
			}
			c.counts = false
			c.open()
			c.k.Advance(11e9)
			c.window()
			if left := c.monitors(); len(left) != 1 || len(c.j.Outstanding()) > 0 {
				t.Errorf("left: %v, journal %+v", left, c.j.Outstanding())
			}
		})
	}
}
