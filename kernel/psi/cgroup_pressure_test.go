package psi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestMain(m *testing.M) { testchild.Main(m, nil) }

// liveGroup makes a v2 group that the test owns, and returns its directory.
func liveGroup(t *testing.T, name string) (hostfs.FS, string) {
	t.Helper()
	root := liveRoot(t)
	base := ""
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(dir + "/cgroup.controllers"); err == nil {
			base = dir
			break
		}
	}
	if base == "" {
		t.Skip("no cgroup2 mount here, and v1 has no pressure files")
	}
	dir := fmt.Sprintf("%s/commensal-test-%d-psi-%s", base, os.Getpid(), name)
	makeGroup(t, dir)
	return root, dir
}

func makeGroup(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("making cgroups takes root: %v", err)
	}
	t.Cleanup(func() { removeGroup(t, dir) })
}

// removeGroup removes a group; a process that was killed a moment ago may hold it still.
func removeGroup(t *testing.T, dir string) {
	t.Helper()
	err := unix.Rmdir(dir)
	for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = unix.Rmdir(dir)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		t.Errorf("cleaning up: %v", err)
	}
}

// contend puts two processes that never sleep on one CPU into the group.
func contend(t *testing.T, dir string) {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !allowed.IsSet(cpu) {
		cpu++
	}
	for range 2 {
		c := testchild.Start(t, "spin").Await("ready")
		c.Move(dir) // first, because kernels before 6.2 forget in it the CPUs that were asked for
		c.Pin(cpu)
	}
}

