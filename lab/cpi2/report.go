package cpi2

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// WriteText writes the tables, each with CPI²'s figures beside ours.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }

func (r *Result) facts(profile string) [][2]string {
	facts := [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"first catalogue", fmt.Sprint(firstCatalogue * r.Seed)}, {"quick", fmt.Sprint(r.Quick)}, {"profile", profile}}
	if r.Physics != "" {
		facts = append(facts, [2]string{"physics", r.Physics})
	}
	return facts
}

// Report is the evaluation as a page or as text.
func (r *Result) Report() report.Report {
	if r.Rate != nil {
		return r.Rate.report()
	}
	if len(r.Plays) == 0 {
		return report.Report{
			Title: "CPI2 on the twin: relief", Verdict: r.Verdict(), Sections: []report.Section{r.sectionRelief()},
			Facts: r.facts("cpi2, relief"),
		}
	}
	rep := report.Report{
		Title: "CPI2 on the twin: the evaluation of CPI²",
		Summary: []string{
			fmt.Sprintf("%d machines were drawn on which something happens; %d of them had an anomaly that was worth a trial. Specs came from %d other machines, rates of identification from %.1f unconditioned machine-days.",
				len(r.Plays), len(r.trials()), r.Sizes.FleetMachines, r.Base.MachineDays),
			"Intervals in brackets are 95 %: Wilson's where trials of this one catalogue are counted, which share its jobs and specs, so that they are too narrow for other fleets; Student's over catalogues in the section on relief. docs/EVALUATION.md has the method and what is not modelled.",
		},
		Verdict: r.Verdict(),
		Sections: []report.Section{
			r.sectionMetric(), r.sectionSpecs(), r.sectionBase(), r.sectionAccuracy(), r.sectionBenefit(), r.sectionTruth(), r.sectionArms(),
		},
		Facts: r.facts("cpi2"),
	}
	if len(r.Catalogues) > 0 {
		rep.Sections = append(rep.Sections, r.sectionRelief())
	}
	if len(r.Cases) > 0 {
		rep.Sections = append(rep.Sections, r.sectionCases())
	}
	return rep
}

// Verdict says whether the best combination meets every goal.
func (r *Result) Verdict() report.Verdict {
	if r.Rate != nil {
		return r.Rate.report().Verdict
	}
	if len(r.Plays) == 0 {
		v := report.Judge(r.ReliefGoals())
		v.Text = fmt.Sprintf("%q over %d catalogues: %s", reliefArm, len(r.Catalogues), v.Text)
		return v
	}
	if len(r.Goals) == 0 {
		return report.Verdict{Text: "No trial had a production victim."}
	}
	v := report.Judge(r.Told())
	v.Text = fmt.Sprintf("%q on production victims, and %q: %s", r.Goals[0].Arm, reliefArm, v.Text)
	return v
}

// Outcome is the verdict in one word.
func (r *Result) Outcome() report.Outcome { return r.Verdict().Outcome }

// Told are all goals in the words of every lab: of the best combination, and of relief over catalogues.
func (r *Result) Told() []report.Goal {
	list := r.best()
	if len(r.Catalogues) > 0 {
		list = append(list, r.ReliefGoals()...)
	}
	return list
}

// best are the goals of the best combination.
func (r *Result) best() []report.Goal {
	var list []report.Goal
	for _, g := range r.Goals {
		sign := "at most "
		if g.Least {
			sign = "at least "
		}
		list = append(list, report.Goal{What: g.What, Want: sign + goalText(g.What, g.Want), Got: goalText(g.What, g.Got), Met: g.Met})
	}
	return list
}

func goalText(what string, v float64) string {
	if what == "median relative CPI" {
		return stat.Text(v, 2)
	}
	return percent(v, 1)
}

// known is figure for quantities that are never 0 when they are known.
func known(v float64, decimals int) string {
	if v == 0 {
		return "absent"
	}
	return stat.Text(v, decimals)
}

func percent(v float64, decimals int) string {
	if math.IsNaN(v) {
		return "absent"
	}
	return fmt.Sprintf("%.*f %%", decimals, 100*v)
}

