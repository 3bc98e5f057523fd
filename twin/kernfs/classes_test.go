package kernfs_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/linux"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/twin/kernfs"
)

// classed is a node with classes of service, whose work beside the loop is done when the test lets it.
type classed struct {
	*watched
	t    *testing.T
	fs   *forgetful
	j    *journal.Journal
	work []func()
	seq  uint64
	snap model.Snapshot
	// counts: the tasks are counted, those of the job web with a target.
	counts bool
}

// forgetful is a kernel that lists no threads after a group was removed, if it is to.
type forgetful struct {
	*kernfs.Kernel
	fails, removed bool
	old            bool // it moves no monitoring groups, as before Linux 6.4

	// What others do just before a group is made, and before schemata are written; an error is the kernel's answer.
	beforeMkdir, beforeWrite func() error
	beforeRead               func(path string) error // the same of any file that is read
	beforeMove               func(thread string)     // before a thread is moved
}

func (f *forgetful) ReadFile(path string, buf []byte) ([]byte, error) {
	if f.beforeRead != nil {
		if err := f.beforeRead(path); err != nil {
			return buf[:0], &fs.PathError{Op: "read", Path: path, Err: err}
		}
	}
	return f.Kernel.ReadFile(path, buf)
}

func (f *forgetful) Mkdir(path string, mode uint32) error {
	if f.beforeMkdir != nil {
		if err := f.beforeMkdir(); err != nil {
			return err
		}
	}
	return f.Kernel.Mkdir(path, mode)
}

func (f *forgetful) WriteFile(path string, data []byte) error {
	if f.beforeMove != nil && strings.HasSuffix(path, "/tasks") {
		f.beforeMove(strings.TrimSpace(string(data)))
	}
	if f.beforeWrite != nil && strings.HasSuffix(path, "/schemata") {
		if err := f.beforeWrite(); err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}
	return f.Kernel.WriteFile(path, data)
}

func (f *forgetful) Rename(from, to string) error {
	if f.old {
		return &fs.PathError{Op: "rename", Path: from, Err: unix.EPERM}
	}
	return f.Kernel.Rename(from, to)
}

func (f *forgetful) Rmdir(path string) error {
	f.removed = true
	return f.Kernel.Rmdir(path)
}

func (f *forgetful) ReadDir(path string) ([]hostfs.DirEntry, error) {
	if f.fails && f.removed && strings.HasPrefix(path, "/proc/") {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: unix.ENOMEM}
	}
	return f.Kernel.ReadDir(path)
}

func openClassed(t *testing.T) *classed { return openCounted(t, false) }

func openCounted(t *testing.T, counts bool) *classed {
	t.Helper()
	c := bedOf(t, kernfs.ResctrlOptions{CLOSIDs: 8, RMIDs: 64}, resctrl.MountOptions{})
	c.counts = counts
	c.open()
	return c
}

// openClassedOn is such a node on another machine, with resctrl mounted otherwise.
func openClassedOn(t *testing.T, o kernfs.ResctrlOptions, mount resctrl.MountOptions) *classed {
	t.Helper()
	c := bedOf(t, o, mount)
	c.open()
	return c
}

// bedOf is the node before an agent starts.
func bedOf(t *testing.T, o kernfs.ResctrlOptions, mount resctrl.MountOptions) *classed {
	t.Helper()
	b := newResctrlBedOf(t, 1, o)
	must(t, b.k.MountResctrl(mount))
	c := &classed{t: t, fs: &forgetful{Kernel: b.k}, watched: &watched{k: b.k, d: driver(t, b.k), journal: filepath.Join(t.TempDir(), "journal"), nums: map[string]model.TaskNum{}}}
	started(t, c.k, "/c-stream", antagonist())
	started(t, c.k, "/b-registers", bystander())
	started(t, c.k, "/a-web-0", service())
	return c
}

