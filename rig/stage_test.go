package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/rig/wire"
)

// actsTester has a checkout with the acts as the tests of two packages, and a stand-in
// that carries out what it finds in the initramfs.
func actsTester(t *testing.T, part string) (*tester, *bytes.Buffer) {
	t.Helper()
	b := actsBuilder(t)
	dir := filepath.Join(b.Repo, artefacts)
	linkSelf(t, b.Binary("kernel/more"))
	writeFile(t, filepath.Join(b.Repo, "kernel/more/testdata/file"), "")
	makeKernel(t, dir, "6.12")
	writeFile(t, filepath.Join(dir, "busybox"), "")
	writeFile(t, filepath.Join(b.Dir, "bin", "guest"), "")
	linkSelf(t, filepath.Join(dir, "qemu-rdt"))
	linkSelf(t, filepath.Join(dir, "bin", "mke2fs"))
	t.Setenv("PATH", filepath.Join(dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv(partEnv, part)
	t.Setenv(actsEnv, b.Binary("kernel/acts"))
	writeFile(t, filepath.Join(b.Repo, skipList), "* * kernel/acts TestSkips for a reason\n")
	var out bytes.Buffer
	tester, err := newTester(Options{Repo: b.Repo, Go: b.Go, Series: "6.12", Machine: RDT, Seed: 7}, testName, &out)
	if err != nil {
		t.Fatal(err)
	}
	return tester, &out
}

func actsStage(only string) *Stage {
	return &Stage{Name: "acts", Units: []Unit{{Package: "kernel/acts", Only: only}, {Package: "kernel/more", Only: "Passes"}}}
}

func TestStage(t *testing.T) {
	for _, c := range []struct {
		name, part string
		stage      *Stage
		run        string
		ran        int
		bad        []string
		says       []string // in this order
		saysNot    []string
	}{
		{
			name: "passes", part: "plan", stage: actsStage("Passes|Prints|Skips"), ran: 2,
			says: []string{
				"stage acts: kernel 6.12.0-amd64\n", "  | kernel/acts starts\n",
				"ok  \tkernel/acts\t1.5s\t2 passed, 1 skipped as listed\n", "ok  \tkernel/more\t1.5s\t1 passed\n",
			},
		},
		{
			name: "fails", part: "plan", stage: actsStage("Fails|Passes"), ran: 2, bad: []string{"kernel/acts"},
			says:    []string{"one is not two", "FAIL\tkernel/acts\t1.5s\t1 passed\n", "failed: TestFails", "ok  \tkernel/more"},
			saysNot: []string{"all is well", "\x16"},
		},
		{
			name: "dies", part: "plan, die", stage: actsStage("Passes"), ran: 2, bad: []string{"kernel/more", "stage acts"},
			says: []string{
				"ok  \tkernel/acts", "FAIL\tkernel/more\t0.0s\t0 passed\n", "the guest did not get to its end", "TestPasses did not run to its end",
				"FAIL\tstage acts: " + ErrDied.Error() + ": Kernel panic - not syncing: Attempted to kill init!",
			},
		},
		{
			name: "never starts", part: "bad option", stage: actsStage("Passes"), ran: 2, bad: []string{"kernel/acts", "kernel/more", "stage acts"},
			says: []string{"FAIL\tkernel/acts", "FAIL\tkernel/more", "FAIL\tstage acts: ", "Property not found"},
		},
		{
			name: "the kernel complains", part: "plan, complain", stage: actsStage("Passes"), ran: 2, bad: []string{"the kernel's log"},
			says: []string{"ok  \tkernel/acts", "the guest's kernel complained:\nBUG: sleeping function"},
		},
		{
			name: "selects one", part: "plan", stage: actsStage("Passes|Fails"), run: "Fails", ran: 1, bad: []string{"kernel/acts"},
			says: []string{"FAIL\tkernel/acts"}, saysNot: []string{"kernel/more"},
		},
		{name: "selects none", part: "plan", stage: actsStage("Passes|Fails"), run: "OfNoName"},
		{
			name: "has nothing to run", part: "plan", stage: actsStage("OfNoName"), ran: 1, bad: []string{"kernel/acts has no test for stage acts"},
			says: []string{"FAIL\tkernel/acts\tit has no test for stage acts\n", "ok  \tkernel/more"},
		},
		{
			name: "needs RDT", part: "plan", ran: 1,
			stage: &Stage{Name: "acts", NeedRDT: true, Contention: true, Units: []Unit{{Package: "kernel/acts", Only: "Passes"}}},
			says:  []string{"seed 7 (replay: make rig-test KERNEL=6.12 PKG=./kernel/acts RUN=Passes ARGS=-seed=7)"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tester, out := actsTester(t, c.part)
			tester.Select.Run = c.run
			ran, err := tester.stage(t.Context(), c.stage)
			if err != nil {
				t.Fatal(err)
			}
			if ran != c.ran || !slices.Equal(tester.bad, c.bad) {
				t.Errorf("ran %d, bad %q; want %d, %q", ran, tester.bad, c.ran, c.bad)
			}
			rest := out.String()
			for _, text := range c.says {
				_, after, ok := strings.Cut(rest, text)
				if !ok {
					t.Fatalf("it does not say %q:\n%s", text, out)
				}
				rest = after
			}
			for _, text := range c.saysNot {
				if strings.Contains(out.String(), text) {
					t.Errorf("it says %q:\n%s", text, out)
				}
			}
		})
	}
}

// The stock machine has nothing for a stage that needs RDT, and says nothing about it.
func TestStageOnStock(t *testing.T) {
	tester, out := actsTester(t, "plan")
	tester.Machine = Stock
	ran, err := tester.stage(t.Context(), &Stage{Name: "acts", NeedRDT: true, Units: []Unit{{Package: "kernel/acts"}}})
	if ran != 0 || err != nil || out.Len() > 0 || tester.bad != nil {
		t.Errorf("ran %d, %v, %q: %s", ran, err, tester.bad, out)
	}
}

// What the guest sent is in files afterwards, and nothing of an earlier run.
func TestStageKeepsResults(t *testing.T) {
	tester, _ := actsTester(t, "plan")
	dir := filepath.Join(tester.dir, "results", "6.12", "acts")
	writeFile(t, filepath.Join(dir, "out", "stale"), "")
	tester.Select.Verbose = true
	if _, err := tester.stage(t.Context(), actsStage("Passes")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"out/tree/a": "first second", "console.log": "kernel/acts starts\nkernel/more starts\n"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "stale")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of an earlier run is still there: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "test.json"))
	if err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		var e struct{ Action, Package, Test string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if e.Action == "pass" && e.Test != "" {
			passed[e.Package+" "+e.Test] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"kernel/acts TestPasses": true, "kernel/more TestPasses": true}, passed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// writer is an io.Writer.
type writer func([]byte)

func (w writer) Write(data []byte) (int, error) {
	w(data)
	return len(data), nil
}

// The rig's own failure is no verdict about tests.
func TestStageOwnFailure(t *testing.T) {
	t.Run("mke2fs", func(t *testing.T) {
		tester, out := actsTester(t, "plan")
		t.Setenv(mke2fsEnv, "No space left on device")
		_, err := tester.stage(t.Context(), actsStage("Passes"))
		if err == nil || !strings.HasPrefix(err.Error(), "stage acts: the guest's disks: mke2fs: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
		if strings.Contains(out.String(), "FAIL") {
			t.Errorf("it judged: %s", out)
		}
	})
	t.Run("no busybox", func(t *testing.T) {
		tester, _ := actsTester(t, "plan")
		if err := os.Remove(filepath.Join(tester.dir, "busybox")); err != nil {
			t.Fatal(err)
		}
		if _, err := tester.stage(t.Context(), actsStage("Passes")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "busybox") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		tester, out := actsTester(t, "beats for ever")
		ctx, cancel := context.WithCancel(t.Context())
		tester.out = writer(func(data []byte) {
			if out.Write(data); strings.Contains(out.String(), "stage acts") {
				cancel()
			}
		})
		if _, err := tester.stage(ctx, actsStage("Passes")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if strings.Contains(out.String(), "FAIL") || tester.bad != nil {
			t.Errorf("it judged: %s", out)
		}
	})
}

func TestResultsRefuseFilesOutside(t *testing.T) {
	for _, name := range []string{"../x", "/x", "", "a/../../x"} {
		var out bytes.Buffer
		r, err := newResults(filepath.Join(t.TempDir(), "results"), &out, false)
		if err != nil {
			t.Fatal(err)
		}
		r.take(wire.Message{Kind: wire.File, Name: name, Data: []byte("x")})
		if err := r.close(); err == nil {
			t.Errorf("%q: no error", name)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(r.dir), "x")); err == nil {
			t.Errorf("%q: it was written", name)
		}
	}
}

// A package that ended twice, or that nobody asked for, must not hide another.
func TestResultsJudgeEachPackage(t *testing.T) {
	var out bytes.Buffer
	r, err := newResults(filepath.Join(t.TempDir(), "results"), &out, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	judged := map[string]string{}
	r.judge = func(pkg string, raw []byte, end *wire.Message) *Result {
		judged[pkg] += string(raw)
		if end == nil {
			return &Result{Package: pkg, Wrong: []string{"it has no end"}}
		}
		return &Result{Package: pkg}
	}
	for _, m := range []wire.Message{
		{Kind: wire.Start, Step: "a"},
		{Kind: wire.Line, Step: "a", Text: "of a"},
		{Kind: wire.End, Step: "a"},
		{Kind: wire.Line, Step: "b", Text: "without a start"},
		{Kind: wire.Done},
	} {
		r.take(m)
	}
	for _, pkg := range []string{"a", "b", "c"} {
		r.missing(pkg)
	}
	if diff := cmp.Diff(map[string]string{"a": "of a\n", "b": "without a start\n", "c": ""}, judged); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.Equal(r.bad, []string{"b", "c"}) {
		t.Errorf("bad: %q", r.bad)
	}
}

// What fails in one boot and passes in the next is told and is no failure; what fails in
// both is one, and only it is run again.
func TestStageTwice(t *testing.T) {
	tester, out := actsTester(t, "plan")
	ran, err := tester.stageTwice(t.Context(), actsStage("Passes|OnceBad"))
	if err != nil || ran != 2 || len(tester.bad) > 0 || !slices.Equal(tester.flaky, []string{"kernel/acts"}) {
		t.Errorf("ran %d, %v, bad %v, flaky %v\n%s", ran, err, tester.bad, tester.flaky, out)
	}
	if n := strings.Count(out.String(), "\tkernel/more\t"); n != 1 {
		t.Errorf("kernel/more ran %d times\n%s", n, out)
	}
	if _, again, ok := strings.Cut(out.String(), "stage acts-again"); !ok || strings.Count(again, "1 passed") != 1 {
		t.Errorf("not only the test that failed was run again:\n%s", out)
	}
	tester, out = actsTester(t, "plan")
	if _, err = tester.stageTwice(t.Context(), actsStage("Passes|Fails")); err != nil || !slices.Equal(tester.bad, []string{"kernel/acts"}) || len(tester.flaky) > 0 {
		t.Errorf("%v, bad %v, flaky %v\n%s", err, tester.bad, tester.flaky, out)
	}
	tester, _ = actsTester(t, "plan")
	tester.Select.Packages = []string{"kernel/acts"}
	if _, err = tester.stageTwice(t.Context(), actsStage("Passes|OnceBad")); err != nil || !slices.Equal(tester.bad, []string{"kernel/acts"}) {
		t.Errorf("a part: %v, bad %v", err, tester.bad)
	}
}

// A unit's brief tests are all that a whole run has, but on the newest kernel where the unit says so; who names the package gets the rest.
func TestBrief(t *testing.T) {
	tester, _ := actsTester(t, "plan")
	s := &Stage{Name: "acts", Units: []Unit{{Package: "kernel/acts", Brief: "Passes"}}}
	for _, c := range []struct {
		series string
		whole  bool // on the newest
		pkgs   []string
		want   string
	}{{newest, true, nil, ""}, {newest, false, nil, "Passes"}, {"6.1", true, nil, "Passes"}, {"6.1", false, []string{"kernel/acts"}, ""}} {
		tester.Series, tester.Select.Packages, s.Units[0].NewestWhole = c.series, c.pkgs, c.whole
		if units := tester.units(s); len(units) != 1 || units[0].Only != c.want {
			t.Errorf("%s, packages %v: %+v", c.series, c.pkgs, units)
		}
	}
}
