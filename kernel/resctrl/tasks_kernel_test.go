package resctrl

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestKernelForeignTasks: a thread that somebody else put into a group stays there, and
// nothing is put into others' groups.
func TestKernelForeignTasks(t *testing.T) {
	d := mounted(t, MountOptions{})
	be := ctrlGroup(t, d, "be")
	theirs := stranger(t, d, Name{Ctrl: "COS1"})
	watched := stranger(t, d, Name{Mon: "cadvisor-app"})
	inside := stranger(t, d, Name{Ctrl: be.Name.Ctrl, Mon: "cadvisor-be"})
	var pids []int32
	for _, at := range []Name{theirs.Name, watched.Name, {}} {
		pid, _ := spawn(t, "grow 0")
		pids = append(pids, pid)
		if !at.IsRoot() {
			put(t, d.path(at)+"/tasks", fmt.Sprintln(pid))
		}
	}
	moved, err := d.MoveThreads(be.Identity, pids)
	if err != nil || moved != (Moved{Moved: 1, Foreign: 2, Passes: 1}) {
		t.Errorf("move = %+v, %v", moved, err)
	}
	for i, want := range []Name{theirs.Name, watched.Name, be.Name} {
		if at, err := d.GroupOf(pids[i]); err != nil || at != want {
			t.Errorf("%d is in %s, %v, want %s", pids[i], at, err, want)
		}
	}
	_, err = d.MoveThreads(theirs, pids)
	wantError(t, "into another's group", err, "", ErrForeign)
	// Our monitoring group below their control group takes only what is there already.
	m := monGroup(t, d, theirs.Name, "look")
	if moved, err = d.MoveThreads(m.Identity, pids); err != nil || moved.Moved != 1 || moved.Foreign != 2 {
		t.Errorf("move to %s = %+v, %v", m.Name, moved, err)
	}
	if at, err := d.GroupOf(pids[0]); err != nil || at != m.Name {
		t.Errorf("%d is in %s, %v", pids[0], at, err)
	}
	// Who is monitored by somebody below our group is in it.
	put(t, d.path(inside.Name)+"/tasks", fmt.Sprintln(pids[2]))
	if moved, err = d.MoveThreads(be.Identity, pids[2:]); err != nil || moved.Already != 1 {
		t.Errorf("move of %d = %+v, %v", pids[2], moved, err)
	}

	strangers := must[[]Group](t)(d.Strangers())
	tools := map[string]string{}
	for _, g := range strangers {
		tools[g.Name.String()] = g.Tool
	}
	if diff := cmp.Diff(map[string]string{
		"/COS1": "pqos (intel-cmt-cat)", "/mon_groups/cadvisor-app": "cAdvisor",
		"/commensal-be/mon_groups/cadvisor-be": "cAdvisor",
	}, tools); diff != "" {
		t.Errorf("strangers (-want +got):\n%s", diff)
	}
	// Removing ours: not while others monitor in it, unless it must be.
	r, err := d.Remove(be.Identity, false)
	wantError(t, "remove", err, "cadvisor-be", ErrForeign)
	if r.Outcome != Refused {
		t.Errorf("remove = %+v", r)
	}
	r, err = d.Remove(be.Identity, true)
	if err != nil || r.Outcome != Removed || !slices.Equal(r.Strangers, []Name{inside.Name}) {
		t.Errorf("remove by force = %+v, %v", r, err)
	}
	if at, err := d.GroupOf(pids[2]); err != nil || !at.IsRoot() {
		t.Errorf("%d is in %s, %v, want the root group", pids[2], at, err)
	}
	for _, id := range []Identity{theirs, watched} {
		_, err := d.Remove(id, true)
		wantError(t, "remove "+id.Name.String(), err, "", ErrForeign)
		if err := d.verify(id); err != nil {
			t.Errorf("%s: %v", id.Name, err)
		}
	}
}

// TestKernelTaskRefusals: what a write of one id to tasks can be refused with.
func TestKernelTaskRefusals(t *testing.T) {
	d := mounted(t, MountOptions{})
	be := ctrlGroup(t, d, "be")
	m := monGroup(t, d, be.Name, "m")
	mv := mover{d: d}
	err := mv.write(be.Name, 1<<22+1)
	wantError(t, "no such thread", err, fmt.Sprintf("No task %d", 1<<22+1), unix.ESRCH)
	pid, _ := spawn(t, "grow 0")
	err = mv.write(m.Name, pid)
	wantError(t, "another control group's thread", err, "Can't move task to different control group", unix.EINVAL)
	err = mv.write(Name{Ctrl: "nowhere"}, pid)
	wantError(t, "no such group", err, "", ErrVanished, unix.ENOENT)
}

// TestKernelCPUs: CPUs come from the root group and fall back to it; others' are not
// taken.
func TestKernelCPUs(t *testing.T) {
	d := mounted(t, MountOptions{})
	be := ctrlGroup(t, d, "be")
	m := monGroup(t, d, be.Name, "m")
	if err := d.WriteCPUs(be.Identity, []int{3, 1, 3}); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteCPUs(m.Identity, []int{3}); err != nil {
		t.Fatal(err)
	}
	at := func(n Name) []int { return must[[]int](t)(d.CPUs(n)) }
	if !slices.Equal(at(be.Name), []int{1, 3}) || !slices.Equal(at(m.Name), []int{3}) || !slices.Equal(at(Name{}), []int{0, 2}) {
		t.Errorf("be %v, m %v, root %v", at(be.Name), at(m.Name), at(Name{}))
	}
	wantError(t, "not the parent's", d.WriteCPUs(m.Identity, []int{0}), "Can only add CPUs to mongroup that belong to parent", unix.EINVAL)
	wantError(t, "no such CPU", d.WriteCPUs(be.Identity, []int{1, 2000}), "Bad CPU list/mask")
	wantError(t, "the root group", d.WriteCPUs(must[Identity](t)(d.Root()), []int{0}), "", ErrForeign)

	theirs := stranger(t, d, Name{Ctrl: "COS1"})
	put(t, d.path(theirs.Name)+"/cpus_list", "0\n")
	wantError(t, "their CPU", d.WriteCPUs(be.Identity, []int{0, 1}), "CPU 0 is /COS1's", ErrForeign)
	if !slices.Equal(at(theirs.Name), []int{0}) {
		t.Errorf("theirs %v", at(theirs.Name))
	}
	// A write to the control group takes the monitoring group's.
	if err := d.WriteCPUs(be.Identity, []int{3}); err != nil || len(at(m.Name)) != 0 {
		t.Errorf("%v; m %v", err, at(m.Name))
	}
	if err := d.WriteCPUs(be.Identity, nil); err != nil || len(at(be.Name)) != 0 {
		t.Errorf("%v; be %v", err, at(be.Name))
	}
	if !slices.Equal(at(Name{}), []int{1, 2, 3}) {
		t.Errorf("root %v", at(Name{}))
	}
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
