package partition

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/lab/openloop"
)

// TestMain lets this binary stand in for the lab's own.
func TestMain(m *testing.M) {
	openloop.Play(os.Args[1:])
	os.Exit(m.Run())
}

// TestHost plays (a), (b) and (e) for a few seconds with the real agent: what it says is
// plausible, and nothing is left behind. It asserts no times, which the machine does not
// promise.
func TestHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups can be made by root only")
	}
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	bin := filepath.Join(t.TempDir(), "commensal")
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/commensal-io/commensal/cmd/commensal").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	size := hostSize{
		rounds: 1, arms: []Arm{ArmAlone, ArmNone, ArmOurs}, steps: 1, ourSteps: 2,
		leadIn: time.Second, low: 4 * time.Second, high: 2 * time.Second,
	}
	blocks, err := playHost(context.Background(), Options{Seed: 1, Agent: bin, Log: os.Stderr, Keep: os.Getenv("PARTITION_KEEP")}, size)
	if err != nil {
		t.Fatal(err)
	}
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for i := range blocks {
		b := &blocks[i]
		sec := float64(b.to-b.from) / 1e9
		served := len(latencies(b.log.Answers, b.from, b.to))
		t.Logf("%s: %d requests, LC %.2f CPU, BE %.2f CPU, resizes %d, %+v", b.arm, served, b.service/sec, b.batch/sec, b.resizes, b.backs)
		if served < 100 || b.service <= 0 {
			t.Errorf("%s: %d requests in %.2f CPU-seconds", b.arm, served, b.service)
		}
		if used := (b.service + b.batch) / sec; used > 2.5 {
			t.Errorf("%s: %.2f CPUs used", b.arm, used)
		}
		if (b.batch/sec > 0.05) != (b.arm != ArmAlone) {
			t.Errorf("%s: BE used %.3f CPU", b.arm, b.batch/sec)
		}
		for _, q := range b.log.Answers {
			if q.DoneNsec < q.BeganNsec || q.BeganNsec < q.AtNsec {
				t.Fatalf("%s: a request was done before it came: %+v", b.arm, q)
			}
		}
	}
	nothingLeft(t)
}

// nothingLeft: no stage of this process is left.
func nothingLeft(t *testing.T) {
	t.Helper()
	fs := hostfs.NewRoot("/")
	m, err := cgroup.Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	cg, err := cgroup.Open(fs, m)
	if err != nil {
		t.Fatal(err)
	}
	list, err := cg.List()
	if err != nil && list == nil {
		t.Fatal(err)
	}
	for _, g := range list {
		if filepath.Base(g) == "commensal-lab-"+strconv.Itoa(os.Getpid()) {
			t.Errorf("%s is left", g)
		}
	}
}
