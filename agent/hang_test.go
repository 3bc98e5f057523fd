package agent_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/model"
)

// hangBound is within what time everything must be as found once the agent's loop stands still:
// the guardian's patience is 5 s, and two more where the agent cannot be ended.
func hangBound() time.Duration {
	if rigtest.Inside() {
		return 60 * time.Second
	}
	return 15 * time.Second
}

// places reads the lists of CPUs of all groups of the bed.
func (b *bed) places() string {
	b.t.Helper()
	var all strings.Builder
	for _, g := range b.groups {
		list, err := b.cg.ReadCPUs(g)
		if err != nil {
			b.t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %q\n", g, list)
	}
	return all.String()
}

// apart makes a service and batch work, and an agent that keeps them on CPUs of their own and
// holds the batch work for 2 seconds. It returns the agent and what checks that all is as found.
func (b *bed) apart() (p *proc, asFound func() bool) {
	b.t.Helper()
	lc, be := b.group("victim", unlimited), b.group("be-0", unlimited)
	for _, g := range b.groups { // a list that a v2 group has from above cannot be put back but as a list of its own
		if list, err := b.cg.ReadCPUs(g); err == nil && list == "" {
			if err := b.cg.WriteCPUs(g, fmt.Sprintf("0-%d", runtime.NumCPU()-1)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b.start("service", lc, -1)
	b.start("steady", be, -1)
	limits, places := fmt.Sprint(b.knobs()), b.places()
	asFound = func() bool { return fmt.Sprint(b.knobs()) == limits && b.places() == places }
	p = b.agent()
	eventually(b.t, "service and batch work are on CPUs of their own", func() bool {
		lists := map[string]bool{}
		for line := range strings.Lines(b.places()) {
			_, list, _ := strings.Cut(line, " ")
			lists[list] = true
		}
		return len(lists) == 2
	})
	b.hold(be, "0.05", "2s")
	return p, asFound
}

// backWithin fails unless everything is as found within hangBound.
func (b *bed) backWithin(p *proc, asFound func() bool) {
	b.t.Helper()
	if asFound() {
		b.t.Fatal("nothing is held: the test proves nothing")
	}
	begin := time.Now()
	for !asFound() {
		if time.Since(begin) > hangBound() {
			b.t.Fatalf("%s after the agent stopped:\n%v\n%s%s", hangBound(), b.knobs(), b.places(), p.text())
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Logf("as found after %s", time.Since(begin).Round(100*time.Millisecond))
}

// TestHungAgent: an agent that is stopped is ended by its guardian, which puts everything back.
func TestHungAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, "hung", settings{cpuset: true})
	p, asFound := b.apart()
	p.signal(unix.SIGSTOP)
	b.backWithin(p, asFound)
	if p.wait(); !strings.Contains(p.text(), "the agent's loop does not move") {
		t.Errorf("the guardian does not say so:\n%s", p.text())
	}
	b.alone()
}

// TestStoppedTogether: when agent and guardian were stopped together, as a suspended machine or a
// frozen cgroup has it, nobody takes the agent for hung, whoever goes on first.
func TestStoppedTogether(t *testing.T) { // by itself: beside all others its agent was gone in two runs of ten
	b := newBed(t, "together", settings{})
	b.group("be-0", unlimited)
	p := b.agent()
	guardian := p.guardian()
	stop := func(sig unix.Signal, pids ...int) {
		t.Helper()
		for _, pid := range pids {
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatalf("%v: %v\n%s", sig, err, p.text())
			}
			time.Sleep(1200 * time.Millisecond) // by then a guardian that goes on has read what came before
		}
	}
	stop(unix.SIGSTOP, p.cmd.Process.Pid, guardian)
	time.Sleep(8 * time.Second)
	stop(unix.SIGCONT, guardian, p.cmd.Process.Pid)
	if b.status(); p.guardian() != guardian {
		t.Errorf("another guardian:\n%s", p.text())
	}
	p.stop(unix.SIGTERM)
}

// freezeV1 freezes processes so that not even SIGKILL ends them, until thaw or the test's end; the
// test is skipped where no v1 freezer is.
func (b *bed) freezeV1(pids ...int) (thaw func()) {
	b.t.Helper()
	const freezers = "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(freezers + "/cgroup.procs"); err != nil {
		b.t.Skip("no v1 freezer here, which SIGKILL does not get through")
	}
	dir := filepath.Join(freezers, filepath.Base(b.root)+"-frozen")
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	write := func(file, text string) {
		b.t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			b.t.Error(err)
		}
	}
	thaw = func() { write("freezer.state", "THAWED") }
	b.t.Cleanup(func() {
		thaw()
		b.killAgents()
		eventually(b.t, "the freezer can be removed", func() bool { return os.Remove(dir) == nil })
	})
	for _, pid := range pids {
		write("cgroup.procs", strconv.Itoa(pid))
	}
	write("freezer.state", "FROZEN")
	return thaw
}

// TestUnkillableAgent: an agent that stands still and does not die, as in an uninterruptible wait
// inside the kernel, keeps its locks; everything is put back beside it. A frozen v1 cgroup is such
// a wait that a test can end.
func TestUnkillableAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, "unkillable", settings{cpuset: true})
	p, asFound := b.apart()
	guardian := p.guardian()
	thaw := b.freezeV1(p.cmd.Process.Pid) // without the guardian
	b.backWithin(p, asFound)
	if len(b.processes()) != 2 || p.guardian() != guardian {
		t.Fatalf("agent and guardian are %v:\n%s", b.processes(), p.text())
	}
	thaw()
	p.wait()
	b.alone()
	if !asFound() {
		t.Errorf("after the agent's end: %v\n%s", b.knobs(), b.places())
	}
	if !strings.Contains(p.text(), "does not die of SIGKILL") {
		t.Errorf("the guardian does not say so:\n%s", p.text())
	}
}