func armGroup(t *testing.T, g Group, r Resource, stall time.Duration) *Trigger {
	t.Helper()
	trigger, err := g.OpenTrigger(r, Some, stall, window)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("arming triggers is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trigger
}

// TestKernelGroupPressure: two that want one CPU are the pressure of their group and of
// those above it, and of no other; a trigger on it fires.
func TestKernelGroupPressure(t *testing.T) {
	root, top := liveGroup(t, "contended")
	busy, idle := top+"/busy", top+"/idle"
	makeGroup(t, busy)
	makeGroup(t, idle)
	trigger := armGroup(t, OfGroup(root, busy), CPU, 200*time.Millisecond)
	defer func() { _ = trigger.Close() }()
	readers := map[string]*Reader{}
	for _, dir := range []string{top, busy, idle} {
		r, err := OfGroup(root, dir).Open(CPU)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		if got, err := r.Totals(); err != nil || got.SomeUsec != 0 {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
		readers[dir] = r
	}
	contend(t, busy)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := trigger.Wait(ctx); err != nil {
		t.Errorf("Wait: %v", err)
	}
	for dir, want := range map[string]bool{top: true, busy: true, idle: false} {
		got, err := readers[dir].Totals()
		if err != nil || (got.SomeUsec >= 100_000) != want || (!want && got.SomeUsec != 0) {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
		p, err := OfGroup(root, dir).Read(CPU)
		if err != nil || p.Some.TotalUsec < got.SomeUsec || !p.HasFull {
			t.Errorf("%s: %+v, %v", dir, p, err)
		}
	}
	for _, r := range []Resource{Memory, IO} {
		if p, err := OfGroup(root, idle).Read(r); err != nil || p.Some.TotalUsec != 0 {
			t.Errorf("%s of an empty group: %+v, %v", r, p, err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := readers[busy].Totals(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Totals allocates %v times", n)
	}
}

// TestKernelGroupSwitchedOff switches the accounting off under a reader and a trigger.
func TestKernelGroupSwitchedOff(t *testing.T) {
	root, dir := liveGroup(t, "switch")
	g := OfGroup(root, dir)
	if on, err := g.ReadAccounting(); errors.Is(err, ErrUnsupported) {
		t.Skipf("no cgroup.pressure (before Linux 6.1): %v", err)
	} else if err != nil || !on {
		t.Fatalf("a new group's accounting is on: %v, %v", on, err)
	}
	reader, err := g.Open(CPU)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	trigger := armGroup(t, g, Memory, window)
	defer func() { _ = trigger.Close() }()
	waited := make(chan error, 1)
	go func() { waited <- trigger.Wait(context.Background()) }()
	if err := g.WriteAccounting(false); err != nil {
		t.Fatal(err)
	}
	if on, err := g.ReadAccounting(); err != nil || on {
		t.Errorf("switched off it is on: %v, %v", on, err)
	}
	if err := receive(t, waited); !errors.Is(err, ErrTriggerGone) || !errors.Is(err, ErrSwitchedOff) || errors.Is(err, ErrGroupGone) {
		t.Errorf("Wait: %v", err)
	}
	check := func(when string, want error) {
		t.Helper()
		_, readErr := g.Read(CPU)
		fresh, openErr := g.Open(IO)
		if openErr == nil {
			_, openErr = fresh.Totals()
			_ = fresh.Close()
		}
		_, armErr := g.OpenTrigger(CPU, Some, window/2, window)
		for what, err := range map[string]error{"read": readErr, "open": openErr, "arm": armErr} {
			if what == "arm" && want == nil {
				continue
			}
			if !errors.Is(err, want) || errors.Is(err, ErrUnsupported) {
				t.Errorf("%s, %s: %v", when, what, err)
			}
		}
		if _, err := reader.Totals(); !errors.Is(err, ErrSwitchedOff) || errors.Is(err, ErrGroupGone) {
			t.Errorf("%s, the old reader: %v", when, err)
		}
	}
	check("off", ErrSwitchedOff)
	if err := g.WriteAccounting(true); err != nil {
		t.Fatal(err)
	}
	check("on again", nil)
}

// TestKernelGroupGone removes a group, and makes another in its place.
func TestKernelGroupGone(t *testing.T) {
	root, dir := liveGroup(t, "gone")
	g := OfGroup(root, dir)
	reader, err := g.Open(Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	trigger := armGroup(t, g, Memory, window)
	defer func() { _ = trigger.Close() }()
	waited := make(chan error, 1)
	go func() { waited <- trigger.Wait(context.Background()) }()
	removeGroup(t, dir)
	if err := receive(t, waited); !errors.Is(err, ErrTriggerGone) || !errors.Is(err, ErrGroupGone) {
		t.Errorf("Wait on a removed group: %v", err)
	}
	for _, again := range []bool{false, true} {
		if again {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reader.Totals(); !errors.Is(err, ErrGroupGone) || errors.Is(err, ErrSwitchedOff) {
			t.Errorf("Totals of a removed group, made again %v: %v", again, err)
		}
		if again {
			break
		}
		_, readErr := g.Read(CPU)
		_, openErr := g.Open(CPU)
		_, armErr := g.OpenTrigger(CPU, Some, window/2, window)
		_, switchErr := g.ReadAccounting()
		for what, err := range map[string]error{"read": readErr, "open": openErr, "arm": armErr, "accounting": switchErr, "switch": g.WriteAccounting(true)} {
			if !errors.Is(err, ErrGroupGone) || errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

func TestGroupFixture(t *testing.T) {
	for dir, cpu := range map[string]Pressure{
		"testdata/qemu-6.1": {Some: Line{TotalUsec: 1008766}, Full: Line{TotalUsec: 916720}, HasFull: true},
		"testdata/qemu-6.12": {
			Some: Line{Avg10: 24.75, Avg60: 4.74, Avg300: 1, TotalUsec: 3290682}, Full: Line{Avg10: 23.29, Avg60: 4.45, Avg300: 0.94, TotalUsec: 3075427}, HasFull: true,
		},
	} {
		g := OfGroup(hostfs.NewRoot(dir), "/sys/fs/cgroup/batch/job-1")
		if got, err := g.Read(CPU); err != nil || got != cpu {
			t.Errorf("%s: %+v, %v", dir, got, err)
		}
		for _, r := range []Resource{Memory, IO} {
			reader, err := g.Open(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := reader.Totals(); err != nil || !got.HasFull || got.FullUsec > got.SomeUsec {
				t.Errorf("%s: %s: %+v, %v", dir, r, got, err)
			}
			if err := reader.Close(); err != nil {
				t.Error(err)
			}
		}
		if on, err := g.ReadAccounting(); err != nil || !on {
			t.Errorf("%s: accounting: %v, %v", dir, on, err)
		}
	}
}

// TestGroupAbsences: a kernel without PSI, a group without its switch, one switched off.
func TestGroupAbsences(t *testing.T) {
	dir := t.TempDir()
	root := hostfs.NewRoot(dir)
	group := dir + "/g"
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	g := OfGroup(root, "/g")
	if _, err := g.Read(CPU); !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrGroupGone) || !strings.Contains(err.Error(), "/g/cpu.pressure") {
		t.Errorf("no file: %v", err)
	}
	if _, err := g.ReadAccounting(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("no switch: %v", err)
	}
	if err := g.WriteAccounting(true); !errors.Is(err, ErrUnsupported) {
		t.Errorf("no switch to write: %v", err)
	}
	for text, want := range map[string]error{"0\n": ErrSwitchedOff, "1\n": ErrUnsupported, "2\n": ErrUnsupported} {
		if err := os.WriteFile(group+"/cgroup.pressure", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Read(CPU); !errors.Is(err, want) {
			t.Errorf("cgroup.pressure %q: %v, want %v", text, err, want)
		}
	}
	if err := os.WriteFile(group+"/cgroup.pressure", []byte("2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := g.ReadAccounting(); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "/g/cgroup.pressure") {
		t.Errorf("malformed: %v", err)
	}
	if _, err := OfGroup(root, "/none").Read(CPU); !errors.Is(err, ErrGroupGone) || errors.Is(err, ErrUnsupported) {
		t.Errorf("no group: %v", err)
	}
	off := OfGroup(withoutPSI{root}, "/g")
	if _, err := off.Read(CPU); !errors.Is(err, ErrUnsupported) {
		t.Errorf("psi=0: %v", err)
	}
	if _, err := off.Open(CPU); !errors.Is(err, ErrUnsupported) {
		t.Errorf("psi=0: %v", err)
	}
	if _, err := off.OpenTrigger(CPU, Some, 1, 2); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a trigger without a way to write: %v", err)
	}
	var pe *fs.PathError
	if _, err := OfGroup(root, "/none").Open(IO); !errors.As(err, &pe) || pe.Path != "/none/io.pressure" {
		t.Errorf("the path is lost: %v", err)
	}
}

func TestParseAccounting(t *testing.T) {
	for text, want := range map[string]bool{"0\n": false, "1\n": true, "1": true} {
		if got, err := parseAccounting([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "2\n", "on\n", "1 \n"} {
		if got, err := parseAccounting([]byte(text)); !errors.Is(err, ErrMalformed) || got {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func FuzzParseAccounting(f *testing.F) {
	for _, s := range []string{"0\n", "1\n", "", "01"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if on, err := parseAccounting(data); err == nil && on != strings.HasPrefix(string(data), "1") {
			t.Errorf("%q: %v", data, on)
		}
	})
}