// open is what an agent does when it starts.
func (c *classed) open() {
	c.t.Helper()
	boot, err := procstat.ReadBootID(c.k)
	must(c.t, err)
	c.j, _, err = linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Open()
	must(c.t, err)
	rules, err := match.Compile([]match.Rule{
		{Glob: "/a-*", Job: "web", Class: model.LC}, {Glob: "/b-*", Job: "b", Class: model.BE}, {Glob: "/c-*", Job: "c", Class: model.BE},
	})
	must(c.t, err)
	c.work = nil
	c.h, err = linux.Open(linux.Options{
		FS: c.fs, Rules: rules, Journal: c.j, DiscoverEvery: 10e9, Clock: c.k, Delay: c.k.Taskstats(), Classes: true, Memory: true, Monitor: c.counts, Targets: []string{"web"}, Latency: c.k.MemoryLatency, Log: slog.New(slog.DiscardHandler),
		Beside: func(work func()) { c.work = append(c.work, work) },
	})
	must(c.t, err)
	c.rest()
	c.look()
	c.rest()
}

// look takes a reading.
func (c *classed) look() {
	c.t.Helper()
	must(c.t, c.h.Observe(0, &c.snap))
	for _, task := range c.snap.Added {
		c.nums[task.Path] = task.Num
	}
}

// rest lets what was begun beside the loop end.
func (c *classed) rest() {
	for len(c.work) > 0 {
		work := c.work[0]
		c.work = c.work[1:]
		work()
	}
}

func (c *classed) change(kind model.ChangeKind, target model.Target, v model.Setting) model.Change {
	c.seq++
	return model.Change{Seq: c.seq, Target: target, Kind: kind, Value: v}
}

func (c *classed) task(path string) model.Target { return model.OfTask(c.nums[path]) }

// do applies changes, and lets them be done.
func (c *classed) do(changes ...model.Change) []model.Result {
	c.h.Apply(changes)
	var all []model.Result
	for range 3 {
		all = c.h.Results(all)
		c.rest()
	}
	return c.h.Results(all)
}

// all expects one result for each change, of a kind.
func (c *classed) all(kind model.ResultKind, results []model.Result, n int) {
	c.t.Helper()
	if len(results) != n || slices.ContainsFunc(results, func(r model.Result) bool { return r.Kind != kind }) {
		c.t.Fatalf("%+v; want %d that are %s", results, n, kind)
	}
}

// groups are the names of the control groups that there are, without the root group.
func (c *classed) groups() (names []string) {
	c.t.Helper()
	for _, g := range c.listed() {
		if !g.Name.IsRoot() {
			names = append(names, g.Name.Ctrl)
		}
	}
	return names
}

func (c *classed) listed() []resctrl.Group {
	c.t.Helper()
	groups, err := c.resctrl().Groups(resctrl.ListOptions{Tasks: true})
	must(c.t, err)
	return groups
}

func (c *classed) resctrl() *resctrl.Driver {
	c.t.Helper()
	at, err := resctrl.Discover(c.k)
	must(c.t, err)
	o := resctrl.DefaultOptions()
	o.Clock = c.k
	d, err := resctrl.Open(c.k, at, o)
	must(c.t, err)
	return d
}

func ofClass(domain int32) model.Target {
	return model.Target{Scope: model.ScopeCLOS, Num: model.ClassBE, Domain: domain}
}

var inBE = model.InClass(model.ClassBE)

