package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
)

// The goals. Those on cost are the project's own; CPI² gives "less than 0.1 % of total
// machine CPU" for collection (section 3.1) and about 100 µs for an analysis (4.2).
const (
	goalRatio       = 2
	goalCore        = 1.0 // percent
	goalPaperNode   = 0.1 // percent
	goalRSSMiB      = 40
	goalAnalysis    = 20 // µs
	goalTasks       = 150
	goalCoreBeyond  = 3.0 // percent, of more tasks than that: it is for 1,000
	goalAllocations = 0
	goalPolicies    = 1.5          // times collection alone
	goalAllPolicies = 2.0          // the same with every policy
	goalAges        = 0.5          // percent of a core, in the mean
	goalContention  = 1.0          // percent of a core with eight services, readings each 20 ms included
	goalBALM        = 10.0         // percent of a core: BALM's bound
	goalTwin        = 1000.0 / 250 // ms of CPU time for a simulated second: 250 times life
)

// Goal is one goal with what was measured.
type Goal struct {
	Name     string  `json:"name"`
	Goal     float64 `json:"at_most"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit,omitempty"`
	Met      bool    `json:"met"`
}

func goals(r *Result) []Goal {
	var list []Goal
	add := func(name string, goal, measured float64, unit string) {
		list = append(list, Goal{name, goal, measured, unit, measured <= goal})
	}
	at := fmt.Sprintf(" at %d tasks", goalTasks)
	if i := slices.IndexFunc(r.Sizes, func(s Size) bool { return s.Tasks == goalTasks }); i >= 0 {
		s := &r.Sizes[i]
		add("cycle against the floor"+at, goalRatio, s.Ratio, "x")
		add("cycle, one a second"+at, goalCore, s.CorePercent, "% of a core")
		add("cycle, CPI²'s cadence"+at, goalPaperNode, s.SeedNodePercent, "% of all CPU")
		// What a cycle allocates whatever the number of tasks is no allocation a task: the
		// difference to the smallest size is.
		if few := &r.Sizes[0]; few.Tasks < s.Tasks {
			add("allocations a task"+at, goalAllocations, max(0, s.Allocs-few.Allocs)/float64(s.Tasks-few.Tasks), "")
		}
	}
	for i := range r.Sizes {
		for _, p := range r.Sizes[i].Policies {
			most := goalPolicies
			if p.All {
				most = goalAllPolicies
			}
			add(fmt.Sprintf("policies of the CPU at %d tasks, %s", p.Tasks, p.state()), most, p.Ratio, "x")
			add("the same, with collection", core(p.Tasks), p.OnMsec.Median/10, "% of a core")
		}
	}
	if a := r.Ages; a != nil && a.Source != "" && a.Tasks >= goalTasks { // of fewer it says nothing
		add(fmt.Sprintf("ages of %d tasks", a.Tasks), goalAges, a.CorePercent, "% of a core")
	}
	if m := r.Moves; m != nil && m.Why == "" {
		for kind, beside := range [...]string{still: "with nothing done", computing: "while a thread computes"} {
			most, fails := m.worst(kind)
			list = append(list, Goal{"a service's p50, p95 and p99 while pages move, higher than " + beside + " by at most, or by chance", mostHigher, most, "%", !fails})
		}
	}
	if c := r.Contention; c != nil {
		add(fmt.Sprintf("policies of caches and memories, %d services asked each 20 ms", c.LC), goalContention, c.dearest(), "% of a core")
		add("the same against BALM's own bound", goalBALM, c.dearest(), "% of a core")
	}
	if r.Agent.Tasks == 0 { // a part alone
		return list
	}
	at = fmt.Sprintf(" at %d tasks", r.Agent.Tasks)
	add("agent's process"+at, core(r.Agent.Tasks), r.Agent.CorePercent, "% of a core")
	if w := r.Waits; w != nil {
		add("agent's process with waits, beside the switches' own"+at, core(r.Agent.Tasks), w.On.CorePercent, "% of a core")
	}
	add("agent's resident memory (peak)"+at, goalRSSMiB, r.Agent.PeakMiB, "MiB")
	for _, a := range r.Analyses {
		add(fmt.Sprintf("analysis, %d suspects, %d samples", suspects, a.Windows), goalAnalysis, a.Usec.Median, "µs")
	}
	for _, t := range r.Twins {
		if t.Cores == twinCores && t.Tasks == twinTasks {
			add(fmt.Sprintf("a second of a twin, %d cores, %d tasks", t.Cores, t.Tasks), goalTwin, t.Msec.Median, "ms")
		}
	}
	return list
}

// core is how much of one the agent may take with so many tasks, in percent.
func core(tasks int) float64 {
	if tasks > goalTasks {
		return goalCoreBeyond
	}
	return goalCore
}

// WriteText writes the tables for people.
func (r *Result) WriteText(w io.Writer) error {
	if len(r.Sizes) == 0 { // a part alone
		if r.Contention != nil {
			return report.WriteTables(w, r.contentionTable(), r.goalTable())
		}
		if r.Moves != nil {
			return report.WriteTables(w, r.movesTable(), r.goalTable())
		}
		return report.WriteTables(w, r.agesTable(), r.goalTable())
	}
	return report.WriteTables(w, r.cycleTable(), r.countTable(), r.policiesTable(), r.agentTable(), r.waitsTable(), r.agesTable(), r.analysisTable(), r.twinTable(), r.goalTable())
}

