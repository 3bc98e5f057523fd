package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/model"
)

// Check is one expectation and what came of it.
type Check struct {
	What   string `json:"what"`
	Got    string `json:"got"`
	Passed bool   `json:"passed"`
}

// figures are what an expectation can be about.
var figures = map[string]func(*TaskFigures) Number{
	"alive_sec":         func(t *TaskFigures) Number { return t.AliveSec },
	"cpi":               func(t *TaskFigures) Number { return t.CPI },
	"mpki":              func(t *TaskFigures) Number { return t.MPKI },
	"llc_bytes":         func(t *TaskFigures) Number { return t.LLCBytes },
	"memory_gb_per_sec": func(t *TaskFigures) Number { return t.GBPerSec },
	"cpu":               func(t *TaskFigures) Number { return t.CPU },
	"slowdown":          func(t *TaskFigures) Number { return t.Slowdown },
	"held_sec":          func(t *TaskFigures) Number { return t.HeldSec },
	"cpu_some":          func(t *TaskFigures) Number { return t.Pressure.CPUSome },
	"cpu_full":          func(t *TaskFigures) Number { return t.Pressure.CPUFull },
	"memory_some":       func(t *TaskFigures) Number { return t.Pressure.MemorySome },
	"memory_full":       func(t *TaskFigures) Number { return t.Pressure.MemoryFull },
	"io_some":           ofDisk(func(d *DiskFigures) Number { return d.Some }),
	"io_full":           ofDisk(func(d *DiskFigures) Number { return d.Full }),
	"disk_mb_per_sec":   ofDisk(func(d *DiskFigures) Number { return d.MBPerSec }),
	"disk_ms":           ofDisk(func(d *DiskFigures) Number { return d.OpMs }),
	"resident_bytes":    ofMemory(func(m *MemoryFigures) Number { return m.ResidentBytes }),
	"swapped_bytes":     ofMemory(func(m *MemoryFigures) Number { return m.SwappedBytes }),
	"faults_per_sec":    ofMemory(func(m *MemoryFigures) Number { return m.Faults }),
	"work_per_sec":      func(t *TaskFigures) Number { return t.Work },
	"p50_ms":            ofLatency(func(l *Latency) Number { return l.P50Ms }),
	"p95_ms":            ofLatency(func(l *Latency) Number { return l.P95Ms }),
	"p99_ms":            ofLatency(func(l *Latency) Number { return l.P99Ms }),
	"mean_ms":           ofLatency(func(l *Latency) Number { return l.MeanMs }),
	"lost":              ofLatency(func(l *Latency) Number { return Number(l.Lost) }),
	"slo_violation_sec": ofLatency(func(l *Latency) Number { return l.ViolationSec }),
}

func ofLatency(f func(*Latency) Number) func(*TaskFigures) Number {
	return func(t *TaskFigures) Number {
		if t.Latency == nil {
			return Number(math.NaN())
		}
		return f(t.Latency)
	}
}

func ofDisk(f func(*DiskFigures) Number) func(*TaskFigures) Number {
	return func(t *TaskFigures) Number {
		if t.Disk == nil {
			return Number(math.NaN())
		}
		return f(t.Disk)
	}
}

func ofMemory(f func(*MemoryFigures) Number) func(*TaskFigures) Number {
	return func(t *TaskFigures) Number {
		if t.Memory == nil {
			return Number(math.NaN())
		}
		return f(t.Memory)
	}
}

// FigureNames lists what an expectation can be about.
func FigureNames() []string { return slices.Sorted(maps.Keys(figures)) }

// holds says whether a number is within the bounds. No number is within none.
func (g *Range) holds(v float64) bool {
	return !math.IsNaN(v) && (g.Above == nil || v > *g.Above) && (g.Below == nil || v < *g.Below)
}

func (g *Range) String() string {
	var parts []string
	if g.Above != nil {
		parts = append(parts, fmt.Sprintf("above %g", *g.Above))
	}
	if g.Below != nil {
		parts = append(parts, fmt.Sprintf("below %g", *g.Below))
	}
	return strings.Join(parts, " and ")
}