// Tasks are put into a class that has two ways; the group is there as long as something needs it, and nothing of
// it waits for the loop.
func TestClassesOfService(t *testing.T) {
	c := openClassed(t)
	have := c.snap.Topology.Classes
	if have == nil || !slices.Equal(have.Caches, []int32{0, 1}) || have.Ways != 11 || have.LeastLevel != 10 || have.MostLevel != 100 {
		t.Fatalf("the machine has %+v", have)
	}
	if d := have.Domains; len(d) != 2 || d[0].CPUs.Empty() || !d[0].CPUs.And(d[1].CPUs).Empty() || have.LevelStep != 10 || have.LevelUnit != model.LevelPercent {
		t.Errorf("the machine has %+v", have)
	}
	both := []model.Change{
		c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Set, c.task("/b-registers"), inBE),
		c.change(model.Hold, ofClass(0), model.Ways(2)), c.change(model.Hold, ofClass(0), model.Level(20)),
	}
	c.h.Apply(both)
	if got := c.h.Results(nil); len(got) > 0 || len(c.groups()) > 0 {
		t.Fatalf("before it was done: %+v, groups %v", got, c.groups())
	}
	got := c.do()
	c.all(model.Applied, got, 4)
	if got[0].Now != inBE || got[2].Found != model.Ways(11) && got[2].Found != model.Ways(9) || got[2].Now != model.Ways(2) || got[3].Now != model.Level(20) {
		t.Errorf("%+v", got)
	}
	g := c.listed()[1]
	if mask, _ := g.Schemata.Get(resctrl.L3, 0); mask != 3 || g.Tasks < 2 || !strings.HasPrefix(g.Name.Ctrl, "commensal-be-") {
		t.Errorf("%+v", g)
	}
	// Who comes into a task from outside follows it at the next look.
	pid, err := c.k.Spawn(bystander())
	must(t, err)
	must(t, c.k.WriteFile("/sys/fs/cgroup/c-stream/cgroup.procs", []byte(strconv.Itoa(pid)+"\n")))
	c.k.Advance(11e9)
	c.look()
	c.do()
	if at, err := c.resctrl().GroupOf(int32(pid)); err != nil || at != g.Name {
		t.Errorf("a newcomer is in %s, %v", at, err)
	}
	// One leaves, the other stays.
	c.all(model.Applied, c.do(c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass))), 1)
	if left := c.listed()[1].Tasks; left == 0 || left >= g.Tasks {
		t.Errorf("%d of %d threads stay", left, g.Tasks)
	}
	c.all(model.Applied, c.do(c.change(model.Release, ofClass(0), model.Ask(model.MemoryBandwidth))), 1)
	if v, _ := c.listed()[1].Schemata.Get(resctrl.MB, 0); v != 100 {
		t.Errorf("bandwidth is left at %d", v)
	}
	c.all(model.Applied, c.do(
		c.change(model.Release, c.task("/b-registers"), model.Ask(model.ServiceClass)), c.change(model.Release, ofClass(0), model.Ask(model.CacheWays))), 2)
	if left := c.groups(); len(left) > 0 || len(c.j.Outstanding()) > 0 {
		t.Errorf("left: %v, journal %+v", left, c.j.Outstanding())
	}
}

// A task has a class for itself: another one's, or the one of many, has nothing of its level; and it goes from one
// into the other and back.
func TestClassOfOneTask(t *testing.T) {
	c := openClassed(t)
	if have := c.snap.Topology.Classes; have.IDs != 8 || have.Taken != 1 || have.Alone() != 5 {
		t.Fatalf("the machine has %+v", have)
	}
	stream, registers := c.nums["/c-stream"], c.nums["/b-registers"]
	own := model.ClassOf(stream)
	alone := func(domain int32) model.Target { return model.OfClass(own, domain) }
	c.all(model.Applied, c.do(
		c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Set, c.task("/b-registers"), inBE), c.change(model.Hold, ofClass(0), model.Ways(4))), 3)
	got := c.do(c.change(model.Set, c.task("/c-stream"), model.InClass(own)), c.change(model.Hold, alone(0), model.Level(10)), c.change(model.Hold, alone(1), model.Level(10)))
	c.all(model.Applied, got, 3)
	if got[0].Found != model.InClass(model.ClassFound) || got[0].Now != model.InClass(own) || got[1].Found != model.Level(100) || got[1].Now != model.Level(10) {
		t.Errorf("%+v", got)
	}
	in := func(path string) string {
		t.Helper()
		g, err := c.d.OpenAlone(path)
		must(t, err)
		pids, err := g.Procs(nil)
		must(t, errors.Join(err, g.Close()))
		at, err := c.resctrl().GroupOf(pids[0])
		must(t, err)
		return at.Ctrl
	}
	if a, b := in("/c-stream"), in("/b-registers"); !strings.HasPrefix(a, "commensal-task"+strconv.Itoa(int(stream))+"-") || !strings.HasPrefix(b, "commensal-be-") {
		t.Errorf("in %q and %q", a, b)
	}
	for _, g := range c.listed() {
		level, _ := g.Schemata.Get(resctrl.MB, 1)
		if want := map[bool]uint64{true: 10, false: 100}[strings.HasPrefix(g.Name.Ctrl, "commensal-task")]; level != want {
			t.Errorf("%s has level %d", g.Name, level)
		}
	}
	if n := len(c.j.Outstanding()); n != 2 {
		t.Errorf("the journal has %+v", c.j.Outstanding())
	}
	// Somebody else makes a group: it is told at the next look.
	must(t, c.k.Mkdir("/sys/fs/resctrl/COS1", 0o755))
	c.k.Advance(11e9)
	c.look()
	c.do()
	c.look()
	if have := c.snap.Topology; have == nil || have.Classes.Taken != 2 || have.Classes.Alone() != 4 {
		t.Errorf("told %+v", have)
	}
	if told := c.h.Knobs(nil); len(told) > 0 {
		t.Errorf("told %+v", told)
	}
	// Back to the class of many, and the group of its own is gone.
	c.all(model.Applied, c.do(
		c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Release, alone(0), model.Ask(model.MemoryBandwidth)),
		c.change(model.Release, alone(1), model.Ask(model.MemoryBandwidth))), 3)
	if a := in("/c-stream"); !strings.HasPrefix(a, "commensal-be-") || len(c.groups()) != 2 || len(c.j.Outstanding()) != 1 {
		t.Errorf("in %q; groups %v, journal %+v", a, c.groups(), c.j.Outstanding())
	}
	// The last one of a class goes: so does the class, but for what it has.
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/b-registers"), model.InClass(model.ClassOf(registers))), c.change(model.Release, ofClass(0), model.Ask(model.CacheWays)),
		c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass))), 3)
	if a, b := in("/c-stream"), in("/b-registers"); a != "" || !strings.HasPrefix(b, "commensal-task") || len(c.groups()) != 2 {
		t.Errorf("in %q and %q; groups %v", a, b, c.groups())
	}
}

