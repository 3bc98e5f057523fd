package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/rig/wire"
)

// event is a line of `go test -json`: go doc test2json.
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64
}

// Result is what became of one unit.
type Result struct {
	Package string
	Sec     float64
	Passed  int
	Skipped int      // on the list of skips
	NoRDT   int      // for want of RDT, on the stock machine
	Wrong   []string // why it failed; none: it passed
	Failed  []string // the top-level tests that failed, where nothing else is wrong
	Output  string   // of the tests that failed
	JSON    []byte   // as go test -json prints
}

// ended is a unit's result as its end alone tells it; nil: it has none.
func ended(pkg string, end *wire.Message) *Result {
	r := &Result{Package: pkg}
	if end == nil {
		r.Wrong = append(r.Wrong, "the guest did not get to its end")
		return r
	}
	r.Sec = end.Sec
	if end.TimedOut {
		r.Wrong = append(r.Wrong, "killed: it took too long")
	}
	for left := range strings.Lines(end.Text) {
		r.Wrong = append(r.Wrong, strings.TrimSpace(left))
	}
	return r
}

// judge turns a unit's raw output into its result. A test that was to run and of which
// nothing is known is a failure, and so is a skip that is not on the list.
func judge(goCommand string, k *Kernel, m Machine, pkg string, expected []string, raw []byte, end *wire.Message, skips *Skips) *Result {
	r := ended(pkg, end)
	events, err := r.convert(goCommand, raw)
	if err != nil {
		r.Wrong = append(r.Wrong, err.Error())
	}
	outcome, output := map[string]string{}, map[string]*strings.Builder{}
	for _, e := range events {
		switch e.Action {
		case "output":
			if output[e.Test] == nil {
				output[e.Test] = &strings.Builder{}
			}
			output[e.Test].WriteString(e.Output)
		case "pass", "fail", "skip":
			outcome[e.Test] = e.Action
		}
	}
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(outcome)) {
		text := ""
		if output[name] != nil {
			text = output[name].String()
		}
		switch {
		case name == "": // the package as a whole
		case outcome[name] == "pass":
			r.Passed++
		case outcome[name] == "fail":
			failed = append(failed, name)
			r.Output += text
		case m == Stock && strings.Contains(text, rigtest.StockReason):
			r.NoRDT++
		case skips.allow(k.Series, m, pkg, name):
			r.Skipped++
		default:
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s was skipped and is not on the list of skips: %s", name, reason(text)))
		}
	}
	if len(failed) > 0 {
		r.Wrong = append(r.Wrong, "failed: "+strings.Join(failed, ", "))
	}
	unfinished := 0
	for _, name := range expected {
		if outcome[name] == "" {
			unfinished++
			r.Wrong = append(r.Wrong, name+" did not run to its end")
		}
	}
	if r.Passed+r.Skipped+r.NoRDT == 0 && len(r.Wrong) == 0 {
		r.Wrong = append(r.Wrong, "no test ran")
	}
	if len(r.Wrong) == 1 {
		r.Failed = topLevelOf(failed)
	}
	unexplained := end != nil && end.Exit != 0 && len(failed) == 0
	if unexplained {
		r.Wrong = append(r.Wrong, fmt.Sprintf("the test binary exited with %d", end.Exit))
	}
	// A panic's own words are the output of no test that failed.
	if unexplained || unfinished > 0 || end == nil || end.TimedOut {
		r.Output += tail(raw)
	}
	return r
}

// topLevelOf are the tests of a list that are no subtests.
func topLevelOf(tests []string) (top []string) {
	for _, name := range tests {
		if !strings.Contains(name, "/") {
			top = append(top, name)
		}
	}
	return top
}

// tail is the end of a raw output, for when nothing else explains it.
func tail(raw []byte) string {
	const most = 6000
	if len(raw) > most {
		raw = raw[len(raw)-most:]
	}
	return string(bytes.ReplaceAll(raw, []byte{0x16}, nil))
}

// convert has the go command turn raw output into events, which it defines.
func (r *Result) convert(goCommand string, raw []byte) ([]event, error) {
	cmd := exec.Command(goCommand, "tool", "test2json", "-t", "-p", r.Package)
	cmd.Stdin = bytes.NewReader(raw)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go tool test2json: %w", err)
	}
	r.JSON = out
	var events []event
	scanner := bufio.NewScanner(bytes.NewReader(out))
	scanner.Buffer(nil, maxMessage)
	for scanner.Scan() {
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("go tool test2json: %w", err)
		}
		events = append(events, e)
	}
	return events, scanner.Err()
}

// reason is what a skipped test said, without the frame that go test puts around it.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

// Skips is the list of tests that may be skipped in a guest, with reasons: everything
// else that is skipped there is a hole in what the rig is for.
type Skips struct {
	entries []skip
}

type skip struct {
	line                       int
	kernel, machine, pkg, test string
	used                       bool
}

// seriesPattern is how kernels are named here.
var seriesPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

// ParseSkips reads the list: kernel, machine, package, test, reason; "*" in the first
// two is any, and the test is a pattern as of path.Match.
func ParseSkips(name, text string) (*Skips, error) {
	s := &Skips{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 5 {
			return nil, fmt.Errorf("%s:%d: want kernel, machine, package, test and a reason", name, n)
		}
		if f[1] != "*" && f[1] != string(RDT) && f[1] != string(Stock) {
			return nil, fmt.Errorf("%s:%d: %q is no machine: want %s, %s or *", name, n, f[1], RDT, Stock)
		}
		if f[0] != "*" && !seriesPattern.MatchString(f[0]) {
			return nil, fmt.Errorf("%s:%d: %q is no kernel: want a series as 6.12, or *", name, n, f[0])
		}
		if _, err := path.Match(f[3], ""); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", name, n, f[3], err)
		}
		s.entries = append(s.entries, skip{line: n, kernel: f[0], machine: f[1], pkg: f[2], test: f[3]})
	}
	return s, nil
}

func (s *Skips) allow(kernel string, m Machine, pkg, test string) bool {
	for i := range s.entries {
		e := &s.entries[i]
		match, _ := path.Match(e.test, test) // ParseSkips tried the pattern
		if match && e.pkg == pkg && e.covers(kernel, m) {
			e.used = true
			return true
		}
	}
	return false
}

func (e *skip) covers(kernel string, m Machine) bool {
	return (e.kernel == "*" || e.kernel == kernel) && (e.machine == "*" || e.machine == string(m))
}

// Stale returns the entries for a kernel and machine that no test made use of.
func (s *Skips) Stale(kernel string, m Machine) []string {
	var list []string
	for _, e := range s.entries {
		if !e.used && e.covers(kernel, m) {
			list = append(list, fmt.Sprintf("line %d: %s %s was not skipped", e.line, e.pkg, e.test))
		}
	}
	return list
}
