package linux

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
	"github.com/commensal-io/commensal/model"
)

// count opens the Host with hardware counters, which must be there in the rig.
func (b *bed) count() {
	b.t.Helper()
	rigtest.NeedRDT(b.t)
	b.open(true)
	if b.h.perf != nil {
		return
	}
	if rigtest.Inside() {
		b.t.Fatalf("no counters: %q", b.h.Missing())
	}
	b.t.Skipf("this machine counts nothing: %q", b.h.Missing())
}

// TestCPIOfTasks: real cycles and instructions of each task, inside the windows only.
func TestCPIOfTasks(t *testing.T) {
	b := newBed(t, "cpi")
	victim, batch, idle := b.mkdir("victim"), b.mkdir("be-1"), b.mkdir("be-2")
	b.spin(victim)
	b.spin(b.mkdir("be-1/inner"))
	b.count()
	var ended map[string]model.TaskSample
	for range 2 {
		got := b.window(b.used(100*time.Millisecond, victim, batch))
		for _, path := range []string{victim, batch} {
			cpi, mpki := got[path].Signals[model.SourceCPI], got[path].MPKI
			t.Logf("%s: CPI %.3f, MPKI %.3f, CPU %.2f, %+v", path, cpi.V, mpki.V, got[path].CPU.V, b.sample(path))
			if cpi.Outcome != model.OK || cpi.V < 0.05 || cpi.V > 100 {
				t.Errorf("%s: CPI %+v is not believable", path, cpi)
			}
			if mpki.Outcome == model.OK && mpki.V > 1000 {
				t.Errorf("%s: MPKI %+v is not believable", path, mpki)
			}
		}
		if o := got[idle]; o.Signals[model.SourceCPI].Outcome != model.Absent || b.sample(idle).C[model.CountCycles] != model.Read(0) {
			t.Errorf("a task without processes: %+v, %+v; want counters that stand at zero, and no CPI", o, b.sample(idle))
		}
		ended = map[string]model.TaskSample{victim: b.sample(victim), batch: b.sample(batch)}
		b.until("some work outside of windows", b.used(50*time.Millisecond, victim, batch))
		b.observe(model.WindowStart)
		for path, was := range ended {
			for _, e := range events {
				if now := b.sample(path).C[e.counter]; now != was.C[e.counter] {
					t.Errorf("%s: %s counted outside of windows: %+v at the end of one, %+v at the start of the next", path, e.perf, was.C[e.counter], now)
				}
			}
		}
	}
}

// TestCountersInTurns: while others want the PMU as well, CPI is an estimate, and a good
// one; while somebody holds all of it there is none, and its absence has a name.
func TestCountersInTurns(t *testing.T) {
	rigtest.Only(t, "counters of every CPU are taken")
	b := newBed(t, "turns")
	path := b.mkdir("victim")
	b.spin(path)
	b.count()
	window := func() model.TaskObservation { return b.window(b.used(200*time.Millisecond, path))[path] }
	alone := window().Signals[model.SourceCPI]
	var others []*perf.Group
	for _, cpu := range perftest.Online(t) {
		for range 2 {
			g, err := perf.OpenCPU(cpu, []perf.Event{perf.LLCMisses, perf.LLCReferences, perf.LLCMisses, perf.LLCReferences})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Enable(); err != nil {
				t.Fatal(err)
			}
			others = append(others, g)
		}
	}
	shared := window().Signals[model.SourceCPI]
	for _, g := range others {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CPI alone %+v, in turns with others %+v", alone, shared)
	if shared.Outcome != model.OK || shared.V < 0.85*alone.V || shared.V > 1.15*alone.V {
		t.Errorf("CPI %+v in turns with others, %+v alone", shared, alone)
	}
	holder := testchild.Start(t, "hold")
	t.Log(holder.Line())
	held := window()
	if held.Signals[model.SourceCPI].Outcome != model.Unavailable || held.MPKI.Outcome != model.Unavailable || held.Raw[model.SourceSlowdown].Outcome != model.OK {
		t.Errorf("all counters are held: %+v; want no CPI, and the other signals", held)
	}
	holder.End()
	if again := window().Signals[model.SourceCPI]; again.Outcome != model.OK || again.V < 0.85*alone.V || again.V > 1.15*alone.V {
		t.Errorf("CPI %+v after they were let go, %+v before", again, alone)
	}
}

// TestCPUsComeAndGo: a CPU that goes offline in the middle of a window takes nothing away
// and spoils nothing; one that comes is counted from the next discovery on.
func TestCPUsComeAndGo(t *testing.T) {
	rigtest.Only(t, "a CPU is switched off")
	b := newBed(t, "hotplug")
	path := b.mkdir("victim")
	online := perftest.Online(t)
	cpu := online[len(online)-1]
	plug := func(state string) {
		t.Helper()
		if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(state), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { plug("1") })
	child := b.spin(path)
	plug("0")
	b.count()
	counted := uint64(0)
	window := func(what string, meanwhile func()) {
		t.Helper()
		b.observe(model.WindowStart)
		start := b.sample(path)
		meanwhile()
		b.observe(model.WindowEnd)
		end := b.sample(path)
		cycles, outcome := model.Delta(start.C[model.CountCycles], end.C[model.CountCycles])
		instructions, _ := model.Delta(start.C[model.CountInstructions], end.C[model.CountInstructions])
		t.Logf("%s: %d cycles, %d instructions in %d ms", what, cycles, instructions, (end.C[model.CountUsage].Value-start.C[model.CountUsage].Value)/1e6)
		if outcome != model.OK || cycles == 0 || instructions == 0 || start.C[model.CountCycles].Value < counted {
			t.Errorf("%s: from %+v to %+v, %d before", what, start, end, counted)
		}
		counted = end.C[model.CountCycles].Value
	}
	work := func() { b.until("work in the window", b.used(100*time.Millisecond, path)) }
	// All of the work is on one CPU: were it not counted, there would be nothing.
	window("offline from the start", work)
	plug("1")
	child.Pin(cpu)
	window("a CPU that is new", work)
	if !slices.Contains(b.h.tasks[0].perf.cpus, cpu) {
		t.Errorf("counted on CPUs %v", b.h.tasks[0].perf.cpus)
	}
	window("goes away after all of the work", func() {
		work()
		if err := unix.Kill(child.PID(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		plug("0")
	})
	if err := unix.Kill(child.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	window("away", work)
	plug("1")
	child.Pin(cpu)
	window("back", work)
	if why := b.lacks(path, LackCounters); why != "" || strings.Contains(b.logs.String(), "no hardware counters") {
		t.Errorf("lacks %q; log:\n%s", why, b.logs.String())
	}
}

// software gives the Host counters that every machine has in the place of hardware ones.
func (b *bed) software(paths ...string) {
	b.t.Helper()
	if b.mounts.Unified == "" {
		b.t.Skip("no cgroup2 mount here: nothing is counted per cgroup")
	}
	b.open(false)
	b.h.perf = &counters{
		fs: b.fs, opener: perfOpener{b.fs}, root: b.mounts.Unified, inodes: b.mounts.Layout == cgroup.LayoutV2,
		events: []perf.Event{perf.TaskClock, perf.ContextSwitches},
	}
	if b.mounts.Layout == cgroup.LayoutV2 {
		return
	}
	// On a hybrid host the tasks' directories are not there by themselves.
	for _, path := range append([]string{b.root}, paths...) {
		dir := b.mounts.Unified + path
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { perftest.Remove(b.t, dir) })
	}
}

// files sets the process's descriptor limit for the rest of the test.
func (b *bed) files(n int) {
	b.t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		b.t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: was.Max}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) })
}