// The group of one task is removed after a crash, also by an agent that numbers its tasks otherwise and has not
// removed it before.
func TestClassOfOneTaskAfterACrash(t *testing.T) {
	for _, restored := range []bool{true, false} {
		c := openClassed(t)
		c.all(model.Applied, c.do(
			c.change(model.Set, c.task("/c-stream"), model.InClass(model.ClassOf(c.nums["/c-stream"]))),
			c.change(model.Hold, model.OfClass(model.ClassOf(c.nums["/c-stream"]), 0), model.Level(10)), c.change(model.Set, c.task("/b-registers"), inBE)), 3)
		must(t, errors.Join(c.h.Close(), c.j.Close()))
		if restored {
			boot, err := procstat.ReadBootID(c.k)
			must(t, err)
			rep, err := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}.Run()
			if err != nil || !rep.Complete() || len(rep.Items) != 2 {
				t.Errorf("%+v, %v", rep, err)
			}
		}
		c.open()
		for range 2 {
			c.k.Advance(11e9)
			c.look()
			c.do()
		}
		if left := c.groups(); len(left) > 0 || len(c.j.Outstanding()) > 0 {
			t.Errorf("restored %v; left: %v, journal %+v", restored, left, c.j.Outstanding())
		}
	}
}

// Whatever ends the agent, in the midst of a batch or between two, whoever comes next removes its group, and no
// other.
func TestClassesAfterACrash(t *testing.T) {
	for name, crash := range map[string]func(c *classed){
		"before it is made": func(c *classed) { c.work = nil },
		"made, and not told": func(c *classed) {
			c.work[0]()
			c.work = nil
		},
		"told": func(c *classed) { c.do() },
		"removed, and not told": func(c *classed) {
			c.do()
			c.h.Apply([]model.Change{
				c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass)), c.change(model.Release, ofClass(0), model.Ask(model.CacheWays)),
			})
			c.work[0]()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := openClassed(t)
			d := c.resctrl()
			other, err := d.CreateGroup("be-12345678", 0) // of another agent
			must(t, err)
			c.h.Apply([]model.Change{c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))})
			crash(c)
			boot, err := procstat.ReadBootID(c.k)
			must(t, err)
			r := linux.Restoring{FS: c.k, Journal: c.journal, Boot: boot, Clock: c.k}
			rep, err := r.Run()
			if err != nil || !rep.Complete() || len(rep.Items) != 1 {
				t.Errorf("%+v, %v", rep, err)
			}
			if left := c.groups(); !slices.Equal(left, []string{other.Name.Ctrl}) {
				t.Errorf("left: %v", left)
			}
			if rep, err = r.Run(); err != nil || len(rep.Items) > 0 {
				t.Errorf("a second time: %+v, %v", rep, err)
			}
		})
	}
}

