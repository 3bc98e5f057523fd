package agent_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/policy"
)

var memoryRounds = flag.Int("memory-rounds", 2, "how often TestMemoryRunsOut lets memory run out under the policy; a tenth as often without it, where a round takes minutes, and once at least")

// eat takes memory: args are megabytes, megabytes a second, and how many of them at once before that.
func eat(p *testchild.Parent, args []string) error {
	const mega = 1 << 20
	most, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	rate, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	p.Line()
	go func() {
		for taken, begun := 0, time.Now(); taken < most; taken++ {
			b, err := unix.Mmap(-1, 0, mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				fmt.Fprintln(os.Stderr, "mmap:", err)
				return
			}
			for i := 0; i < mega; i += 4096 {
				b[i] = 1
			}
			if taken <= first {
				begun = time.Now()
			}
			time.Sleep(time.Until(begun.Add(time.Duration(taken+1-first) * time.Second / time.Duration(rate))))
		}
	}()
	return p.Stay()
}

// serve takes memory at once, and uses some pages of it and of a file a hundred times a second: args are megabytes, the file, how many pages of each. Asked by a line it says
// what that took at the 99th percentile since it was last asked, in ns, from when it was due.
func serve(p *testchild.Parent, args []string) error {
	const mega, page, each = 1 << 20, 4096, 10 * time.Millisecond
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	pages, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	own, err := unix.Mmap(-1, 0, size*mega, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	for i := 0; i < len(own); i += page {
		own[i] = 1
	}
	f, err := os.Open(args[1])
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	file, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	took := hdrhistogram.New(1, int64(time.Minute), 3)
	go func() {
		rng, sum := rand.New(rand.NewPCG(1, 2)), byte(0)
		for due := time.Now(); ; due = due.Add(each) {
			time.Sleep(time.Until(due))
			for range pages {
				sum += own[rng.IntN(len(own))] + file[rng.IntN(len(file))]
			}
			own[0] = sum
			mu.Lock()
			_ = took.RecordValue(min(int64(time.Since(due)), int64(time.Minute)))
			mu.Unlock()
		}
	}()
	for p.Say("ready"); ; {
		p.Line()
		mu.Lock()
		p.Say("%d", took.ValueAtQuantile(99))
		took.Reset()
		mu.Unlock()
	}
}

// oomKills is how many processes the kernel's OOM killer has ended since the boot, whosoever they were.
func oomKills(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\noom_kill ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatalf("oom_kill of /proc/vmstat: %v", err)
	}
	return n
}

// available is what /proc/meminfo says of it, in MiB.
func available(t *testing.T) (mib int) {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	if _, err := fmt.Sscan(after, &mib); err != nil {
		t.Fatal(err)
	}
	return mib / 1024
}

// TestMemoryRunsOut: batch work takes all memory of a machine without swap, at speeds that are drawn, beside a service that is larger than
// it. Under policy pressure it is frozen while some is left: the kernel's OOM killer never acts, and the service lives. That it does act
// otherwise, and on whom, is seen beside it: nothing done, and a limit by hand.
func TestMemoryRunsOut(t *testing.T) {
	rigtest.Only(t, "takes all of the machine's memory")
	few := max(1, *memoryRounds/10)
	for _, r := range []*runsOut{{arm: "pressure", rounds: *memoryRounds}, {arm: "nothing", rounds: few}, {arm: "memory.max", rounds: few}} {
		t.Run(r.arm, r.play)
	}
}

// judge fails where somebody is killed under the policy, by the kernel's own count or by who is gone, and where nobody is without it: that load could not
// have shown anything.
func (r *runsOut) judge() {
	r.t.Logf("%s: %d rounds: %d OOM kills, %d of the service, %d of batch work; least available %d MiB; the service's p99 %.2f ms, %.2f alone (%.2f times)",
		r.arm, r.rounds, r.kills, r.services, r.batch, r.least, r.p99*1e3, r.alone*1e3, r.p99/r.alone)
	gone := r.services + r.batch
	if r.arm == "pressure" && r.kills+gone > 0 {
		r.t.Errorf("the kernel's OOM killer has ended %d processes; %d services and %d of batch work are gone", r.kills, r.services, r.batch)
	}
	if r.arm != "pressure" && (r.kills == 0 || gone == 0) {
		r.t.Errorf("nobody was killed (%d by the kernel's count, %d are gone)", r.kills, gone)
	}
}

