package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/lab/report"
)

// A headline is read from a goal's words, and has an interval also where the lab gives none.
func TestHeadlines(t *testing.T) {
	for _, c := range []struct {
		got            string
		value, low, up float64
	}{
		{"86.2 % [82.0, 90.5]", 86.2, 82, 90.5},
		{"50.0 [48.1, 51.9] %", 50, 48.1, 51.9},
		{"0 %", 0, -1, 1},
		{"100.0 % [100.0, 100.0]", 100, 89.9, 110.1},
		{"1.05", 1.05, 0.935, 1.165},
		{"81.5 % (who knows the load: 90.1 % at a p99 of 1.10)", 81.5, 73.25, 89.75},
		{"-12.0 [-20.0, -4.0] %", -12, -20, -4},
		{"32.2 % [0.0, 158.2]", 32.2, 22.2, 42.2},
	} {
		h, ok := headlineOf(&report.Goal{Where: "twin", What: "x", Got: c.got})
		if !ok || h.Name != "twin x" || h.Got != c.value || abs(h.Low-c.low) > 1e-9 || abs(h.High-c.up) > 1e-9 {
			t.Errorf("%q: %+v, %t", c.got, h, ok)
		}
	}
	if _, ok := headlineOf(&report.Goal{Got: "absent"}); ok {
		t.Error("no figure was read as one")
	}
}

func abs(v float64) float64 { return max(v, -v) }

// Every run is written down, in its quick size or its only one.
func TestEveryRunIsWrittenDown(t *testing.T) {
	list, err := readResults("../../docs/results.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reruns() {
		if !slices.ContainsFunc(list, func(p pageRun) bool {
			return p.Page == r.page && strings.HasPrefix(p.Command, "commensal-lab "+r.command) && len(p.Headlines) > 0
		}) {
			t.Errorf("%s: nothing is written down; commensal-lab results --update --only %q does", r.page, r.command)
		}
	}
}

// What moved out of its interval, is new or gone fails; what moved within it does not.
func TestMoved(t *testing.T) {
	was := &pageRun{Commit: "abc", Headlines: []headline{{Name: "a", Low: 1, High: 3, Text: "2"}, {Name: "b", Low: 1, High: 3}, {Name: "c"}}}
	is := &pageRun{Headlines: []headline{{Name: "a", Got: 3.5, Text: "3.5"}, {Name: "b", Got: 2.5}, {Name: "d"}}}
	got := strings.Join(moved(was, is), "\n")
	for _, want := range []string{`"a" is 3.5; at abc it was 2`, `"d" is new`, `"c" is gone`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if strings.Contains(got, `"b"`) || moved(was, was) != nil && len(was.Headlines) == 0 {
		t.Errorf("what did not move: %q", got)
	}
}

// A run's headlines are pageRun, written and read again.
func TestResultsFile(t *testing.T) {
	r := reruns()[0]
	is, err := r.play(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if is.Size != "full" || len(is.Headlines) < 2 {
		t.Errorf("%+v", is)
	}
	path := filepath.Join(t.TempDir(), "results.json")
	if err := writeResults(path, []pageRun{*is}); err != nil {
		t.Fatal(err)
	}
	list, err := readResults(path)
	if err != nil || len(list) != 1 || moved(&list[0], is) != nil {
		t.Errorf("%+v, %v", list, err)
	}
}
