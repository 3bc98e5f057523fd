package cpi2

import (
	"context"
	"fmt"
	"math"
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
	Spread   float64      `json:"spread"`   // of the production jobs' specs, median of sd/mean
	Arms     []ArmSummary `json:"arms"`
	// Production is the same of the trials with a production victim alone.
	Production *Catalogue `json:"production,omitempty"`
}

// firstCatalogue: those below are for development. A run with seed s draws the jobs of all its parts from catalogue firstCatalogue*s, and relief's from the next ones, too.
const firstCatalogue = 100

// reliefArms are those that are asked how much relief they bring, the references first.
var reliefArms = []string{"no control", oracleArm, "largest BE", "ours", "margin + feedback", bestArm, reliefArm, ladderArm}

const (
	oracleArm = "oracle"
	bestArm   = "ours + all"
	reliefArm = "relief"
	ladderArm = "relief + ladder"
)

// The specs of a catalogue come from so many machines, played for so many minutes.
const catalogueFleet, catalogueFleetMinutes = 24, 30

// Relief plays machines of several catalogues, with seeds from first on, under the arms of relief. Equal seeds and sizes
// give equal results.
func Relief(ctx context.Context, first uint64, catalogues, machines, workers int, of kind) ([]Catalogue, error) {
	return reliefOf(ctx, first, catalogues, machines, workers, of, slices.DeleteFunc(Arms(), func(a Arm) bool { return !slices.Contains(reliefArms, a.Name) }))
}

// reliefOf is Relief under arms of one's own, of which the first holds nobody.
func reliefOf(ctx context.Context, first uint64, catalogues, machines, workers int, of kind, arms []Arm) ([]Catalogue, error) {
	var list []Catalogue
	for seed := first; seed < first+uint64(catalogues); seed++ {
		b, err := newBench(ctx, seed, workers, of)
		if err != nil {
			return nil, err
		}
		b.arms = arms
		plays, err := parallel.Map(ctx, workers, machines, func(i int) (*Play, error) { return b.play(seed<<20 + uint64(i)) })
		if err != nil {
			return nil, fmt.Errorf("catalogue %d: %w", seed, err)
		}
		ts := (&Result{Plays: plays}).trials()
		spread, _ := specSpread(b.specs)
		c := catalogueOf(seed, ts, arms)
		c.Spread = stat.Median(spread)
		production := catalogueOf(seed, slices.DeleteFunc(ts, func(t *Trial) bool { return !t.Production }), arms)
		c.Production = &production
		list = append(list, c)
	}
	return list, nil
}

// catalogueOf sums up trials.
func catalogueOf(seed uint64, ts []*Trial, arms []Arm) Catalogue {
	c := Catalogue{Seed: seed, Trials: len(ts)}
	for i := range arms {
		c.Arms = append(c.Arms, armSummary(ts, i, arms[i].Name))
	}
	c.Culprits = c.Arms[0].Recovered.Of
	return c
}

// ofProduction are catalogues by their production victims alone.
func ofProduction(list []Catalogue) (of []Catalogue) {
	for i := range list {
		of = append(of, *list[i].Production)
	}
	return of
}

// What the tables and the goals ask of an arm in one catalogue; NaN where nothing says it.
func recovered(_ *Catalogue, a *ArmSummary) float64    { return shareValue(a.Recovered) }
func badLeft(_ *Catalogue, a *ArmSummary) float64      { return of(a, a.Suffering) }
func innocentHeld(_ *Catalogue, a *ArmSummary) float64 { return of(a, a.InnocentHeld) }
func precision(_ *Catalogue, a *ArmSummary) float64    { return shareValue(a.Kept.Precision) }

func reliefShare(c *Catalogue, a *ArmSummary) float64    { return ofOracle(c.Arms, a) }
func antagonistLost(_ *Catalogue, a *ArmSummary) float64 { return of(a, a.AntagonistLost) }
func namedShare(_ *Catalogue, a *ArmSummary) float64     { return shareValue(a.Named) }
func namedIn(_ *Catalogue, a *ArmSummary) float64 {
	if a.Named.N == 0 {
		return math.NaN()
	}
	return a.NamedIn
}

// of is a figure of trials, NaN of none.
func of(a *ArmSummary, v float64) float64 {
	if a.Trials == 0 {
		return math.NaN()
	}
	return v
}

