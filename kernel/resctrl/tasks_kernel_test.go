package resctrl

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadsOf lists a process's threads.
func threadsOf(t *testing.T, d *Driver, pid int32) []int32 {
	t.Helper()
	return sorted(must[[]int32](t)(d.threads(pid, nil)))
}

// TestKernelMoveProcesses moves a process that keeps starting threads, and finds every one
// of them there; back again; and into a monitoring group of another control group.
func TestKernelMoveProcesses(t *testing.T) {
	d := mounted(t, MountOptions{})
	be, ls := ctrlGroup(t, d, "be"), ctrlGroup(t, d, "ls")
	m := monGroup(t, d, ls.Name, "m")
	pid, end := spawn(t, "grow 20")
	list := func(dst []int32) ([]int32, error) { return append(dst, pid), nil }
	moved, err := d.MoveProcesses(be.Identity, list)
	if err != nil || moved.Moved < 20 || moved.Foreign != 0 || moved.Passes < 2 || moved.Passes > maxPasses {
		t.Fatalf("move = %+v, %v", moved, err)
	}
	// A thread that was starting meanwhile may have begun in the group that its parent had
	// left (MoveProcesses: again now and then). Below nobody starts any more.
	eventually(t, "all threads are there", func() bool {
		n := len(threadsOf(t, d, pid))
		time.Sleep(100 * time.Millisecond)
		moved, err := d.MoveProcesses(be.Identity, list)
		return err == nil && moved.Moved == 0 && len(threadsOf(t, d, pid)) == n
	})
	for _, tid := range threadsOf(t, d, pid) {
		if at, err := d.GroupOf(tid); err != nil || at != be.Name {
			t.Errorf("thread %d is in %s, %v", tid, at, err)
		}
	}
	got := must[[]int32](t)(d.Tasks(be.Name, nil))
	if len(got) < moved.Moved {
		t.Errorf("%d tasks after %d moves", len(got), moved.Moved)
	}
	if moved, err = d.MoveProcesses(be.Identity, list); err != nil || moved.Moved != 0 || moved.Already < 20 || moved.Passes != 1 {
		t.Errorf("move again = %+v, %v", moved, err)
	}
	// From one control group into a monitoring group of another: through that one.
	if moved, err = d.MoveProcesses(m.Identity, list); err != nil || moved.Moved < 20 {
		t.Errorf("move to %s = %+v, %v", m.Name, moved, err)
	}
	if at, err := d.GroupOf(pid); err != nil || at != m.Name {
		t.Errorf("%d is in %s, %v", pid, at, err)
	}
	// Who is in a monitoring group below is in the control group.
	if moved, err = d.MoveProcesses(ls.Identity, list); err != nil || moved.Moved != 0 {
		t.Errorf("move to %s = %+v, %v", ls.Name, moved, err)
	}
	root := must[Identity](t)(d.Root())
	if moved, err = d.MoveProcesses(root, list); err != nil || moved.Moved < 20 {
		t.Errorf("move back = %+v, %v", moved, err)
	}
	end()
	moved, err = d.MoveThreads(be.Identity, []int32{pid, 0, -1, 1 << 30})
	if err != nil || moved != (Moved{Gone: 4, Passes: 1}) {
		t.Errorf("move what is not there = %+v, %v", moved, err)
	}
	if at := must[Name](t)(d.GroupOf(int32(os.Getpid()))); !at.IsRoot() {
		t.Errorf("the test itself is in %s", at)
	}
	_, err = d.GroupOf(1 << 30)
	wantError(t, "GroupOf of no thread", err, "", unix.ESRCH)

	// A list that never ends is given up.
	tid := int32(os.Getpid())
	_, err = d.MoveProcesses(be.Identity, func(dst []int32) ([]int32, error) {
		put(t, d.path(Name{})+"/tasks", fmt.Sprintln(tid))
		return append(dst, tid), nil
	})
	put(t, d.path(Name{})+"/tasks", fmt.Sprintln(tid))
	wantError(t, "a move against somebody", err, "16 passes", ErrStillGrowing)
	boom := errors.New("boom")
	_, err = d.MoveProcesses(be.Identity, func(dst []int32) ([]int32, error) { return dst, boom })
	wantError(t, "a list that fails", err, "", boom)
}

// TestKernelRemoveUnderChurn removes a group whose process starts and ends threads all the
// time: afterwards none of them may be left with the group's numbers (see rmdir.go), and
// none in the group that gets the same numbers next.
func TestKernelRemoveUnderChurn(t *testing.T) {
	d := mounted(t, MountOptions{})
	d.opt.Quiet = 300 * time.Millisecond // the guest's CPUs wait for the host's as long
	pid, _ := spawn(t, "churn")
	list := func(dst []int32) ([]int32, error) { return append(dst, pid), nil }
	for round := range 5 {
		be := ctrlGroup(t, d, "be")
		if _, err := d.MoveProcesses(be.Identity, list); err != nil && !errors.Is(err, ErrStillGrowing) {
			t.Fatal(err)
		}
		if at, err := d.GroupOf(pid); err != nil || at != be.Name {
			t.Fatalf("%d is in %s, %v", pid, at, err)
		}
		r, err := d.Remove(be.Identity, false)
		if err != nil || r.Outcome != Removed {
			t.Fatalf("remove = %+v, %v", r, err)
		}
		again := ctrlGroup(t, d, "again") // the same CLOSID
		if left := must[[]int32](t)(d.Tasks(again.Name, nil)); len(left) != 0 {
			t.Errorf("round %d: %v fell into the next group", round, left)
		}
		for _, tid := range threadsOf(t, d, pid) {
			if at, err := d.GroupOf(tid); errors.Is(err, unix.ESRCH) {
				continue
			} else if err != nil || !at.IsRoot() {
				t.Errorf("round %d: thread %d is in %s, %v", round, tid, at, err)
			}
		}
		must[Removal](t)(d.Remove(again.Identity, false))
	}
}
