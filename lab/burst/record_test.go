package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputrace"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestMain(m *testing.M) { testchild.Main(m, map[string]testchild.Role{"spikes": spikes}) }

// spikes works a little, and for 80 ms of CPU time in each 700 ms.
func spikes(p *testchild.Parent, _ []string) error {
	p.Say("ready")
	for {
		testchild.Burn(80 * time.Millisecond)
		for range 50 {
			testchild.Burn(200 * time.Microsecond)
			time.Sleep(12 * time.Millisecond)
		}
	}
}

// What `commensal record --cpu-trace` writes of a bursty process of this kernel is what
// `run burst --trace` reads, and it recommends a bucket for it.
func TestRecordedTrace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making cgroups takes root")
	}
	root := hostfs.NewRoot("/")
	mounts, err := cgroup.Discover(root)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cgroup.Open(root, mounts)
	if err != nil {
		t.Skipf("no cgroups that are driven: %v", err)
	}
	path := fmt.Sprintf("/commensal-test-%d-burst", os.Getpid())
	if err := d.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 1000 {
			if err = d.Rmdir(path); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil && !errors.Is(err, cgroup.ErrVanished) {
			t.Error(err)
		}
	})
	child := testchild.StartWith(t, "spikes", testchild.Options{Env: []string{"GOMAXPROCS=1"}})
	if err := d.MovePID(path, child.Await("ready").PID()); err != nil {
		t.Fatal(err)
	}
	r, err := cputrace.Record(context.Background(), root, path, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := r.Write(&file); err != nil {
		t.Fatal(err)
	}
	trace, err := ReadTrace("trace", &file)
	if err != nil {
		t.Fatal(err)
	}
	if len(trace) != len(r.UsedNsec) {
		t.Fatalf("%d lines of %d", len(trace), len(r.UsedNsec))
	}
	p := small()
	p.Source = trace
	res := mustRun(t, p, "trace")
	t.Logf("k = %g: %s; %+v", res.Recommended, res.Reason, *res.Trace)
	// Spikes of 80 ms of CPU time that come together within some 100 ms, where the mean use of
	// such a time is some 10 ms: without a bucket they are throttled at any utilisation of a
	// pool.
	if res.Recommended < 1 {
		t.Errorf("k = %g for spikes of many times the average: %+v", res.Recommended, *res.Trace)
	}
	if res.Trace.Largest < 2 || res.Trace.Seconds < 1.9 {
		t.Errorf("%+v", *res.Trace)
	}
}
