package linux

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/model"
)

// The bounds of a storm of forks: of processes, by the pids controller, and of time, after which each of them ends itself.
const (
	stormPIDs = 64
	stormLast = 20 * time.Second
)

// storm waits to be told how, and then forks without end: "many" until there is no room, "hop" one child after the other, each of which
// begins when its parent ends, four such chains at a time.
func storm(p *testchild.Parent, args []string) error {
	signal.Ignore(unix.SIGCHLD) // who ends is not waited for
	p.Say("ready")
	p.Line()
	now := unix.Timespec{}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	rawStorm(now.Sec+int64(stormLast/time.Second), args[0] == "hop")
	return nil
}

// rawStorm makes system calls alone: a child of fork has one thread of the Go runtime's, and no runtime.
//
//go:nosplit
//go:norace
func rawStorm(until int64, hop bool) {
	nap := unix.Timespec{Nsec: 200_000}
	for chains := 0; ; {
		now := unix.Timespec{}
		syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&now)), 0)
		if now.Sec >= until {
			syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno != 0: // no room
			syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
		case !hop:
		case pid == 0:
			chains = 3 // it goes on with one of its own
		default:
			if chains++; chains >= 4 {
				syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
			}
		}
	}
}

// stormBed is a task in which processes fork without end, at most stormPIDs at a time.
func stormBed(t *testing.T, name, how string) (b *bed, task string) {
	t.Helper()
	b = newBed(t, name)
	task = b.mkdir("be-1")
	pids := b.mounts.V1[cgroup.PIDs]
	if pids == "" {
		pids = b.mounts.Unified
	}
	bound := filepath.Join(pids, task, "pids.max")
	if err := os.WriteFile(bound, []byte(strconv.Itoa(stormPIDs)), 0); err != nil {
		t.Skipf("nothing here bounds how many processes there are: %v", err)
	}
	t.Cleanup(func() { // whatever became of the test: no new ones, and those that are there end
		_ = os.WriteFile(bound, []byte("0"), 0)
		_ = b.cg.WriteFreezeAsked(task, false)
		for range 100 {
			ids, err := os.ReadFile(filepath.Join(pids, task, "cgroup.procs"))
			if err != nil || len(ids) == 0 {
				return
			}
			for id := range strings.FieldsSeq(string(ids)) {
				if pid, err := strconv.Atoi(id); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	b.open(false)
	child := testchild.Start(t, "storm "+how).Await("ready")
	if err := b.cg.MovePID(task, child.PID()); err != nil {
		t.Fatal(err)
	}
	b.observe(model.WindowStart)
	child.Say("go")
	was := b.ids(task)
	b.until("nobody is left of those who were there a moment ago, or there is no room for more", func() bool {
		now := b.ids(task)
		return how == "many" && len(now) > stormPIDs*3/4 || how == "hop" && len(now) > 0 && !slices.ContainsFunc(now, func(pid int32) bool { return slices.Contains(was, pid) })
	})
	return b, task
}

// A task whose processes fork without end ends wholly, in bounded steps.
func TestEndOfAForkStorm(t *testing.T) {
	for _, how := range []string{"many", "hop"} {
		t.Run(how, func(t *testing.T) {
			b, task := stormBed(t, "storm-"+how, how)
			looks := 0
			e := &ending{cg: b.cg, ender: cgroup.Pidfds{}, pause: func(ctx context.Context, d time.Duration) { looks++; rest(ctx, d) }}
			now, did, err := e.run(t.Context(), b.tasks[task], model.End(0))
			t.Logf("%v after %d looks, %v", now, looks, err)
			if n := b.procs(task); n != 0 || !did || err != nil || looks > endLooks {
				t.Errorf("%d processes are left after %d looks, did %v: %v", n, looks, did, err)
			}
		})
	}
}

// It is frozen wholly, too: nobody is born any more, and nobody works. Told to end and let go in one turn, as policy pressure does, all of
// it ends.
func TestFrozenForkStorm(t *testing.T) {
	for _, how := range []string{"many", "hop"} {
		t.Run(how, func(t *testing.T) {
			b, task := stormBed(t, "storm-frozen-"+how, how)
			b.apply(model.Hold, task, model.Freeze(true), model.Applied)
			b.until("it has stopped", func() bool {
				state, err := b.cg.ReadFreezer(task)
				return err == nil && state == cgroup.Frozen
			})
			ids := b.ids(task)
			moved := b.used(1, task)
			time.Sleep(200 * time.Millisecond)
			if now := b.ids(task); !slices.Equal(ids, now) || len(now) == 0 || len(now) > stormPIDs || moved() {
				t.Errorf("it is frozen, and its processes were %v and are %v; used CPU time: %v", ids, now, moved())
			}
			b.h.Apply([]model.Change{
				{Seq: 12, Target: model.OfTask(b.tasks[task].Num), Kind: model.Run, Value: model.End(0)},
				{Seq: 13, Target: model.OfTask(b.tasks[task].Num), Kind: model.Release, Value: model.Ask(model.GroupFreeze)},
			})
			var res []model.Result
			b.until("both answers", func() bool { res = b.h.Results(res); return len(res) > 1 })
			for _, r := range res {
				if r.Kind != model.Applied || r.Error != "" {
					t.Errorf("%+v", r)
				}
			}
			if n := b.procs(task); n != 0 || b.frozen(task) {
				t.Errorf("%d processes are left, frozen %v", n, b.frozen(task))
			}
		})
	}
}
