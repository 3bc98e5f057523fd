package resctrl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/resctrl"
	"github.com/commensal-io/commensal/kernel/resctrl/resctrltest"
)

// guest is the rig's guest.
type guest struct{}

func (guest) FS() hostfs.FS                      { return hostfs.NewRoot("/") }
func (guest) Mount(o resctrl.MountOptions) error { return resctrl.Mount(resctrl.DefaultPoint, o) }
func (guest) Unmount() error                     { return resctrl.Unmount(resctrl.DefaultPoint) }
func (guest) Clock() resctrl.Clock               { return wall{} }
func (guest) Newest() bool                       { return rigtest.Kernel() != "6.1" }

// Stuck: TestKernelBudget has used the RMIDs for which the rig has odd answers.
func (guest) Stuck() bool { return true }

type wall struct{}

func (wall) Now() time.Time        { return time.Now() }
func (wall) Sleep(d time.Duration) { time.Sleep(d) }

// Spin burns on one CPU; its idle threads are kept there too.
func (guest) Spin(t testing.TB, cpu int) int32 {
	t.Helper()
	pid := resctrl.Spawn(t, "spin")
	var set unix.CPUSet
	set.Set(cpu)
	for pinned := -1; ; {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(threads) == pinned {
			return pid
		}
		pinned = len(threads)
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Idle is a process of stopped threads: Go's runtime would start others while a test looks.
func (guest) Idle(t testing.TB, threads int) int32 {
	t.Helper()
	pid := resctrl.Spawn(t, fmt.Sprint("idle ", threads))
	if err := unix.Kill(int(pid), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); !stopped(t, pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not stop", pid)
		}
	}
	return pid
}

// stopped says whether all of a process's threads are: then none starts another.
func stopped(t testing.TB, pid int32) bool {
	t.Helper()
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(list) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, name := range list {
		data, err := os.ReadFile(name)
		_, rest, _ := strings.Cut(string(data), ") ")
		if err != nil || !strings.HasPrefix(rest, "T ") {
			return false
		}
	}
	return true
}

func (guest) Online(t testing.TB, cpu int, on bool) {
	t.Helper()
	path, text := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), "0\n"
	if on {
		text = "1\n"
	}
	now, err := os.ReadFile(path)
	if err == nil && string(now) != text {
		err = os.WriteFile(path, []byte(text), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernelConforms runs the suite that the simulated resctrl has to pass too. It takes many
// RMIDs, and so comes after TestKernelBudget, which needs them in order.
func TestKernelConforms(t *testing.T) {
	rigtest.Only(t, "mounts resctrl and makes groups in it")
	rigtest.NeedRDT(t)
	resctrltest.Conform(t, guest{})
}