func num(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func (r *Result) cycleTable() report.Table {
	t := report.Table{
		Title: "One collection and policy cycle, once a second (CPU time of its thread)",
		Columns: []report.Column{
			report.Figures("tasks", ""), report.Figures("floor", "ms"), report.Figures("cycle", "ms"), report.Figures("p90", "ms"), report.Figures("cycle / floor", ""),
			report.Figures("with discovery", "ms"), report.Figures("wall", "ms"), report.Figures("of a core at 1 s", "%"), report.Figures("of all CPU, CPI²'s cadence", "%"),
		},
		Notes: []string{
			"floor: one read of cpuacct.usage and of cpu.stat a task (cgroup v2: of cpu.stat alone) and the same taskstats queries, nothing parsed; medians, the two by turns in one run.",
			fmt.Sprintf("of a core: every cycle of the run, discoveries (every 5 s) included. CPI²'s cadence: 2 readings a minute, each with a discovery, and 60 turns without one (%s ms each); %d CPUs.", num(r.Sizes[len(r.Sizes)-1].IdleMsec, 3), r.CPUs),
		},
	}
	for _, s := range r.Sizes {
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(s.Tasks), num(s.FloorMsec.Median, 3), num(s.CycleMsec.Median, 3), num(s.CycleMsec.P90, 3),
			num(s.Ratio, 2), num(s.DiscoveryMsec, 2), num(s.CycleWallMsec.Median, 3), num(s.CorePercent, 3), num(s.SeedNodePercent, 4)))
	}
	return t
}

func (r *Result) countTable() report.Table {
	t := report.Table{
		Title: "What a cycle without discovery does",
		Columns: []report.Column{
			report.Figures("tasks", ""), report.Figures("system calls", ""), report.Figures("floor's", ""), report.Figures("a task", ""), report.Figures("allocations", ""), report.Figures("record", "bytes"),
		},
		Notes: []string{"system calls: reads and writes as the kernel counts them for the thread, and opens, closes, stats and receives as the program makes them."},
	}
	for _, s := range r.Sizes {
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(s.Tasks), num(s.Calls, 0), num(s.FloorCalls, 0), num(s.Calls/float64(s.Tasks), 2),
			num(s.Allocs, 0), num(s.RecordBytes, 0)))
	}
	return t
}

func (r *Result) policiesTable() report.Table {
	t := report.Table{
		Title: "A second of the loop with cpuset, cpu_pool and burst enforcing, against all policies off (CPU time of its thread)",
		Columns: []report.Column{
			report.Figures("tasks", ""), report.Figures("of them LC", ""), {Name: "state"}, report.Figures("off", "ms"), report.Figures("on", "ms"), report.Figures("p90", "ms"), report.Figures("on / off", ""),
			report.Figures("turns a second", ""), report.Figures("glances", ""), report.Figures("quiet seconds", ""), report.Figures("in the other state", ""), report.Figures("writes meanwhile", ""),
		},
		Notes: []string{
			"off: one collection a second. on: that, and the fast reading of every LC task, with its quota, at each pulse; by turns in one run.",
			fmt.Sprintf("above its floor: pulses are due each 50 ms; glances are those that a look at what LC used at most ended. Where at least %d seconds are quiet, others' work hiding LC's in fewer than half of its pulses, all figures are of those.", leastQuiet),
		},
	}
	for i := range r.Sizes {
		for _, p := range r.Sizes[i].Policies {
			t.Rows = append(t.Rows, report.Cells(strconv.Itoa(p.Tasks), strconv.Itoa(p.LC), p.state(), num(p.OffMsec.Median, 2), num(p.OnMsec.Median, 2), num(p.OnMsec.P90, 2),
				num(p.Ratio, 2), strconv.Itoa(p.Turns), strconv.Itoa(p.Glances), strconv.Itoa(p.Quiet), strconv.Itoa(p.Elsewhere), strconv.FormatUint(p.Written, 10)))
		}
	}
	return t
}

func (r *Result) agentTable() report.Table {
	a := &r.Agent
	return report.Table{
		Title: "The agent's own process, with record and metrics",
		Columns: []report.Column{
			report.Figures("tasks", ""), report.Figures("for", "s"), report.Figures("of a core", "%"), report.Figures("resident", "MiB"), report.Figures("peak", "MiB"), report.Figures("scrapes", ""),
		},
		Rows: [][]report.Cell{report.Cells(strconv.Itoa(a.Tasks), num(a.Seconds, 0), num(a.CorePercent, 3), num(a.RSSMiB, 1), num(a.PeakMiB, 1), strconv.Itoa(a.Scrapes))},
	}
}

func (r *Result) analysisTable() report.Table {
	t := report.Table{
		Title:   "One antagonist analysis (CPI²: about 100 µs)",
		Columns: []report.Column{report.Figures("suspects", ""), report.Figures("samples", ""), report.Figures("median", "µs"), report.Figures("p90", "µs"), report.Figures("allocations", "")},
	}
	for _, a := range r.Analyses {
		t.Rows = append(t.Rows, report.Cells(strconv.Itoa(a.Suspects), strconv.Itoa(a.Windows), num(a.Usec.Median, 2), num(a.Usec.P90, 2), num(a.Allocs, 0)))
	}
	return t
}

func (r *Result) goalTable() report.Table {
	var list []report.Goal
	for _, g := range r.Goals {
		list = append(list, report.Goal{What: g.Name, Want: strings.TrimSpace(num(g.Goal, -1) + " " + g.Unit), Got: strings.TrimSpace(num(g.Measured, 3) + " " + g.Unit), Met: g.Met})
	}
	return report.GoalTable("Goals", []report.Column{{Name: "goal"}, report.Figures("at most", ""), report.Figures("measured", ""), {Name: "outcome"}}, list)
}
