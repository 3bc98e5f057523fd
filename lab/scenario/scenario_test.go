package scenario_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	show "github.com/commensal-io/commensal/lab/scenario"
	"github.com/commensal-io/commensal/scenarios"
	"github.com/commensal-io/commensal/twin/scenario"
)

func play(t *testing.T, name string, baseline bool) *scenario.Result {
	t.Helper()
	b, ok := scenarios.Find(name)
	if !ok {
		t.Fatalf("no scenario %s", name)
	}
	f, err := scenario.Parse(name, b, scenario.Options{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := f.PlayAll(scenario.Typed, baseline)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// The text has what a person wants to know, on two screens at most.
func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := show.WriteText(&b, play(t, "case-2", false)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"case-2: 32m0s", "quiet: 2:00 to 10:00", "tenant x41", "Incidents", "the victim recovered", "verified", "Expected", "Passed: all 7"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not say %q", want)
		}
	}
	if n := strings.Count(text, "\n"); n > 110 {
		t.Errorf("%d lines", n)
	}
}

// With a comparison each window stands twice, and the antagonist's loss is shown.
func TestBaseline(t *testing.T) {
	var b bytes.Buffer
	if err := show.WriteText(&b, play(t, "no-pmu", true)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"with policies off", "without", "hog: 5:00 to 15:00"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text does not say %q", want)
		}
	}
}

// A sweep is one table, a row a run.
func TestSweepText(t *testing.T) {
	var b bytes.Buffer
	if err := show.WriteText(&b, play(t, "mba", false)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "bully"); n < 7 || !strings.Contains(b.String(), "control.be.mba") {
		t.Errorf("%d rows of the bully:\n%s", n, b.String())
	}
}

// outside is what would make a page load something from elsewhere.
var outside = regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:|//)|<script|@import|url\(["']?[^#"']`)

// The page draws victims, latency and the machine, and loads nothing.
func TestPage(t *testing.T) {
	for name, charts := range map[string]int{"case-2": 4, "no-pmu": 4, "ways": 1} {
		var b bytes.Buffer
		if err := show.WriteHTML(&b, play(t, name, false)); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		if got := strings.Count(page, "<svg"); got != charts {
			t.Errorf("%s: %d charts, want %d", name, got, charts)
		}
		if found := outside.FindString(page); found != "" {
			t.Errorf("%s: the page has %q", name, found)
		}
		if name != "ways" && !strings.Contains(page, "outlier threshold") {
			t.Errorf("%s: there is no threshold", name)
		}
		if how := map[string]string{"case-2": " capped", "no-pmu": " demoted"}[name]; !strings.Contains(page, how) {
			t.Errorf("%s: nothing%s is shaded", name, how)
		}
	}
}

// Memory and pressure have a table where a task has memory, and only there; a sweep says
// what was expected across its runs.
func TestMemoryText(t *testing.T) {
	for name, want := range map[string][]string{
		"memory": {"crowded: memory and pressure (PSI)", "swapped (GiB)", "Waiting (PSI): for a CPU", "for memory 4"},
		"mba":    {"Expected across the runs", "cpi of service rises with control.be.mba", "all 16 expectations"},
	} {
		var b bytes.Buffer
		if err := show.WriteText(&b, play(t, name, false)); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s: the text does not say %q:\n%s", name, w, b.String())
			}
		}
		if name == "mba" && strings.Contains(b.String(), "memory and pressure") {
			t.Error("a table of memory where nobody has any")
		}
	}
}
