package cpi2

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// Options say how much is played.
type Options struct {
	Seed    uint64
	Quick   bool
	Workers int       // 0: one a CPU. The results do not depend on it
	Log     io.Writer // a line for each part; nil: none
	// Cases are the case studies of section 6, as whoever can play them found them; nil:
	// they are left out.
	Cases []Case

	// Relief, Fit: only that part is played.
	Relief, Fit bool
	// Published: machines have all terms of machine.Published, and services are program.Exposed.
	Published bool

	sizes *sizes // of tests
}

// Case is one of CPI²'s case studies: its figure and ours.
type Case struct {
	Name   string `json:"name"`
	Seed   string `json:"seed"`
	Ours   string `json:"ours"`
	Agrees bool   `json:"agrees"`
}

// sizes is how much is played.
type sizes struct {
	FleetMachines int `json:"fleet_machines"`
	FleetMinutes  int `json:"fleet_minutes"`
	Plays         int `json:"plays"` // machines on which something happens, at most
	BaseMachines  int `json:"base_machines"`
	BaseMinutes   int `json:"base_minutes"`
	DayMachines   int `json:"day_machines"`
	DayHours      int `json:"day_hours"`
	RateMachines  int `json:"rate_machines"`
	RateMinutes   int `json:"rate_minutes"`
	TierMachines  int `json:"tier_machines"`
	TierMinutes   int `json:"tier_minutes"`
	Trials        int `json:"trials"` // so many are enough; 0: all machines are played
	// Catalogues that relief is judged over, and machines of each.
	Catalogues        int `json:"catalogues"`
	CatalogueMachines int `json:"catalogue_machines"`
	NarrowCatalogues  int `json:"narrow_catalogues"`
}

func (o *Options) size() sizes {
	switch {
	case o.sizes != nil:
		return *o.sizes
	case o.Quick:
		return sizes{24, 30, 20, 16, baseMinutes, 2, 24, 8, 60, 12, 60, 0, 2, 8, 1}
	}
	return sizes{100, 45, 1800, 180, baseMinutes, 3, 120, 24, 120, 40, 120, 420, 10, 30, 3}
}

// Result is the whole evaluation.
type Result struct {
	Seed      uint64       `json:"seed"`
	Quick     bool         `json:"quick"`
	Physics   string       `json:"physics,omitempty"` // none: the usual
	Sizes     sizes        `json:"sizes"`
	Pairs     []Pair       `json:"metric_validity"`
	Saturated int          `json:"saturated_samples"` // of figure 4, left out
	Diurnal   Diurnal      `json:"diurnal"`
	Specs     []model.Spec `json:"specs"`
	CPI       Histogram    `json:"cpi_distribution"`
	Fits      []Fit        `json:"fits"` // of figure 7, best first
	Cases     []Case       `json:"cases,omitempty"`
	Base      Base         `json:"base"`
	Plays     []*Play      `json:"plays"`
	Sweep     []SweepRow   `json:"sweep"`
	Arms      []ArmSummary `json:"arms"`
	Goals     []Goal       `json:"goals"`
	// Catalogues are others than the one of the rest.
	Catalogues []Catalogue `json:"catalogues"`
	Narrow     []Catalogue `json:"narrow_catalogues"` // the first of them again, on machines without siblings: specs spread as CPI²'s
	ArmsKnown  []Arm       `json:"arms_known"`
	Rate       *Rate       `json:"rate,omitempty"` // of a fit
}

