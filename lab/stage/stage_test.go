package stage

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
)

// TestMain lets this binary stand in for the lab's own: Start runs it to enter a group.
func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == ExecCommand {
		if err := Exec(os.Args[2], os.Args[4:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
	}
	testchild.Main(m, map[string]testchild.Role{"other": other})
}

func open(t *testing.T, log io.Writer) *Stage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups can be made by root only")
	}
	s, err := Open(log)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStageLeavesNothing plays on the real kernel: a program in a group, another that
// forks and ignores SIGTERM under a tight limit; afterwards nothing is left of either.
func TestStageLeavesNothing(t *testing.T) {
	s := open(t, os.Stderr)
	closed := false
	t.Cleanup(func() {
		if !closed {
			_ = s.Close()
		}
	})
	path, err := s.Group("work")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Start(path, "work", "sh", "-c", "trap '' TERM; (while :; do :; done) & while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "the program runs in its group", func() bool {
		pids, err := s.Cgroups().Procs(path)
		used, _ := s.UsageNsec(path)
		return err == nil && len(pids) >= 2 && used > 10e6
	})
	if err := s.Cgroups().WriteCPUMax(path, cgroup.CPUMax{QuotaUsec: 1000, PeriodUsec: 100_000}); err != nil {
		t.Fatal(err)
	}
	closed = true
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !p.Ended() {
		t.Error("the program still runs")
	}
	if _, err := s.Cgroups().Inode(s.Root); err == nil {
		t.Errorf("%s is still there", s.Root)
	}
	if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there", s.Dir)
	}
}

// TestOpenSweepsDeadRuns: what a killed run left goes with the next one.
func TestOpenSweepsDeadRuns(t *testing.T) {
	s := open(t, os.Stderr)
	t.Cleanup(func() { _ = s.Close() })
	// Above the kernel's greatest pid, so that it is nobody's.
	dead := "/" + prefix + strconv.Itoa(1<<22+1)
	for _, p := range []string{dead, dead + "/batch-1"} {
		if err := s.Cgroups().Mkdir(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.sweepDead(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cgroups().Inode(dead); err == nil {
		t.Errorf("%s is still there", dead)
	}
	if _, err := s.Cgroups().Inode(s.Root); err != nil {
		t.Errorf("our own stage was swept: %v", err)
	}
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A program that does not know the hidden command would start itself again and again.
func TestStartedAsItself(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{args[0], ExecCommand, "/group", "--", "true"}
	s := &Stage{Dir: t.TempDir()}
	if _, err := s.Start("/group", "again", "true"); err == nil {
		t.Error("it starts itself once more")
	}
}

// A program that is not installed is named, and is not left to fail where nobody looks.
func TestStartWhatIsNotInstalled(t *testing.T) {
	s := &Stage{Dir: t.TempDir()}
	if _, err := s.Start("/group", "absent", "commensal-no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v; expected that it is not found", err)
	}
}
