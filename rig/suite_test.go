package rig

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSelectionHas(t *testing.T) {
	for _, c := range []struct {
		packages []string
		pkg      string
		want     bool
	}{
		{nil, "kernel/psi", true},
		{[]string{"kernel/psi"}, "kernel/psi", true},
		{[]string{"./kernel/psi"}, "kernel/psi", true},
		{[]string{"./kernel/psi/"}, "kernel/psi", true},
		{[]string{"kernel//psi"}, "kernel/psi", true},
		{[]string{"agent", "./kernel/psi"}, "kernel/psi", true},
		{[]string{"kernel"}, "kernel/psi", false},
		{[]string{"kernel/psi"}, "kernel", false},
		{[]string{"psi"}, "kernel/psi", false},
	} {
		s := Selection{Packages: c.packages}
		if got := s.has(c.pkg); got != c.want {
			t.Errorf("%q, %s: got %v", c.packages, c.pkg, got)
		}
	}
}

func TestCheckSelection(t *testing.T) {
	for _, c := range []struct {
		packages []string
		run      string
		want     []string // in the error; none: no error
	}{
		{},
		{packages: []string{"./kernel/psi/", "agent"}, run: "TestX|TestY/sub[/]/deeper"},
		{packages: []string{"./kernel/psy", "agent", "./policy/cap"}, want: []string{"not a package of the rig: ./kernel/psy, ./policy/cap ", "agent, ", "kernel/psi, "}},
		{packages: []string{"./kernel/..."}, want: []string{"not a package of the rig: ./kernel/... "}},
		{packages: []string{"."}, want: []string{"not a package of the rig: . "}},
		{run: "Test(", want: []string{"RUN: ", "missing closing"}},
		{run: "TestX/sub[", want: []string{"RUN: ", "missing closing"}},
	} {
		tester := &tester{Options: Options{Select: Selection{Packages: c.packages, Run: c.run}}}
		err := tester.check()
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%q, %q: got %v", c.packages, c.run, err)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q, %q: it does not say %q: %v", c.packages, c.run, text, err)
			}
		}
	}
}

