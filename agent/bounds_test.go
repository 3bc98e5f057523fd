package agent_test

import (
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

// With few descriptors, a tenant that makes cgroups without end and strangers that hold
// connections open, operators are answered, and what is held can be let go.
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
	for i := range 300 {
		path := b.dir + "/agent.sock"
		if i%2 == 0 {
			path = metrics[len("unix:"):]
		}
		c, err := net.DialTimeout("unix", path, patience())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // nothing was written
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
	p.stop(unix.SIGTERM)
	b.same("at the end", found)
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
