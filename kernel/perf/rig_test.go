package perf_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/perf"
	"github.com/commensal-io/commensal/kernel/perf/perftest"
)

// ConformRig tests what changes the whole machine, or needs what the rig's machine has; only skips it elsewhere.
func ConformRig(t *testing.T, open Open, only func(testing.TB)) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"counters that another tool holds", testHeld},
		{"the watchdog holds a counter", testWatchdog},
		{"a CPU goes offline and comes back", testHotplug},
		{"the ratios of the machine", testRatios},
	} {
		t.Run(test.name, func(t *testing.T) {
			only(t)
			test.run(t, open)
		})
	}
}

// ConformExact tests what takes counters that follow the instructions executed, and a clock that does not stall.
func ConformExact(t *testing.T, open Open) {
	t.Run("counters taken in turns are estimated", func(t *testing.T) { testTurns(t, open) })
}

// testTurns lets two more tools want all general counters, so that the kernel takes turns.
func testTurns(t *testing.T, open Open) {
	dir := Cgroup(t, "turns")
	s := open.Opened(t, Hardware)
	task := Added(t, s, dir)
	for range 2 {
		Spin(t, dir)
	}
	turn := func() perf.Count {
		before := Counts(t, task, 5)[0]
		window(t, s, dir, 800*time.Millisecond)
		after := Counts(t, task, 5)[0]
		if before.Status != perf.OK || after.Status != perf.OK {
			t.Fatalf("cycles %+v, then %+v: want ok", before, after)
		}
		return perf.Count{Raw: after.Raw - before.Raw, EnabledNsec: after.EnabledNsec - before.EnabledNsec,
			RunningNsec: after.RunningNsec - before.RunningNsec, EstimateRaw: after.EstimateRaw - before.EstimateRaw}
	}
	alone := turn()
	if !about(alone.RunningNsec, alone.EnabledNsec, 0.02) {
		t.Errorf("alone: %+v, want no turns", alone)
	}
	const interval = "/sys/bus/event_source/devices/cpu/perf_event_mux_interval_ms" // 4: too often for an emulator
	Must(t, os.WriteFile(interval, []byte("20"), 0o644))
	t.Cleanup(func() { _ = os.WriteFile(interval, []byte("4"), 0o644) })
	for _, cpu := range perftest.Online(t) {
		for range 2 { // four general counters each: only one of them, or ours, fits at a time
			g, err := perf.OpenCPU(cpu, []perf.Event{perf.LLCMisses, perf.LLCReferences, perf.LLCMisses, perf.LLCReferences})
			Must(t, err)
			t.Cleanup(func() { _ = g.Close() })
			Must(t, g.Enable())
		}
	}
	shared := turn()
	truth := float64(alone.Raw) / float64(alone.EnabledNsec) * float64(shared.EnabledNsec)
	t.Logf("alone %+v", alone)
	t.Logf("shared %+v: %.0f%% of the time on the counters, estimate %.3f of the truth", shared,
		100*float64(shared.RunningNsec)/float64(shared.EnabledNsec), float64(shared.EstimateRaw)/truth)
	if share := float64(shared.RunningNsec) / float64(shared.EnabledNsec); share > 0.9 || share < 0.05 {
		t.Errorf("%.2f of the time on the counters, want turns", share)
	}
	if !about(shared.EstimateRaw, uint64(truth), 0.15) {
		t.Errorf("estimate %d, truth %.0f", shared.EstimateRaw, truth)
	}
}

