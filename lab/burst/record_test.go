package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/cputrace"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

const taskEnv = "COMMENSAL_TEST_TASK"

func TestMain(m *testing.M) {
	if os.Getenv(taskEnv) != "" {
		spikes()
	}
	os.Exit(m.Run())
}

// spikes works a little, and for 80 ms of CPU time in each 700 ms, until its standard input
// ends.
func spikes() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("ready")
	work := func(d time.Duration) {
		var ts unix.Timespec
		for end := int64(0); end == 0 || ts.Nano() < end; {
			if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
				panic(err)
			}
			if end == 0 {
				end = ts.Nano() + int64(d)
			}
		}
	}
	for {
		work(80 * time.Millisecond)
		for range 50 {
			work(200 * time.Microsecond)
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
	startSpikes(t, d, path)
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

func startSpikes(t *testing.T, d cgroup.Driver, path string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), taskEnv+"=spikes", "GOMAXPROCS=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = stdin.Close()
	})
	if _, err := stdout.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := d.MovePID(path, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
}