func (r *Result) sectionMetric() report.Section {
	t := report.Table{Title: "Figures 2 to 4: how well the metric follows the application", Columns: report.Heads("figure", "CPI²: r", "twin: r", "points")}
	for _, p := range r.Pairs {
		t.Rows = append(t.Rows, report.Cells(p.Name, p.Seed, known(p.R, 2), fmt.Sprint(len(p.X))))
	}
	t.Notes = []string{
		"On one platform a request's latency is instructions times CPI over the clock, by the simulation's equations, plus queueing: figures 2, 3 and 4 test the plumbing, not whether CPI is a good metric.",
		fmt.Sprintf("Figure 4 leaves out %d samples of machines that were more than %.0f %% busy: there the queue grows, whatever the CPI.", r.Saturated, 100*saturated),
	}
	d := &r.Diurnal
	day := report.Table{
		Title: "Figure 5: mean CPI of a leaf over days", Columns: report.Heads("", "CPI²", "twin"),
		Rows: [][]report.Cell{
			report.Cells("days", "5", stat.Text(d.Days, 0)),
			report.Cells("coefficient of variation", "about 4 %", percent(d.CoV, 1)),
			report.Cells("least, greatest", "", stat.Text(d.Minimum, 2)+", "+stat.Text(d.Maximum, 2)),
		},
		Notes: []string{"The twin's swing comes from contention among tenants whose load follows the day; it has no change of the instruction mix, to which CPI² ascribes its own."},
	}
	x := make([]float64, len(d.CPI))
	for i := range x {
		x[i] = float64(i) * halfHour * 60
	}
	charts := []report.Chart{{Title: "Figure 5: mean CPI of the leaves", YLabel: "CPI", Series: []report.Series{{Name: "leaf", Role: report.Victim, X: x, Y: d.CPI}}}}
	return report.Section{Title: "3 CPI as a metric", Tables: []report.Table{t, day}, Charts: charts}
}

func (r *Result) sectionSpecs() report.Section {
	t := report.Table{Title: "Table 1: CPI of some jobs, mean and standard deviation", Columns: report.Heads("job", "CPI²", "CPI²: sd/mean", "twin", "twin: sd/mean", "tasks")}
	for i, paper := range []struct{ text, cov string }{{"A 0.88 +- 0.09", "10 %"}, {"B 1.36 +- 0.26", "19 %"}, {"C 2.03 +- 0.20", "10 %"}} {
		name := fmt.Sprintf("prod-%02d", i+1)
		for k := range r.Specs {
			if s := &r.Specs[k]; s.Job == name {
				t.Rows = append(t.Rows, report.Cells(name, paper.text, paper.cov, fmt.Sprintf("%.2f +- %.2f", s.Mean, s.StdDev), percent(s.StdDev/s.Mean, 0), fmt.Sprint(s.Tasks)))
			}
		}
	}
	prod, test := specSpread(r.Specs)
	t.Notes = []string{fmt.Sprintf("sd/mean over all jobs, median: production %s, non-production %s.", percent(stat.Median(prod), 0), percent(stat.Median(test), 0))}
	f := report.Table{Title: "Figure 7: the CPI distribution of a web-search job, fitted by maximum likelihood, best first", Columns: report.Heads("distribution", "parameters", "log-likelihood", "AIC", "KS")}
	for _, fit := range r.Fits {
		f.Rows = append(f.Rows, report.Cells(fit.Name, fit.Text, stat.Text(fit.LogLikelihood, 1), stat.Text(fit.AIC, 1), stat.Text(fit.KS, 4)))
	}
	f.Notes = []string{
		"CPI²: mean 1.8, sd 0.16 (9 %), over 450,000 samples; GEV(1.73, 0.133, -0.0534) fits best, of the same four.",
		fmt.Sprintf("Twin: mean %.2f, sd %.2f (%.0f %%), over %d samples.", r.CPI.Mean, r.CPI.StdDev, 100*r.CPI.StdDev/r.CPI.Mean, r.CPI.N),
	}
	x := make([]float64, len(r.CPI.Counts))
	for i := range x {
		x[i] = r.CPI.Low + (r.CPI.High-r.CPI.Low)*(float64(i)+0.5)/float64(len(x))
	}
	c := report.Chart{Title: "Figure 7: CPI samples", XLabel: "CPI", YLabel: "samples", Series: []report.Series{{Name: "samples", Role: report.Victim, X: x, Y: r.CPI.Counts}}}
	return report.Section{Title: "3.1 Specs and distributions", Tables: []report.Table{t, f}, Charts: []report.Chart{c}}
}

