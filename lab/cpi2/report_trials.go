package cpi2

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// sectionAccuracy is figures 15 and 16a, b.
func (r *Result) sectionAccuracy() report.Section {
	var tables []report.Table
	var charts []report.Chart
	for b := range numBands {
		t := report.Table{
			Title:   fmt.Sprintf("Figures 15a, 15b and 16a: %s victims, by the correlation that is asked for", b),
			Columns: report.Heads("threshold", "trials", "true positive", "false positive", "noise", "placebo: true", "relative CPI of true", "of all"),
		}
		var x, yes, no []float64
		for _, row := range r.Sweep {
			s := &row.Bands[b]
			t.Rows = append(t.Rows, report.Cells(stat.Text(row.Threshold, 2), fmt.Sprint(s.Trials), s.True.Text(), s.False.Text(), s.Noise.Text(), s.Placebo.Text(), known(s.RelativeTrue, 2), known(s.Relative, 2)))
			x, yes, no = append(x, row.Threshold), append(yes, s.True.Value()), append(no, s.False.Value())
		}
		if b == bandProduction {
			t.Notes = []string{"CPI²: about 70 % true positives from 0.35 on, whatever the threshold; relative CPI of the true ones 0.52.", "Placebo: what the same judge says of the same minutes without a cap. The victim was reported when it was worst."}
		} else {
			t.Notes = []string{"CPI²: fewer true positives than production; relative CPI of the true ones 0.82; no correlation above 0.4."}
		}
		tables = append(tables, t)
		charts = append(charts, report.Chart{
			Title: fmt.Sprintf("Rates against the correlation threshold, %s", b), XLabel: "correlation threshold", YLabel: "share of trials",
			Series: []report.Series{{Name: "true positive", Role: report.Victim, X: x, Y: yes}, {Name: "false positive", Role: report.Antagonist, X: x, Y: no}},
		})
	}
	tables = append(tables, r.binTable())
	l3, cpi := r.relativeL3(paperDetector())
	l3all, cpiAll := r.relativeL3(0)
	tables = append(tables, report.Table{
		Title: "Figure 15c: L3 misses per instruction against CPI, both relative, of the true positives", Columns: report.Heads("", "CPI²: r", "twin: r", "points"),
		Rows: [][]report.Cell{
			report.Cells("at 0.35", "0.87", stat.Text(stat.Correlation(l3, cpi), 2), fmt.Sprint(len(l3))),
			report.Cells("at 0.10", "", stat.Text(stat.Correlation(l3all, cpiAll), 2), fmt.Sprint(len(l3all))),
		},
	}, r.sigmaTable())
	return report.Section{Title: "7.2 Accuracy of antagonist identification", Tables: tables, Charts: charts}
}

// binTable is the sweep once more by what the suspect scored, each trial once.
func (r *Result) binTable() report.Table {
	t := report.Table{
		Title:   "By the correlation of the one who was named (not cumulative)",
		Columns: report.Heads("correlation", "production: trials", "true positive", "false positive", "precision", "relative CPI", "non-production: trials", "true positive", "false positive", "precision"),
		Notes:   []string{"Each anomaly once: the first suspect that passed 0.10, by the score that it had then."},
	}
	for _, b := range [][2]float64{{0.10, 0.15}, {0.15, 0.20}, {0.20, 0.25}, {0.25, 0.30}, {0.30, 0.35}, {0.35, 0.40}, {0.40, 0.50}, {0.50, 1.01}} {
		p, n := r.byCorrelation(bandProduction, b[0], b[1]), r.byCorrelation(bandNonProduction, b[0], b[1])
		name := fmt.Sprintf("%.2f to %.2f", b[0], b[1])
		if b[1] > 1 {
			name = fmt.Sprintf("from %.2f on", b[0])
		}
		t.Rows = append(t.Rows, report.Cells(name, fmt.Sprint(p.Trials), p.True.Text(), p.False.Text(), p.Precision.Text(), known(p.Relative, 2),
			fmt.Sprint(n.Trials), n.True.Text(), n.False.Text(), n.Precision.Text()))
	}
	return t
}

