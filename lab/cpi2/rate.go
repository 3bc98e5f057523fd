package cpi2

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// eventsPerDay is how often something happens on a machine (a day of 1440 minutes). It is
// fitted to CPI²'s one figure for it: identifications at an average rate of 0.37 a
// machine-day, a task that is named counted once. `run cpi2 --fit` plays the fit again: machines of development
// catalogues, looked at for as long as those on which the rate is measured. docs/EVALUATION.md has what it said.
const eventsPerDay = 0.62

// seedRate is CPI²'s identifications a machine-day.
const seedRate = 0.37

// The fit's catalogues, and the machines of each: with an event and without.
const fitFirst, fitCatalogues, fitMachines, fitQuiet = 20, 6, 14, 4

// Rate is a fit of eventsPerDay.
type Rate struct {
	Minutes int           `json:"minutes"` // that each machine was looked at
	Events  int           `json:"events"`
	Named   int           `json:"named"`            // tasks, on machines with an event
	Quiet   int           `json:"named_unprompted"` // ... and on those without
	Each    stat.Interval `json:"named_an_event"`   // over catalogues
	PerDay  float64       `json:"events_per_day"`
}

// fitRate finds the rate of events that would lead to CPI²'s rate of identifications.
func (l *lab) fitRate() error {
	r := &Rate{Minutes: baseMinutes}
	var each []float64
	for seed := uint64(fitFirst); seed < fitFirst+fitCatalogues; seed++ {
		b, err := newBench(l.ctx, seed, l.o.Workers, l.of(usual))
		if err != nil {
			return err
		}
		counts, err := parallel.Map(l.ctx, l.o.Workers, fitMachines+fitQuiet, func(i int) (count, error) {
			rng := rand.New(rand.NewPCG(seed^0x726174, uint64(i)))
			what := quiet
			if i < fitMachines {
				what = drawCause(rng)
			}
			c, _, err := b.identify(b.cat.drawMix(rng, what, warmMinutes, baseMinutes, baseMinutes), baseMinutes)
			return c, err
		})
		if err != nil {
			return err
		}
		named := 0
		for i, c := range counts {
			if i < fitMachines {
				named += c.identified
			} else {
				r.Quiet += c.identified
			}
		}
		r.Events, r.Named = r.Events+fitMachines, r.Named+named
		each = append(each, float64(named)/fitMachines)
	}
	r.Each = stat.IntervalOf(each)
	alone := float64(r.Quiet) / float64(fitCatalogues*fitQuiet) // on a machine, without an event
	r.PerDay = stat.Ratio(seedRate-alone*1440/baseMinutes, r.Each.Mean-alone)
	l.res.Rate = r
	return nil
}

// newBench draws a catalogue and learns its specs.
func newBench(ctx context.Context, seed uint64, workers int, of kind) (*bench, error) {
	cat, err := drawCatalogue(seed, of)
	if err != nil {
		return nil, err
	}
	fleet, err := learnFleet(ctx, workers, cat, seed^0x666c, cmp.Or(of.fleet, catalogueFleet), catalogueFleetMinutes)
	if err != nil {
		return nil, err
	}
	return &bench{cat: cat, specs: fleet.specs}, nil
}

// report is the fit as a page.
func (r *Rate) report() report.Report {
	t := report.Table{Title: "How often something happens: the fit", Columns: report.Heads("", "found"), Rows: [][]report.Cell{
		report.Cells("machines with an event, minutes each", fmt.Sprintf("%d, %d", r.Events, r.Minutes)),
		report.Cells("tasks named on them", fmt.Sprint(r.Named)),
		report.Cells("... an event, mean over catalogues with Student's interval", r.Each.Text(1, 2)),
		report.Cells(fmt.Sprintf("tasks named on %d machines without", fitCatalogues*fitQuiet), fmt.Sprint(r.Quiet)),
		report.Cells("events a machine-day that lead to 0.37 names", stat.Text(r.PerDay, 2)),
		report.Cells("... what the lab uses", stat.Text(eventsPerDay, 2)),
	}}
	return report.Report{Title: "CPI2 on the twin: the fit of the rate", Verdict: report.Verdict{Outcome: report.Pass, Text: "A fit, which has no goal."}, Sections: []report.Section{{Title: "Fit", Tables: []report.Table{t}}}}
}

// Base is an unconditioned sample: machines on which things happen as often as they do.
type Base struct {
	MachineDays  float64 `json:"machine_days"`
	EventsPerDay float64 `json:"events_per_day"` // drawn; see eventsPerDay
	Anomalies    int     `json:"anomalies"`
	// Identifications are tasks that were named by CPI²'s rule, each once on its
	// machine; Reports is how often, for all victims and again after each peace.
	Identifications int     `json:"identifications"`
	Reports         int     `json:"reports"`
	AnomaliesPerDay float64 `json:"anomalies_per_day"`
	PerDay          float64 `json:"identifications_per_day"`
	Protected       float64 `json:"protected_tasks"` // a machine, in the mean
	Utilisation     float64 `json:"utilisation"`
}

// count is what CPI²'s rule said on one machine that was only looked at.
type count struct {
	anomalies, identified, reports, protected int
	utilisation                               float64
}

// baseMinutes is how long machines are looked at, both to fit the rate and to measure what comes of it: who is hurt by a
// visit of an hour is reported again and again.
const baseMinutes = 240

// identify plays a machine with CPI²'s rule looking on.
func (b *bench) identify(m *mix, minutes int) (c count, r *run, err error) {
	r = &run{bench: b, mix: m}
	anomalies, suspects := map[string]bool{}, map[model.TaskNum]bool{}
	err = r.observe(minutes, func(inc *model.Incident) {
		anomalies[inc.ID] = true
		if n, named := firstPick(inc); named {
			suspects[n.suspect] = true
			if inc.State == model.Observed {
				c.reports++
			}
		}
	})
	c.anomalies, c.identified = len(anomalies), len(suspects)
	return c, r, err
}

func (l *lab) playBase() error {
	minutes := l.size.BaseMinutes
	parts, err := parallel.Map(l.ctx, l.o.Workers, l.size.BaseMachines, func(i int) (count, error) {
		rng := rand.New(rand.NewPCG(l.o.Seed^0x62617365, uint64(i)))
		m := l.cat.drawMix(rng, l.cat.natural(rng, minutes), warmMinutes, minutes, minutes)
		c, r, err := (&bench{cat: l.cat, specs: l.fleet.specs}).identify(m, minutes)
		if err != nil {
			return count{}, err
		}
		for i := range m.plan {
			if p := m.plan[i].start; p != nil && p.cfg.Requests != nil {
				c.protected++
			}
		}
		c.utilisation = float64(r.srv.host.Machine().BusyNsec()) / float64(r.srv.host.Machine().NowNsec()) / float64(m.config.CPUs())
		return c, nil
	})
	if err != nil {
		return err
	}
	b := Base{MachineDays: float64(len(parts)*minutes) / 1440, EventsPerDay: eventsPerDay}
	for _, c := range parts {
		b.Anomalies += c.anomalies
		b.Identifications += c.identified
		b.Reports += c.reports
		b.Protected += float64(c.protected) / float64(len(parts))
		b.Utilisation += c.utilisation / float64(len(parts))
	}
	b.AnomaliesPerDay, b.PerDay = stat.Ratio(float64(b.Anomalies), b.MachineDays), stat.Ratio(float64(b.Identifications), b.MachineDays)
	l.res.Base = b
	return nil
}