// runsOut is what became of rounds in which memory ran out.
type runsOut struct {
	arm             string
	rounds          int
	services, batch int     // that were ended
	kills           int     // of anybody, that the kernel counts
	least           int     // MiB available, when a round ended
	p99, alone      float64 // seconds, mean over rounds of what the service took in a round, and before the first

	*bed
	victim, file string // the service's group, and what it reads
	total        int    // MiB
	served       *testchild.Child
}

// play lets memory run out so often.
func (r *runsOut) play(t *testing.T) {
	rng := random(t)
	r.bed = newBed(t, "memory", settings{})
	r.victim, r.file, r.total = r.group("victim", unlimited), filepath.Join(rigtest.DiskDir(t), "file"), available(t)
	text, err := os.ReadFile(r.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.config, append(text, "pressure: {mode: enforce, reclaim_bytes: 0}\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file, make([]byte, 32<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	r.serve()
	var p *proc
	if r.arm == "pressure" {
		p = r.agent()
	}
	r.took()
	time.Sleep(5 * time.Second)
	r.alone, r.least, r.kills = r.took(), r.total, -oomKills(t)
	for i := range r.rounds {
		r.round(i, 20<<rng.IntN(5)) // 20 to 320 MiB a second
	}
	r.kills += oomKills(t)
	r.p99 /= float64(r.rounds - r.services)
	r.served.End()
	if p != nil {
		p.stop(unix.SIGTERM)
	}
	for _, hog := range r.groups[1:] {
		if fate(hog, nil, nil) != "" {
			t.Errorf("%s is still frozen", hog)
		}
	}
	r.judge()
}

// serve starts the service, which has three fifths of the memory.
func (r *runsOut) serve() {
	r.t.Helper()
	r.served = testchild.Start(r.t, fmt.Sprintf("serve %d %s 8", r.total*6/10, r.file)).Await("ready")
	if err := r.cg.MovePID(r.victim, r.served.PID()); err != nil {
		r.t.Fatal(err)
	}
}

// took is the service's p99 since it was last asked, in seconds.
func (r *runsOut) took() float64 {
	r.t.Helper()
	r.served.Say("p99")
	ns, err := strconv.ParseFloat(r.served.Line(), 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return ns / 1e9
}

// round has batch work take all memory, half of what the service leaves at once, and waits until it is frozen or somebody is killed.
func (r *runsOut) round(i, rate int) {
	t := r.t
	t.Helper()
	hog := r.group(fmt.Sprintf("be-%d", i), unlimited)
	if r.arm == "memory.max" { // what the service leaves, but for a twentieth
		limit := strconv.Itoa((r.total*4/10 - r.total/20) << 20)
		if err := os.WriteFile(filepath.Join("/sys/fs/cgroup", hog, "memory.max"), []byte(limit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	eater := testchild.Start(t, fmt.Sprintf("eat %d %d %d", r.total, rate, r.total/5))
	r.move(hog, eater)
	what := ""
	eventually(t, fmt.Sprintf("round %d: who takes %d MiB a second is frozen, or somebody is killed", i, rate), func() bool {
		what = fate(hog, eater, r.served)
		return what != ""
	})
	left := available(t)
	t.Logf("round %d: %d MiB a second, %s with %d of %d MiB available", i, rate, what, left, r.total)
	r.least = min(r.least, left)
	if what == "the service is killed" {
		r.services++
		eater.End()
		r.served.End()
		r.serve()
		return
	}
	r.batch += policy.One(what == "batch work is killed")
	r.p99 += r.took()
	eater.End()
}

// fate is what became of batch work or the service, "": nothing yet.
func fate(hog string, eater, served *testchild.Child) string {
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", hog, "cgroup.events"))
	switch {
	case err == nil && strings.Contains(string(text), "frozen 1"):
		return "frozen"
	case served != nil && zombie(served.PID()):
		return "the service is killed"
	case eater != nil && zombie(eater.PID()):
		return "batch work is killed"
	}
	return ""
}

// zombie reports whether a child has ended.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(after, "Z")
}

// move puts a child into a group and lets it begin.
func (b *bed) move(group string, c *testchild.Child) {
	b.t.Helper()
	if err := b.cg.MovePID(group, c.PID()); err != nil {
		b.t.Fatal(err)
	}
	c.Say("go")
	c.Await("ready")
}
