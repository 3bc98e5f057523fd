package agent_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/kernel/cgroup"
)

// operate caps, changes, shortens and frees tasks all the time until stop is closed. It
// speaks through the command, as operators do; what is refused because the agent is just
// being killed does not matter.
func operate(config string, tasks []string, s uint64, stop <-chan struct{}, done *sync.WaitGroup) {
	done.Add(1)
	rng := rand.New(rand.NewPCG(s, 1))
	cpus := []string{"0.01", "0.03", "0.1", "0.25", "0.4", "1.5"}
	times := []string{"200ms", "400ms", "900ms", "1m"}
	go func() {
		defer done.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			task := tasks[rng.IntN(len(tasks))]
			args := []string{"cap", task, "--cpus", cpus[rng.IntN(len(cpus))], "--for", times[rng.IntN(len(times))]}
			if rng.IntN(5) == 0 {
				args = []string{"uncap", task}
			}
			_, _ = tryRun(nil, append(args, "--config", config)...)
		}
	}()
}

// await waits for a random while and then, every other time, for the very moment in
// which some limit changes: there the agent is in the middle of its writes.
func (b *bed) await(rng *rand.Rand) {
	time.Sleep(time.Duration(100+rng.IntN(800)) * time.Millisecond)
	if rng.IntN(2) == 0 {
		return
	}
	before := b.knobs()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline) && maps.Equal(before, b.knobs()); {
	}
}

// rounds is how often a test of chances is played: in the rig, where a program takes
// seconds to start, half as often.
func rounds(n int) int {
	if rigtest.Inside() {
		return n / 2
	}
	return n
}

// TestKilledAgent: SIGKILL at random points of a busy run. The guardian puts everything
// back, and the next agent starts on what it left.
func TestKilledAgent(t *testing.T) {
	t.Parallel()
	rng := random(t)
	b := newBed(t, "killed", settings{})
	tasks := b.tree()
	found := b.knobs()
	kills := rounds(8)
	heldAtKill := 0
	for i := range kills {
		p := b.agent()
		stop, done := make(chan struct{}), &sync.WaitGroup{}
		operate(b.config, tasks, rng.Uint64(), stop, done)
		eventually(t, "operators are at work", func() bool { return !maps.Equal(found, b.knobs()) })
		b.await(rng)
		p.freeze()
		if !maps.Equal(found, b.knobs()) {
			heldAtKill++
		}
		p.kill()
		close(stop)
		done.Wait()
		b.alone() // the guardian has done its work and left
		if strings.Contains(p.text(), "level=ERROR") {
			t.Errorf("kill %d: errors in the log:\n%s", i, p.text())
		}
		b.same("after kill "+strconv.Itoa(i), found)
	}
	if heldAtKill == 0 {
		t.Errorf("in none of %d kills anything was held: the test proves nothing", kills)
	}
	t.Logf("something was held in %d of %d kills", heldAtKill, kills)
}

// TestKilledAgentAndGuardian: nobody is left to restore; `restore` does, or the next
// agent.
func TestKilledAgentAndGuardian(t *testing.T) {
	t.Parallel()
	rng := random(t)
	b := newBed(t, "both", settings{})
	tasks := b.tree()
	found := b.knobs()
	for i := range rounds(4) {
		p := b.agent()
		b.hold(tasks[0], "0.02", "10m")
		stop, done := make(chan struct{}), &sync.WaitGroup{}
		operate(b.config, tasks[1:], rng.Uint64(), stop, done)
		b.await(rng)
		p.killBoth()
		close(stop)
		done.Wait()
		left := b.knobs()
		if left[tasks[0]] == found[tasks[0]] {
			t.Fatalf("nothing is held: the test proves nothing: %v", left)
		}
		b.below(tasks[0]+"/a", left, found)
		time.Sleep(300 * time.Millisecond)
		if !maps.Equal(left, b.knobs()) {
			t.Fatalf("somebody restored, though nobody is left: %v", b.processes())
		}
		if i%2 == 0 {
			r := b.must(0, "restore")
			if !strings.Contains(r.out, "restored     "+tasks[0]+": no limit") {
				t.Errorf("restore says:\n%s", r.out)
			}
			b.same("after restore", found)
			if r := b.must(0, "restore"); r.out != "nothing to restore\n" {
				t.Errorf("a second restore says: %s", r.out)
			}
			continue
		}
		next := b.agent()
		b.same("after the next start", found)
		if st := b.status(); len(st.Held) > 0 || len(st.Warnings) > 0 {
			t.Errorf("the next agent holds %v, warns %v", st.Held, st.Warnings)
		}
		next.stop(unix.SIGTERM)
	}
}