// Histogram is a distribution.
type Histogram struct {
	Job    string    `json:"job"`
	N      int       `json:"n"`
	Mean   float64   `json:"mean"`
	StdDev float64   `json:"stddev"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Counts []float64 `json:"counts"`
}

// lab is a run on its way.
type lab struct {
	o     Options
	size  sizes
	ctx   context.Context
	cat   *catalogue
	fleet *fleet
	res   *Result
}

// Run plays the evaluation. Equal seeds and sizes give equal results, whatever the number
// of workers.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	l := &lab{o: o, size: o.size(), ctx: ctx}
	l.res = &Result{Seed: o.Seed, Quick: o.Quick, Sizes: l.size, Cases: o.Cases, ArmsKnown: Arms()}
	var err error
	if o.Published {
		l.res.Physics = "published"
	}
	if l.cat, err = drawCatalogue(firstCatalogue*o.Seed, l.of(usual)); err != nil {
		return nil, err
	}
	type part struct {
		name string
		play func() error
	}
	parts := []part{
		{"specs from a fleet", l.playFleet},
		{"figures 2 to 5", l.playMetric},
		{"identifications a machine-day", l.playBase},
		{"trials", l.playTrials},
		{"relief over catalogues", l.playRelief},
	}
	switch {
	case o.Relief:
		parts = parts[len(parts)-1:]
	case o.Fit:
		parts = []part{{"fit of the rate", l.fitRate}}
	}
	for _, part := range parts {
		began := time.Now()
		if err := part.play(); err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		if o.Log != nil {
			fmt.Fprintf(o.Log, "%s: %.0f s\n", part.name, time.Since(began).Seconds())
		}
	}
	if !o.Relief && !o.Fit {
		l.res.summarise()
	}
	return l.res, nil
}

func (l *lab) playFleet() error {
	var err error
	if l.fleet, err = learnFleet(l.ctx, l.o.Workers, l.cat, l.o.Seed^0x666c, l.size.FleetMachines, l.size.FleetMinutes); err != nil {
		return err
	}
	l.res.Specs = l.fleet.specs
	leaf := l.cat.jobs[0].name // the web-search job
	var cpis []float64
	for _, r := range l.fleet.readings {
		if r.job == leaf {
			cpis = append(cpis, r.cpi)
		}
	}
	m, sd := stat.MeanStdDev(cpis)
	h := Histogram{Job: leaf, N: len(cpis), Mean: m, StdDev: sd, Low: m - 4*sd, High: m + 6*sd}
	h.Counts = histogram(cpis, h.Low, h.High, 50)
	l.res.CPI = h
	l.res.Fits, err = fitAll(cpis)
	return err
}

func (l *lab) playMetric() error {
	tps, err := throughput(l.ctx, l.o.Workers, l.cat, l.o.Seed, l.size.RateMachines, l.size.RateMinutes)
	if err != nil {
		return err
	}
	if l.res.Diurnal, err = diurnal(l.ctx, l.o.Workers, l.cat, l.o.Seed, l.size.DayMachines, l.size.DayHours); err != nil {
		return err
	}
	jobs, out, err := tiers(l.ctx, l.o.Workers, l.cat, l.o.Seed, l.size.TierMachines, l.size.TierMinutes)
	if err != nil {
		return err
	}
	l.res.Saturated = out
	l.res.Pairs = append([]Pair{tps, l.res.Diurnal.Latency}, jobs...)
	return nil
}

// playBatch machines are played before the trials among them are counted: a fixed number, so
// that how many are played does not depend on the workers.
const playBatch = 60

func (l *lab) playTrials() error {
	b := &bench{cat: l.cat, specs: l.fleet.specs, arms: l.res.ArmsKnown}
	for from := 0; from < l.size.Plays; from += playBatch {
		plays, err := parallel.Map(l.ctx, l.o.Workers, min(playBatch, l.size.Plays-from), func(i int) (*Play, error) {
			p, err := b.play(l.o.Seed<<20 + uint64(from+i))
			if err != nil {
				return nil, fmt.Errorf("machine %d: %w", from+i, err)
			}
			return p, nil
		})
		if err != nil {
			return err
		}
		l.res.Plays = append(l.res.Plays, plays...)
		if l.size.Trials > 0 && len(l.res.trials()) >= l.size.Trials {
			break
		}
	}
	return nil
}

// of is a kind under the run's physics. A test's sizes have fewer machines for specs, too.
func (l *lab) of(k kind) kind {
	k.published = l.o.Published
	if l.o.sizes != nil {
		k.fleet = l.size.FleetMachines
	}
	return k
}

func (l *lab) playRelief() error {
	var err error
	first := firstCatalogue * l.o.Seed // with the jobs of the other parts
	if l.res.Catalogues, err = Relief(l.ctx, first, l.size.Catalogues, l.size.CatalogueMachines, l.o.Workers, l.of(usual)); err != nil {
		return err
	}
	l.res.Narrow, err = Relief(l.ctx, first, l.size.NarrowCatalogues, l.size.CatalogueMachines, l.o.Workers, l.of(narrow))
	return err
}
