package agent_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
)

var memoryRounds = flag.Int("memory-rounds", 2, "how often TestMemoryRunsOut lets memory run out")

// eat takes memory: args are megabytes, megabytes a second.
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
			time.Sleep(time.Until(begun.Add(time.Duration(taken+1) * time.Second / time.Duration(rate))))
		}
	}()
	return p.Stay()
}

// vmstat is a counter of /proc/vmstat.
func vmstat(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s in /proc/vmstat", name)
	return ""
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

// TestMemoryRunsOut: batch work that takes all memory of a machine without swap, at speeds that are drawn, beside a service
// that is larger than it. It is frozen while some is left; the kernel's OOM killer never acts, and the service lives.
func TestMemoryRunsOut(t *testing.T) {
	rigtest.Only(t, "takes all of the machine's memory")
	rng := random(t)
	b := newBed(t, "memory", settings{})
	service := b.group("victim", unlimited)
	text, err := os.ReadFile(b.config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "pressure: {mode: enforce, reclaim_bytes: 0}\n"...)
	if err := os.WriteFile(b.config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	total := available(t)
	served := testchild.Start(t, fmt.Sprintf("eat %d 1000000", total*6/10))
	b.move(service, served)
	eventually(t, "the service has its memory", func() bool { return available(t) < total*45/100 })
	p := b.agent()
	killed := vmstat(t, "oom_kill")
	frozen := func(group string) bool {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, "cgroup.events"))
		return err == nil && strings.Contains(string(text), "frozen 1")
	}
	least := total
	for i := range *memoryRounds {
		rate := 20 << rng.IntN(5) // 20 to 320 MiB a second
		hog := b.group(fmt.Sprintf("be-%d", i), unlimited)
		eater := testchild.Start(t, fmt.Sprintf("eat %d %d", total, rate))
		b.move(hog, eater)
		eventually(t, fmt.Sprintf("round %d: who takes %d MiB a second is frozen", i, rate), func() bool { return frozen(hog) })
		left := available(t)
		if now := vmstat(t, "oom_kill"); now != killed {
			t.Fatalf("round %d, %d MiB a second: the kernel's OOM killer has ended %s, was %s\n%s", i, rate, now, killed, p.text())
		}
		t.Logf("round %d: %d MiB a second, frozen with %d of %d MiB available", i, rate, left, total)
		least = min(least, left)
		eater.End()
	}
	t.Logf("%d rounds: nobody ended; least available %d of %d MiB", *memoryRounds, least, total)
	if err := unix.Kill(served.PID(), 0); err != nil {
		t.Errorf("the service: %v", err)
	}
	p.stop(unix.SIGTERM)
	for _, hog := range b.groups[1:] {
		if frozen(hog) {
			t.Errorf("%s is still frozen", hog)
		}
	}
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
