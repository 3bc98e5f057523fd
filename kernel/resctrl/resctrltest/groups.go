package resctrltest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/cpus"
	"github.com/commensal-io/commensal/kernel/resctrl"
)

// threads lists a process's threads.
func (r *rig) threads(pid int32) []int32 {
	r.Helper()
	var list []int32
	for _, e := range must[[]entry](r)(r.fs.ReadDir(fmt.Sprintf("/proc/%d/task", pid))) {
		var tid int32
		if _, err := fmt.Sscan(e.Name, &tid); err != nil {
			r.Fatal(err)
		}
		list = append(list, tid)
	}
	return list
}

// testTasks moves a process with its threads into a group, into a monitoring group of another
// one, and back; each file tells the same.
func testTasks(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be, ls := r.ctrl("be"), r.ctrl("ls")
	m := r.mon(ls.Name, "m")
	pid := bed.Idle(t, 5)
	moved := r.move(be.Identity, pid)
	threads := r.threads(pid)
	if moved.Moved < 5 || moved.Foreign != 0 || len(threads) < 5 {
		t.Fatalf("move = %+v; threads %v", moved, threads)
	}
	for _, tid := range threads {
		if at := r.at(tid); at != be.Name {
			t.Errorf("thread %d is in %s", tid, at)
		}
	}
	if got := r.tasks(be.Name); !slices.Equal(got, slices.Sorted(slices.Values(threads))) {
		t.Errorf("tasks %v, threads %v", got, threads)
	}
	if slices.Contains(r.tasks(resctrl.Name{}), pid) {
		t.Error("the root group still lists it")
	}
	if moved = r.move(be.Identity, pid); moved.Moved != 0 || moved.Already < 5 || moved.Passes != 1 {
		t.Errorf("move again = %+v", moved)
	}
	// From one control group into a monitoring group of another: through that one.
	if moved = r.move(m.Identity, pid); moved.Moved < 5 || r.at(pid) != m.Name {
		t.Errorf("move to %s = %+v, is in %s", m.Name, moved, r.at(pid))
	}
	// Who is in a monitoring group below is in the control group.
	if moved = r.move(ls.Identity, pid); moved.Moved != 0 || !slices.Contains(r.tasks(ls.Name), pid) {
		t.Errorf("move to %s = %+v", ls.Name, moved)
	}
	// One thread alone.
	tid := threads[len(threads)-1]
	r.put(path(be.Name, "tasks"), fmt.Sprintln(tid))
	if got := r.tasks(be.Name); !slices.Equal(got, []int32{tid}) || r.at(pid) != m.Name {
		t.Errorf("tasks %v, and the others are in %s", got, r.at(pid))
	}
	if err := r.rmdir(path(m.Name, "")); err != nil {
		t.Fatal(err)
	}
	if at := r.at(pid); at != ls.Name {
		t.Errorf("the monitoring group is gone, and %d is in %s", pid, at)
	}
	if err := r.rmdir(path(ls.Name, "")); err != nil {
		t.Fatal(err)
	}
	if at := r.at(pid); !at.IsRoot() {
		t.Errorf("the control group is gone, and %d is in %s", pid, at)
	}
	got := must[resctrl.Moved](t)(r.d.MoveThreads(be.Identity, []int32{0, -1, 1 << 30}))
	if got != (resctrl.Moved{Gone: 3, Passes: 1}) {
		t.Errorf("move what is not there = %+v", got)
	}
	_, err := r.d.GroupOf(1 << 30)
	r.wantError("GroupOf of no thread", err, "", unix.ESRCH)
}

