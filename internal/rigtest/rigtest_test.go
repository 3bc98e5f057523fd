package rigtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// outside undoes what the rig's guest sets, so that these tests are the same there.
func outside(t *testing.T) {
	t.Helper()
	for _, name := range []string{EnvKernel, EnvMachine, EnvOut, EnvContention} {
		t.Setenv(name, "")
	}
}

// witness is a test that writes down how it ended.
type witness struct {
	testing.TB
	skipped, failed string
}

func (w *witness) Helper() {}

func (w *witness) Skip(args ...any) {
	w.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}

func (w *witness) Skipf(format string, args ...any) { w.Skip(fmt.Sprintf(format, args...)) }

func (w *witness) Fatal(args ...any) {
	w.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

// watch runs f as a test of its own.
func watch(f func(testing.TB)) *witness {
	w := &witness{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(w)
	}()
	<-done
	return w
}

func TestGates(t *testing.T) {
	only := func(t testing.TB) { Only(t, "resctrl is mounted") }
	for _, c := range []struct {
		name                        string
		kernel, machine, contention string
		gate                        func(testing.TB)
		skipped, failed             string // a part of what it says; "": it does not
	}{
		{name: "only, outside", gate: only, skipped: "only in the rig (make rig-test): the test changes the whole machine: resctrl is mounted"},
		{name: "only, inside", kernel: "6.1", machine: "rdt", gate: only},
		{name: "only, on the stock machine", kernel: "6.1", machine: "stock", gate: only},
		{name: "RDT, outside", gate: NeedRDT},
		{name: "RDT, inside", kernel: "6.12", machine: "rdt", gate: NeedRDT},
		{name: "RDT, on the stock machine", kernel: "6.12", machine: "stock", gate: NeedRDT, skipped: StockReason},
		{name: "contention, outside", gate: NeedContention, skipped: "only in the rig"},
		{name: "contention, on the stock machine", kernel: "6.12", machine: "stock", gate: NeedContention, skipped: StockReason},
		{name: "contention, in another stage", kernel: "6.12", machine: "rdt", gate: NeedContention, failed: `the rig's stage "contention"`},
		{name: "contention", kernel: "6.12", machine: "rdt", contention: "1", gate: NeedContention},
	} {
		t.Run(c.name, func(t *testing.T) {
			outside(t)
			t.Setenv(EnvKernel, c.kernel)
			t.Setenv(EnvMachine, c.machine)
			t.Setenv(EnvContention, c.contention)
			w := watch(c.gate)
			if (w.skipped != "") != (c.skipped != "") || !strings.Contains(w.skipped, c.skipped) {
				t.Errorf("skipped: %q, want %q", w.skipped, c.skipped)
			}
			if (w.failed != "") != (c.failed != "") || !strings.Contains(w.failed, c.failed) {
				t.Errorf("failed: %q, want %q", w.failed, c.failed)
			}
			if Inside() != (c.kernel != "") || Kernel() != c.kernel {
				t.Errorf("inside %v, kernel %q", Inside(), Kernel())
			}
		})
	}
}

func TestOut(t *testing.T) {
	outside(t)
	write := func(name string) string {
		path := Out(t, name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if a, b := write("tree/a"), write("tree/a"); a == b || !strings.HasSuffix(a, "/tree/a") {
		t.Errorf("outside the rig: %s and %s", a, b)
	}
	dir := t.TempDir()
	t.Setenv(EnvOut, dir)
	if got, want := write("tree/sub/a"), filepath.Join(dir, "tree/sub/a"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
