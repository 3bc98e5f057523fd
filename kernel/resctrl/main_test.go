package resctrl

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// The tests on the kernel's own resctrl change all of a machine: they mount it with the
// options they want, fill it up, and take CPUs offline. They run in the rig only, and one
// after another. Everything else here runs anywhere.

// patience bounds every wait; a healthy guest needs a small part of it.
const patience = 30 * time.Second

// TestMain knows the roles of the tests' children:
//
//	churn        start and end threads all the time
//	lock DIR     hold the exclusive lock on DIR
//	leave        make the group commensal-left, and hold the driver's lock
//	idle N       N threads more that sleep
//	grow N       start N threads at once, then one more each 2 ms
func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{"churn": churn, "lock": lock, "leave": leave, "idle": idle, "grow": grow})
}

func churn(p *testchild.Parent, _ []string) error {
	newThreads(4)
	for range 2 {
		go func() {
			for {
				done := make(chan struct{})
				go func() {
					runtime.LockOSThread() // and never unlocked: the thread ends with it
					time.Sleep(time.Millisecond)
					close(done)
				}()
				<-done
			}
		}()
	}
	return p.Stay()
}

func lock(p *testchild.Parent, args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	if err != nil {
		return err
	}
	return p.Stay()
}

func idle(p *testchild.Parent, args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	newThreads(n)
	return p.Stay()
}

func grow(p *testchild.Parent, args []string) error {
	go func() {
		for range 400 {
			time.Sleep(2 * time.Millisecond)
			newThreads(1)
		}
	}()
	return idle(p, args)
}

// leave makes a group with the child itself in it, and goes on holding the lock.
func leave(p *testchild.Parent, _ []string) error {
	root := hostfs.NewRoot("/")
	at, err := Discover(root)
	if err != nil {
		return err
	}
	d, err := Open(root, at, DefaultOptions())
	if err != nil {
		return err
	}
	made, err := d.CreateGroup("left", patience)
	if err != nil {
		return err
	}
	self := int32(os.Getpid())
	_, err = d.MoveProcesses(made.Identity, func(dst []int32) ([]int32, error) { return append(dst, self), nil })
	if err != nil {
		return err
	}
	held := make(chan struct{})
	go func() {
		_ = d.locked(toChange, func() error {
			close(held)
			select {}
		})
	}()
	<-held
	return p.Stay()
}

// newThreads starts threads that stay.
func newThreads(n int) {
	for range n {
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			select {}
		}()
		<-started
	}
}

// spawn starts a child and waits until it is ready; it ends with the test.
func spawn(t testing.TB, role string) (pid int32, end func()) {
	t.Helper()
	c := testchild.Start(t, role).Await("ready")
	return int32(c.PID()), c.End
}

// spinner spawns a child that burns on one CPU; its idle threads are kept there too,
// because a guest's CPU that stalls while one of them runs counts as used by it.
func spinner(t *testing.T, cpu int) (pid int32) {
	t.Helper()
	c := testchild.Start(t, "spin").Await("ready")
	c.Pin(cpu)
	return int32(c.PID())
}

// mounted mounts resctrl for a test and opens a driver without reserves. Unmounting at the
// end removes all groups that the test left.
func mounted(t *testing.T, o MountOptions) *Driver {
	t.Helper()
	rigtest.Only(t, "mounts resctrl and makes groups in it")
	rigtest.NeedRDT(t)
	if err := Mount(DefaultPoint, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unmount(DefaultPoint); err != nil {
			t.Error(err)
		}
	})
	return openLive(t)
}

// openLive opens a driver on what is mounted.
func openLive(t *testing.T) *Driver {
	t.Helper()
	root := hostfs.NewRoot("/")
	at, err := Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	opt := DefaultOptions()
	opt.ReserveCLOSIDs, opt.ReserveRMIDs = 0, 0
	d, err := Open(root, at, opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newest says whether the guest's kernel is the newer of the two that the rig knows.
func newest() bool { return rigtest.Kernel() != "6.1" }

// eventually waits until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// must returns v, or ends the test.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ctrlGroup makes a control group of ours, waiting for RMIDs of earlier tests.
func ctrlGroup(t *testing.T, d *Driver, name string) Made {
	t.Helper()
	return must[Made](t)(d.CreateGroup(name, patience))
}

// monGroup makes a monitoring group of ours.
func monGroup(t *testing.T, d *Driver, parent Name, name string) Made {
	t.Helper()
	return must[Made](t)(d.CreateMonGroup(parent, name, patience))
}

// stranger makes a group as another tool would, without the driver.
func stranger(t *testing.T, d *Driver, n Name) Identity {
	t.Helper()
	eventually(t, "mkdir "+n.String(), func() bool {
		err := os.Mkdir(d.path(n), 0o755)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	inode := must[uint64](t)(d.fs.Inode(d.path(n)))
	return Identity{Name: n, Inode: inode}
}

// put writes a file as another tool would.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := rawWrite(path, text); err != nil {
		t.Fatal(err)
	}
}

func rawWrite(path, text string) error {
	return hostfs.NewRoot("/").WriteFile(path, []byte(text))
}

// get reads a file.
func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantError checks an error's sentinels and errnos, and a part of its text.
func wantError(t *testing.T, what string, err error, text string, is ...error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %v %q", what, is, text)
		return
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v, want it to be %v", what, err, target)
		}
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q in it", what, err, text)
	}
}

// names lists groups' names.
func names(groups []Group) []string {
	var list []string
	for _, g := range groups {
		list = append(list, g.Name.String())
	}
	return list
}

// full returns the full mask and domains of L3 (or its code half).
func full(t *testing.T, d *Driver) (c *Cache, domains []int) {
	t.Helper()
	info := must[*Info](t)(d.Info())
	s := must[Schemata](t)(d.ReadSchemata(Name{}))
	for _, r := range []Resource{L3, L3Code} {
		if c := info.Cache(r); c != nil {
			return c, s.Domains(r)
		}
	}
	t.Fatalf("no L3 in %+v", info)
	return nil, nil
}

// sorted returns ids in order.
func sorted(ids []int32) []int32 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
