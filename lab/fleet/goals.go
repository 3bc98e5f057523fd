package fleet

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
)

// The goals of a bench (Cost).
const (
	goalSamples   = 500_000 // a second
	goalStored    = 24      // bytes a sample
	goalMemory    = 4096    // bytes a job and platform
	goalReach     = 1.0     // seconds until a changed spec is at all agents
	goalAnswer    = 1.0     // seconds of a question
	goalShareCPU  = 1.15    // of two hubs by one
	goalShareTime = 1.1

	// goalHubJobs is how many jobs a whole hub must have for its memory to be judged: of one that has fewer most is its own, and what ingest takes at once.
	goalHubJobs = 100_000
)

// goals are those of the parts that were measured, a part that could not be among them.
func (c *Cost) goals() (list []report.Goal) {
	add := func(where, what, want, format string, got float64, met bool) {
		list = append(list, report.Goal{Where: where, What: what, Want: want, Got: fmt.Sprintf(format, got), Met: met})
	}
	most := func(where, what, format string, got, want float64) {
		add(where, what, fmt.Sprintf("at most %g", want), format, got, got <= want)
	}
	if r := &c.Ingest; r.Samples > 0 {
		if rate := float64(r.Samples) / r.Seconds; r.whole() {
			add("ingest", "samples a second to Parquet, with specs", fmt.Sprintf("at least %d", goalSamples), "%.0f", rate, rate >= goalSamples)
		}
		most("ingest", "bytes a stored sample", "%.1f", r.Stored, goalStored)
	}
	for _, m := range c.Memory {
		most(fmt.Sprintf("learner, %d jobs of %d tasks, %d signals%s", m.Jobs, m.Tasks, m.Signals, m.missing()), "bytes a job and platform at most", "%.0f", max(m.Before, m.Bytes, m.Again), goalMemory)
	}
	for _, g := range c.Growth {
		if g.Jobs < goalHubJobs {
			continue
		}
		where := fmt.Sprintf("hub, %d jobs of %d tasks, %d signals", g.Jobs, g.Tasks, g.Signals)
		most(where, "bytes a job and platform above the empty hub, in the end", "%.0f", g.each(g.Resident), goalMemory)
		most(where, "bytes a job and platform above the empty hub, at most", "%.0f", g.each(g.Peak), goalMemory)
	}
	if c.NoGrowth != "" {
		list = append(list, report.Goal{Where: "hub", What: "bytes a job and platform", Want: fmt.Sprintf("at most %d", goalMemory), Unclear: c.NoGrowth})
	}
	if r := &c.Reach; r.Nodes > 0 {
		most("reach", fmt.Sprintf("seconds until a changed spec is at %d agents", r.Nodes), "%.3f", r.Spread, goalReach)
	}
	for _, a := range c.Answers {
		most("questions", a.Question+", seconds", "%.2f", a.Seconds, goalAnswer)
	}
	if c.NoAnswer != "" {
		list = append(list, report.Goal{Where: "questions", What: "seconds", Want: fmt.Sprintf("at most %g", goalAnswer), Unclear: c.NoAnswer})
	}
	if len(c.Shared) == 3 {
		parts, two := &c.Shared[1], &c.Shared[2]
		cpu, _, _ := ratio(two.CPU, parts.CPU)
		time, _, _ := ratio(two.Seconds, parts.Seconds)
		most("shards", "CPU of two hubs by that of one", "%.2f", cpu, goalShareCPU)
		most("shards", "time of two hubs by that of one", "%.2f", time, goalShareTime)
	}
	return list
}

// Outcome is whether the goals of what was measured are met. Parts without any fail nothing.
func (c *Cost) Outcome() report.Outcome {
	if len(c.Goals) == 0 {
		return report.Pass
	}
	return c.Judged.Outcome()
}

// writeGoals lists the goals that are not met.
func (c *Cost) writeGoals(w io.Writer) {
	met := 0
	for _, g := range c.Goals {
		switch {
		case g.Unclear != "":
			fmt.Fprintf(w, "NOT MEASURED: %s: %s, %s: %s\n", g.Where, g.What, g.Want, g.Unclear)
		case g.Met:
			met++
		default:
			fmt.Fprintf(w, "MISSED: %s: %s: %s, %s\n", g.Where, g.What, g.Got, g.Want)
		}
	}
	if len(c.Goals) > 0 {
		fmt.Fprintf(w, "%d of %d goals are met\n", met, len(c.Goals))
	}
}