// check holds a run against what is expected of it.
func (r *runner) check(run *Run) []Check {
	x := &r.plan.Scenario.Expect
	var out []Check
	add := func(passed bool, got, format string, args ...any) {
		out = append(out, Check{What: fmt.Sprintf(format, args...), Got: got, Passed: passed})
	}
	for _, name := range x.Named {
		first, ok := r.firstNaming(run, name)
		if !ok {
			add(false, "never", "%s is named", name)
			continue
		}
		got := fmt.Sprintf("after %.0f s, with %.2f", first.AfterSec, float64(first.Score))
		if x.TimeToName > 0 {
			add(first.AfterSec <= x.TimeToName.Seconds(), got, "%s is named within %s", name, x.TimeToName)
		} else {
			add(true, got, "%s is named", name)
		}
	}
	if held := r.heldTasks(); x.NobodyHeld {
		add(len(held) == 0, wordList(held, "nobody"), "nobody is held")
	} else if len(x.OnlyHeld) > 0 {
		innocent := slices.DeleteFunc(slices.Clone(held), func(name string) bool { return r.covered(x.OnlyHeld, name) })
		add(len(innocent) == 0, wordList(held, "nobody"), "nobody is held but %s", strings.Join(x.OnlyHeld, ", "))
	}
	if x.Recovered != nil {
		n := countState(run.Incidents, model.Recovered)
		add((n > 0) == *x.Recovered, fmt.Sprintf("%d of %d incidents", n, len(run.Incidents)), "recovered: %v", *x.Recovered)
	}
	if x.Incidents != nil {
		n := len(run.Incidents)
		add(x.Incidents.holds(float64(n)), fmt.Sprint(n), "incidents %s", x.Incidents)
	}
	if x.TopScore != nil {
		top, who := topScore(run.Incidents)
		add(x.TopScore.holds(top), strings.TrimSpace(fmt.Sprintf("%.2f %s", top, who)), "top score %s", x.TopScore)
	}
	for _, b := range x.Blame {
		top, rounds := r.topBlame(run.Incidents, b.Of)
		add(rounds > 0 && b.holds(top), fmt.Sprintf("%.2f in %d rounds", top, rounds), "blame of %s %s", b.Of, b.String())
	}
	if x.RestoredLast {
		add(run.AsFound, wordList(nonEmpty(run.NotAsFound), "all"), "every limit is as it was found")
	}
	for _, d := range x.Decisions {
		out = append(out, r.checkDecision(run, &d))
	}
	for i := range x.Figures {
		out = append(out, r.checkFigures(run, &x.Figures[i])...)
	}
	return out
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func wordList(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// covered says whether a player is one of those that names stand for.
func (r *runner) covered(names []string, player string) bool {
	for i := range r.players {
		if r.players[i].name == player && r.names(names, i) {
			return true
		}
	}
	return false
}

func (r *runner) firstNaming(run *Run, name string) (Naming, bool) {
	for _, n := range run.Named {
		if r.covered([]string{name}, n.Task) {
			return n, true
		}
	}
	return Naming{}, false
}

// heldTasks lists who was under a cap of the agent's at any time.
func (r *runner) heldTasks() []string {
	var held []string
	for i := range r.players {
		if r.players[i].caps > 0 {
			held = append(held, r.players[i].name)
		}
	}
	return held
}

func countState(list []*model.Incident, st model.IncidentState) int {
	n := 0
	for _, inc := range list {
		if inc.State == st || st == model.Recovered && everRecovered(inc) {
			n++
		}
	}
	return n
}

// everRecovered: a victim may recover and later suffer again.
func everRecovered(inc *model.Incident) bool {
	for i := range inc.Rounds {
		if inc.Rounds[i].State == model.RoundRecovered {
			return true
		}
	}
	return inc.State == model.Recovered
}

// topScore is the best correlation of any task in any round; -1 without a round.
func topScore(list []*model.Incident) (top float64, who string) {
	top = -1
	for _, inc := range list {
		for i := range inc.Rounds {
			for _, s := range inc.Rounds[i].Suspects {
				if s.Kind == model.SuspectTask && s.Score > top {
					top, who = s.Score, s.Path
				}
			}
		}
	}
	return top, who
}

// untouchable is what nobody can hold, where an expectation names who is charged: what no task used, and what the
// hypervisor took.
var untouchable = map[string]model.SuspectKind{"unmanaged": model.SuspectUnmanaged, "steal": model.SuspectSteal}

// topBlame is the greatest share that one is charged with, over the rounds that go by blame.
func (r *runner) topBlame(list []*model.Incident, of string) (top float64, rounds int) {
	for _, inc := range list {
		for i := range inc.Rounds {
			if !inc.Rounds[i].ByBlame {
				continue
			}
			rounds++
			for _, s := range inc.Rounds[i].Suspects {
				kind := untouchable[of] // a task's otherwise
				if s.Kind == kind && (kind != model.SuspectTask || r.covered([]string{of}, r.nameOf(s.Path))) {
					top = max(top, s.Score)
				}
			}
		}
	}
	return top, rounds
}

func (r *runner) checkDecision(run *Run, want *DecisionWant) Check {
	var found *model.Decision
	for i := range run.Decisions {
		d := &run.Decisions[i]
		if d.Kind.String() == want.Kind && (want.Task == "" || r.covered([]string{want.Task}, r.nameOf(d.Path))) && strings.Contains(d.Reason, want.Says) {
			found = d
			break
		}
	}
	c := Check{What: "decides " + want.Kind, Got: "never", Passed: (found == nil) == want.Never}
	if want.Never {
		c.What = "never decides " + want.Kind
	}
	if want.Task != "" {
		c.What += " on " + want.Task
	}
	if want.Says != "" {
		c.What += fmt.Sprintf(", saying %q", want.Says)
	}
	if found != nil {
		c.Got = fmt.Sprintf("at %s", time.Duration(found.MonoNsec).Round(time.Second))
	}
	return c
}

// checkFigures checks each task that a figure is about.
func (r *runner) checkFigures(run *Run, f *Figure) []Check {
	var out []Check
	w, get := &run.Windows[r.plan.window(f.Window)], figures[f.Figure]
	for _, i := range r.plan.find(f.Task) {
		v := float64(get(&w.Tasks[i]))
		what := fmt.Sprintf("%s of %s in %s", f.Figure, r.players[i].name, w.Name)
		if f.Over != "" {
			other := &run.Windows[r.plan.window(f.Over)]
			v /= float64(get(&other.Tasks[i]))
			what += " over " + other.Name
		}
		out = append(out, Check{What: what + " " + f.String(), Got: fmt.Sprintf("%.4g", v), Passed: f.holds(v)})
	}
	return out
}
