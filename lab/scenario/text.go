package scenario

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/twin/scenario"
)

// WriteText prints a result for a terminal: what was measured, who was named, what was
// done, and whether that was expected.
func WriteText(w io.Writer, res *scenario.Result) error {
	fmt.Fprintln(w, headline(res))
	if res.About != "" {
		fmt.Fprintln(w, strings.TrimSpace(res.About))
	}
	for _, t := range tablesOf(res) {
		fmt.Fprintln(w)
		if err := t.WriteText(w); err != nil {
			return err
		}
	}
	word := map[report.Outcome]string{report.Pass: "Passed: ", report.Fail: "Failed: "}[outcome(res)]
	_, err := fmt.Fprintf(w, "\n%s%s\n", word, verdict(res))
	return err
}

func headline(res *scenario.Result) string {
	return fmt.Sprintf("%s: %s of a %s with %d sockets and %d CPUs, seed %d; profile %s, policies: %s; seam: %s",
		res.Scenario, time.Duration(res.DurationSec*1e9), res.Platform, res.Sockets, res.CPUs, res.Seed, res.Profile, res.Mode, res.Seam)
}

// tablesOf are what the terminal shows and the page too.
func tablesOf(res *scenario.Result) []report.Table {
	var tables []report.Table
	if len(res.Runs) > 1 {
		for i := range res.Runs[0].Windows {
			tables = append(tables, sweepTable(res, i))
		}
		tables = append(tables, failures(res)...)
		if len(res.Checks) > 0 {
			t := checkTable(res.Checks)
			t.Title = "Expected across the runs"
			tables = append(tables, t)
		}
		return tables
	}
	run := &res.Runs[0]
	for i := range run.Windows {
		tables = append(tables, taskTable(&run.Windows[i], run.Baseline != nil))
		if hasMemory(&run.Windows[i]) {
			tables = append(tables, memoryTable(&run.Windows[i]))
		}
	}
	for i := range run.Baseline {
		t := taskTable(&run.Baseline[i], false)
		t.Title += ", with policies off"
		tables = append(tables, t)
	}
	if len(run.Incidents) > 0 {
		tables = append(tables, incidentTable(run))
	}
	if t := decisionTable(run); len(t.Rows) > 0 {
		tables = append(tables, t)
	}
	if len(run.Checks) > 0 {
		tables = append(tables, checkTable(run.Checks))
	}
	return tables
}

// failures are the expectations of a sweep's runs that were not met.
func failures(res *scenario.Result) []report.Table {
	var tables []report.Table
	for i := range res.Runs {
		run := res.Runs[i]
		failed := run.Checks[:0:0]
		for _, c := range run.Checks {
			if !c.Passed {
				failed = append(failed, c)
			}
		}
		if len(failed) == 0 {
			continue
		}
		t := checkTable(failed)
		t.Title = "Not as expected with " + settingText(run.Settings)
		tables = append(tables, t)
	}
	return tables
}

func settingText(list []scenario.Setting) string {
	var parts []string
	for _, s := range list {
		parts = append(parts, s.Key+" = "+s.Value)
	}
	return strings.Join(parts, ", ")
}

// verdict says in a line whether the scenario went as expected.
func verdict(res *scenario.Result) string {
	n, failed := 0, 0
	for _, c := range res.AllChecks() {
		n++
		if !c.Passed {
			failed++
		}
	}
	switch {
	case n == 0:
		return "nothing was expected of this run."
	case failed == 0:
		return fmt.Sprintf("all %d expectations were met.", n)
	}
	return fmt.Sprintf("%d of %d expectations were not met.", failed, n)
}