func (r *Result) sigmaTable() report.Table {
	t := report.Table{
		Title:   "Figure 16b: production, at 0.35, by how far the victim's CPI is above the mean",
		Columns: report.Heads("standard deviations", "trials", "true positive", "false positive", "noise"),
		Notes:   []string{"CPI²: an anomaly should not be declared below 3. A correlation of 0.35 cannot be reached with a CPI below 1.54 times the outlier threshold, so that few trials lie there."},
	}
	for _, b := range [][2]float64{{2, 3}, {3, 5}, {5, 8}, {8, 12}, {12, 20}, {20, math.Inf(1)}} {
		s := r.bySigmas(b[0], b[1])
		name := fmt.Sprintf("%.0f to %.0f", b[0], b[1])
		if math.IsInf(b[1], 1) {
			name = fmt.Sprintf("from %.0f on", b[0])
		}
		t.Rows = append(t.Rows, report.Cells(name, fmt.Sprint(s.Trials), s.True.Text(), s.False.Text(), s.Noise.Text()))
	}
	return t
}

// sectionBenefit is figures 16c and d.
func (r *Result) sectionBenefit() report.Section {
	t := report.Table{
		Title:   "Figure 16c: production, at 0.35, relative CPI by degradation",
		Columns: report.Heads("CPI / mean", "trials", "median relative CPI"), Notes: []string{"CPI²: well below 1 over the whole range."},
	}
	for _, b := range [][2]float64{{1, 1.6}, {1.6, 2}, {2, 2.5}, {2.5, 3.5}, {3.5, 100}} {
		s := r.byDegradation(b[0], b[1])
		name := fmt.Sprintf("%.1f to %.1f", b[0], b[1])
		if b[1] == 100 {
			name = fmt.Sprintf("from %.1f on", b[0])
		}
		t.Rows = append(t.Rows, report.Cells(name, fmt.Sprint(s.Trials), known(s.Relative, 2)))
	}
	var rel []float64
	for _, c := range atThreshold(r.trials(), paperDetector(), func(t *Trial, c *capTrial) bool { return t.Production && c.Outcome != noEvidence }) {
		rel = append(rel, c.RelativeCPI)
	}
	d := report.Table{
		Title: "Figure 16d: production, at 0.35, relative CPI, true and false alike", Columns: report.Heads("", "CPI²", "twin"),
		Rows: [][]report.Cell{
			report.Cells("median", "0.63", stat.Text(stat.Median(rel), 2)),
			report.Cells("p10, p90", "", stat.Text(stat.Quantile(0.1, rel), 2)+", "+stat.Text(stat.Quantile(0.9, rel), 2)),
			report.Cells("trials", "", fmt.Sprint(len(rel))),
		},
	}
	x := stat.Sorted(rel)
	y := make([]float64, len(x))
	for i := range y {
		y[i] = float64(i+1) / float64(len(y))
	}
	c := report.Chart{Title: "Figure 16d: relative CPI of production victims", XLabel: "relative CPI", YLabel: "share of trials", Series: []report.Series{{Name: "all trials", Role: report.Victim, X: x, Y: y}}}
	return report.Section{Title: "7.3 Benefits to victim jobs", Tables: []report.Table{t, d}, Charts: []report.Chart{c}}
}