func testHeld(t *testing.T, open Open) {
	dir := Cgroup(t, "held")
	s := open.Opened(t, Hardware)
	task := Added(t, s, dir)
	Spin(t, dir)
	turn := func() []perf.Count {
		window(t, s, dir, 100*time.Millisecond)
		return Counts(t, task, 5)
	}
	before := turn()
	if before[0].Status != perf.OK || before[0].Raw == 0 {
		t.Fatalf("free counters: %+v", before[0])
	}
	holder := testchild.Start(t, "hold")
	t.Log(holder.Line())
	held := turn()
	t.Logf("held: %+v", held[0])
	if held[0].Status != perf.Unavailable || held[0].EstimateRaw != before[0].EstimateRaw || held[0].EnabledNsec == before[0].EnabledNsec {
		t.Errorf("all counters held: %+v, want Unavailable and no number grown but the time enabled; before %+v", held[0], before[0])
	}
	holder.End()
	if start := Counts(t, task, 5)[0]; start.Status != perf.OK {
		t.Errorf("before the next window: %+v, want ok: nothing was missed since", start)
	}
	after := turn()
	t.Logf("let go: %+v", after[0])
	// By the time on the counters: of the time enabled an old kernel credits a part of the window before.
	grown, ran := after[0].EstimateRaw-held[0].EstimateRaw, after[0].RunningNsec-held[0].RunningNsec
	rate := float64(before[0].EstimateRaw) / float64(before[0].RunningNsec)
	if after[0].Status != perf.OK || !about(grown, uint64(rate*float64(ran)), 0.5) { // made up for it would be several times as much
		t.Errorf("let go: %d cycles in %d ns, want ok and %.2f a ns: the time held is not made up for", grown, ran, rate)
	}
}

func testWatchdog(t *testing.T, open Open) {
	const file = "/proc/sys/kernel/nmi_watchdog"
	if err := os.WriteFile(file, []byte("1\n"), 0o644); err != nil {
		t.Logf("this kernel refuses the watchdog: %v", err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("0\n"), 0o644) })
	state, err := os.ReadFile(file)
	Must(t, err)
	t.Logf("nmi_watchdog is %s", bytes.TrimSpace(state))
	testHardware(t, open) // its counter is one of four general ones or the fixed one: ours must fit beside it
}

// plug switches a CPU on or off.
func plug(t testing.TB, cpu int, state string) {
	t.Helper()
	Must(t, os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(state), 0o644))
}

func testHotplug(t *testing.T, open Open) {
	cpus := perftest.Online(t)
	cpu := cpus[len(cpus)-1]
	t.Cleanup(func() { plug(t, cpu, "1") })
	dir := Cgroup(t, "hotplug")
	events := []perf.Event{perf.Cycles, perf.Instructions, perf.TaskClock}
	s := open.Opened(t, events)
	task := Added(t, s, dir)
	spinner := Spin(t, dir)
	spinner.Pin(cpu)
	clock := func(what string) uint64 {
		out := Counts(t, task, 3)
		t.Logf("%s: cycles %+v, task-clock %d ms of %d ms", what, out[0], out[2].Raw/1e6, UsageNsec(t, dir)/1e6)
		if out[0].Status != perf.OK {
			t.Errorf("%s: %v, want ok", what, out[0].Status)
		}
		return out[2].EstimateRaw
	}
	// The kernel moves the spinner to another CPU.
	used := window(t, s, dir, 200*time.Millisecond, func() { plug(t, cpu, "0") })
	if off := clock("offline"); !used.holds(off) {
		t.Errorf("task-clock %d ns of %+v: what was counted before the CPU went, or after, is missing", off, used)
	}
	plug(t, cpu, "1")
	spinner.Pin(cpu)
	back := clock("back online")
	used = window(t, s, dir, 200*time.Millisecond)
	if again := clock("counted again") - back; !used.holds(again) {
		t.Errorf("task-clock %d ns of %+v on the CPU that came back", again, used)
	}
	plug(t, cpu, "0")
	later, err := open(cpus, []perf.Event{perf.TaskClock, perf.Instructions, perf.Cycles})
	if err != nil {
		t.Fatalf("opened while a CPU is offline: %v", err)
	}
	defer func() { Must(t, later.Close()) }()
	other, err := later.Add(Dir(t, dir))
	Must(t, err)
	plug(t, cpu, "1")
	spinner.Pin(cpu)
	used = window(t, later, dir, 100*time.Millisecond)
	if got := Counts(t, other, 3)[0]; got.Status != perf.OK || !used.holds(got.Raw) {
		t.Errorf("opened while it was offline: task-clock %+v of %+v", got, used)
	}
}

// What the rig's table gives the tasks of two monitoring groups (docs/RIG.md): thousandths of a cycle an
// instruction, and misses per 1000 instructions. All others have CPI 1 (more under icount) and MPKI 1.
var injected = []struct {
	rmid      int
	cpi, mpki float64
}{{57, 3.0, 20}, {58, 0.8, 2}}

