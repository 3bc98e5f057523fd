package perf_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// Source counts the same events of many cgroups, between Start and Stop.
type Source interface {
	Add(cgroupDirFD int) (Task, error)
	Start() error
	Stop() error
	Close() error
}

// Task is one cgroup's counters.
type Task interface {
	Read(out []perf.Count) error
	Close() error
}

// Open opens a source on the CPUs.
type Open func(cpus []int, events []perf.Event) (Source, error)

// Software events are counted everywhere.
var Software = []perf.Event{perf.TaskClock, perf.ContextSwitches, perf.CPUMigrations, perf.PageFaults}

// Hardware are what a task's CPI and MPKI are made of.
var Hardware = []perf.Event{perf.Cycles, perf.Instructions, perf.RefCycles, perf.LLCReferences, perf.LLCMisses}

// NeedHardware skips the test where the machine cannot count the events.
func NeedHardware(t testing.TB, events []perf.Event) {
	t.Helper()
	for _, e := range events {
		if err := perf.Supported(e); err != nil {
			rigtest.NeedRDT(t)
			t.Skipf("this machine counts no %v: %v", e, err)
		}
	}
}

// Opened opens a source for the length of the test.
func (open Open) Opened(t testing.TB, events []perf.Event) Source {
	t.Helper()
	s, err := open(perftest.Online(t), events)
	if errors.Is(err, perf.ErrPermission) || errors.Is(err, perf.ErrNotSupported) {
		t.Skipf("not counted here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Added adds a cgroup for the length of the test.
func Added(t testing.TB, s Source, dir string) Task {
	t.Helper()
	task, err := s.Add(Dir(t, dir))
	if errors.Is(err, perf.ErrPermission) || errors.Is(err, perf.ErrNotCgroup2) {
		t.Skipf("no counters per cgroup here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := task.Close(); err != nil {
			t.Error(err)
		}
	})
	return task
}

// Counts reads a task's n events.
func Counts(t testing.TB, task Task, n int) []perf.Count {
	t.Helper()
	out := make([]perf.Count, n)
	if err := task.Read(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Conform tests what every source has to do.
func Conform(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"task clock is the CPU time, inside the window only", testWindow},
		{"an idle cgroup is a measured zero", testIdle},
		{"a parent counts its children, a sibling does not", testFamily},
		{"neighbours on one CPU are told apart", testNeighbours},
		{"a roaming task is followed", testRoaming},
		{"a task that moves to another cgroup", testMoving},
		{"a cgroup that vanishes and is made anew", testVanish},
		{"other directories are refused", testRefuse},
		{"reading does not allocate", testAllocations},
		{"hardware events give ratios", testHardware},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

// ConformOpening tests how a source opens and closes. (A source that is dear to open can be kept for Conform.)
func ConformOpening(t *testing.T, open Open) {
	t.Run("descriptors are given back", func(t *testing.T) { testGivenBack(t, open) })
	t.Run("a descriptor limit ends in a named error", func(t *testing.T) { testLimit(t, open) })
	t.Run("a killed process leaves nothing counting", func(t *testing.T) { testKilled(t, open) })
}

// about says whether got is within a share of want.
func about(got, want uint64, share float64) bool {
	return float64(got) >= float64(want)*(1-share) && float64(got) <= float64(want)*(1+share)
}

// span is CPU time of a cgroup around a window: what was surely used inside it, and what may have been.
type span struct{ inside, around uint64 }

// window counts while the cgroup burns.
func window(t testing.TB, s Source, dir string, d time.Duration, during ...func()) span {
	t.Helper()
	before := UsageNsec(t, dir)
	Must(t, s.Start())
	started := UsageNsec(t, dir)
	Burn(t, dir, d)
	for _, f := range during {
		f()
		Burn(t, dir, d)
	}
	ended := UsageNsec(t, dir)
	Must(t, s.Stop())
	return span{ended - started, UsageNsec(t, dir) - before}
}

// holds says whether a task-clock fits. cpu.stat leaves out interrupts, the clock does not, and an emulated CPU
// stands still for a tenth of a second at times.
func (u span) holds(clock uint64) bool {
	return float64(clock) > 0.7*float64(u.inside) && float64(clock) < 1.3*float64(u.around)+20e6
}

func testWindow(t *testing.T, open Open) {
	dir := Cgroup(t, "clock")
	s := open.Opened(t, Software)
	task := Added(t, s, dir)
	Spin(t, dir)
	Burn(t, dir, 50*time.Millisecond)
	if got := Counts(t, task, 4)[0]; got.Raw != 0 || got.Status != perf.OK {
		t.Errorf("before Start: %+v, want nothing counted", got)
	}
	used := window(t, s, dir, 300*time.Millisecond)
	out := Counts(t, task, 4)
	t.Logf("cpu.stat %+v, %+v", used, out)
	if !used.holds(out[0].Raw) {
		t.Errorf("task-clock %d ns, cpu.stat %+v", out[0].Raw, used)
	}
	for i, n := range out {
		estimate, ok := n.Scaled()
		if !ok || n.RunningNsec != n.EnabledNsec || n.RunningNsec == 0 || estimate != n.Raw {
			t.Errorf("%v: %+v, want software events counted all the time", Software[i], n)
		}
	}
	Burn(t, dir, 50*time.Millisecond) // the spinner goes on, the counters do not
	if again := Counts(t, task, 4)[0]; again != out[0] {
		t.Errorf("after Stop: %+v, before %+v", again, out[0])
	}
	Must(t, s.Start())
	Burn(t, dir, 50*time.Millisecond)
	Must(t, s.Stop())
	second := Counts(t, task, 4)[0]
	if grown := second.Raw - out[0].Raw; grown < 20e6 || second.Status != perf.OK {
		t.Errorf("a second window added %d ns, %v; want about 50 ms and ok", grown, second.Status)
	}
}

func testIdle(t *testing.T, open Open) {
	busy := Cgroup(t, "busy")
	s := open.Opened(t, Software)
	task := Added(t, s, Cgroup(t, "idle"))
	Spin(t, busy)
	Must(t, s.Start())
	Burn(t, busy, 50*time.Millisecond)
	for i, n := range Counts(t, task, 4) {
		if n != (perf.Count{Status: perf.OK}) {
			t.Errorf("%v: %+v, want a measured zero", Software[i], n)
		}
	}
}

func testFamily(t *testing.T, open Open) {
	parent := Cgroup(t, "parent")
	child := Cgroup(t, "parent/child")
	inner := Cgroup(t, "parent/child/inner")
	sibling := Cgroup(t, "parent/sibling")
	s := open.Opened(t, Software)
	p, c, b := Added(t, s, parent), Added(t, s, child), Added(t, s, sibling)
	Spin(t, inner)
	Must(t, s.Start())
	Burn(t, inner, 300*time.Millisecond)
	Must(t, s.Stop())
	got, in, beside := Counts(t, p, 4)[0], Counts(t, c, 4)[0], Counts(t, b, 4)[0]
	if !about(got.Raw, in.Raw, 0.6) || got.Raw < 100e6 {
		t.Errorf("parent %+v, child %+v: want about the same, 300 ms", got, in)
	}
	if beside != (perf.Count{Status: perf.OK}) {
		t.Errorf("sibling %+v, want a measured zero", beside)
	}
}

func testNeighbours(t *testing.T, open Open) {
	cpu := perftest.Online(t)[0]
	dirs := []string{Cgroup(t, "one"), Cgroup(t, "two")}
	s := open.Opened(t, Software)
	var tasks []Task
	for i, dir := range dirs {
		tasks = append(tasks, Added(t, s, dir))
		for range i + 1 { // one spinner here, two there: the second has twice the time
			Spin(t, dir).Pin(cpu)
		}
	}
	second := span{inside: UsageNsec(t, dirs[1]), around: UsageNsec(t, dirs[1])}
	first := window(t, s, dirs[0], 150*time.Millisecond, func() { second.inside = UsageNsec(t, dirs[1]) })
	second.around = UsageNsec(t, dirs[1]) - second.around
	second.inside = min(UsageNsec(t, dirs[1])-second.inside, second.around/2)
	for i, used := range []span{first, second} {
		got := Counts(t, tasks[i], 4)[0]
		t.Logf("cgroup %d: cpu.stat %+v, task-clock %+v", i, used, got)
		if !used.holds(got.Raw) {
			t.Errorf("cgroup %d: task-clock %d ns, cpu.stat %+v", i, got.Raw, used)
		}
	}
}

func testRoaming(t *testing.T, open Open) {
	if len(perftest.Online(t)) < 2 {
		t.Skip("one CPU: nowhere to roam")
	}
	dir := Cgroup(t, "roam")
	s := open.Opened(t, Software)
	task := Added(t, s, dir)
	burner(t, dir, "roam")
	before := make([]perf.Count, 4)
	for range 2 { // what is switched off has to start again
		used, got := window(t, s, dir, 200*time.Millisecond), Counts(t, task, 4)
		clock, switches, moves := got[0].Raw-before[0].Raw, got[1].Raw-before[1].Raw, got[2].Raw-before[2].Raw
		t.Logf("cpu.stat %+v, task-clock %d, switches %d, migrations %d", used, clock, switches, moves)
		if !used.holds(clock) || switches == 0 || moves < 2 {
			t.Errorf("task-clock %d ns of %+v, %d switches, %d migrations", clock, used, switches, moves)
		}
		before = got
	}
}

func testMoving(t *testing.T, open Open) {
	from, to := Cgroup(t, "from"), Cgroup(t, "to")
	s := open.Opened(t, Software)
	first, second := Added(t, s, from), Added(t, s, to)
	spinner := Spin(t, from)
	Must(t, s.Start())
	started := UsageNsec(t, from)
	Burn(t, from, 200*time.Millisecond)
	spinner.Move(to)
	Burn(t, to, 200*time.Millisecond)
	used := span{inside: UsageNsec(t, from) + UsageNsec(t, to) - started}
	Must(t, s.Stop())
	used.around = UsageNsec(t, from) + UsageNsec(t, to)
	a, b := Counts(t, first, 4)[0], Counts(t, second, 4)[0]
	t.Logf("before %+v, after %+v, cpu.stat %+v", a, b, used)
	// A source that looks at switches charges the stretch in which the task moved to where it went: in all it must be right.
	if !used.holds(a.Raw+b.Raw) || b.Raw < 100e6 {
		t.Errorf("task-clock %d ns before the move and %d ns after, cpu.stat %+v", a.Raw, b.Raw, used)
	}
}

func testVanish(t *testing.T, open Open) {
	dir := Cgroup(t, "vanish")
	s := open.Opened(t, Software)
	task := Added(t, s, dir)
	spinner := Spin(t, dir)
	Must(t, s.Start())
	Burn(t, dir, 50*time.Millisecond)
	if got := Counts(t, task, 4)[0]; got.Raw == 0 || got.Status != perf.OK {
		t.Errorf("while it is there: %+v", got)
	}
	fd := Dir(t, dir)
	spinner.End()
	perftest.Remove(t, dir)
	if got := Counts(t, task, 4)[0]; got != (perf.Count{Status: perf.Gone}) {
		t.Errorf("got %+v, want Gone and no numbers", got)
	}
	if _, err := s.Add(fd); !errors.Is(err, perf.ErrGone) {
		t.Errorf("add a removed cgroup: %v, want ErrGone", err)
	}
	Must(t, s.Stop())
	Must(t, os.Mkdir(dir, 0o755)) // the same path, another cgroup
	again := Added(t, s, dir)
	Spin(t, dir)
	used := window(t, s, dir, 50*time.Millisecond)
	if got := Counts(t, task, 4)[0]; got != (perf.Count{Status: perf.Gone}) {
		t.Errorf("the old task: %+v, want Gone", got)
	}
	if got := Counts(t, again, 4)[0]; !used.holds(got.Raw) || got.Status != perf.OK {
		t.Errorf("the new one: %+v, want its own time alone", got)
	}
}

func testRefuse(t *testing.T, open Open) {
	s := open.Opened(t, Software)
	for name, fd := range map[string]int{"a plain directory": Dir(t, t.TempDir()), "no descriptor": -1} {
		if _, err := s.Add(fd); !errors.Is(err, perf.ErrNotCgroup2) {
			t.Errorf("%s: %v, want ErrNotCgroup2", name, err)
		}
	}
	for _, v1 := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"} {
		if _, err := os.Stat(filepath.Join(v1, "cpu.shares")); err != nil {
			continue
		}
		if _, err := s.Add(Dir(t, v1)); !errors.Is(err, perf.ErrNotCgroup2) {
			t.Errorf("%s: %v, want ErrNotCgroup2", v1, err)
		}
	}
}

func testGivenBack(t *testing.T, open Open) {
	dirs := []int{Dir(t, Cgroup(t, "files")), Dir(t, Cgroup(t, "others"))}
	once := func() {
		s, err := open(perftest.Online(t), Software)
		if errors.Is(err, perf.ErrPermission) || errors.Is(err, perf.ErrNotSupported) {
			t.Skipf("not counted here: %v", err)
		}
		Must(t, err)
		for _, fd := range dirs {
			task, err := s.Add(fd)
			Must(t, err)
			Must(t, s.Start())
			Must(t, s.Stop())
			Must(t, task.Close())
		}
		_, err = s.Add(dirs[0]) // left open: closing the source closes it too
		Must(t, err)
		Must(t, s.Start())
		Must(t, s.Close())
	}
	once() // what the runtime keeps open for itself is open from here on
	before := Descriptors(t)
	once()
	if got := Descriptors(t); got != before {
		t.Errorf("%d descriptors open afterwards, %d before", got, before)
	}
}

func testAllocations(t *testing.T, open Open) {
	dir := Cgroup(t, "alloc")
	s := open.Opened(t, Software)
	task := Added(t, s, dir)
	Spin(t, dir)
	Must(t, s.Start())
	out := make([]perf.Count, 4)
	if allocs := testing.AllocsPerRun(100, func() { Must(t, task.Read(out)) }); allocs != 0 {
		t.Errorf("%v allocations a reading, want none", allocs)
	}
}

func testHardware(t *testing.T, open Open) {
	NeedHardware(t, Hardware)
	dir, other := Cgroup(t, "hardware"), Cgroup(t, "hardware-idle")
	s := open.Opened(t, Hardware)
	task, none := Added(t, s, dir), Added(t, s, other)
	Spin(t, dir)
	Must(t, s.Start())
	Burn(t, dir, 300*time.Millisecond)
	Must(t, s.Stop())
	out := Counts(t, task, 5)
	for i, n := range out {
		if n.Status != perf.OK || n.Raw == 0 {
			t.Errorf("%v: %+v, want something counted", Hardware[i], n)
		}
	}
	cpi, mpki := float64(out[0].EstimateRaw)/float64(out[1].EstimateRaw), 1000*float64(out[4].EstimateRaw)/float64(out[1].EstimateRaw)
	t.Logf("CPI %.3f, MPKI %.3f, %+v", cpi, mpki, out)
	if cpi < 0.05 || cpi > 100 || mpki > 1000 {
		t.Errorf("CPI %.3f, MPKI %.3f are not believable", cpi, mpki)
	}
	for i, n := range Counts(t, none, 5) {
		if n != (perf.Count{Status: perf.OK}) {
			t.Errorf("%v of an idle cgroup: %+v, want a measured zero", Hardware[i], n)
		}
	}
}
