package stage

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/kernel/hostfs"
)

// other is a child that is a stage of its own until it is told to close it.
func other(p *testchild.Parent, _ []string) error {
	s, err := Open(os.Stdout)
	if err != nil {
		return err
	}
	p.Say("open")
	p.Line()
	return s.Close()
}

// root is the root group of the rig's guest.
type root struct {
	t    *testing.T
	file string
	cg   *cgroup.V2
}

func newRoot(t *testing.T) *root {
	t.Helper()
	rigtest.Only(t, "the cpu controller is switched off and on for all groups")
	fs := hostfs.NewRoot("/")
	m, err := cgroup.Discover(fs)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cgroup.OpenUnified(fs, m)
	if err != nil {
		t.Fatal(err)
	}
	r := &root{t, m.Unified + "/cgroup.subtree_control", d}
	t.Cleanup(func() { r.write("+cpu") }) // as the guest's other tests expect it
	r.write("-cpu")
	return r
}

func (r *root) write(s string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(s), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// is fails unless the controller is on, or off, and the note of it there, or not.
func (r *root) is(when string, on, noted bool) {
	r.t.Helper()
	list, err := r.cg.ReadSubtreeControl("/")
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = os.Stat(recordPath)
	if got := slices.Contains(list, cgroup.CPU); got != on || (err == nil) != noted {
		r.t.Fatalf("%s: controller on: %v, want %v; noted: %v, want %v", when, got, on, err == nil, noted)
	}
}

// start starts another stage and waits until it is open.
func (r *root) start() *testchild.Child {
	r.t.Helper()
	c := testchild.Start(r.t, "other")
	for line := c.Line(); line != "open"; line = c.Line() {
		r.t.Log(line)
	}
	return c
}

// TestControllerIsPutBack: where the root group does not hand the cpu controller down, as
// on a fresh systemd host, a stage enables it, says so, and the last one to go takes it
// back, also after a crash.
func TestControllerIsPutBack(t *testing.T) {
	r := newRoot(t)
	var log strings.Builder
	s := open(t, &log)
	r.is("open", true, true)
	if !strings.Contains(log.String(), "for the whole machine") {
		t.Errorf("said: %q", log.String())
	}
	path, err := s.Group("limited")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cgroups().WriteCPUMax(path, cgroup.CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000}); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.is("closed", false, false)

	s = open(t, &log)
	c := r.start()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r.is("one of two closed", true, true)
	c.Say("close")
	if said, err := c.Wait(); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	r.is("both closed", false, false)

	r.start().End()
	r.is("crashed", true, true)
	if err := open(t, &log).Close(); err != nil {
		t.Fatal(err)
	}
	r.is("the run after the crash", false, false)
}

// TestControllerStaysWhereUsed: what others have come to rely on is left as it is.
func TestControllerStaysWhereUsed(t *testing.T) {
	r := newRoot(t)
	const group = "/commensal-test-user"
	for what, use := range map[string]func() error{
		"has a CPU limit": func() error {
			return r.cg.WriteCPUMax(group, cgroup.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000})
		},
		"has a weight":  func() error { return r.cg.WriteWeight(group, 300) },
		"hands it down": func() error { return r.cg.Enable(group, cgroup.CPU) },
	} {
		var log strings.Builder
		s := open(t, &log)
		if err := r.cg.Mkdir(group); err != nil {
			t.Fatal(err)
		}
		if err := use(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		r.is(what, true, false)
		if !strings.Contains(log.String(), group+" "+what) {
			t.Errorf("%s: said %q", what, log.String())
		}
		if err := r.cg.Rmdir(group); err != nil {
			t.Fatal(err)
		}
		r.write("-cpu")
	}
	// A note of an earlier boot says nothing about this one.
	r.write("+cpu")
	if err := os.WriteFile(recordPath, []byte("an earlier boot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, os.Stderr).Close(); err != nil {
		t.Fatal(err)
	}
	r.is("after a boot", true, false)
}