const resctrl = "/sys/fs/resctrl"

// mountResctrl mounts resctrl for the length of the test. The debug option, where the kernel has it, shows RMIDs.
func mountResctrl(t testing.TB) {
	t.Helper()
	err := unix.Mount("resctrl", resctrl, "resctrl", 0, "debug")
	if errors.Is(err, unix.EINVAL) {
		err = unix.Mount("resctrl", resctrl, "resctrl", 0, "")
	}
	if err != nil {
		t.Fatalf("mount resctrl: %v", err)
	}
	t.Cleanup(func() { Must(t, unix.Unmount(resctrl, 0)) })
}

// monitorGroups makes monitoring groups until the RMIDs are held, and returns the folders of those.
func monitorGroups(t testing.TB, rmids ...int) []string {
	t.Helper()
	found := make([]string, len(rmids))
	for missing, i := len(rmids), 1; missing > 0; i++ {
		dir := filepath.Join(resctrl, "mon_groups", "commensal-test-"+strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatalf("RMIDs %v: group %d: %v", rmids, i, err)
		}
		t.Cleanup(func() { Must(t, os.Remove(dir)) })
		rmid := i // freshly booted they are handed out in order
		if b, err := os.ReadFile(filepath.Join(dir, "mon_hw_id")); err == nil {
			rmid, err = strconv.Atoi(strings.TrimSpace(string(b)))
			Must(t, err)
		}
		for k, want := range rmids {
			if rmid == want {
				found[k] = dir
				missing--
			}
		}
	}
	return found
}

func testRatios(t *testing.T, open Open) {
	mountResctrl(t)
	groups := monitorGroups(t, injected[0].rmid, injected[1].rmid)
	s := open.Opened(t, Hardware)
	var tasks []Task
	var last string
	for i := range 3 { // the third has no monitoring group of its own: RMID 0
		dir := Cgroup(t, "ratio-"+strconv.Itoa(i))
		tasks, last = append(tasks, Added(t, s, dir)), dir
		spinner := Spin(t, dir)
		if i == 2 {
			continue
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", spinner.PID()))
		Must(t, err)
		for _, thread := range threads {
			Must(t, os.WriteFile(filepath.Join(groups[i], "tasks"), []byte(thread.Name()), 0o644))
		}
	}
	// An emulated CPU may stand still for a tenth of a second between the switch of counters and that of RMIDs, and
	// spoil a window; what is charged to the wrong cgroup would be wrong in all of them.
	before := make([][]perf.Count, len(tasks))
	for i := range tasks {
		before[i] = make([]perf.Count, len(Hardware))
	}
	for range 5 {
		window(t, s, last, 200*time.Millisecond)
		good := true
		for i, task := range tasks {
			out := Counts(t, task, len(Hardware))
			good = asInjected(t, i, before[i], out) && good
			before[i] = out
		}
		if good {
			return
		}
	}
	t.Errorf("in no window the ratios were as injected: %+v, and CPI and MPKI 1 for RMID 0", injected)
}

// asInjected says whether the i-th cgroup's window has the ratios that the rig gives it.
func asInjected(t *testing.T, i int, before, after []perf.Count) bool {
	grown := func(e int) float64 { return float64(after[e].EstimateRaw - before[e].EstimateRaw) }
	cpi, refs, mpki := grown(0)/grown(1), grown(2)/grown(1), 1000*grown(4)/grown(1)
	t.Logf("cgroup %d: CPI %.4f, on reference cycles %.4f, MPKI %.4f, %v", i, cpi, refs, mpki, after[0].Status)
	wantCPI, wantMPKI := 1.0, 1.0 // what the others have
	if i < len(injected) {
		wantCPI, wantMPKI = injected[i].cpi, injected[i].mpki
	} else if cpi > 2 {
		// Under icount each CPU counts what all of them executed: shift=1 gives 2 ns and so 4 cycles an instruction, less while
		// others run.
		wantCPI, refs = cpi, cpi
	}
	return after[0].Status == perf.OK && near(cpi, wantCPI) && near(refs, wantCPI) && near(mpki, wantMPKI)
}

// near is within a tenth.
func near(got, want float64) bool { return got > want*0.9 && got < want*1.1 }
