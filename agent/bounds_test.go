package agent_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
)

// mostMemory is what the agent may ever have had resident: a quarter of what the unit allows it.
const mostMemory = 128 << 10 // KiB

// With few descriptors, a tenant that makes cgroups without end and strangers that hold
// connections open, each with half a request, operators are answered, what is held can be let go, and
// the agent's memory is bounded.
func TestNobodyTakesTheDescriptors(t *testing.T) {
	if rigtest.Inside() {
		t.Skip("a thousand cgroups keep the agents of all tests busy, on an emulated CPU for minutes")
	}
	metrics := "unix:" + filepath.Join(t.TempDir(), "metrics.sock")
	b := newBed(t, "files", settings{metrics: metrics})
	task := b.group("be-0", unlimited)
	found := b.knobs()
	p := b.agent()
	if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: 256}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := b.cg.Mkdir(task + "/" + strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 { // more tasks than there are descriptors for
		if err := b.cg.Mkdir(b.root + "/be-more-" + strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	half := []byte("GET /metrics HTTP/1.1\r\nX-Long: " + strings.Repeat("x", 8000))
	for i := range 3000 {
		path := b.dir + "/agent.sock"
		if i%2 == 0 {
			path = metrics[len("unix:"):]
		}
		c, err := net.DialTimeout("unix", path, patience())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()      //nolint:errcheck // nothing was written
		_, _ = c.Write(half) // the agent may have closed it by now
	}
	eventually(t, "descriptors are used up", func() bool {
		list, err := os.ReadDir("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd")
		return err == nil && len(list) >= 200
	})
	b.hold(task, "0.03", "10m")
	b.must(0, "uncap", task)
	eventually(t, "the cap is off", func() bool { return b.held(task) == nil })
	if now := b.read(task); now != found[task] {
		t.Errorf("after uncap %s, found %s", now, found[task])
	}
	b.hold(task, "0.03", "10m")
	if err := os.WriteFile(b.dir+"/off", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kill switch releases", func() bool { return b.read(task) == found[task] })
	b.must(0, "status")
	if most := resident(t, p.cmd.Process.Pid); most > mostMemory {
		t.Errorf("the agent had %d KiB resident, want %d at most", most, mostMemory)
	} else {
		t.Logf("the agent had %d KiB resident at most", most)
	}
	p.stop(unix.SIGTERM)
	b.same("at the end", found)
}

// resident is the most that a process ever had in memory, in KiB.
func resident(t *testing.T, pid int) (kib int) {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		t.Fatalf("VmHWM: %v", err)
	}
	return kib
}

// An agent that somebody moves into a task which it holds lets that go, says so, and holds it
// no more.
func TestAnAgentInItsOwnTaskHoldsItNot(t *testing.T) {
	b := newBed(t, "self", settings{})
	task := b.group("be-0", unlimited)
	found := b.knobs()
	p := b.agent()
	b.hold(task, "0.5", "10m")
	if err := b.cg.MovePID(task, p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "status warns", func() bool {
		return strings.Contains(strings.Join(b.status().Warnings, "\n"), "the agent or PID 1 runs in tasks")
	})
	if r := b.must(2, "cap", task, "--cpus", "0.05", "--for", "10m"); !strings.Contains(r.err, "the agent or PID 1 runs in") {
		t.Errorf("cap says: %s", r.err)
	}
	eventually(t, "it is let go", func() bool { return b.read(task) == found[task] })
	time.Sleep(time.Second)
	b.same("a second later", found)
	p.stop(unix.SIGTERM)
	b.same("at the end", found)
}
