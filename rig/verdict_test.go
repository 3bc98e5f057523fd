package rig

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/rig/wire"
)

// goCommand is the go command that runs these tests: go test puts it into the PATH.
func goCommand(t *testing.T) string {
	t.Helper()
	name, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// act runs acts as the guest does, and returns what they printed and their exit code.
func act(t *testing.T, tests ...string) ([]byte, int) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kernel-acts.test")
	linkSelf(t, binary)
	u := Unit{Package: "kernel/acts"}
	cmd := exec.Command(binary, u.step(tests, &Selection{}).Argv[1:]...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out, cmd.ProcessState.ExitCode()
}

func TestJudge(t *testing.T) {
	list := "6.12 rdt kernel/acts TestSkips for a reason\n* * kernel/acts TestSubtests/* for another\n"
	for _, c := range []struct {
		name     string
		tests    []string
		machine  Machine // "": RDT
		kernel   string  // "": 6.12
		skips    string
		change   func(raw []byte, end *wire.Message) ([]byte, *wire.Message)
		expected []string // besides tests
		want     Result   // without package, output and JSON
		says     []string // in the output
	}{
		{name: "pass", tests: []string{"TestPasses"}, want: Result{Sec: 2, Passed: 1}},
		{name: "output without an end", tests: []string{"TestPrints", "TestPasses"}, want: Result{Sec: 2, Passed: 2}},
		{
			name: "fail", tests: []string{"TestPasses", "TestFails"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"failed: TestFails"}, Failed: []string{"TestFails"}},
			says: []string{"one is not two"},
		},
		{name: "listed skip", tests: []string{"TestSkips"}, skips: list, want: Result{Sec: 2, Skipped: 1}},
		{
			name: "skip that is listed for another kernel", tests: []string{"TestSkips"}, kernel: "6.1", skips: list,
			want: Result{Sec: 2, Wrong: []string{"TestSkips was skipped and is not on the list of skips: no such thing here"}},
		},
		{
			name: "skip that is listed for another machine", tests: []string{"TestSkips"}, machine: Stock, skips: list,
			want: Result{Sec: 2, Wrong: []string{"TestSkips was skipped and is not on the list of skips: no such thing here"}},
		},
		{name: "for want of RDT on the stock machine", tests: []string{"TestStock"}, machine: Stock, want: Result{Sec: 2, NoRDT: 1}},
		{
			name: "for want of RDT on a machine that has it", tests: []string{"TestStock"},
			want: Result{Sec: 2, Wrong: []string{"TestStock was skipped and is not on the list of skips: " + rigtest.StockReason}},
		},
		{name: "subtests", tests: []string{"TestSubtests"}, skips: list, want: Result{Sec: 2, Passed: 2, Skipped: 1}},
		{
			name: "skipped subtest", tests: []string{"TestSubtests"},
			want: Result{Sec: 2, Passed: 2, Wrong: []string{"TestSubtests/skips was skipped and is not on the list of skips: not this one"}},
		},
		{
			name: "missing", tests: []string{"TestPasses"}, expected: []string{"TestGone"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestGone did not run to its end"}},
		},
		{
			name: "printed what a passed test prints", tests: []string{"TestForges"}, expected: []string{"TestGone"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestGone did not run to its end"}},
		},
		{
			name: "panic", tests: []string{"TestPasses", "TestPanics"}, expected: []string{"TestGone"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestPanics did not run to its end", "TestGone did not run to its end", "the test binary exited with 2"}},
			says: []string{"an invariant is broken"},
		},
		{
			name: "panic outside of tests", tests: []string{"TestPasses", "TestPanicsBeside"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestPanicsBeside did not run to its end", "the test binary exited with 2"}},
			says: []string{"nobody catches this"},
		},
		{
			name: "exit with a code", tests: []string{"TestPasses", "TestExits3"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestExits3 did not run to its end", "the test binary exited with 3"}},
			says: []string{"=== RUN   TestExits3"},
		},
		{
			name: "exit as if all were well", tests: []string{"TestPasses", "TestExits0"},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"TestExits0 did not run to its end"}},
		},
		{
			name: "exit code without a failed test", tests: []string{"TestPasses"},
			change: func(raw []byte, end *wire.Message) ([]byte, *wire.Message) { end.Exit = -1; return raw, end },
			want:   Result{Sec: 2, Passed: 1, Wrong: []string{"the test binary exited with -1"}},
			says:   []string{"all is well"},
		},
		{
			name: "guest that did not get to the end", tests: []string{"TestPasses", "TestPrints"},
			change: func(raw []byte, _ *wire.Message) ([]byte, *wire.Message) {
				raw, _, _ = bytes.Cut(raw, []byte("--- PASS"))
				return raw, nil
			},
			want: Result{Wrong: []string{"the guest did not get to its end", "TestPasses did not run to its end", "TestPrints did not run to its end"}},
			says: []string{"=== RUN   TestPasses"},
		},
		{
			name: "guest that did not begin", tests: []string{"TestPasses"},
			change: func([]byte, *wire.Message) ([]byte, *wire.Message) { return nil, nil },
			want:   Result{Wrong: []string{"the guest did not get to its end", "TestPasses did not run to its end"}},
		},
		{
			name: "too long", tests: []string{"TestPasses"},
			change: func(raw []byte, end *wire.Message) ([]byte, *wire.Message) {
				end.Exit, end.TimedOut = 2, true
				return raw, end
			},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"killed: it took too long", "the test binary exited with 2"}},
			says: []string{"all is well"},
		},
		{
			name: "left something", tests: []string{"TestPasses"},
			change: func(raw []byte, end *wire.Message) ([]byte, *wire.Message) {
				end.Text = "left process 7 running: sleep\nleft resctrl mounted"
				return raw, end
			},
			want: Result{Sec: 2, Passed: 1, Wrong: []string{"left process 7 running: sleep", "left resctrl mounted"}},
		},
		{
			name: "nothing to run", tests: []string{"TestOfNoName"},
			change: func(raw []byte, end *wire.Message) ([]byte, *wire.Message) { return raw, end },
			want:   Result{Sec: 2, Wrong: []string{"TestOfNoName did not run to its end"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, exit := act(t, c.tests...)
			end := &wire.Message{Kind: wire.End, Exit: exit, Sec: 2}
			if c.change != nil {
				raw, end = c.change(raw, end)
			}
			k := &Kernel{Series: "6.12"}
			if c.kernel != "" {
				k.Series = c.kernel
			}
			m := RDT
			if c.machine != "" {
				m = c.machine
			}
			skips, err := ParseSkips("skips", c.skips)
			if err != nil {
				t.Fatal(err)
			}
			got := judge(goCommand(t), k, m, "kernel/acts", append(c.tests, c.expected...), raw, end, skips)
			for _, text := range c.says {
				if !strings.Contains(got.Output, text) {
					t.Errorf("the output does not say %q: %s", text, got.Output)
				}
			}
			if len(raw) > 0 && !strings.Contains(string(got.JSON), `"Package":"kernel/acts"`) {
				t.Errorf("no events: %s", got.JSON)
			}
			got.Package, got.Output, got.JSON = "", "", nil
			for i, w := range got.Wrong {
				got.Wrong[i] = regexp.MustCompile(`main_test\.go:\d+: `).ReplaceAllString(w, "")
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("-want +got:\n%s\nof %q", diff, raw)
			}
		})
	}
}

// A step without tests, and a benchmark that is none, must not look like a pass.
func TestJudgeNoTest(t *testing.T) {
	k := &Kernel{Series: "6.12"}
	for name, raw := range map[string]string{
		"nothing":     "",
		"no tests":    "testing: warning: no tests to run\nPASS\n",
		"a benchmark": "\x16=== RUN   BenchmarkNothing\nBenchmarkNothing\nBenchmarkNothing-2  1000  1.0 ns/op\nPASS\n",
	} {
		got := judge(goCommand(t), k, RDT, "kernel/acts", nil, []byte(raw), &wire.Message{Kind: wire.End}, &Skips{})
		if !slices.Equal(got.Wrong, []string{"no test ran"}) {
			t.Errorf("%s: got %q", name, got.Wrong)
		}
	}
}

// When what defines the events is missing, nothing passes.
func TestJudgeWithoutGo(t *testing.T) {
	raw, _ := act(t, "TestPasses")
	got := judge(filepath.Join(t.TempDir(), "go"), &Kernel{}, RDT, "kernel/acts", []string{"TestPasses"}, raw, &wire.Message{Kind: wire.End}, &Skips{})
	if len(got.Wrong) != 2 || !strings.Contains(got.Wrong[0], "test2json") || got.Wrong[1] != "TestPasses did not run to its end" {
		t.Errorf("got %q", got.Wrong)
	}
}

func TestTail(t *testing.T) {
	if got := tail([]byte("\x16a\n" + strings.Repeat("x", 10000))); len(got) != 6000 || strings.Contains(got, "\x16") {
		t.Errorf("got %d bytes: %.20q", len(got), got)
	}
	if got := tail([]byte("\x16=== RUN")); got != "=== RUN" {
		t.Errorf("got %q", got)
	}
}

func TestParseSkips(t *testing.T) {
	const text = `# a comment

6.1	*	kernel/reclaim	TestDAMON*	6.1 is built without DAMON
*	rdt	kernel/perf	TestX/sub	for a reason # with a mark
`
	s, err := ParseSkips("rig/skips", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kernel    string
		machine   Machine
		pkg, test string
		want      bool
	}{
		{"6.1", RDT, "kernel/reclaim", "TestDAMONAges", true},
		{"6.1", Stock, "kernel/reclaim", "TestDAMON", true},
		{"6.12", RDT, "kernel/reclaim", "TestDAMON", false},
		{"6.1", RDT, "kernel/perf", "TestDAMON", false},
		{"6.1", RDT, "kernel/reclaim", "TestDAMON/sub", false}, // a pattern's star ends at a slash
		{"6.1", RDT, "kernel/reclaim", "TestMGLRU", false},
		{"6.12", Stock, "kernel/perf", "TestX/sub", false},
	} {
		if got := s.allow(c.kernel, c.machine, c.pkg, c.test); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	if got := s.Stale("6.1", RDT); !slices.Equal(got, []string{"line 4: kernel/perf TestX/sub was not skipped"}) {
		t.Errorf("stale: %q", got)
	}
	if got := s.Stale("6.12", Stock); got != nil {
		t.Errorf("stale where no line is for: %q", got)
	}
	if !s.allow("6.12", RDT, "kernel/perf", "TestX/sub") || s.Stale("6.1", RDT) != nil {
		t.Error("a line that was used is stale")
	}
}

func TestParseSkipsRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"# why\n\n6.1 * kernel/psi TestX\n":      "rig/skips:3: want kernel, machine, package, test and a reason",
		"6.1":                                    "rig/skips:1: want kernel, machine, package, test and a reason",
		"* * kernel/psi Test[ for a reason":      `rig/skips:1: "Test[": syntax error in pattern`,
		"* rtd kernel/psi TestX for a reason":    `rig/skips:1: "rtd" is no machine: want rdt, stock or *`,
		"kernel/psi * TestX for a reason":        `rig/skips:1: "kernel/psi" is no kernel: want a series as 6.12, or *`,
		"6.1.0 * kernel/psi TestX for a reason":  `rig/skips:1: "6.1.0" is no kernel: want a series as 6.12, or *`,
		"* * kernel/psi TestX a\n* TestX reason": "rig/skips:2: want kernel, machine, package, test and a reason",
	} {
		if _, err := ParseSkips("rig/skips", text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// The project's own list is read wherever the tests run.
func TestListOfSkips(t *testing.T) {
	data, err := os.ReadFile("skips")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSkips(skipList, string(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range s.entries {
		if !slices.ContainsFunc(stages, func(s Stage) bool {
			return slices.ContainsFunc(s.Units, func(u Unit) bool { return u.Package == e.pkg })
		}) {
			t.Errorf("%s:%d: %s is not a package of the rig", skipList, e.line, e.pkg)
		}
	}
}

func FuzzParseSkips(f *testing.F) {
	for _, seed := range []string{"", "# a\n", "6.1 * a TestX why\n", "* * a Test[ why", "* rdt a T\\ why", "a b c d e\n\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSkips("skips", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "skips:") {
				t.Errorf("it does not say where: %v", err)
			}
			return
		}
		if n := len(s.entries); n > strings.Count(text, "\n")+1 {
			t.Errorf("%d entries in %q", n, text)
		}
		for _, e := range s.entries {
			s.allow("6.1", RDT, e.pkg, e.test)
		}
	})
}
