package cgroup_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cgroup/cgrouptest"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// running is the kernel that the tests run on.
type running struct{}

func (running) FS() hostfs.FS         { return hostfs.NewRoot("/") }
func (running) Sleep(d time.Duration) { time.Sleep(d) }

func (running) Start(t testing.TB, task string) (pid int, kill func()) {
	t.Helper()
	return cgroup.StartTask(t, task)
}

func (running) Allowed(t testing.TB, pid int) []int {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		t.Fatal(err)
	}
	var list []int
	for cpu := 0; len(list) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// TestKernelConforms: what every kernel must do, on the one that runs.
func TestKernelConforms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	cgrouptest.Conform(t, running{})
}