// specSpread is sd/mean of the jobs of either band.
func specSpread(specs []model.Spec) (production, other []float64) {
	for _, s := range specs {
		if s.Job[0] == 'p' {
			production = append(production, s.StdDev/s.Mean)
		} else {
			other = append(other, s.StdDev/s.Mean)
		}
	}
	return production, other
}

func (r *Result) sectionCases() report.Section {
	t := report.Table{Title: "Cases 1 to 6", Columns: []report.Column{{Name: "case"}, {Name: "by"}, {Name: "what"}}}
	for _, c := range r.Cases {
		// A part of the sentence a line: together they are wider than any terminal.
		name := c.Name
		for _, said := range []struct{ by, text string }{{"CPI²", c.Seed}, {"twin", c.Ours}} {
			by := said.by
			for part := range strings.SplitSeq(said.text, "; ") {
				t.Rows = append(t.Rows, report.Cells(name, by, part))
				name, by = "", ""
			}
		}
		if !c.Agrees {
			t.Rows = append(t.Rows, report.Cells("", "", "does not do what its scenario expects"))
		}
	}
	return report.Section{Title: "6 Case studies", Tables: []report.Table{t}}
}

func (r *Result) sectionBase() report.Section {
	b := &r.Base
	t := report.Table{
		Title: "How often, on machines that were not chosen", Columns: report.Heads("", "CPI²", "twin"),
		Rows: [][]report.Cell{
			report.Cells("antagonists identified a machine-day", "0.37", stat.Text(b.PerDay, 2)+fmt.Sprintf(" (%d)", b.Identifications)),
			report.Cells("reports a machine-day, all victims, again every 5 minutes", "", stat.Text(stat.Ratio(float64(b.Reports), b.MachineDays), 1)),
			report.Cells("anomalies a machine-day", "", stat.Text(b.AnomaliesPerDay, 1)),
			report.Cells("machine-days", "thousands", stat.Text(b.MachineDays, 1)),
			report.Cells("protected tasks a machine", "", stat.Text(b.Protected, 1)),
			report.Cells("utilisation", "", percent(b.Utilisation, 0)),
		},
		Notes: []string{fmt.Sprintf("Something happens %.2g times a machine-day: fitted to CPI²'s 0.37 on other seeds than this, and to nothing else, on machines looked at for as long. A group counts with each of its members.", b.EventsPerDay)},
	}
	var corr, load, cpi, idle []float64
	for _, a := range r.anomalies() {
		if a.Identified {
			corr, load, cpi = append(corr, a.Score), append(load, a.Utilisation), append(cpi, a.Degradation)
		} else {
			idle = append(idle, a.Degradation)
		}
	}
	f := report.Table{
		Title: "Figure 14: antagonism and machine load, at an identification", Columns: report.Heads("", "CPI²", "twin"),
		Rows: [][]report.Cell{
			report.Cells("a: r of correlation and utilisation", "none", stat.Text(stat.Correlation(corr, load), 2)),
			report.Cells("c: r of CPI / mean and utilisation", "none", stat.Text(stat.Correlation(cpi, load), 2)),
			report.Cells("b: utilisation, p10 p50 p90", "all levels", quantiles(load)),
			report.Cells("d: CPI / mean, identified, p10 p50 p90", "long tail", quantiles(cpi)),
			report.Cells("d: CPI / mean, nobody identified", "lower", quantiles(idle)),
			report.Cells("identified, not identified", "", fmt.Sprintf("%d, %d", len(cpi), len(idle))),
		},
	}
	return report.Section{Title: "7.1 Is antagonism correlated with machine load?", Tables: []report.Table{t, f}}
}

func quantiles(v []float64) string {
	return stat.Text(stat.Quantile(0.1, v), 2) + " " + stat.Text(stat.Quantile(0.5, v), 2) + " " + stat.Text(stat.Quantile(0.9, v), 2)
}
