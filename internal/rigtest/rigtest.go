// Package rigtest is what tests may ask about the rig (docs/RIG.md): an emulated machine
// that nobody else uses, so that a test may change all of it.
package rigtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What the rig's guest sets in the environment of every test.
const (
	// EnvKernel is the series of the guest's kernel, "6.1"; it is set in the rig only.
	EnvKernel = "COMMENSAL_RIG"
	// EnvMachine is "rdt" (RDT and PMU are emulated) or "stock".
	EnvMachine = "COMMENSAL_RIG_MACHINE"
	// EnvOut is the folder whose files the rig brings out of the guest.
	EnvOut = "COMMENSAL_RIG_OUT"
	// EnvContention is set where a task's counters depend on who else ran.
	EnvContention = "COMMENSAL_RIG_CONTENTION"
)

// StockReason is why a test of RDT or of the PMU is skipped on the stock machine.
const StockReason = "the stock emulator has no RDT and no PMU (make rig builds one that has)"

// Inside says whether the test runs in the rig.
func Inside() bool { return os.Getenv(EnvKernel) != "" }

// Only skips a test that changes the whole machine (what) anywhere but in the rig.
func Only(t testing.TB, what string) {
	t.Helper()
	if !Inside() {
		t.Skipf("only in the rig (make rig-test): the test changes the whole machine: %s", what)
	}
}

// NeedRDT skips a test of RDT or hardware counters on the rig's stock machine, which has
// neither; elsewhere it does nothing, and the test asks the kernel.
func NeedRDT(t testing.TB) {
	t.Helper()
	if os.Getenv(EnvMachine) == "stock" {
		t.Skip(StockReason)
	}
}

// NeedContention skips a test whose tasks must hurt each other, as the counters show it,
// anywhere but where the rig emulates that.
func NeedContention(t testing.TB) {
	t.Helper()
	Only(t, "resctrl is mounted")
	NeedRDT(t)
	if os.Getenv(EnvContention) == "" {
		t.Fatal("this machine's counters do not depend on who runs: the test belongs into the rig's stage \"contention\"")
	}
}

// PqosDir is where the guest has Debian's pqos (package intel-cmt-cat), with the libraries that it is linked against.
const PqosDir = "/rig/pqos"

// Pqos runs it, in the guest, with its interface to resctrl (-I), and returns what it said, and whether it exited with 0.
func Pqos(t testing.TB, args ...string) (said string, ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, PqosDir+"/ld-linux-x86-64.so.2", append([]string{"--library-path", PqosDir, PqosDir + "/pqos", "-I"}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		t.Fatalf("pqos %v: %v\n%s", args, err, out)
	}
	return string(out), err == nil
}

// Kernel returns the series of the guest's kernel, "" outside the rig.
func Kernel() string { return os.Getenv(EnvKernel) }

// Out returns the path of a file that the rig brings out of the guest, and a file in a
// temporary folder outside the rig.
func Out(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(EnvOut)
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// DiskDir returns a folder of the test's own on a disk: the root of the rig's guest is memory itself, whose pages cannot be dropped.
func DiskDir(t testing.TB) string {
	t.Helper()
	if !Inside() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/mnt", "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
