package fleet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/lab/report"
)

// Each goal that is missed fails the bench, by itself, and is named; what could not be measured is no success, and what has no goal fails nothing.
func TestBenchVerdict(t *testing.T) {
	good := func() *Cost {
		hub := func(signals int) Growth {
			return Growth{Jobs: 100_000, Tasks: 10, Signals: signals, Empty: 31, Resident: 230, Peak: 347}
		}
		return &Cost{
			Ingest: Ingest{Samples: 7_200_000, Seconds: 14.4, Stored: 24}, Memory: []Grown{{Jobs: 100, Before: 4096, Bytes: 4096, Again: 4096}},
			Growth: []Growth{{Jobs: 100, Empty: 31, Resident: 300, Peak: 300}, hub(2), hub(6)}, Reach: Reach{Nodes: 1000, Spread: 1}, Answers: []Took{{"a", 1}, {"b", 0.1}},
			Shared: []Shared{{Seconds: []float64{1}, CPU: []float64{1}}, {Seconds: []float64{1}, CPU: []float64{1}}, {Seconds: []float64{1.1}, CPU: []float64{1.15}}},
		}
	}
	for _, x := range []struct {
		missed string
		spoil  func(c *Cost)
		want   report.Outcome
	}{
		{"", func(*Cost) {}, report.Pass},
		{"", func(c *Cost) { *c = Cost{} }, report.Pass},
		{"", func(c *Cost) { c.Ingest.Samples = 1_000_000 }, report.Pass}, // a quick run's rate says nothing
		{"MISSED: ingest: samples a second", func(c *Cost) { c.Ingest.Seconds = 14.401 }, report.Fail},
		{"MISSED: ingest: bytes", func(c *Cost) { c.Ingest.Stored = 24.1 }, report.Fail},
		{"MISSED: learner, 100 jobs", func(c *Cost) { c.Memory[0].Before = 4097 }, report.Fail},
		{"MISSED: learner, 100 jobs", func(c *Cost) { c.Memory[0].Bytes = 4097 }, report.Fail},
		{"MISSED: learner, 100 jobs", func(c *Cost) { c.Memory[0].Again = 4097 }, report.Fail},
		{"MISSED: hub, 100000 jobs of 10 tasks, 2 signals: bytes a job and platform above the empty hub, in the end", func(c *Cost) { c.Growth[1].Resident = 31 + 391 }, report.Fail},
		{"MISSED: hub, 100000 jobs of 10 tasks, 6 signals: bytes a job and platform above the empty hub, at most", func(c *Cost) { c.Growth[2].Peak = 31 + 391 }, report.Fail},
		{"MISSED: reach", func(c *Cost) { c.Reach.Spread = 1.001 }, report.Fail},
		{"MISSED: questions: b", func(c *Cost) { c.Answers[1].Seconds = 1.01 }, report.Fail},
		{"MISSED: shards: CPU", func(c *Cost) { c.Shared[2].CPU[0] = 1.16 }, report.Fail},
		{"MISSED: shards: time", func(c *Cost) { c.Shared[2].Seconds[0] = 1.11 }, report.Fail},
		{"NOT MEASURED: hub", func(c *Cost) { c.Growth, c.NoGrowth = nil, "no program" }, report.CouldNotTell},
		{"NOT MEASURED: questions", func(c *Cost) { c.Answers, c.NoAnswer = nil, "no program" }, report.CouldNotTell},
	} {
		c := good()
		x.spoil(c)
		c.Goals = c.goals()
		var b strings.Builder
		if err := c.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for _, g := range c.Goals {
			if !g.Met || g.Unclear != "" {
				wrong++
			}
		}
		if one := map[bool]int{true: 1}[x.missed != ""]; c.Outcome() != x.want || wrong != one || !strings.Contains(b.String(), x.missed) {
			t.Errorf("%q: %v, %d goals: %s", x.missed, c.Outcome(), wrong, b.String())
		}
		if len(c.Goals) > 0 && !strings.Contains(b.String(), fmt.Sprintf("%d of %d goals are met", len(c.Goals)-wrong, len(c.Goals))) {
			t.Error(b.String())
		}
	}
}