// testTaskRefusals: what a write to tasks can be refused with.
func testTaskRefusals(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be, ls := r.ctrl("be"), r.ctrl("ls")
	m := r.mon(be.Name, "m")
	pid := bed.Idle(t, 1)
	none := int32(1<<22 + 1)
	last := fmt.Sprintf("No task %d", none)
	after := ""
	if bed.Newest() { // it says which of a list
		after = "\nError while processing task "
		last += after + fmt.Sprint(none)
		after += fmt.Sprint(pid)
	}
	r.refused(path(be.Name, "tasks"), fmt.Sprintln(none), last, unix.ESRCH)
	r.refused(path(m.Name, "tasks"), fmt.Sprintln(pid), "Can't move task to different control group"+after, unix.EINVAL)
	_, err := r.write(path(resctrl.Name{Ctrl: "nowhere"}, "tasks"), fmt.Sprintln(pid))
	r.wantError("no such group", err, "", unix.ENOENT)
	if !bed.Newest() {
		return
	}
	r.refused(path(be.Name, "tasks"), "x\n", "Task list parsing error pid x", unix.EINVAL)
	r.refused(path(be.Name, "tasks"), "-3\n", "Invalid pid -3", unix.EINVAL)
	// Of a list, those before the bad one have moved.
	r.refused(path(ls.Name, "tasks"), fmt.Sprintf("%d,%d\n", pid, none), last, unix.ESRCH)
	if at := r.at(pid); at != ls.Name {
		t.Errorf("%d is in %s", pid, at)
	}
}

// testForeignTasks: a thread that somebody else put into a group stays there, and nothing is
// put into others' groups.
func testForeignTasks(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	theirs := r.stranger(resctrl.Name{Ctrl: "COS1"})
	watched := r.stranger(resctrl.Name{Mon: "cadvisor-app"})
	inside := r.stranger(resctrl.Name{Ctrl: be.Name.Ctrl, Mon: "cadvisor-be"})
	var pids []int32
	for _, at := range []resctrl.Name{theirs.Name, watched.Name, {}} {
		pid := bed.Idle(t, 1)
		pids = append(pids, pid)
		if !at.IsRoot() {
			r.put(path(at, "tasks"), fmt.Sprintln(pid))
		}
	}
	moved, err := r.d.MoveThreads(be.Identity, pids)
	if err != nil || moved != (resctrl.Moved{Moved: 1, Foreign: 2, Passes: 1}) {
		t.Errorf("move = %+v, %v", moved, err)
	}
	for i, want := range []resctrl.Name{theirs.Name, watched.Name, be.Name} {
		if at := r.at(pids[i]); at != want {
			t.Errorf("%d is in %s, want %s", pids[i], at, want)
		}
	}
	_, err = r.d.MoveThreads(theirs, pids)
	r.wantError("into another's group", err, "", resctrl.ErrForeign)
	// Our monitoring group below their control group takes only what is there already.
	m := r.mon(theirs.Name, "look")
	if moved, err = r.d.MoveThreads(m.Identity, pids); err != nil || moved.Moved != 1 || moved.Foreign != 2 {
		t.Errorf("move to %s = %+v, %v", m.Name, moved, err)
	}
	// Who is monitored by somebody below our group is in it.
	r.put(path(inside.Name, "tasks"), fmt.Sprintln(pids[2]))
	if moved, err = r.d.MoveThreads(be.Identity, pids[2:]); err != nil || moved.Already != 1 {
		t.Errorf("move of %d = %+v, %v", pids[2], moved, err)
	}
	tools := map[string]string{}
	for _, g := range must[[]resctrl.Group](t)(r.d.Strangers()) {
		tools[g.Name.String()] = g.Tool
	}
	if diff := cmp.Diff(map[string]string{
		"/COS1": "pqos (intel-cmt-cat)", "/mon_groups/cadvisor-app": "cAdvisor", "/commensal-be/mon_groups/cadvisor-be": "cAdvisor",
	}, tools); diff != "" {
		t.Errorf("strangers (-want +got):\n%s", diff)
	}
	// Removing ours: not while others monitor in it, unless it must be.
	got, err := r.d.Remove(be.Identity, false)
	r.wantError("remove", err, "cadvisor-be", resctrl.ErrForeign)
	if got.Outcome != resctrl.Refused {
		t.Errorf("remove = %+v", got)
	}
	got, err = r.d.Remove(be.Identity, true)
	if err != nil || got.Outcome != resctrl.Removed || !slices.Equal(got.Strangers, []resctrl.Name{inside.Name}) {
		t.Errorf("remove by force = %+v, %v", got, err)
	}
	if at := r.at(pids[2]); !at.IsRoot() {
		t.Errorf("%d is in %s, want the root group", pids[2], at)
	}
	for _, id := range []resctrl.Identity{theirs, watched} {
		_, err := r.d.Remove(id, true)
		r.wantError("remove "+id.Name.String(), err, "", resctrl.ErrForeign)
		r.verify(id)
	}
}

