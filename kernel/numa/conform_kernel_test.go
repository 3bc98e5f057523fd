package numa_test

import (
	"os"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/kernel/numa/numatest"
)

// live is the machine that the test runs on.
type live struct{}

func (live) FS() hostfs.FS     { return hostfs.NewRoot("/") }
func (live) Calls() numa.Calls { return numa.Live{} }

func (live) Group(t testing.TB, name string) (string, bool) {
	t.Helper()
	return numa.MemoryGroup(t, name)
}

func (live) Spawn(t testing.TB, group string, pages, node int) numatest.Process {
	t.Helper()
	pid, anon, end := numa.SpawnPages(t, group, pages, node)
	return numatest.Process{PID: pid, Anon: anon, Pages: pages, End: end}
}

// TestKernelConforms runs the suite that the simulated kernel has to pass too.
func TestKernelConforms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("other processes' pages take root")
	}
	numatest.Conform(t, live{})
}
