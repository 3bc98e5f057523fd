package agent_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// flock is the life of a child that locks a directory, as the user that it then becomes.
func flock(p *testchild.Parent, args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := syscall.Setuid(65534); err != nil {
		return err
	}
	return p.Stay()
}

// TestOneAgentAHost: a second agent is refused whatever its directories are; somebody who is not
// root and locks what they would meet at keeps none out.
func TestOneAgentAHost(t *testing.T) {
	t.Parallel()
	m, err := cgroup.Discover(hostfs.NewRoot("/"))
	if err != nil {
		t.Skipf("no cgroups: %v", err)
	}
	root := m.Unified
	if v1 := m.V1[cgroup.CPU]; v1 != "" {
		root = v1
	}
	b, other := newBed(t, "host", settings{}), newBed(t, "host2", settings{})
	b.group("be-0", unlimited)
	other.group("be-0", unlimited)
	b.flags, other.flags = nil, nil
	p := b.agent()
	r := other.must(5, "agent")
	if pid := "pid " + strconv.Itoa(p.cmd.Process.Pid); strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, pid) || !strings.Contains(r.err, root) {
		t.Errorf("a second agent says: %q; expected one line that names %s and %s", r.err, pid, root)
	}
	other.flags = []string{"--beside-another"}
	q := other.agent()
	q.stop(unix.SIGTERM)
	p.kill()
	other.flags = nil
	other.agent().stop(unix.SIGTERM) // the kernel let go of it with the agent
	b.alone()

	c := testchild.Start(t, "flock "+root)
	c.Await("ready")
	p = b.agent()
	if text := p.text(); !strings.Contains(text, "somebody who is not root") || !strings.Contains(text, "pid="+strconv.Itoa(c.PID())) {
		t.Errorf("beside a stranger's lock it says:\n%s", text)
	}
	p.stop(unix.SIGTERM)
}

// TestRestoreByForce: with agent and guardian stopped nobody notices anything; `restore` refuses and
// says what helps: --force ends the agent.
func TestRestoreByForce(t *testing.T) {
	t.Parallel()
	b, p, found := capped(t, "force")
	held := b.knobs()
	guardian := p.guardian()
	if err := unix.Kill(guardian, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.freeze()
	if r := b.must(5, "restore"); !strings.Contains(r.err, "--force") {
		t.Errorf("restore beside a stopped agent says: %s", r.err)
	}
	b.same("without force", held)
	b.must(0, "restore", "--force")
	b.same("with force", found)
	p.wait()
	if err := unix.Kill(guardian, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.alone()
	b.same("after the guardian", found)
}

// TestRestoreBeside: where neither agent nor guardian can be ended --force puts everything back
// beside them, and says that they are still there.
func TestRestoreBeside(t *testing.T) {
	t.Parallel()
	b, p, found := capped(t, "beside")
	thaw := b.freezeV1(p.cmd.Process.Pid, p.guardian())
	if r := b.must(1, "restore", "--force"); !strings.Contains(r.err, "does not die of SIGKILL: pid "+strconv.Itoa(p.cmd.Process.Pid)) || strings.Count(r.err, "\n") != 1 {
		t.Errorf("restore beside an agent that does not die says: %s", r.err)
	}
	b.same("beside them", found)
	thaw()
	p.wait()
	b.alone()
	b.same("when they are gone", found)
	if r := b.must(0, "restore"); r.out != "nothing to restore\n" {
		t.Errorf("a last restore says: %s", r.out)
	}
}

// TestRunDirRemoved: an agent whose run directory is removed puts everything back and ends, and the
// next one makes it anew.
func TestRunDirRemoved(t *testing.T) {
	t.Parallel()
	b, p, found := capped(t, "removed")
	if err := os.RemoveAll(b.dir + "/run"); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 5 || !strings.Contains(p.text(), "was removed under the running agent") {
		t.Errorf("exit %d:\n%s", code, p.text())
	}
	b.alone()
	b.same("after the agent's end", found)
	p = b.agent()
	b.hold(b.groups[0], "0.05", "10m")
	p.stop(unix.SIGTERM)
	b.same("after the next one", found)
}

// TestProcessOne: as process 1 of a container, with which its guardian dies, an agent enforces only
// when it is told to.
func TestProcessOne(t *testing.T) {
	t.Parallel()
	b := newBed(t, "one", settings{})
	b.group("be-0", unlimited)
	start := func(flags ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), patience())
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, binary, append([]string{"agent", "--config", b.config, "--beside-another"}, flags...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	out, err := start().CombinedOutput()
	if code := exitCode(err); code != 2 || !strings.Contains(string(out), "--as-pid-1") {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, c := range []struct {
		mode  string
		flags []string
	}{{"enforce", []string{"--as-pid-1"}}, {"observe", nil}} {
		b.configure(settings{mode: c.mode})
		cmd := start(c.flags...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent answers", func() bool { _, err := b.ask(); return err == nil })
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("mode %s: %v", c.mode, err)
		}
	}
}

// TestNoStateDir: an agent without a place for its record runs and holds, and says what is wrong.
func TestNoStateDir(t *testing.T) {
	t.Parallel()
	b := newBed(t, "stateless", settings{})
	task := b.group("be-0", unlimited)
	if err := os.WriteFile(b.dir+"/state", nil, 0o600); err != nil { // where a directory should be
		t.Fatal(err)
	}
	p := b.agent()
	b.hold(task, "0.05", "10m")
	eventually(t, "status warns of the record", func() bool {
		return strings.Contains(strings.Join(b.status().Warnings, "\n"), "the record cannot be written")
	})
	p.signal(unix.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit %d:\n%s", code, p.text())
	}
	b.alone()
	b.same("at the end", map[string]cgroup.CPUMax{task: unlimited})
}

// exitCode is the exit code of a program that failed, 0 of one that did not.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}
