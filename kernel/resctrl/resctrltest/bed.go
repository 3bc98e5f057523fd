// Package resctrltest holds a resctrl to what kernel/resctrl expects of it: the same tests
// run on a kernel's and on a simulated one.
//
// They change all of it: they mount it with the options they want, fill it up, and take CPUs
// offline. They are written for the rig's machine: two sockets of two CPUs, an L3 of 11 ways
// of which devices fill the two highest, 8 CLOSIDs, MBA in steps of 10 per cent.
package resctrltest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// Bed is a machine with a resctrl that nobody else uses, not mounted.
type Bed interface {
	// FS is the machine's files. It makes directories.
	FS() hostfs.FS
	// Mount and Unmount are resctrl.Mount and Unmount at the default place.
	Mount(o resctrl.MountOptions) error
	Unmount() error
	// Clock is the machine's.
	Clock() resctrl.Clock
	// Spin starts a process that burns on a CPU and misses in the cache, and ends it with
	// the test.
	Spin(t testing.TB, cpu int) (pid int32)
	// Idle starts a process of at least that many threads that does next to nothing, and
	// ends it with the test.
	Idle(t testing.TB, threads int) (pid int32)
	// Online takes a CPU offline or brings it back.
	Online(t testing.TB, cpu int, on bool)
	// Newest says whether the kernel is 6.12 rather than 6.1: it renames monitoring groups,
	// has the mount option debug, and takes lists of tasks.
	Newest() bool
	// Stuck says whether some RMIDs never leave limbo: the hardware does not answer for them.
	Stuck() bool
}

// patience bounds every wait; a healthy machine needs a small part of it.
const patience = 30 * time.Second

// Conform runs all tests.
func Conform(t *testing.T, bed Bed) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Bed)
	}{
		{"info", testInfo},
		{"numbers of the hardware", testDebug},
		{"code and data apart", testCDP},
		{"bandwidth in MiB/s", testMBps},
		{"what schemata refuses", testSchemataRefusals},
		{"schemata are written once and read back", testWriteSchemata},
		{"exclusive ways", testExclusive},
		{"what mkdir and rmdir refuse", testMkdirRefusals},
		{"last_cmd_status", testStatus},
		{"threads move", testTasks},
		{"what tasks refuses", testTaskRefusals},
		{"others' threads stay", testForeignTasks},
		{"CPUs", testCPUs},
		{"traffic and occupancy", testMonitor},
		{"a group that goes and comes", testVanish},
		{"a monitoring group moves", testRename},
		{"a socket goes offline", testOffline},
		{"the lock", testLock},
		{"leftovers", testLeftovers},
		{"full, and limbo", testFull},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, bed) })
	}
}

// rig is a mounted resctrl in a test.
type rig struct {
	*testing.T
	bed Bed
	fs  hostfs.FS
	d   *resctrl.Driver
}

