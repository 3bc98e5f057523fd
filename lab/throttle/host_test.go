package throttle

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/openloop"
)

// An instance's requests are its order, and what is given up is told apart.
func TestResponses(t *testing.T) {
	in := Instance{Threads: 2, CPUs: 0.2, RequestMsec: 1, SpikeMsec: 20, SpikesPerSec: 2, Seed: 9}
	o := in.order(1e9, time.Second)
	if want := in.Requests(time.Second); len(o.Requests) != len(want) || o.Requests[3] != (openloop.Request{At: want[3].At, CPU: want[3].CPU}) || o.EndNsec != 4e9 {
		t.Errorf("%d requests of %d, until %d", len(o.Requests), len(want), o.EndNsec)
	}
	o.Requests = []openloop.Request{{At: 1e8, CPU: 1e6}, {At: 2e8, CPU: 2e6}}
	got := responses(o, &openloop.Log{Answers: []openloop.Answer{{AtNsec: 1.1e9, DoneNsec: 1.15e9}, {AtNsec: 1.2e9, DoneNsec: 4e9, GaveUp: true}}})
	want := []Response{{AtUsec: 100_000, TookUsec: 50_000, CPUUsec: 1000}, {AtUsec: 200_000, TookUsec: 2_800_000, CPUUsec: 2000, Unfinished: true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// The configuration that a column starts the agent with is one that the agent takes.
func TestAgentConfig(t *testing.T) {
	for _, c := range columns() {
		conf := agentConfig("/lab/app-*", c)
		if key, why := conf.Validate(); why != "" {
			t.Fatalf("%s: %s %s", c, key, why)
		}
		p := conf.Params("")
		if got := p.CPU.CPUPoolMode.String() == "enforce"; got != c.pool() {
			t.Errorf("%s: cpu_pool is %s", c, p.CPU.CPUPoolMode)
		}
		if got := p.CPU.BurstMode.String() == "enforce"; got != c.burst() {
			t.Errorf("%s: burst is %s", c, p.CPU.BurstMode)
		}
	}
}

// On the real kernel: the same bursty service under a quota that its spikes pass and under
// one that they do not. Nothing here depends on how fast the machine is, but that it gives
// two processes a tenth of a CPU within some seconds.
func TestInstances(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups can be made by root only")
	}
	b, err := openLab(&Options{Seed: 1, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	const length = 3 * time.Second
	in := Instance{Name: "tight", QuotaUsec: 10_000, PeriodUsec: 100_000, Threads: 4, CPUs: 0.05, RequestMsec: 2, SpikeMsec: 40, SpikesPerSec: 1.2, Seed: 3}
	loose := in
	loose.Name = "loose"
	limits := plain([]Instance{in, loose})
	limits[1] = cgroup.CPUMax{QuotaUsec: 400_000, PeriodUsec: 100_000, BurstUsec: 400_000}
	tr, err := b.start("test", []Instance{in, loose}, limits, length)
	left := false
	t.Cleanup(func() {
		if !left {
			_ = tr.stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.until(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	readings, err := tr.sample(context.Background(), length+time.Second)
	if err != nil {
		t.Fatal(err)
	}
	served, err := tr.finish(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	blk := Block{Instances: make([]InstanceBlock, 2)}
	blk.use(readings, 2, 100*time.Millisecond, total)
	for i := range served {
		blk.Instances[i].answer(served[i], 0)
	}
	if tight, free := blk.Instances[0], blk.Instances[1]; tight.Throttled == 0 || free.Throttled > 0 || tight.Requests != free.Requests || tight.Requests == 0 {
		t.Errorf("tight %+v\nloose %+v", tight, free)
	}
	if err := tr.putBack(); err != nil {
		t.Errorf("nobody changed a limit: %v", err)
	}
	if err := b.stage.Cgroups().WriteCPUMax(tr.paths[0], limits[1]); err != nil {
		t.Fatal(err)
	}
	if err := tr.putBack(); err == nil {
		t.Error("a limit that is not put back goes unnoticed")
	}
	left = true
	if err := tr.stop(); err != nil {
		t.Error(err)
	}
}