// A group that is removed is gone, whatever cannot be looked at afterwards: nobody else took it away.
func TestClassesRemovedWithTrouble(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1)
	c.fs.fails = true
	c.all(model.Applied, c.do(c.change(model.Release, c.task("/c-stream"), model.Ask(model.ServiceClass))), 1)
	c.k.Advance(11e9)
	c.look()
	c.do()
	if told := c.h.Knobs(nil); len(told) > 0 || len(c.groups()) > 0 || len(c.j.Outstanding()) > 0 {
		t.Errorf("told %+v; groups %v; journal %+v", told, c.groups(), c.j.Outstanding())
	}
}

// What a cache forgets whose CPUs were all offline is written again; that is no stranger's doing. What a stranger
// writes as soon as it is back is.
func TestClassesOfACacheThatWasGone(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(1), model.Ways(2)), c.change(model.Hold, ofClass(1), model.Level(20))), 3)
	plug := func(online bool) {
		t.Helper()
		for cpu := 2; cpu < 4; cpu++ { // of the second socket
			must(t, c.k.SetOnline(cpu, online))
		}
	}
	look := func() []model.KnobReading {
		t.Helper()
		c.k.Advance(11e9)
		c.look()
		c.do()
		return c.h.Knobs(nil)
	}
	plug(false)
	if told := look(); len(told) > 0 {
		t.Errorf("while it is gone: %+v", told)
	}
	plug(true)
	told := look()
	mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 1)
	level, _ := c.listed()[1].Schemata.Get(resctrl.MB, 1)
	if len(told) > 0 || mask != 3 || level != 20 {
		t.Errorf("when it is back: mask %#x, level %d, told %+v", mask, level, told)
	}
	plug(false)
	look()
	plug(true)
	must(t, c.k.WriteFile("/sys/fs/resctrl/"+c.groups()[0]+"/schemata", []byte("L3:1=70\n")))
	if told = look(); len(told) != 1 || told[0].Target != ofClass(1) || told[0].Value != model.Ways(3) {
		t.Errorf("somebody wrote when it was back: %+v", told)
	}
}

// The same where nobody looked while it was gone (26113770003030). A part of its CPUs takes nothing along; and who writes what the kernel makes of a new one,
// while none is new, is a stranger.
func TestClassesOfACacheThatWasGoneBetweenLooks(t *testing.T) {
	for name, tt := range map[string]struct {
		gone []int
		wide bool // somebody writes all ways
		told int
	}{"all of its CPUs": {[]int{2, 3}, false, 0}, "one of them": {[]int{3}, false, 0}, "one, and a stranger": {[]int{3}, true, 1}, "another's, and a stranger": {[]int{1}, true, 1}} {
		c := openClassed(t)
		c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(1), model.Ways(2))), 2)
		for _, online := range []bool{false, true} {
			for _, cpu := range tt.gone {
				must(t, c.k.SetOnline(cpu, online))
			}
		}
		if tt.wide {
			must(t, c.k.WriteFile("/sys/fs/resctrl/"+c.groups()[0]+"/schemata", []byte("L3:1=7ff\n")))
		}
		c.k.Advance(11e9)
		c.look()
		c.do()
		told := c.h.Knobs(nil)
		if mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 1); len(told) != tt.told || (mask == 3) == tt.wide {
			t.Errorf("%s: mask %#x, told %+v", name, mask, told)
		}
	}
}

// A level that the kernel rounds is no stranger's (26112640000371).
func TestRoundedLevel(t *testing.T) {
	c := openClassed(t)
	got := c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(1), model.Level(91)))
	c.all(model.Applied, got, 2)
	c.k.Advance(11e9)
	c.look()
	c.do()
	if told := c.h.Knobs(nil); len(told) > 0 || got[1].Now != model.Level(100) {
		t.Errorf("told %+v; %+v", told, got[1])
	}
}