// mounted mounts resctrl for a test. Unmounting at the end removes all groups.
func mounted(t *testing.T, bed Bed, o resctrl.MountOptions) *rig {
	t.Helper()
	if err := bed.Mount(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Unmount(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{T: t, bed: bed, fs: bed.FS()}
	r.d = r.driver(resctrl.DefaultLockWait)
	return r
}

// driver opens a driver without reserves.
func (r *rig) driver(lockWait time.Duration) *resctrl.Driver {
	r.Helper()
	at, err := resctrl.Discover(r.fs)
	if err != nil {
		r.Fatal(err)
	}
	o := resctrl.DefaultOptions()
	o.ReserveCLOSIDs, o.ReserveRMIDs, o.LockWait, o.Clock = 0, 0, lockWait, r.bed.Clock()
	d, err := resctrl.Open(r.fs, at, o)
	if err != nil {
		r.Fatal(err)
	}
	return d
}

// must returns v, or ends the test.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ctrl makes a control group of ours, waiting for RMIDs of earlier tests.
func (r *rig) ctrl(name string) resctrl.Made {
	r.Helper()
	return r.sound(func() resctrl.Made { return must[resctrl.Made](r)(r.d.CreateGroup(name, patience)) })
}

// mon makes a monitoring group of ours.
func (r *rig) mon(parent resctrl.Name, name string) resctrl.Made {
	r.Helper()
	return r.sound(func() resctrl.Made { return must[resctrl.Made](r)(r.d.CreateMonGroup(parent, name, patience)) })
}

// sound makes a group again for as long as its counters do not count: emulated hardware may
// have RMIDs that answer with errors, for tests of that, and which one a group gets depends
// on how long those of earlier tests rest.
func (r *rig) sound(create func() resctrl.Made) resctrl.Made {
	r.Helper()
	const tries = 6
	for range tries {
		g := create()
		if r.counts(g.Name) {
			return g
		}
		must[resctrl.Removal](r)(r.d.Remove(g.Identity, true))
	}
	return create()
}

// counts reports whether nothing that a group monitors is refused.
func (r *rig) counts(n resctrl.Name) bool {
	m, err := r.d.OpenMonitor(n)
	if err != nil {
		return true // nothing is monitored here
	}
	defer m.Close() //nolint:errcheck // reading only
	list, err := m.Read(nil)
	return err != nil || !slices.ContainsFunc(list, func(v resctrl.Monitored) bool {
		return refused(v.Total) || refused(v.Local) || refused(v.Occupancy)
	})
}

func refused(c resctrl.Count) bool {
	return c.State == resctrl.Failed || c.State == resctrl.Unavailable
}

// path returns where a file of a group is, or the group for "".
func path(n resctrl.Name, file string) string {
	p := strings.TrimRight(resctrl.DefaultPoint+n.String(), "/")
	if file != "" {
		p += "/" + file
	}
	return p
}

// stranger makes a group as another tool would.
func (r *rig) stranger(n resctrl.Name) resctrl.Identity {
	r.Helper()
	r.eventually("mkdir "+n.String(), func() bool {
		err := r.mkdir(path(n, ""))
		if err != nil && !errors.Is(err, unix.EBUSY) {
			r.Fatal(err)
		}
		return err == nil
	})
	return resctrl.Identity{Name: n, Inode: must[uint64](r)(r.fs.Inode(path(n, "")))}
}

func (r *rig) mkdir(path string) error { return r.fs.(hostfs.DirMaker).Mkdir(path, 0o755) }
func (r *rig) rmdir(path string) error { return r.fs.(hostfs.DirMaker).Rmdir(path) }

// write writes a file as another tool would, and returns what was said of it.
func (r *rig) write(path, text string) (status string, err error) {
	err = r.fs.WriteFile(path, []byte(text))
	return r.status(), err
}

// put is a write that must succeed.
func (r *rig) put(path, text string) {
	r.Helper()
	if status, err := r.write(path, text); err != nil {
		r.Fatalf("%v, %q", err, status)
	}
}

// get reads a file.
func (r *rig) get(path string) string {
	r.Helper()
	return string(must[[]byte](r)(r.fs.ReadFile(path, nil)))
}

// status is last_cmd_status without the last newline.
func (r *rig) status() string {
	b, err := r.fs.ReadFile(resctrl.DefaultPoint+"/info/last_cmd_status", nil)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(string(b), "\n")
}

// eventually waits until f is true.
func (r *rig) eventually(what string, f func() bool) {
	r.Helper()
	clock := r.bed.Clock()
	for end := clock.Now().Add(patience); !f(); clock.Sleep(10 * time.Millisecond) {
		if clock.Now().After(end) {
			r.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// wantError checks an error's sentinels and errnos, and a part of its text.
func (r *rig) wantError(what string, err error, text string, is ...error) {
	r.Helper()
	if err == nil {
		r.Errorf("%s: no error, want %v %q", what, is, text)
		return
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			r.Errorf("%s: %v, want it to be %v", what, err, target)
		}
	}
	if !strings.Contains(err.Error(), text) {
		r.Errorf("%s: %v, want %q in it", what, err, text)
	}
}

// refused writes a file and checks errno and words.
func (r *rig) refused(path, text, status string, is error) {
	r.Helper()
	got, err := r.write(path, text)
	if !errors.Is(err, is) || got != status {
		r.Errorf("write %q to %s: %v and %q, want %v and %q", text, path, err, got, is, status)
	}
}

// verify says whether a group is still at its place.
func (r *rig) verify(id resctrl.Identity) {
	r.Helper()
	if ino, err := r.fs.Inode(path(id.Name, "")); err != nil || ino != id.Inode {
		r.Errorf("%s: inode %d, %v, want %d", id.Name, ino, err, id.Inode)
	}
}

// at returns the group that a thread is in.
func (r *rig) at(tid int32) resctrl.Name {
	r.Helper()
	return must[resctrl.Name](r)(r.d.GroupOf(tid))
}

// move moves processes.
func (r *rig) move(to resctrl.Identity, pids ...int32) resctrl.Moved {
	r.Helper()
	return must[resctrl.Moved](r)(r.d.MoveProcesses(to, func(dst []int32) ([]int32, error) { return append(dst, pids...), nil }))
}

// tasks returns a group's threads, sorted.
func (r *rig) tasks(n resctrl.Name) []int32 {
	r.Helper()
	return slices.Sorted(slices.Values(must[[]int32](r)(r.d.Tasks(n, nil))))
}

func names(groups []resctrl.Group) []string {
	var list []string
	for _, g := range groups {
		list = append(list, g.Name.String())
	}
	return list
}