// actsBuilder has the acts as the tests of a package kernel/acts.
func actsBuilder(t *testing.T) *Builder {
	t.Helper()
	repo := t.TempDir()
	b := &Builder{Repo: repo, Dir: filepath.Join(repo, artefacts, "run", "6.12", testName, "build"), Go: goCommand(t)}
	linkSelf(t, b.Binary("kernel/acts"))
	if err := os.MkdirAll(filepath.Join(repo, "kernel/acts"), 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTests(t *testing.T) {
	b := actsBuilder(t)
	for _, c := range []struct {
		name      string
		only, not string
		run       string
		want      []string
	}{
		{name: "a name", run: "^TestPasses$", want: []string{"TestPasses"}},
		{name: "a part of names, without benchmarks", run: "(?i)nothing|FAIL", want: []string{"TestFails"}},
		{name: "with a subtest", run: "Subtests/skips", want: []string{"TestSubtests"}},
		{name: "nothing before the slash", run: "/skips", only: "Subtests", want: []string{"TestSubtests"}},
		{name: "no match", run: "TestOfNoName"},
		{name: "only", only: "Exits", want: []string{"TestExits3", "TestExits0"}},
		{name: "not", only: "Exits", not: "0$", want: []string{"TestExits3"}},
		{name: "only and run", only: "Exits", run: "Passes"},
	} {
		u := &Unit{Package: "kernel/acts", Only: c.only, Not: c.not}
		got, err := b.Tests(t.Context(), u, c.run)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
	all, err := b.Tests(t.Context(), &Unit{Package: "kernel/acts"}, "")
	if err != nil || len(all) != len(acts) {
		t.Errorf("all: got %q, %v", all, err)
	}
	if _, err := b.Tests(t.Context(), &Unit{Package: "kernel/acts"}, "Test("); err == nil || !strings.Contains(err.Error(), "RUN: ") {
		t.Errorf("an invalid pattern: %v", err)
	}
	if _, err := b.Tests(t.Context(), &Unit{Package: "kernel/none"}, ""); err == nil || !strings.Contains(err.Error(), "list the tests of kernel/none") {
		t.Errorf("no binary: %v", err)
	}
}

func TestStep(t *testing.T) {
	u := &Unit{Package: "kernel/psi", Timeout: time.Minute}
	got := u.step([]string{"TestA", "TestB"}, &Selection{Run: "Test/some[/]sub/deeper", Args: []string{"-rounds=3"}})
	want := []string{
		"/src/kernel/psi/psi.test", "-test.v=test2json", "-test.count=1", "-test.paniconexit0",
		"-test.timeout=1m0s", "-test.parallel=2", "-test.run=^(TestA|TestB)$/some[/]sub/deeper", "-rounds=3",
	}
	if diff := cmp.Diff(want, got.Argv); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Name != "kernel/psi" || got.Dir != "/src/kernel/psi" || got.TimeoutSec <= 60 {
		t.Errorf("got %+v", got)
	}
	if usual := (&Unit{Package: "agent"}).step([]string{"TestA"}, &Selection{Run: "TestA"}); usual.Argv[6] != "-test.run=^(TestA)$" || usual.TimeoutSec <= int(unitTimeout.Seconds()) {
		t.Errorf("got %+v", usual)
	}
}

// What a stage selects must be valid, and a package that is split must be whole.
func TestStages(t *testing.T) {
	names := map[string]bool{}
	for _, s := range stages {
		if names[s.Name] || s.Name != filepath.Base(s.Name) || len(s.Units) == 0 {
			t.Errorf("stage %q", s.Name)
		}
		names[s.Name] = true
		packages := map[string]bool{}
		for _, u := range s.Units {
			if packages[u.Package] {
				t.Errorf("stage %s has %s twice: its steps would have one name", s.Name, u.Package)
			}
			packages[u.Package] = true
			for _, pattern := range []string{u.Only, u.Not, u.Brief} {
				if _, err := regexp.Compile(pattern); err != nil {
					t.Errorf("stage %s, %s: %v", s.Name, u.Package, err)
				}
			}
			if u.Not != "" && !slices.ContainsFunc(stages, func(o Stage) bool {
				return slices.ContainsFunc(o.Units, func(v Unit) bool { return v.Package == u.Package && v.Only == u.Not })
			}) {
				t.Errorf("no stage runs the tests of %s that stage %s leaves out (%s)", u.Package, s.Name, u.Not)
			}
			if found, err := filepath.Glob(filepath.Join("..", u.Package, "*_test.go")); err != nil || len(found) == 0 {
				t.Errorf("stage %s: %s has no tests (%v)", s.Name, u.Package, err)
			}
		}
	}
}

func TestTestRefuses(t *testing.T) {
	repo := actsBuilder(t).Repo
	o := Options{Repo: repo, Go: goCommand(t), Series: "6.12", Machine: RDT}
	var out bytes.Buffer
	steps := []struct {
		name   string
		before func()
		want   []string
	}{
		{"no emulator", func() {}, []string{"the emulator with RDT and PMU", "make rig"}},
		{"no kernel", func() { linkSelf(t, filepath.Join(repo, artefacts, "qemu-rdt")) }, []string{"kernel 6.12", "make rig"}},
		{"no list of skips", func() { makeKernel(t, filepath.Join(repo, artefacts), "6.12") }, []string{"rig/skips"}},
		{"a broken list", func() { writeFile(t, filepath.Join(repo, skipList), "6.12") }, []string{"rig/skips:1: "}},
		{"an unknown package", func() {
			writeFile(t, filepath.Join(repo, skipList), "")
			o.Select.Packages = []string{"kernel/psy"}
		}, []string{"kernel/psy"}},
		{"no checkout", func() { o.Select.Packages = nil }, []string{"go build", "go.mod"}},
	}
	for _, s := range steps {
		s.before()
		err := Test(t.Context(), o, &out)
		if err == nil || errors.Is(err, ErrFailed) {
			t.Fatalf("%s: got %v", s.name, err)
		}
		for _, text := range s.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: it does not say %q: %v", s.name, text, err)
			}
		}
		if i := slices.Index([]string{"no emulator", "no kernel"}, s.name); (i >= 0) != errors.Is(err, ErrNotPrepared) {
			t.Errorf("%s: got %v", s.name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Test(ctx, o, &out); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "go build") {
		t.Errorf("interrupted: got %v", err)
	}
	o.Repo = filepath.Join(repo, "none")
	if err := Test(t.Context(), o, &out); !errors.Is(err, ErrNotPrepared) {
		t.Errorf("no folder: got %v", err)
	}
	if out.Len() > 0 {
		t.Errorf("it printed %s", &out)
	}
}

// Two runs of one name and kernel in one checkout would start their guests from each other's files.
func TestTestOneAtATime(t *testing.T) {
	first := &tester{work: filepath.Join(t.TempDir(), "run")}
	second := &tester{work: first.work}
	f, err := first.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.lock(); err == nil || !strings.Contains(err.Error(), "another such run") {
		t.Errorf("got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f, err = second.lock()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestTopLevel(t *testing.T) {
	for run, want := range map[string]string{"": "", "TestA": "TestA", "TestA|TestB": "TestA|TestB", "(A|B)/sub/x|y": "", "(A|B)/(x|y)": "(A|B)", "A/b|C": "", "(": ""} {
		got, err := topLevel(run)
		switch {
		case err != nil && want == "" && run != "":
		case err != nil || got.String() != want:
			t.Errorf("topLevel(%q) = %v, %v; want %q", run, got, err, want)
		}
	}
}