// testCPUs: CPUs come from the root group and fall back to it; others' are not taken.
func testCPUs(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be := r.ctrl("be")
	m := r.mon(be.Name, "m")
	want := func(what string, of map[resctrl.Name][]int) {
		t.Helper()
		for n, list := range of {
			if got := must[[]int](t)(r.d.CPUs(n)); !slices.Equal(got, list) {
				t.Errorf("%s: %s has CPUs %v, want %v", what, n, got, list)
			}
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root := resctrl.Name{}
	check(r.d.WriteCPUs(be.Identity, cpus.Of(3, 1, 3)))
	check(r.d.WriteCPUs(m.Identity, cpus.Of(3)))
	want("given", map[resctrl.Name][]int{be.Name: {1, 3}, m.Name: {3}, root: {0, 2}})
	if got := r.get(path(be.Name, "cpus")); got != "a\n" {
		t.Errorf("cpus = %q", got)
	}
	r.wantError("not the parent's", r.d.WriteCPUs(m.Identity, cpus.Of(0)), "Can only add CPUs to mongroup that belong to parent", unix.EINVAL)
	r.wantError("no such CPU", r.d.WriteCPUs(be.Identity, cpus.Of(1, 1000)), "Bad CPU list/mask")
	r.wantError("the root group", r.d.WriteCPUs(must[resctrl.Identity](t)(r.d.Root()), cpus.Of(0)), "", resctrl.ErrForeign)
	_, err := r.write(path(root, "cpus_list"), "0\n")
	r.wantError("taken from the root group", err, "", unix.EINVAL)

	theirs := r.stranger(resctrl.Name{Ctrl: "COS1"})
	r.put(path(theirs.Name, "cpus"), "1\n")
	r.wantError("their CPU", r.d.WriteCPUs(be.Identity, cpus.Of(0, 1)), "CPU 0 is /COS1's", resctrl.ErrForeign)
	// A write to the control group takes the monitoring group's.
	check(r.d.WriteCPUs(be.Identity, cpus.Of(3)))
	want("fewer", map[resctrl.Name][]int{be.Name: {3}, m.Name: nil, root: {1, 2}, theirs.Name: {0}})
	check(r.d.WriteCPUs(be.Identity, cpus.Set{}))
	want("none", map[resctrl.Name][]int{be.Name: nil, root: {1, 2, 3}})
}

// testLeftovers: what a run that died left is found and removed, when asked, and nothing
// else; threads go back to where they came from.
func testLeftovers(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	be, ls := r.ctrl("be"), r.ctrl("ls")
	kept := r.mon(ls.Name, "kept")
	r.stranger(resctrl.Name{Ctrl: "commensalism"}) // begins alike, and is not ours
	theirs := r.stranger(resctrl.Name{Ctrl: "COS1"})
	for _, parent := range []resctrl.Name{{}, be.Name, ls.Name, theirs.Name} {
		r.mon(parent, "m")
	}
	pid := bed.Idle(t, 3)
	r.move(be.Identity, pid)
	d := r.driver(resctrl.DefaultLockWait) // a new run, without any memory
	done, err := d.RemoveLeftovers([]resctrl.Identity{kept.Identity})
	if err != nil || len(done) != 5 {
		t.Errorf("RemoveLeftovers = %+v, %v", done, err)
	}
	for _, x := range done {
		if x.Outcome != resctrl.Removed {
			t.Errorf("%+v", x)
		}
	}
	left := names(must[[]resctrl.Group](t)(d.Groups(resctrl.ListOptions{})))
	want := []string{"/", "/COS1", "/commensal-ls", "/commensal-ls/mon_groups/commensal-kept", "/commensalism"}
	if !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	if at := r.at(pid); !at.IsRoot() {
		t.Errorf("%d is in %s", pid, at)
	}
	if done, err = d.RemoveLeftovers(nil); err != nil || len(done) != 2 {
		t.Errorf("and the rest: %+v, %v", done, err)
	}
	r.verify(theirs)
}

// testFull takes every CLOSID and RMID, and reads what the kernel says then; an RMID that
// was used lately does not come back at once.
func testFull(t *testing.T, bed Bed) {
	r := mounted(t, bed, resctrl.MountOptions{})
	for _, cpu := range []int{0, 2} {
		bed.Spin(t, cpu) // what earlier tests left in the caches has to be replaced by something
	}
	first := must[resctrl.Budget](t)(r.d.Budget()).Bound
	var ctrl []resctrl.Made
	for i := range first.CtrlGroups {
		ctrl = append(ctrl, r.ctrl(fmt.Sprint("c", i)))
	}
	_, err := r.d.CreateGroup("toomany", 0)
	r.wantError("no CLOSID by budget", err, "CLOSIDs", resctrl.ErrExhausted)
	if errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v: the kernel was asked", err)
	}
	before := r.status()
	r.wantError("no CLOSID by the kernel", r.mkdir(resctrl.DefaultPoint+"/x"), "", unix.ENOSPC)
	if got := r.status(); got == before || got[len(got)-len("Out of CLOSIDs"):] != "Out of CLOSIDs" {
		t.Errorf("status = %q, %q before", got, before)
	}
	made, wait := 0, patience
	if bed.Stuck() {
		wait = 3 * time.Second
	}
	for made < first.MonGroups-first.CtrlGroups {
		if _, err = r.d.CreateMonGroup(resctrl.Name{}, fmt.Sprint("m", made), wait); err != nil {
			break
		}
		made++
	}
	if bed.Stuck() {
		r.wantError("RMIDs that do not answer", err, "", resctrl.ErrLimbo, unix.EBUSY)
		return
	}
	if err != nil {
		t.Fatalf("monitoring group %d: %v", made, err)
	}
	b := must[resctrl.Budget](t)(r.d.Budget())
	if b.CLOSIDs.Free() != 0 || b.RMIDs.Free() != 0 || b.Bound != (resctrl.Bound{}) {
		t.Errorf("budget when full: CLOSIDs %s; RMIDs %s; %+v", b.CLOSIDs, b.RMIDs, b.Bound)
	}
	_, err = r.d.CreateMonGroup(resctrl.Name{}, "toomany", 0)
	r.wantError("no RMID by budget", err, "RMIDs", resctrl.ErrExhausted)
	r.wantError("no RMID by the kernel", r.mkdir(resctrl.DefaultPoint+"/mon_groups/x"), "", unix.ENOSPC)
	testLimbo(r, ctrl[0])
}

// testLimbo: every RMID is taken, and one that was used lately is given back.
func testLimbo(r *rig, g resctrl.Made) {
	pid := r.bed.Spin(r, 1)
	r.move(g.Identity, pid)
	mon := must[*resctrl.Monitor](r)(r.d.OpenMonitor(g.Name))
	defer mon.Close() //nolint:errcheck // of a group that is gone
	r.eventually("the spinner's lines in the cache", func() bool {
		for _, v := range must[[]resctrl.Monitored](r)(mon.Read(nil)) {
			if v.Occupancy.Bytes >= 4<<20 {
				return true
			}
		}
		return false
	})
	if got := must[resctrl.Removal](r)(r.d.Remove(g.Identity, false)); got.Outcome != resctrl.Removed {
		r.Fatalf("remove: %+v", got)
	}
	_, err := r.d.CreateGroup("limbo", 0)
	r.wantError("limbo", err, `kernel says "Out of RMIDs"`, resctrl.ErrLimbo, unix.EBUSY)
	if errors.Is(err, resctrl.ErrExhausted) {
		r.Errorf("%v: exhausted and in limbo are different", err)
	}
	r.put(resctrl.DefaultPoint+"/info/L3_MON/max_threshold_occupancy", "16777216\n")
	made, err := r.d.CreateGroup("limbo", patience)
	if err != nil {
		r.Fatalf("after waiting: %v", err)
	}
	if got := must[resctrl.Removal](r)(r.d.Remove(made.Identity, false)); got.Outcome != resctrl.Removed {
		r.Errorf("remove: %+v", got)
	}
	_, err = mon.Read(nil)
	r.wantError("monitor of a removed group", err, "", resctrl.ErrVanished)
}
