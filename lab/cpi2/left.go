package cpi2

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// Why bad windows are left: each of them has one cause, by who was held when it began.

// remains is such a cause.
type remains uint8

const (
	leftOracle  remains = iota // the same window is bad under the oracle
	leftAnomaly                // the one that makes the anomaly: the oracle held before it
	leftSearch                 // nobody is held yet
	leftOther                  // who is held is none of the culprits, none of whom was held before
	leftDoubted                // a culprit was nudged and let go
	leftPart                   // some of the culprits are held, another one runs freely
	leftLoose                  // those who run are held, above the cap of §5
	leftCapped                 // they are held at it
	leftFreed                  // a culprit was capped and is free again
	leftIdle                   // no culprit runs
	numLeft
)

var leftNames = [numLeft]string{
	"the oracle leaves it too", "it makes the anomaly", "search: nobody is held yet", "another task is held", "the culprit was nudged and let go", "one of several culprits is free",
	"the culprit is held, too loosely", "the culprit is held at its cap", "the culprit was capped and let go", "no culprit runs",
}

// String returns the cause's name.
func (c remains) String() string { return leftNames[c] }

// leastRuns is the CPU-sec/sec from which on a culprit runs.
const leastRuns = 0.1

// standing is who of the culprits was held when a window began.
type standing struct {
	culprits, at []string // that were held, and of them those at their caps
	others       bool     // somebody else was
}

// stand notes who is held now, before a minute is played.
func (l *loop) stand() {
	l.now = standing{}
	for i := range l.run.mix.plan {
		p := l.run.mix.plan[i].start
		if p == nil || p.task.Class != model.BE {
			continue
		}
		n, ok := l.srv.nums[p.task.Path]
		if !ok || !l.holds(n) {
			continue
		}
		if !l.run.guilty(p.task.Path) {
			l.now.others = true
			continue
		}
		l.now.culprits, l.held = append(l.now.culprits, p.task.Path), true
		if limit, ok := l.limit(n); ok && limit <= 1.01*capOf(&p.task) {
			l.now.at = append(l.now.at, p.task.Path)
		}
	}
}

// cause is why the victim's window of minute k is bad, but for what the oracle leaves.
func (l *loop) cause(k int) remains {
	run, free, loose := 0, 0, 0
	for i := range l.run.mix.plan {
		p := l.run.mix.plan[i].start
		if p == nil || p.task.Class != model.BE || !l.run.guilty(p.task.Path) {
			continue
		}
		held := slices.Contains(l.now.culprits, p.task.Path)
		o, _ := l.srv.seen(l.srv.nums[p.task.Path])
		if !held && (o == nil || o.CPU.Outcome != model.OK || o.CPU.V < leastRuns) {
			continue
		}
		run++
		switch {
		case !held:
			free++
		case !slices.Contains(l.now.at, p.task.Path):
			loose++
		}
	}
	capped := slices.ContainsFunc(l.caps, func(c *armCap) bool { return l.run.guilty(c.Suspect) })
	switch {
	case k == 0:
		return leftAnomaly
	case run == 0:
		return leftIdle
	case free == 0 && loose == 0:
		return leftCapped
	case free == 0:
		return leftLoose
	case free < run:
		return leftPart
	case l.held && capped:
		return leftFreed
	case l.held:
		return leftDoubted
	case l.now.others:
		return leftOther
	}
	return leftSearch
}

// countLeft counts the causes; what the oracle leaves too goes before all others.
func (a *ArmTrial) countLeft(oracle *ArmTrial) {
	for k, c := range a.causes {
		switch {
		case c == nil:
		case oracle.causes[k] != nil:
			a.Left[leftOracle]++
		default:
			a.Left[*c]++
		}
	}
}

// leftTable says why bad windows are left under arms, as shares of those without control: together what is left.
func leftTable(all []Catalogue, arms ...string) report.Table {
	t := report.Table{Title: "Why bad windows are left", Notes: []string{
		"Of the victims' bad windows without control, means over catalogues. Each window has one cause: that the oracle leaves it too goes before all others, who was held when it began decides the rest.",
		"A culprit is who hurts the trial's victim, by counterfactual. The oracle holds from before the anomaly; whoever has to see it first leaves the window that makes it.",
	}}
	heads, figures := []string{"the window is bad, and"}, []func(func(*ArmSummary) float64) string{}
	for _, of := range []struct {
		victims string
		list    []Catalogue
	}{{"production", ofProduction(all)}, {"all", all}} {
		for _, arm := range arms {
			k := slices.IndexFunc(all[0].Arms, func(a ArmSummary) bool { return a.Arm == arm })
			heads = append(heads, of.victims+", "+arm)
			figures = append(figures, func(figure func(*ArmSummary) float64) string {
				v := over(of.list, k, func(_ *Catalogue, a *ArmSummary) float64 {
					if a.Trials == 0 {
						return math.NaN()
					}
					return figure(a)
				})
				if len(v) == 0 {
					return "none"
				}
				return percent(stat.Mean(v), 1)
			})
		}
	}
	row := func(name string, figure func(*ArmSummary) float64) {
		cells := []string{name}
		for _, text := range figures {
			cells = append(cells, text(figure))
		}
		t.Rows = append(t.Rows, report.Cells(cells...))
	}
	t.Columns = report.Heads(heads...)
	for c := range numLeft {
		row(c.String(), func(a *ArmSummary) float64 { return a.Left[c] })
	}
	row("all", func(a *ArmSummary) float64 { return a.Suffering })
	return t
}
