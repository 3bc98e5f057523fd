package linux

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	cpuset "github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputopology"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/node/journal"
	"github.com/commensal-io/commensal/node/match"
)

// TestMain lets this binary play the tasks, too.
func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{
		"hold":   perftest.Hold,
		"forks":  forks,
		"grow":   grow,
		"lock":   lock,
		"thrash": thrash,
		"guest":  fakeGuest,
		"reads":  reads,
		"read":   readFile,
		"storm":  storm,
		"leaf": func(*testchild.Parent, []string) error {
			time.Sleep(5 * time.Millisecond)
			return nil
		},
	})
}

// forks starts one process after the other, a few at a time, until it is killed, and half a
// minute at most. They end with it.
func forks(*testchild.Parent, []string) error {
	runtime.LockOSThread()
	var alive []*exec.Cmd
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		c := testchild.Command("leaf")
		if c.Start() != nil {
			continue
		}
		if alive = append(alive, c); len(alive) == 4 {
			_ = alive[0].Wait() // it has nothing to say
			alive = alive[1:]
		}
	}
	return nil
}

// boot is what the tests' journals name; Restore is given the same.
const boot = "test-boot"

// bed is a folder of real cgroups with a Host that watches it: LC tasks /victim*,
// exclusive ones /own*, BE tasks /be-*.
type bed struct {
	waits   WaitSource // nil: none
	classes bool       // the Host has classes of service
	counted bool       // and counts what each task has of the caches
	inUse   bool       // the Host tells of memory in use
	ages    model.AskedAges
	io      bool // the Host tells of I/O
	homes   bool // and where pages of services lie
	t       testing.TB
	fs      hostfs.FS
	mounts  *cgroup.Mounts
	cg      cgroup.Driver
	root    string
	journal string
	logs    strings.Builder
	h       *Host
	snap    model.Snapshot
	tasks   map[string]model.Task // by path, those that are there
	removed []model.TaskNum
}

func newBed(t testing.TB, name string) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups are made and limited")
	}
	b := &bed{t: t, fs: hostfs.NewRoot("/"), tasks: map[string]model.Task{}, journal: filepath.Join(t.TempDir(), "journal")}
	var err error
	if b.mounts, err = cgroup.Discover(b.fs); err != nil {
		t.Fatal(err)
	}
	if b.cg, err = cgroup.Open(b.fs, b.mounts); err != nil {
		t.Skipf("this kernel has no cgroups that the node drives: %v", err)
	}
	b.root = "/commensal-test-" + strconv.Itoa(os.Getpid()) + "-" + name
	b.mkdir("")
	return b
}

// mkdir makes a group below the folder and returns its path. It is removed at the end;
// what runs in it is ended by then, because that was started later.
func (b *bed) mkdir(name string) string {
	b.t.Helper()
	path := b.root
	if name != "" {
		path += "/" + name
	}
	if err := b.cg.Mkdir(path); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.rmdir(path) })
	return path
}

// rmdir removes a group, which may be gone. A process that has just ended may still be
// in it.
func (b *bed) rmdir(path string) {
	b.t.Helper()
	err := errors.New("not tried")
	for range 300 {
		if err = b.cg.Rmdir(path); err == nil || errors.Is(err, cgroup.ErrVanished) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Error(err)
}

// spin starts a spinner in a group.
func (b *bed) spin(path string) *testchild.Child {
	b.t.Helper()
	c := testchild.Start(b.t, "spin")
	if err := b.cg.MovePID(path, c.PID()); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// open opens the Host; every Observe discovers.
func (b *bed) open(counters bool) {
	b.t.Helper()
	b.openRules(counters, []match.Rule{
		{Glob: b.root + "/victim*", Job: "victim", Class: model.LC, Production: true},
		{Glob: b.root + "/own*", Job: "own", Class: model.LC, Exclusive: true},
		{Glob: b.root + "/be-*", Job: "batch", Class: model.BE, Importance: model.BestEffort},
	})
}

// openRules opens the Host with other rules.
func (b *bed) openRules(counters bool, list []match.Rule) {
	b.t.Helper()
	rules, err := match.Compile(list)
	if err != nil {
		b.t.Fatal(err)
	}
	j, err := journal.Create(b.journal, boot)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = j.Close() })
	b.h, err = Open(Options{FS: b.fs, Rules: rules, Journal: j, Counters: counters, Waits: b.waits, Classes: b.classes, Monitor: b.counted, InUse: b.inUse, Ages: b.ages, IO: b.io, Homes: b.homes, Log: slog.New(slog.NewTextHandler(&b.logs, nil))})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := b.h.Close(); err != nil {
			b.t.Error(err)
		}
		if b.t.Failed() {
			b.t.Logf("what the host says is missing: %q; its log:\n%s", b.h.Missing(), b.logs.String())
		}
	})
}

// observe takes a reading.
func (b *bed) observe(mark model.WindowMark) {
	b.t.Helper()
	if err := b.h.Observe(mark, &b.snap); err != nil {
		b.t.Fatal(err)
	}
	b.removed = append(b.removed, b.snap.Removed...)
	for path, task := range b.tasks {
		if slices.Contains(b.snap.Removed, task.Num) {
			delete(b.tasks, path)
		}
	}
	for _, task := range b.snap.Added {
		b.tasks[task.Path] = task
	}
}

