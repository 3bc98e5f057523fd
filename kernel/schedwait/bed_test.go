package schedwait

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestMain(m *testing.M) {
	testchild.Main(m, map[string]testchild.Role{"nap": nap, "fork": forks, "brief": brief, "pingpong": pingPong})
}

// nap is threads that each burn for a while and sleep for a while: nap N BURN SLEEP.
func nap(p *testchild.Parent, args []string) error {
	n, err := strconv.Atoi(args[0])
	burn, err2 := time.ParseDuration(args[1])
	sleep, err3 := time.ParseDuration(args[2])
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	runtime.GOMAXPROCS(n + 1)
	for range n {
		go func() {
			runtime.LockOSThread()
			for ts := unix.NsecToTimespec(sleep.Nanoseconds()); ; {
				testchild.Burn(burn)
				_ = unix.Nanosleep(&ts, nil) // woken early is as good
			}
		}()
	}
	return p.Stay()
}

// brief ends after a little work.
func brief(*testchild.Parent, []string) error {
	testchild.Burn(200 * time.Microsecond)
	return nil
}

// forks starts children that end soon, one after the other.
func forks(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	for {
		c := testchild.Command("brief")
		if err := c.Run(); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it is always there
	return ts.Nano()
}

// bed is cgroups of a test's own, in the hierarchy that has the cpu controller.
type bed struct {
	t    testing.TB
	root string
	v2   bool
}

func newBed(t testing.TB) *bed {
	t.Helper()
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	must(t, err)
	b := &bed{t: t, root: m.V1[cgroup.CPU]}
	if b.root == "" {
		b.root, b.v2 = m.Unified, true
	}
	b.root = filepath.Join(b.root, fmt.Sprintf("commensal-schedwait-%d", os.Getpid()))
	b.make(b.root)
	if b.v2 {
		b.delegate(b.root)
	}
	return b
}

func (b *bed) make(dir string) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrPermission) {
			b.t.Skipf("may not make a cgroup here: %v", err)
		}
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		for range 200 { // a process that was just reaped may still hold it
			if err := os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.t.Errorf("%s could not be removed", dir)
	})
}

// delegate lets the groups below have quotas.
func (b *bed) delegate(dir string) {
	b.t.Helper()
	for _, d := range []string{filepath.Dir(dir), dir} {
		must(b.t, os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+cpu"), 0))
	}
}

func (b *bed) group(name string) string {
	b.t.Helper()
	dir := filepath.Join(b.root, name)
	b.make(dir)
	return dir
}

func (b *bed) id(dir string) uint64 {
	b.t.Helper()
	var st unix.Stat_t
	must(b.t, unix.Stat(dir, &st))
	return st.Ino
}

// throttle gives a group a quota in microseconds each period.
func (b *bed) throttle(dir string, quota, period int) {
	b.t.Helper()
	if b.v2 {
		must(b.t, os.WriteFile(filepath.Join(dir, "cpu.max"), fmt.Appendf(nil, "%d %d", quota, period), 0))
		return
	}
	must(b.t, os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), fmt.Append(nil, period), 0))
	must(b.t, os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), fmt.Append(nil, quota), 0))
}

// start starts a child in a group.
func (b *bed) start(dir, role string) *testchild.Child {
	b.t.Helper()
	c := testchild.Start(b.t, role)
	c.Move(dir)
	return c.Await("ready")
}

// open opens a source, or skips the test where the kernel has no BPF for us.
func (b *bed) open(o Options) *Source {
	b.t.Helper()
	s := b.source(o)
	b.t.Cleanup(func() { must(b.t, s.Close()) })
	return s
}

// source is open, and the test closes it.
func (b *bed) source(o Options) *Source {
	b.t.Helper()
	o.V2 = b.v2
	s, err := Open(o)
	if errors.Is(err, ErrNotSupported) || errors.Is(err, ErrPermission) {
		b.t.Skipf("not measured here: %v", err)
	}
	must(b.t, err)
	return s
}

// sum adds up what a task is charged to parties that a function takes.
func sum(w *Waits, of func(Party) bool) (nsec int64) {
	for _, x := range w.Shares {
		if of(x.Party) {
			nsec += x.Nsec
		}
	}
	return nsec
}

// taskOf returns a task's waits.
func taskOf(t *testing.T, r *Reading, task int) *Waits {
	t.Helper()
	i := slices.IndexFunc(r.Tasks, func(w Waits) bool { return w.Task == task })
	if i < 0 {
		t.Fatalf("no task %d in the reading", task)
	}
	return &r.Tasks[i]
}

// weigh gives a group a weight, in hundredths of the default one.
func (b *bed) weigh(dir string, percent int) {
	b.t.Helper()
	if b.v2 {
		must(b.t, os.WriteFile(filepath.Join(dir, "cpu.weight"), fmt.Append(nil, percent), 0))
		return
	}
	must(b.t, os.WriteFile(filepath.Join(dir, "cpu.shares"), fmt.Append(nil, max(2, percent*1024/100)), 0))
}