// TestGuardianIsReplaced: without its guardian an agent starts another, which does what
// the first would have done.
func TestGuardianIsReplaced(t *testing.T) {
	t.Parallel()
	b, p, found := capped(t, "guardian")
	first := p.guardian()
	eventually(t, "the guardian ignores SIGTERM", func() bool { // it may have only just started
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", first))
		_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
		ignored, _ := strconv.ParseUint(strings.SplitN(mask, "\n", 2)[0], 16, 64)
		return ignored&(1<<(unix.SIGTERM-1)) != 0
	})
	if err := unix.Kill(first, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if p.guardian() != first {
		t.Fatal("SIGTERM ended the guardian: a service manager's stop would leave nobody to restore")
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another guardian is there", func() bool {
		return strings.Contains(p.text(), "another is started") && p.guardian() != first && len(b.processes()) == 2
	})
	if maps.Equal(found, b.knobs()) {
		t.Fatal("nothing is held: the test proves nothing")
	}
	p.kill()
	b.alone()
	b.same("after the second guardian", found)
}

// stop ends the agent with a signal, which must put everything back, exit with 0 and
// leave no guardian.
func (p *proc) stop(sig unix.Signal) {
	p.b.t.Helper()
	p.signal(sig)
	if code := p.wait(); code != 0 {
		p.b.t.Fatalf("%s: exit %d\n%s", sig, code, p.text())
	}
	if left := p.b.processes(); len(left) > 0 {
		p.b.t.Fatalf("%s: processes %v outlive the agent", sig, left)
	}
	if strings.Contains(p.text(), "level=ERROR") || strings.Contains(p.text(), "\ncommensal: ") {
		p.b.t.Errorf("%s: not a clean end:\n%s", sig, p.text())
	}
}

func TestStopRestores(t *testing.T) {
	t.Parallel()
	b := newBed(t, "stop", settings{})
	tasks := b.tree()
	found := b.knobs()
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		p := b.agent()
		for _, task := range tasks {
			b.hold(task, "0.03", "10m")
		}
		now := b.knobs()
		if want := (cgroup.CPUMax{QuotaUsec: 7500, PeriodUsec: 250_000}); now[tasks[0]] != want || now[tasks[1]] != want {
			t.Fatalf("held: %v", now)
		}
		b.below(tasks[1]+"/c", now, found)
		b.below(tasks[0]+"/a/x", now, found)
		p.stop(sig)
		b.same(sig.String(), found)
	}
}

// TestSecondAgent: one agent a run directory, also against `restore`; after a crash
// the same directory works again.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, "second", settings{})
	task := b.group("be-0", unlimited)
	first := b.agent()
	b.hold(task, "0.05", "10m")
	held := b.knobs()
	pid := "pid " + strconv.Itoa(first.cmd.Process.Pid)
	r := b.must(5, "agent")
	if strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, pid) {
		t.Errorf("a second agent says: %q; expected one line that names %s", r.err, pid)
	}
	r = b.must(5, "restore")
	if strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, pid) || !strings.Contains(r.err, "kill-switch file") {
		t.Errorf("restore beside an agent says: %q; expected one line that names %s and the kill switch", r.err, pid)
	}
	b.same("beside a second agent", held)
	b.hold(task, "0.02", "10m") // the first still works
	first.killBoth()
	next := b.agent()
	b.same("after the crash", map[string]cgroup.CPUMax{task: unlimited})
	b.hold(task, "0.02", "10m")
	next.stop(unix.SIGTERM)
	b.same("at the end", map[string]cgroup.CPUMax{task: unlimited})
}
