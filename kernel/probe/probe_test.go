package probe

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

var rewrite = flag.Bool("rewrite", false, "write the goldens anew")

// report is the text of a golden: findings, then signals, then remedies.
func report(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s: %s\n  why: %s\n", f.Name, f.Answer, f.Why)
		if len(f.Gives) > 0 {
			fmt.Fprintf(&b, "  gives: %s\n", strings.Join(f.Gives, ", "))
		}
		if f.Needs != "" {
			fmt.Fprintf(&b, "  needs: %s\n", f.Needs)
		}
		if f.Only != "" {
			fmt.Fprintf(&b, "  only: %s\n", f.Only)
		}
	}
	fmt.Fprintf(&b, "\nsignals\n%s", abilitiesText(Signals(findings)))
	fmt.Fprintf(&b, "\nremedies\n%s", abilitiesText(Remedies(findings)))
	return b.String()
}

func abilitiesText(list []Ability) string {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%s: %v\n  because: %s\n", a.Name, a.Available, a.Because)
		if a.Wants != "" {
			fmt.Fprintf(&b, "  wants: %s\n", a.Wants)
		}
	}
	return b.String()
}

func TestCapturedTrees(t *testing.T) {
	trees, err := filepath.Glob("testdata/*/proc")
	if err != nil || len(trees) == 0 {
		t.Fatalf("no captured trees: %v", err)
	}
	for _, proc := range trees {
		dir := filepath.Dir(proc)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got := report(Run(Options{FS: hostfs.NewRoot(dir)}))
			if again := report(Run(Options{FS: hostfs.NewRoot(dir)})); again != got {
				t.Errorf("two runs differ:\n%s", cmp.Diff(got, again))
			}
			golden := dir + ".golden"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("golden and report differ (-want +got):\n%s", diff)
			}
		})
	}
}

// watcher is a host's files that tell of every write; it is no DirMaker and no WriteOpener, so that nothing can
// be made or opened for writing at all.
type watcher struct {
	hostfs.FS
	writes []string
}

func (w *watcher) WriteFile(path string, _ []byte) error {
	w.writes = append(w.writes, path)
	return os.ErrPermission
}

// checkForm asserts what holds for findings of any machine.
func checkForm(t *testing.T, findings []Finding) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range findings {
		if f.Name == "" || seen[f.Name] {
			t.Errorf("name %q is empty or comes twice", f.Name)
		}
		seen[f.Name] = true
		switch f.Answer {
		case Yes, No, Owned, CouldNotTell:
		default:
			t.Errorf("%s: answer %q", f.Name, f.Answer)
		}
		if f.Why == "" || strings.ContainsAny(f.Why+f.Needs, "\n\r") {
			t.Errorf("%s: evidence %q, needs %q: want one line", f.Name, f.Why, f.Needs)
		}
		if f.Answer != Yes && f.Only != "" {
			t.Errorf("%s: %s, and only for %s", f.Name, f.Answer, f.Only)
		}
		if f.Answer == Yes && f.Needs != "" {
			t.Errorf("%s: yes, and needs %q", f.Name, f.Needs)
		}
	}
	known := map[string]bool{}
	for _, a := range append(Signals(findings), Remedies(findings)...) {
		known[a.Name] = true
		if a.Because == "" || strings.Contains(a.Because+a.Wants, "\n") || a.Available == (a.Wants != "") {
			t.Errorf("%s: %+v", a.Name, a)
		}
		if strings.Contains(a.Because, "not probed") {
			t.Errorf("%s asks for a finding that nobody makes: %s", a.Name, a.Because)
		}
	}
	for _, f := range findings {
		for _, name := range f.Gives {
			if !known[name] {
				t.Errorf("%s gives %q, which is neither signal nor remedy", f.Name, name)
			}
		}
	}
}

func TestLive(t *testing.T) {
	files := &watcher{FS: hostfs.NewRoot("/")}
	findings := Run(Options{FS: files, Live: true})
	t.Log("\n" + report(findings))
	checkForm(t, findings)
	if len(files.writes) > 0 {
		t.Errorf("probes wrote %v", files.writes)
	}
	want, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	release := Find(findings, KernelRelease)
	if release.Answer != Yes || !strings.Contains(release.Why, strings.TrimSpace(string(want))) {
		t.Errorf("kernel release %+v does not name %q", release, want)
	}
	if f := Find(findings, RootUser); f.Answer != yesNo(os.Geteuid() == 0) {
		t.Errorf("root user: %+v, effective uid is %d", f, os.Geteuid())
	}
	for _, a := range Signals(findings) {
		if a.Name == SignalSLO && !a.Available {
			t.Errorf("%s asks nothing of the kernel: %+v", SignalSLO, a)
		}
	}
	var names []string
	for _, f := range Run(Options{FS: files}) {
		names = append(names, f.Name)
	}
	for i, f := range findings {
		if i >= len(names) || names[i] != f.Name {
			t.Fatalf("finding %d is %q live and %v from files", i, f.Name, names)
		}
	}
}
