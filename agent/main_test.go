// Package agent_test runs the agent as its users do: the real binary, as root, on real
// cgroups of this kernel that the tests make for themselves. It checks what an operator
// relies on: whatever happens to the agent, every limit is as it was found.
//
// Each test has a folder of cgroups, /commensal-test-PID-NAME, a scratch directory and
// agents of its own. Folders of test runs that died are removed by the next one.
package agent_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

var (
	rewrite = flag.Bool("rewrite", false, "write the golden files anew")
	seed    = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one, which is printed")
)

// prefix begins the name of every folder of cgroups; the test run's pid follows.
const prefix = "/commensal-test-"

// binary is the program under test, built once a run.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == clientsWord {
		if err := clients(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testchild.Play(map[string]testchild.Role{"work": work, "eat": eat, "serve": serve, "keep": keep, "flock": flock, "database": database, "scrub": scrub})
	flag.Parse()
	os.Exit(run(m))
}

// run builds the program, runs the tests and leaves nothing behind.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "commensal-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err == nil && os.Geteuid() == 0 {
		err = sweepDead()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(dir string) error {
	if rigtest.Inside() {
		// A guest has no go command: the rig has built the program for it.
		var err error
		binary, err = exec.LookPath("commensal")
		return err
	}
	// Tests run it as another user, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	binary = filepath.Join(dir, "commensal")
	cmd := exec.Command("go", "build", "-ldflags", "-X main.version=test", "-o", binary, "../cmd/commensal")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return nil
}

// openCgroups opens the driver that the tests make and read their groups with.
func openCgroups() (cgroup.Driver, error) {
	return cgroup.Find(hostfs.NewRoot("/"))
}

// sweepDead removes the folders of test runs that are no more.
func sweepDead() error {
	cg, err := openCgroups()
	if err != nil {
		return nil //nolint:nilerr // no such cgroups here: every test says so itself
	}
	groups, err := cg.List()
	if err != nil && groups == nil {
		return err
	}
	for _, g := range groups {
		rest, ok := strings.CutPrefix(g, prefix)
		owner, _, named := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(owner)
		if !ok || !named || strings.Contains(rest, "/") || err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if err := removeTree(cg, g); err != nil {
			return fmt.Errorf("left by a dead test run: %w", err)
		}
	}
	return nil
}

// removeTree ends what runs in a folder of groups and removes it, children first.
func removeTree(cg cgroup.Driver, root string) error {
	below, err := cg.Descendants(root)
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	if err != nil {
		return err
	}
	list := append([]string{root}, below...)
	for i := range list {
		// A limit would keep processes from dying. The root of the folder comes first:
		// no child's limit stands in its way.
		_ = cg.WriteCPUMax(list[i], cgroup.CPUMax{QuotaUsec: -1, PeriodUsec: 100_000})
	}
	for i := len(list) - 1; i >= 0; i-- {
		if err := killAll(cg, list[i]); err != nil {
			return err
		}
		if err := removeEmpty(cg, list[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeEmpty removes a group whose processes have ended. On cgroup v2 one that is still
// on its way out is not listed any more, and keeps the group busy.
func removeEmpty(cg cgroup.Driver, path string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := cg.Rmdir(path)
		if err == nil || errors.Is(err, cgroup.ErrVanished) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// killAll ends every process of one group and waits until the group is empty.
func killAll(cg cgroup.Driver, path string) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		pids, err := cg.Procs(path)
		if errors.Is(err, cgroup.ErrVanished) || (err == nil && len(pids) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes in %s do not end", len(pids), path)
		}
		for _, pid := range pids {
			_ = unix.Kill(int(pid), unix.SIGKILL) // it may have ended just now
		}
	}
}