// What strangers do is told once, and what is theirs is left.
func TestClassesAndStrangers(t *testing.T) {
	c := openClassed(t)
	c.all(model.Applied, c.do(
		c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Set, c.task("/b-registers"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2))), 3)
	g := c.listed()[1]
	must(t, c.k.WriteFile("/sys/fs/resctrl/"+g.Name.Ctrl+"/schemata", []byte("L3:0=c\n")))
	c.k.Advance(11e9)
	c.look()
	c.do()
	told := c.h.Knobs(nil)
	if len(told) != 1 || told[0].Target != ofClass(0) || told[0].Outcome != model.OK || told[0].Value != model.Ways(-2) {
		t.Fatalf("%+v", told)
	}
	c.do(c.change(model.Disown, ofClass(0), model.Ask(model.CacheWays)))
	if mask, _ := c.listed()[1].Schemata.Get(resctrl.L3, 0); mask != 0xc {
		t.Errorf("his mask is now %#x", mask)
	}
	// He removes the group: both tasks are where they were found.
	_, err := c.resctrl().Remove(g.Identity, true)
	must(t, err)
	c.k.Advance(11e9)
	c.look()
	c.do()
	if told = c.h.Knobs(nil); len(told) != 2 || told[0].Value != model.InClass(model.ClassFound) || told[1].Value != told[0].Value {
		t.Errorf("%+v", told)
	}
	c.do(c.change(model.Disown, c.task("/c-stream"), model.Ask(model.ServiceClass)), c.change(model.Disown, c.task("/b-registers"), model.Ask(model.ServiceClass)))
	if len(c.j.Outstanding()) > 0 {
		t.Errorf("the journal has %+v", c.j.Outstanding())
	}
	// A task that another program put into a group of its own stays there.
	must(t, c.k.Mkdir("/sys/fs/resctrl/COS1", 0o755))
	pids, err := c.d.OpenAlone("/c-stream")
	must(t, err)
	ids, err := pids.Procs(nil)
	must(t, errors.Join(err, pids.Close()))
	for _, pid := range ids {
		tids, err := c.k.ReadDir("/proc/" + strconv.Itoa(int(pid)) + "/task")
		must(t, err)
		for _, tid := range tids {
			must(t, c.k.WriteFile("/sys/fs/resctrl/COS1/tasks", []byte(tid.Name+"\n")))
		}
	}
	got := c.do(c.change(model.Set, c.task("/c-stream"), inBE))
	c.all(model.Refused, got, 1)
	if !strings.Contains(got[0].Error, "other programs") || !slices.Equal(c.groups(), []string{"COS1"}) {
		t.Errorf("%q; groups %v", got[0].Error, c.groups())
	}
}

// A task that was made anew before the next look is in no class any more: who asks for it again hears that it is gone, and the group goes with
// what else was in it.
func TestClassOfATaskMadeAnew(t *testing.T) {
	c := openClassed(t)
	put := func() []model.Result { return c.do(c.change(model.Set, c.task("/c-stream"), inBE)) }
	c.all(model.Applied, put(), 1)
	must(t, c.k.Stop("/c-stream"))
	started(t, c.k, "/c-stream", antagonist())
	c.all(model.Vanished, put(), 1)
	if left := c.groups(); len(left) > 0 {
		t.Errorf("%v stay", left)
	}
}

// Without CLOSIDs, without resctrl, and with a lock that is never given back: refused in words, and nothing waits.
func TestClassesRefused(t *testing.T) {
	c := openClassed(t)
	for i := range 6 {
		must(t, c.k.Mkdir("/sys/fs/resctrl/COS"+strconv.Itoa(i+1), 0o755))
	}
	got := c.do(c.change(model.Set, c.task("/c-stream"), inBE), c.change(model.Hold, ofClass(0), model.Ways(2)))
	c.all(model.Refused, got, 2)
	if !strings.Contains(got[0].Error, "none left") || len(c.j.Outstanding()) > 0 {
		t.Errorf("%q; journal %+v", got[0].Error, c.j.Outstanding())
	}
	c.k.Rmdir("/sys/fs/resctrl/COS1") //nolint:errcheck // looked at below
	c.k.Rmdir("/sys/fs/resctrl/COS2") //nolint:errcheck // the same
	c.all(model.Applied, c.do(c.change(model.Set, c.task("/c-stream"), inBE)), 1)
	must(t, c.k.UnmountResctrl())
	c.k.Advance(11e9)
	c.look()
	c.do()
	if told := c.h.Knobs(nil); len(told) != 1 {
		t.Errorf("unmounted: %+v", told)
	}
	rep, err := c.h.Restore()
	if err != nil || !rep.Complete() {
		t.Errorf("%+v, %v", rep, err)
	}
}