// sectionTruth is what only a simulation knows.
func (r *Result) sectionTruth() report.Section {
	t := report.Table{
		Title:   "Whether the one who was named hurt the victim, by counterfactual",
		Columns: report.Heads("threshold", "production: precision", "recall", "non-production: precision", "recall"),
		Notes: []string{
			"An antagonist is a BE task without which the victim's CPI, over the bad windows that made the anomaly, would have been lower by more than cpi_stddev.",
			"Recall: of the anomalies with such a task, those in which one of them was named within five windows.",
		},
	}
	for _, row := range r.Sweep {
		t.Rows = append(t.Rows, report.Cells(stat.Text(row.Threshold, 2), row.Bands[0].Precision.Text(), row.Recall[0].Text(), row.Bands[1].Precision.Text(), row.Recall[1].Text()))
	}
	c := report.Table{
		Title:   "By what happened on the machine, at 0.35, both bands",
		Columns: report.Heads("cause", "machines", "trials", "named", "true positive", "false positive", "precision", "single culprit", "group's harm"),
	}
	for k := quiet + 1; k < numCauses; k++ {
		machines, trials, single, group := 0, 0, 0, 0
		for _, p := range r.Plays {
			if p.Cause != k {
				continue
			}
			machines++
			if p.Trial == nil {
				continue
			}
			trials++
			if p.Trial.culprit() {
				single++
			}
			if p.Trial.GroupHarm > p.Trial.Spec.StdDev {
				group++
			}
		}
		s := ratesOf(atThreshold(r.trials(), paperDetector(), func(t *Trial, _ *capTrial) bool { return t.Cause == k }))
		c.Rows = append(c.Rows, report.Cells(k.String(), fmt.Sprint(machines), fmt.Sprint(trials), fmt.Sprint(s.Trials), s.True.Text(), s.False.Text(), s.Precision.Text(), fmt.Sprint(single), fmt.Sprint(group)))
	}
	return report.Section{Title: "What really happened", Tables: []report.Table{t, c}}
}

// sectionArms compares the closed loops.
func (r *Result) sectionArms() report.Section {
	caps := report.Table{
		Title:   "All caps, each judged on its own victim as CPI² judges",
		Columns: report.Heads("arm", "production: caps", "true positive", "false positive", "relative CPI", "precision", "non-production: true", "false", "relative CPI"),
		Notes:   []string{"A cap that was taken back after a few windows is judged on these. A nudge is no cap unless it was confirmed; a group is one cap. The oracle is the bound: its caps are right by its definition, and as mild as suffices.", "Precision: of the tasks that were held, those that hurt the victim of the trial, alone or as one of a group."},
	}
	cost := report.Table{
		Title:   "What victims, innocents and antagonists got",
		Columns: report.Heads("arm", "victim's bad windows", "of the oracle's relief", "all tasks' bad windows", "recovered in 10 min", "named", "time to name (s)", "innocent lost", "of the held", "antagonist lost", "caps a trial"),
		Notes: []string{
			fmt.Sprintf("%d trials, each played from the same moment with the same chances for %d minutes. Bad windows against no control; work against no control, BE only. Innocent lost is net: innocents gain when an antagonist is held. Of the held: what those innocents lost that were held themselves, as a share of all innocent work. Recovered and named: of the trials with a culprit or a guilty group.", len(r.trials()), horizonMinutes),
		},
	}
	for i := range r.Arms {
		a := &r.Arms[i]
		p, n := &a.Bands[bandProduction], &a.Bands[bandNonProduction]
		caps.Rows = append(caps.Rows, report.Cells(a.Arm, fmt.Sprint(p.Trials), p.True.Text(), p.False.Text(), known(p.Relative, 2), p.Precision.Text(), n.True.Text(), n.False.Text(), known(n.Relative, 2)))
		name := "nobody"
		if a.Named.N > 0 {
			name = stat.Text(a.NamedIn, 0)
		}
		cost.Rows = append(cost.Rows, report.Cells(a.Arm, percent(a.Suffering, 0), shareText(ofOracle(r.Arms, a)), percent(a.AllSuffering, 0), a.Recovered.Text(), a.Named.Text(), name,
			percent(a.InnocentLost, 1), percent(a.InnocentHeld, 2), percent(a.AntagonistLost, 0), stat.Text(a.PerTrial, 1)))
	}
	kept := report.Table{Title: "Production caps that were not taken back", Columns: report.Heads("arm", "caps", "true positive", "false positive", "relative CPI")}
	for i := range r.Arms {
		k := &r.Arms[i].Kept
		kept.Rows = append(kept.Rows, report.Cells(r.Arms[i].Arm, fmt.Sprint(k.Trials), k.True.Text(), k.False.Text(), known(k.Relative, 2)))
	}
	g := r.goalsTable()
	arms := report.Table{Title: "The arms", Columns: []report.Column{{Name: "arm"}, {Name: "what it does"}}}
	for _, a := range r.ArmsKnown {
		arms.Rows = append(arms.Rows, report.Cells(a.Name, a.What))
	}
	return report.Section{Title: "Closed loops", Tables: []report.Table{arms, caps, kept, r.accusations(), cost, r.armsByCause(), g}}
}

