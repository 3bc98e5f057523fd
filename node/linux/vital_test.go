package linux

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
	"github.com/commensal-io/commensal/node/source"
)

// elsewhereFS says that this process is in another cgroup.
type elsewhereFS struct {
	*hostfs.Root
	self string
}

func (f *elsewhereFS) ReadFile(path string, buf []byte) ([]byte, error) {
	if path == "/proc/self/cgroup" && f.self != "" {
		return append(buf[:0], fmt.Sprintf("2:cpu,cpuacct:%s\n1:cpuset:/\n0::%s\n", f.self, f.self)...), nil
	}
	return f.Root.ReadFile(path, buf)
}

// A rule cannot make the agent hold itself, neither before the task is known nor when the
// agent turns up in one that is held: the snapshot says so, and the engine lets go of it.
func TestTheAgentNeverHoldsItself(t *testing.T) {
	b := newBed(t, "vital")
	own, later := b.mkdir("be-own"), b.mkdir("be-later")
	b.mkdir("be-own/inner")
	f := &elsewhereFS{hostfs.NewRoot("/"), own + "/inner"}
	b.fs = f
	b.open(false)
	b.observe(0)
	if c := b.tasks[own].Class; c != model.System {
		t.Errorf("the task with the agent in it is %s", c)
	}
	if w := b.h.Warnings(nil); len(w) != 1 || !strings.Contains(w[0], own) {
		t.Errorf("warnings %q", w)
	}
	f.self = later
	b.observe(0)
	if s := b.snap.Shields; len(s) != 1 || s[0].Task != b.tasks[later].Num || !strings.Contains(s[0].Why, "the agent or PID 1 runs in "+later) {
		t.Errorf("with the agent in %s: %+v", later, s)
	}
	if n := strings.Count(b.logs.String(), "the agent or PID 1 runs in tasks"); n != 1 {
		t.Errorf("told %d times:\n%s", n, b.logs.String())
	}
}

// Names that nobody can write down are refused, and told once.
func TestHostileNamesAreNoTasks(t *testing.T) {
	b := newBed(t, "names")
	b.mkdir("be-\xff")
	b.mkdir("be-\x1b]0;x\a")
	b.open(false)
	for range 3 {
		b.observe(0)
	}
	if len(b.tasks) != 0 || len(b.h.Warnings(nil)) != 1 {
		t.Errorf("tasks %v, warnings %q", b.tasks, b.h.Warnings(nil))
	}
	if log := b.logs.String(); strings.Count(log, "are no tasks") != 1 || strings.ContainsAny(log, "\x1b\a") || !utf8.ValidString(log) {
		t.Errorf("the log: %q", log)
	}
}

// A container's name counts below cgroups that root owns, as the kernel says who owns them.
func TestOwnersVouchForNames(t *testing.T) {
	b := newBed(t, "owner")
	name := "/" + strings.Repeat("a", 64)
	given, ours := b.mkdir("given"), b.mkdir("ours")
	b.mkdir("given" + name)
	b.mkdir("ours" + name)
	top := b.mounts.Unified
	if b.mounts.Layout != cgroup.LayoutV2 {
		top = b.mounts.V1[cgroup.CPU]
	}
	for _, dir := range []string{given, ours + name} { // who is root in a container may own its group
		if err := os.Chown(top+dir, 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	rule := match.Rule{Containers: &source.Containers{Parent: b.root + "/*"}, Job: "boxes", Class: model.BE}
	b.openRules(false, []match.Rule{rule})
	b.observe(0)
	if _, ok := b.tasks[ours+name]; !ok || len(b.tasks) != 1 || len(b.h.Warnings(nil)) != 1 {
		t.Errorf("tasks %v, warnings %q", b.tasks, b.h.Warnings(nil))
	}
}

// manyTasks is a host that watches so many tasks, all of which still are there.
func manyTasks(tb testing.TB, n int) (h *Host, paths []string) {
	tb.Helper()
	rules, err := match.Compile([]match.Rule{{Glob: "/a/*", Job: "a", Class: model.LC}, {Glob: "/b/*", Job: "b", Class: model.BE}})
	if err != nil {
		tb.Fatal(err)
	}
	h = &Host{opt: Options{Rules: rules, FS: hostfs.NewRoot("/"), Log: slog.New(slog.DiscardHandler)}, cg: noGroups{}}
	for i := range n {
		paths = append(paths, fmt.Sprintf("/%c/task-%d", "ab"[i%2], i))
		h.tasks = append(h.tasks, &watched{task: model.Task{Num: model.TaskNum(i + 1), Path: paths[i]}})
	}
	return h, paths
}

// A cgroup that cannot be watched is told of once, not at each discovery.
func TestWhatCannotBeWatchedIsToldOnce(t *testing.T) {
	h, paths := manyTasks(t, 3)
	h.tasks = nil
	var log strings.Builder
	h.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	for range 5 {
		h.adopt(paths)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "too many open files") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	h.adopt(nil)
	if w := h.Warnings(nil); len(w) != 0 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("when it is over: %q\n%s", w, log.String())
	}
}

// noGroups opens none.
type noGroups struct{ cgroup.Driver }

func (noGroups) Open(path string) (cgroup.Group, error) {
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.EMFILE}
}

func (g noGroups) OpenAlone(path string) (cgroup.Group, error) { return g.Open(path) }

func (noGroups) Layout() cgroup.Layout { return cgroup.LayoutV2 }

// Discovery costs no more a task on a host with as many as can be than on one with an eighth of
// them: it is no pause of the loop. CPU time counts, and the least of several runs: this machine
// has other things to do.
func TestDiscoveryOfManyTasksIsShort(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	cost := func(n int) time.Duration {
		h, paths := manyTasks(t, n)
		least := time.Hour
		for range 10 {
			begin := used()
			h.adopt(append(slices.Clone(paths), "/a/one-more", "/b/one-more"))
			least = min(least, used()-begin)
		}
		if w := h.Warnings(nil); len(w) != 1 || !strings.Contains(w[0], `"/a/one-more", "/b/one-more"`) || len(h.tasks) != n {
			t.Errorf("%d tasks, warnings %q", len(h.tasks), w)
		}
		return least
	}
	few, many := cost(maxTasks/8), cost(maxTasks)
	if t.Logf("%v and %v of CPU time", few, many); many > 32*max(few, 100*time.Microsecond) {
		t.Errorf("%v of CPU time for eight times as many tasks as cost %v: want eight times that, not sixty-four", many, few)
	}
}

func BenchmarkDiscovery(b *testing.B) {
	h, paths := manyTasks(b, maxTasks)
	for b.Loop() {
		h.adopt(paths)
	}
}
