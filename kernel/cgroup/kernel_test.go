package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"golang.org/x/sys/unix"
)

// The kernel tests run on the kernel they are started on, as root, in groups of their
// own. cgrouptest holds what every kernel must do, v1_kernel_test.go and the
// v2_*_kernel_test.go the rest. Their processes are this test binary itself, started anew
// with a task to do, so that they need no other program.

// patience bounds every wait; a healthy kernel needs a small part of it.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{"touch": touch, "delegatee": delegatee, "namespace": insideNamespace})
}

// touch holds so many MiB of anonymous memory.
func touch(p *testchild.Parent, args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	mem, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(mem); i += os.Getpagesize() {
		mem[i] = 1
	}
	return p.Stay()
}

// liveMounts finds the hierarchies; the tests need root.
func liveMounts(t *testing.T) (hostfs.FS, *Mounts) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	fs := hostfs.NewRoot("/")
	m, err := Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	return fs, m
}

// liveDriver opens the driver of this machine's layout.
func liveDriver(t *testing.T) Driver {
	t.Helper()
	fs, m := liveMounts(t)
	if m.Layout == LayoutNone {
		t.Skipf("no hierarchy here holds the cpu controller: refused %v", m.Refused)
	}
	d, err := Open(fs, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// liveV1 opens the v1 driver.
func liveV1(t *testing.T) *V1 {
	t.Helper()
	d, ok := liveDriver(t).(*V1)
	if !ok {
		t.Skip("the cpu controller is on cgroup v2 here, and the test is about v1's own files")
	}
	return d
}

// liveV2 opens the v2 driver on this machine's cgroup2 mount, which on a hybrid host has
// none of the controllers that v1 holds: the test names those that it needs.
func liveV2(t *testing.T, need ...Controller) *V2 {
	t.Helper()
	fs, m := liveMounts(t)
	d, err := OpenUnified(fs, m)
	if errors.Is(err, ErrUnsupportedLayout) {
		t.Skipf("no cgroup2 mount here: layout %s, refused %v", m.Layout, m.Refused)
	}
	if err != nil {
		t.Fatal(err)
	}
	on, err := d.ReadSubtreeControl("/")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range need {
		if !slices.Contains(on, c) {
			t.Skipf("%s/cgroup.subtree_control has %v and not %s (layout %s)", m.Unified, on, c, m.Layout)
		}
	}
	return d
}

// ownGroup makes a group that the test owns and removes it at the end, after whatever was
// registered later (children, processes).
func ownGroup(t *testing.T, d Driver, name string) string {
	t.Helper()
	path := fmt.Sprintf("/commensal-test-%d-%s", os.Getpid(), name)
	makeGroup(t, d, path)
	return path
}

func makeGroup(t *testing.T, d Driver, path string) {
	t.Helper()
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeGroup(t, d, path) })
}

// removeGroup removes a group; a process that was killed a moment ago may hold it still.
func removeGroup(t *testing.T, d Driver, path string) {
	t.Helper()
	err := d.Rmdir(path)
	for end := time.Now().Add(patience); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		err = d.Rmdir(path)
	}
	if err != nil && !errors.Is(err, ErrVanished) {
		t.Errorf("cleaning up: %v", err)
	}
}

// startTask starts a process with a role until kill or the test's end kills it.
func startTask(t testing.TB, role string) (pid int, kill func()) {
	t.Helper()
	c := testchild.Start(t, role).Await("ready")
	return c.PID(), c.End
}

// runInGroup starts a task that is in the group from its first instruction on, and does
// not wait until it is ready.
func runInGroup(t *testing.T, d *V2, path, role string) {
	t.Helper()
	testchild.StartWith(t, role, testchild.Options{Group: d.top + path})
}

// runCheck runs a role in a group to its end, with what else attr says. What the role
// finds wrong it writes to standard error, and fails.
func runCheck(t *testing.T, d *V2, path, role string, attr syscall.SysProcAttr) {
	t.Helper()
	c := testchild.StartWith(t, role, testchild.Options{Group: d.top + path, Attr: attr})
	if said, err := c.Wait(); err != nil {
		t.Errorf("%q: %v: %s", role, err, said)
	}
}

// start starts a task and moves it into a group.
func start(t *testing.T, d Driver, path, task string) (pid int32, kill func()) {
	t.Helper()
	id, kill := startTask(t, task)
	if err := d.MovePID(path, id); err != nil {
		t.Fatal(err)
	}
	return int32(id), kill
}

func open(t *testing.T, d Driver, path string) Group {
	t.Helper()
	g, err := d.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("close %s: %v", path, err)
		}
	})
	return g
}

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func procs(t *testing.T, g Group) []int32 {
	t.Helper()
	list, err := g.Procs(nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plainMkdir makes a v2 group without enabling anything.
func plainMkdir(t *testing.T, d *V2, path string) {
	t.Helper()
	must(t, os.Mkdir(d.top+path, groupPerm))
	t.Cleanup(func() { removeGroup(t, d, path) })
}

func itoa(v int32) string { return strconv.Itoa(int(v)) }