// sample returns a task's part of the last reading.
func (b *bed) sample(path string) model.TaskSample {
	b.t.Helper()
	i := slices.IndexFunc(b.snap.Tasks, func(s model.TaskSample) bool { return s.Num == b.tasks[path].Num })
	if _, known := b.tasks[path]; !known || i < 0 {
		b.t.Fatalf("no sample of %s: tasks %v, samples %+v", path, b.tasks, b.snap.Tasks)
	}
	return b.snap.Tasks[i]
}

// window takes a window in which done comes true, and returns what it says of tasks.
func (b *bed) window(done func() bool) map[string]model.TaskObservation {
	b.t.Helper()
	b.observe(model.WindowStart)
	prev := b.snap
	prev.Tasks = slices.Clone(b.snap.Tasks)
	b.until("the window's end", done)
	b.observe(model.WindowEnd)
	var o model.Observation
	model.Observe(&prev, &b.snap, &o)
	of := map[string]model.TaskObservation{}
	for path, task := range b.tasks {
		for _, t := range o.Tasks {
			if t.Num == task.Num {
				of[path] = t
			}
		}
	}
	return of
}

// until waits for a condition, however slow the machine is.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain for this: %s", what)
		}
	}
}

// used returns a condition: each group has used so much CPU time since now.
func (b *bed) used(d time.Duration, paths ...string) func() bool {
	b.t.Helper()
	usage := func(path string) uint64 {
		g, err := b.cg.Open(path)
		if err != nil {
			b.t.Fatal(err)
		}
		defer g.Close() //nolint:errcheck // reading only
		n, err := g.UsageNsec()
		if err != nil {
			b.t.Fatal(err)
		}
		return n
	}
	from := map[string]uint64{}
	for _, p := range paths {
		from[p] = usage(p)
	}
	return func() bool {
		return !slices.ContainsFunc(paths, func(p string) bool { return usage(p) < from[p]+uint64(d) })
	}
}

func (b *bed) limit(path string) cgroup.CPUMax {
	b.t.Helper()
	v, err := b.cg.ReadCPUMax(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bed) setLimit(path string, v cgroup.CPUMax) {
	b.t.Helper()
	if err := b.cg.WriteCPUMax(path, v); err != nil {
		b.t.Fatal(err)
	}
}

// apply carries out one change and fails unless it ends as expected.
func (b *bed) apply(kind model.ChangeKind, path string, value model.Setting, want model.ResultKind) model.Result {
	b.t.Helper()
	res := node.Do(b.h, model.Change{Seq: 1, Target: model.OfTask(b.tasks[path].Num), Kind: kind, Value: value})
	if len(res) != 1 || res[0].Kind != want {
		b.t.Fatalf("%s of %s: %+v, want %s", kind, path, res, want)
	}
	return res[0]
}

// lacks returns why a task does without something, "" when it does not.
func (b *bed) lacks(path, what string) string {
	for _, l := range b.h.Lacks(nil) {
		if l.Path == path && l.What == what {
			return l.Why
		}
	}
	return ""
}

// list returns what a group's cpuset says.
func (b *bed) list(path string) string {
	b.t.Helper()
	v, err := b.cg.ReadCPUs(path)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *bed) setList(path, list string) {
	b.t.Helper()
	if err := b.cg.WriteCPUs(path, list); err != nil {
		b.t.Fatal(err)
	}
}

// twoCPUs returns two CPUs of the machine and both as a list.
func (b *bed) twoCPUs() (one, two, both string) {
	b.t.Helper()
	online, err := cputopology.ReadOnline(b.fs)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(online) < 2 {
		b.t.Skip("one CPU: there is nowhere else to go")
	}
	return strconv.Itoa(online[0]), strconv.Itoa(online[1]), cpuset.Of(online[:2]...).String()
}

// flat says whether cpusets below a task are their own business.
func (b *bed) flat() bool { return b.cg.Layout() == cgroup.LayoutV2 }

// on returns the setting of a list of CPUs.
func (b *bed) on(list string) model.Setting {
	b.t.Helper()
	cpus, err := model.ParseCPUSet(list)
	if err != nil {
		b.t.Fatal(err)
	}
	return model.Place(cpus)
}

// allowed returns the CPUs that a process may use; "" when it has ended.
func (b *bed) allowed(pid int) string {
	b.t.Helper()
	var set unix.CPUSet
	err := unix.SchedGetaffinity(pid, &set)
	if errors.Is(err, unix.ESRCH) {
		return ""
	}
	if err != nil {
		b.t.Fatal(err)
	}
	var s model.CPUSet
	for i := range model.MaxCPUs {
		if set.IsSet(i) {
			s.Add(i)
		}
	}
	return s.String()
}

// lists fails unless groups say what is expected; "" on v2 is what the group above has.
func (b *bed) lists(when string, want map[string]string) {
	b.t.Helper()
	for path, list := range want {
		if now := b.list(path); now != list {
			b.t.Errorf("%s: %s is %q, want %q", when, path, now, list)
		}
	}
}

// restart is what the next start does after this process was killed at this point: it knows
// only the journal's file.
func (b *bed) restart() node.Report {
	b.t.Helper()
	rep, err := Restore(b.fs, b.journal, boot)
	if err != nil {
		b.t.Fatal(err)
	}
	return rep
}

// Restore is Run on the machine's own files and clock.
func Restore(fs hostfs.FS, path, boot string) (node.Report, error) {
	return Restoring{FS: fs, Journal: path, Boot: boot}.Run()
}
