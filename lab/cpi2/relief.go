package cpi2

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Catalogue is what arms did on the machines of one catalogue of jobs. Trials of one catalogue share its jobs and
// their specs, so that rates are judged over catalogues.
type Catalogue struct {
	Seed     uint64       `json:"seed"`
	Trials   int          `json:"trials"`
	Culprits int          `json:"culprits"` // trials in which somebody may be held
	Arms     []ArmSummary `json:"arms"`
}

// firstCatalogue: those below are for development. A run with seed s plays catalogues from firstCatalogue*s on.
const firstCatalogue = 100

// reliefArms are those that are asked how much relief they bring, the references first.
var reliefArms = []string{"no control", oracleArm, "largest BE", "ours", bestArm, reliefArm}

const (
	oracleArm = "oracle"
	bestArm   = "ours + all"
	reliefArm = "relief"
)

// The specs of a catalogue come from so many machines, played for so many minutes.
const catalogueFleet, catalogueFleetMinutes = 24, 30

// Relief plays machines of several catalogues, with seeds from first on, under the arms of relief. Equal seeds and sizes
// give equal results.
func Relief(ctx context.Context, first uint64, catalogues, machines, workers int) ([]Catalogue, error) {
	arms := slices.DeleteFunc(Arms(), func(a Arm) bool { return !slices.Contains(reliefArms, a.Name) })
	var list []Catalogue
	for seed := first; seed < first+uint64(catalogues); seed++ {
		cat, err := drawCatalogue(rand.New(rand.NewPCG(seed, 0x63617461)))
		if err != nil {
			return nil, err
		}
		fleet, err := learnFleet(ctx, workers, cat, seed^0x666c, catalogueFleet, catalogueFleetMinutes)
		if err != nil {
			return nil, err
		}
		b := &bench{cat: cat, specs: fleet.specs, arms: arms}
		plays, err := parallel.Map(ctx, workers, machines, func(i int) (*Play, error) { return b.play(seed<<20 + uint64(i)) })
		if err != nil {
			return nil, fmt.Errorf("catalogue %d: %w", seed, err)
		}
		ts := (&Result{Plays: plays}).trials()
		c := Catalogue{Seed: seed, Trials: len(ts)}
		for i := range arms {
			c.Arms = append(c.Arms, armSummary(ts, i, arms[i].Name))
		}
		c.Culprits = c.Arms[0].Recovered.Of
		list = append(list, c)
	}
	return list, nil
}

// What the tables and the goals ask of an arm in one catalogue; NaN where nothing says it.
func recovered(_ *Catalogue, a *ArmSummary) float64    { return shareValue(a.Recovered) }
func badLeft(_ *Catalogue, a *ArmSummary) float64      { return a.Suffering }
func innocentHeld(_ *Catalogue, a *ArmSummary) float64 { return a.InnocentHeld }
func precision(_ *Catalogue, a *ArmSummary) float64    { return shareValue(a.Kept.Precision) }

// ofOracle is the share of the oracle's relief, in bad windows, that an arm brought.
func ofOracle(c *Catalogue, a *ArmSummary) float64 {
	i := slices.IndexFunc(c.Arms, func(o ArmSummary) bool { return o.Arm == oracleArm })
	if i < 0 || c.Arms[i].Suffering >= 1 {
		return math.NaN()
	}
	return (1 - a.Suffering) / (1 - c.Arms[i].Suffering)
}

// over returns a figure of an arm in each catalogue in which it is known.
func (r *Result) over(arm int, figure func(*Catalogue, *ArmSummary) float64) []float64 {
	var v []float64
	for i := range r.Catalogues {
		c := &r.Catalogues[i]
		if x := figure(c, &c.Arms[arm]); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}

// spread is the mean over catalogues, and the least and the greatest of them.
func spread(v []float64, decimals int) string {
	if len(v) == 0 {
		return "none"
	}
	return fmt.Sprintf("%s [%.*f, %.*f]", percent(stat.Mean(v), decimals), decimals, 100*slices.Min(v), decimals, 100*slices.Max(v))
}

// shareValue is a share, NaN of nothing.
func shareValue(s stat.Share) float64 {
	if s.Of == 0 {
		return math.NaN()
	}
	return s.Value()
}

// sectionRelief compares arms over catalogues.
func (r *Result) sectionRelief() report.Section {
	t := report.Table{
		Title:   fmt.Sprintf("Relief, over %d catalogues of jobs, %d machines each", len(r.Catalogues), r.Sizes.CatalogueMachines),
		Columns: report.Heads("arm", "recovered in 10 min", "bad windows left", "of the oracle's relief", "innocents lost, of the held", "antagonists lost", "named", "in, median", "precision of lasting caps"),
		Notes: []string{
			"Means over catalogues, with the least and the greatest of them. Victims of both bands; recovered and named are of the trials with a culprit, bad windows of all.",
			"The oracle holds those whom the counterfactual convicts, from the minute of the anomaly on: nobody who has to find out can do that.",
			fmt.Sprintf("Catalogues %d to %d; those below %d were for development.", r.Catalogues[0].Seed, r.Catalogues[len(r.Catalogues)-1].Seed, firstCatalogue),
		},
	}
	for k := range r.Catalogues[0].Arms {
		named := r.over(k, func(_ *Catalogue, a *ArmSummary) float64 {
			if a.NamedIn == 0 {
				return math.NaN()
			}
			return a.NamedIn
		})
		in := "none"
		if len(named) > 0 {
			in = stat.Text(stat.Median(named), 0) + " s"
		}
		t.Rows = append(t.Rows, report.Cells(r.Catalogues[0].Arms[k].Arm,
			spread(r.over(k, recovered), 0),
			spread(r.over(k, badLeft), 0),
			spread(r.over(k, ofOracle), 0),
			spread(r.over(k, innocentHeld), 2),
			spread(r.over(k, func(_ *Catalogue, a *ArmSummary) float64 { return a.AntagonistLost }), 0),
			spread(r.over(k, func(_ *Catalogue, a *ArmSummary) float64 { return shareValue(a.Named) }), 0), in,
			spread(r.over(k, precision), 0)))
	}
	return report.Section{Title: "Relief", Tables: []report.Table{t, report.GoalTable(fmt.Sprintf("Goals of %q, means over catalogues", reliefArm), report.Heads("goal", "asked for", "got", "outcome"), r.reliefGoals())}}
}

// reliefGoals asks the goals of the arm relief.
func (r *Result) reliefGoals() []report.Goal {
	k := slices.IndexFunc(r.Catalogues[0].Arms, func(a ArmSummary) bool { return a.Arm == reliefArm })
	mean := func(figure func(*Catalogue, *ArmSummary) float64) float64 { return stat.Mean(r.over(k, figure)) }
	var list []report.Goal
	for _, g := range []struct {
		what string
		want float64
		got  float64
		most bool
	}{
		{"victims with a culprit recovered in 10 min", 0.90, mean(recovered), false},
		{"bad windows left", 0.45, mean(badLeft), true},
		{"of the oracle's relief", 0.80, mean(ofOracle), false},
		{"innocents' work lost, of the held", 0.01, mean(innocentHeld), true},
		{"precision of lasting caps", 0.95, mean(precision), false},
	} {
		sign, met := "at least ", g.got >= g.want
		if g.most {
			sign, met = "at most ", g.got <= g.want
		}
		list = append(list, report.Goal{What: g.what, Want: sign + percent(g.want, 0), Got: percent(g.got, 1), Met: met})
	}
	return list
}
