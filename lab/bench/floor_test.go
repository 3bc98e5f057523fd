package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stage"
)

// TestMain lets this binary stand in for the lab's own.
func TestMain(m *testing.M) {
	openloop.Play(os.Args[1:])
	Play(os.Args[1:])
	os.Exit(m.Run())
}

// openStage is a stage that goes with the test.
func openStage(t *testing.T) *stage.Stage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups can be made by root only")
	}
	st, err := stage.Open(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// TestFloor: the floor makes the calls that a reading cannot do without, on cgroup v1 and
// v2, and no others.
func TestFloor(t *testing.T) {
	st := openStage(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := &crowd{stage: st}
	const tasks = 3
	if err := c.grow(ctx, tasks); err != nil {
		t.Fatal(err)
	}
	f, err := newFloor(st.Cgroups(), c.groups)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()    //nolint:errcheck // reading only
	reads := 2 * tasks // cpuacct.usage and cpu.stat
	if st.Cgroups().Layout() == cgroup.LayoutV2 {
		reads = tasks // cpu.stat has both
	}
	if err := f.read(); err != nil {
		t.Fatal(err)
	}
	// One datagram of queries, and at least one receive.
	if n := int(f.calls); len(f.files) != reads || n < reads+2 || n > reads+1+tasks {
		t.Errorf("%d files and %d calls for %d tasks, want %d files", len(f.files), n, tasks, reads)
	}
}