// accusations counts each suspect once for a victim, and what the arms do beside capping.
func (r *Result) accusations() report.Table {
	t := report.Table{
		Title:   "Accusations: of the caps of a suspect for a victim the first",
		Columns: report.Heads("arm", "production", "true positive", "false positive", "relative CPI", "precision", "well while held", "nudges a trial", "of them in vain"),
		Notes: []string{
			"CPI²'s rule caps for five minutes and accuses again; a hold that follows the victim is renewed and counts once. Here both count once.",
			"Well while held: of all victims' windows under a cap, for as long as it lasted, those under the victim's threshold, which is what a loosened cap is for.",
		},
	}
	for i := range r.Arms {
		a := &r.Arms[i]
		p := &a.Accused[bandProduction]
		t.Rows = append(t.Rows, report.Cells(a.Arm, fmt.Sprint(p.Trials), p.True.Text(), p.False.Text(), known(p.Relative, 2), p.Precision.Text(), a.Well.Text(), stat.Text(a.Nudges, 2), stat.Text(a.Refuted, 2)))
	}
	return t
}

func (r *Result) goalsTable() report.Table {
	g := report.GoalTable("Goals on production victims, of the best combination", report.Heads("goal", "wanted", "got", "met"), r.best())
	if len(r.Goals) > 0 {
		g.Notes = []string{"Arm: " + r.Goals[0].Arm + ", chosen beforehand. Innocent work lost is that of the held."}
	}
	return g
}

// shareText is a share of the oracle's relief, "none" where it brought none.
func shareText(v float64) string {
	if math.IsNaN(v) {
		return "none"
	}
	return percent(v, 0)
}

// left is the share of bad windows that an arm left, where anything was tried.
func left(s *ArmSummary) string {
	if s.Trials == 0 {
		return "none"
	}
	return percent(s.Suffering, 0)
}

// armsByCause says where an arm's caps go wrong: for the oracle, CPI²'s rule and the profile relief.
func (r *Result) armsByCause() report.Table {
	t := report.Table{
		Title:   "By what happened on the machine, both bands",
		Columns: report.Heads("arm, cause", "trials", "caps", "true positive", "false positive", "precision", "victim's bad windows", "of the oracle's relief", "innocent lost of the held"),
	}
	oracle := slices.IndexFunc(r.ArmsKnown, func(a Arm) bool { return a.Oracle })
	for i := range r.ArmsKnown {
		if name := r.ArmsKnown[i].Name; i != oracle && name != "ours" && name != reliefArm {
			continue
		}
		for k := quiet + 1; k < numCauses; k++ {
			var ts []*Trial
			for _, tr := range r.trials() {
				if tr.Cause == k {
					ts = append(ts, tr)
				}
			}
			s, bound := armSummary(ts, i, ""), armSummary(ts, oracle, oracleArm)
			var all []*capTrial
			for _, tr := range ts {
				for _, c := range tr.Arms[i].Caps {
					all = append(all, &capTrial{Outcome: c.Outcome, RelativeCPI: c.RelativeCPI, Antagonist: c.Antagonist})
				}
			}
			rates := ratesOf(all)
			t.Rows = append(t.Rows, report.Cells(r.ArmsKnown[i].Name+", "+k.String(), fmt.Sprint(len(ts)), fmt.Sprint(rates.Trials),
				rates.True.Text(), rates.False.Text(), rates.Precision.Text(), left(&s), shareText(ofOracle([]ArmSummary{bound}, &s)), percent(s.InnocentHeld, 2)))
		}
	}
	return t
}