// over returns a figure of an arm in each catalogue in which it is known.
func over(list []Catalogue, arm int, figure func(*Catalogue, *ArmSummary) float64) []float64 {
	var v []float64
	for i := range list {
		c := &list[i]
		if x := figure(c, &c.Arms[arm]); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}

// interval is the mean over catalogues with Student's interval of 95 %, in per cent, cut off at 0 and at most.
func interval(v []float64, most float64, decimals int) string {
	if len(v) == 0 {
		return "none"
	}
	i := stat.IntervalOf(v)
	if i.Blocks == 1 {
		return percent(i.Mean, decimals)
	}
	return fmt.Sprintf("%s [%.*f, %.*f]", percent(i.Mean, decimals), decimals, 100*max(0, i.Low), decimals, 100*min(most, i.High))
}

// extremes are the least and the greatest of catalogues.
func extremes(v []float64, decimals int) string {
	if len(v) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.*f to %.*f %%", decimals, 100*slices.Min(v), decimals, 100*slices.Max(v))
}

// shareValue is a share, NaN of nothing.
func shareValue(s stat.Share) float64 {
	if s.Of == 0 {
		return math.NaN()
	}
	return s.Value()
}

// reliefColumns are what arms are compared by, over catalogues.
var reliefColumns = []struct {
	head     string
	figure   func(*Catalogue, *ArmSummary) float64
	most     float64 // that its interval may say
	decimals int
}{
	{"recovered in 10 min", recovered, 1, 0},
	{"bad windows left", badLeft, math.Inf(1), 0},
	{"of the oracle's relief", reliefShare, math.Inf(1), 0},
	{"innocents lost, of the held", innocentHeld, 1, 2},
	{"antagonists lost", antagonistLost, 1, 0},
	{"named", namedShare, 1, 0},
	{"precision of lasting caps", precision, 1, 0},
}

// reliefTables compare arms over catalogues: means with intervals, and the least and the greatest catalogue.
func reliefTables(title string, list []Catalogue) []report.Table {
	heads := []string{"arm"}
	for _, c := range reliefColumns {
		heads = append(heads, c.head)
	}
	means := report.Table{Title: title, Columns: report.Heads(append(heads, "in, median")...)}
	ends := report.Table{Title: "The least and the greatest of these catalogues", Columns: report.Heads(heads...)}
	for k := range list[0].Arms {
		a, b := []string{list[0].Arms[k].Arm}, []string{list[0].Arms[k].Arm}
		for _, c := range reliefColumns {
			v := over(list, k, c.figure)
			a, b = append(a, interval(v, c.most, c.decimals)), append(b, extremes(v, c.decimals))
		}
		in := "none"
		if v := over(list, k, namedIn); len(v) > 0 {
			in = stat.Text(stat.Median(v), 0) + " s"
		}
		means.Rows, ends.Rows = append(means.Rows, report.Cells(append(a, in)...)), append(ends.Rows, report.Cells(b...))
	}
	trials, culprits := 0, 0
	for i := range list {
		trials, culprits = trials+list[i].Trials, culprits+list[i].Culprits
	}
	means.Notes = []string{
		fmt.Sprintf("Catalogues %d to %d; those below %d were for development. %d trials, %d of them with a culprit.", list[0].Seed, list[len(list)-1].Seed, firstCatalogue, trials, culprits),
		"Means over catalogues, each of which counts once; in brackets Student's interval of 95 % of that mean, with the catalogues as what does not depend on each other: trials of one share its jobs and their specs. Recovered and named are of the trials with a culprit, bad windows of all.",
		"The oracle is the bound: it holds those whom the counterfactual convicts, from the minute of the anomaly on, as mildly as leaves the victim no more bad windows than CPI²'s caps would.",
	}
	return []report.Table{means, ends}
}

// sectionRelief compares arms over catalogues, of either spread.
func (r *Result) sectionRelief() report.Section {
	size := func(list []Catalogue) string {
		return fmt.Sprintf("%d catalogues of jobs, %d machines each", len(list), r.Sizes.CatalogueMachines)
	}
	tables := reliefTables("Relief, over "+size(r.Catalogues), r.Catalogues)
	tables = append(tables, reliefTables("Of production victims alone", ofProduction(r.Catalogues))[0],
		report.GoalTable(fmt.Sprintf("Goals of %q, means over catalogues", reliefArm), report.Heads("victims", "goal", "asked for", "got", "outcome"), r.ReliefGoals()))
	tables = append(tables, leftTable(r.Catalogues, reliefArm, ladderArm))
	if len(r.Narrow) > 0 {
		tables = append(tables, reliefTables("Machines without siblings, where specs spread as CPI²'s: "+size(r.Narrow), r.Narrow)...)
	}
	t := report.Table{Title: "Spread of the production jobs' specs, median of sd/mean", Columns: report.Heads("catalogues", "CPI²", "twin")}
	for _, x := range []struct {
		name, seed string
		list       []Catalogue
	}{{"with siblings", "9 % (figure 7), 10, 19 and 10 % (table 1)", r.Catalogues}, {"without", "", r.Narrow}} {
		var v []float64
		for i := range x.list {
			v = append(v, x.list[i].Spread)
		}
		t.Rows = append(t.Rows, report.Cells(x.name, x.seed, interval(v, 1, 0)))
	}
	return report.Section{Title: "Relief", Tables: append(tables, t)}
}

// ReliefGoals asks the goals of the arm relief: of production victims, for whom they were set, and of all.
func (r *Result) ReliefGoals() []report.Goal {
	return append(reliefGoals("production", ofProduction(r.Catalogues)), reliefGoals("all", r.Catalogues)...)
}

func reliefGoals(victims string, list []Catalogue) []report.Goal {
	k := slices.IndexFunc(list[0].Arms, func(a ArmSummary) bool { return a.Arm == reliefArm })
	var goals []report.Goal
	for _, g := range []struct {
		what   string
		want   float64
		figure func(*Catalogue, *ArmSummary) float64
		most   bool
	}{
		{"victims with a culprit recovered in 10 min", 0.90, recovered, false},
		{"bad windows left", 0.45, badLeft, true},
		{"of the oracle's relief", 0.80, reliefShare, false},
		{"innocents' work lost, of the held", 0.01, innocentHeld, true},
		{"precision of lasting caps", 0.95, precision, false},
	} {
		v := over(list, k, g.figure)
		got := stat.Mean(v)
		sign, met := "at least ", got >= g.want
		if g.most {
			sign, met = "at most ", got <= g.want
		}
		goals = append(goals, report.Goal{Where: victims, What: g.what, Want: sign + percent(g.want, 0), Got: interval(v, math.Inf(1), 1), Met: met})
	}
	in := stat.Median(over(list, k, namedIn))
	return append(goals, report.Goal{Where: victims, What: "time to name, median", Want: fmt.Sprintf("at most %d s", mostToName), Got: stat.Text(in, 0) + " s", Met: in <= mostToName})
}

// mostToName is what the goal asks for, in seconds.
const mostToName = 60