// TestCounterBudget: where the descriptor limit has no room for all tasks the protected
// have counters first; the others are told by name and get theirs when there is room.
func TestCounterBudget(t *testing.T) {
	b := newBed(t, "budget")
	paths := []string{b.mkdir("be-1"), b.mkdir("be-2"), b.mkdir("victim-1")}
	b.software(append(paths, b.root+"/victim-2")...)
	each := perf.CgroupFiles(len(perftest.Online(t)), 2)
	want := func(what string, have ...string) {
		t.Helper()
		b.observe(model.WindowStart)
		for path := range b.tasks {
			got := b.h.perf != nil && b.h.find(b.tasks[path].Num).perf.group != nil
			if why := b.lacks(path, LackCounters); got != slices.Contains(have, path) || got != (why == "") {
				t.Errorf("%s: %s has counters: %v, lacks %q; want counters for %v", what, path, got, why, have)
			}
		}
	}
	b.files(reserved + 2*each + 1)
	want("room for two", paths[0], paths[2])
	why := b.lacks(paths[1], LackCounters)
	if !strings.Contains(why, "RLIMIT_NOFILE") || !strings.Contains(why, fmt.Sprint(reserved+2*each+1)) {
		t.Errorf("lacks %q", why)
	}
	want("nothing changed", paths[0], paths[2])
	if n := strings.Count(b.logs.String(), "no hardware counters"); n != 1 || !strings.Contains(b.logs.String(), paths[1]) {
		t.Errorf("said %d times:\n%s", n, b.logs.String())
	}
	victim := b.mkdir("victim-2")
	want("another one to protect", paths[2], victim)
	b.files(4096)
	want("room for all", paths[0], paths[1], paths[2], victim)
	if n := strings.Count(b.logs.String(), "hardware counters can be used again"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.logs.String())
	}
	b.files(reserved)
	want("no room at all")
}

// TestOutOfDescriptors: the limit is reached all the same, because others took what there
// was. Nobody fails for it; who came too late is told, and tried again.
func TestOutOfDescriptors(t *testing.T) {
	b := newBed(t, "files")
	paths := []string{b.mkdir("be-1"), b.mkdir("be-2"), b.mkdir("victim")}
	b.software(paths...)
	b.files(700)
	later := b.h.perf
	b.h.perf = nil
	b.observe(model.WindowStart) // opens what else the tasks need
	b.h.perf = later
	each := (2+1)*len(perftest.Online(t)) + 1 // software events need one clock less
	var taken []int
	for {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	release := func(n int) {
		for ; n > 0 && len(taken) > 0; n-- {
			_ = unix.Close(taken[len(taken)-1])
			taken = taken[:len(taken)-1]
		}
	}
	t.Cleanup(func() { release(len(taken)) })
	release(2*each - 1)
	b.observe(model.WindowStart)
	if why := b.lacks(paths[2], LackCounters); why != "" {
		t.Errorf("the protected task lacks %q", why)
	}
	for _, path := range paths[:2] {
		if why := b.lacks(path, LackCounters); !strings.Contains(why, "too many open files") {
			t.Errorf("%s lacks %q", path, why)
		}
	}
	release(len(taken))
	b.observe(model.WindowStart)
	if l := b.h.Lacks(nil); len(l) > 0 {
		t.Errorf("with descriptors again: %+v", l)
	}
}