// TestLogThatNobodyReads: a log that takes nothing any more stops neither agent nor guardian.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	b := newBed(t, "deaf", settings{cpuset: true})
	var full [2]int
	if err := unix.Pipe2(full[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(full[0]), "read end"), os.NewFile(uintptr(full[1]), "write end")
	defer r.Close()
	defer w.Close()
	if err := unix.SetNonblock(full[1], true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for {
			if _, err := unix.Write(full[1], make([]byte, size)); err != nil {
				break
			}
		}
	}
	if err := unix.SetNonblock(full[1], false); err != nil { // as the agent finds it
		t.Fatal(err)
	}
	b.stderr = w
	p, asFound := b.apart()
	eventually(t, "the cap ends, though nothing can be logged", func() bool { // batch work that has no core is held for that
		h := b.held(b.groups[1])
		return h == nil || !slices.ContainsFunc(h.Claims, func(c model.Claim) bool { return c.Owner == model.OwnerOperator })
	})
	b.hold(b.groups[1], "0.05", "2s")
	p.signal(unix.SIGSTOP)
	b.backWithin(p, asFound)
	p.wait()
	b.alone()
}

// TestLogThatIsGone: a log whose reader has ended, which is SIGPIPE for most programs, ends neither
// agent nor guardian.
func TestLogThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBed(t, "gone", settings{cpuset: true})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	b.stderr = w
	p, asFound := b.apart()
	r.Close()
	b.hold(b.groups[1], "0.05", "10m")
	time.Sleep(time.Second)
	p.signal(unix.SIGSTOP)
	b.backWithin(p, asFound)
	p.wait()
	b.alone()
	p = b.agent()
	b.hold(b.groups[1], "0.05", "10m")
	p.stop(unix.SIGTERM)
	if !asFound() {
		t.Errorf("after the end: %v\n%s", b.knobs(), b.places())
	}
}

// TestServiceManager: the service manager is told that the agent is ready when its loop has taken a
// turn, and then that it is alive for as long as the loop moves.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	b := newBed(t, "manager", settings{})
	b.group("be-0", unlimited)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: b.dir + "/notify", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const watchdog = 2 * time.Second
	b.env = []string{"NOTIFY_SOCKET=" + b.dir + "/notify", fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds()), "GOMAXPROCS=256"}
	p := b.launch()
	next := func(within time.Duration) string {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 256)
		n, err := l.Read(buf)
		if err != nil {
			return err.Error()
		}
		return string(buf[:n])
	}
	if got := next(patience()); got != "READY=1" {
		t.Fatalf("first: %s\n%s", got, p.text())
	}
	if len(b.status().Tasks) != 1 {
		t.Errorf("ready before the first turn was taken: %+v", b.status().Tasks)
	}
	for range 4 {
		if got := next(patience()); got != "WATCHDOG=1" {
			t.Fatalf("then: %s\n%s", got, p.text())
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.guardian()))
	if err != nil || strings.Contains(string(env), "NOTIFY_SOCKET") || strings.Contains(string(env), "WATCHDOG") {
		t.Errorf("the guardian could speak for the service: %q (%v)", env, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.guardian()))
	_, threads, _ := strings.Cut(string(status), "Threads:\t")
	if n, _ := strconv.Atoi(strings.SplitN(threads, "\n", 2)[0]); err != nil || n < 1 || n > 20 {
		t.Errorf("the guardian has %d threads (%v): on a server of 256 CPUs it would meet the unit's limit", n, err)
	}
	guardian := p.guardian()
	if err := unix.Kill(guardian, unix.SIGSTOP); err != nil { // it would end the agent, on a slow machine before the test is done
		t.Fatal(err)
	}
	p.signal(unix.SIGSTOP)
	for next(100*time.Millisecond) == "WATCHDOG=1" {
		// sent before it stopped
	}
	if got := next(watchdog); !strings.Contains(got, "timeout") {
		t.Errorf("a stopped agent says %s", got)
	}
	p.signal(unix.SIGCONT)
	if got := next(patience()); got != "WATCHDOG=1" {
		t.Errorf("an agent that goes on says %s", got)
	}
	if err := unix.Kill(guardian, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.stop(unix.SIGTERM)
}

// TestHangup: SIGHUP says that it does nothing, and does nothing.
func TestHangup(t *testing.T) {
	t.Parallel()
	b := newBed(t, "hangup", settings{})
	task := b.group("be-0", unlimited)
	p := b.agent()
	b.hold(task, "0.05", "10m")
	p.signal(unix.SIGHUP)
	eventually(t, "the agent says what SIGHUP does", func() bool { return strings.Contains(p.text(), "SIGHUP does nothing") })
	if b.held(task) == nil {
		t.Error("nothing is held any more")
	}
	p.stop(unix.SIGTERM)
}
