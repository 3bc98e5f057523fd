// Package coldpages plays figures 6 to 9 of Alibaba's paper (section 3.2) on simulated machines: how long the pages of services lie idle, what giving back the
// idle ones saves and costs, by threshold, and the same by pressure (Meta's TMO).
//
// A mix is a machine with four to eight service instances, each with a limit that it uses as the paper's do (in the median 74 % for anonymous memory and 13 % for
// page cache), and two to four batch tasks. Their pages are used at random, by parts: in use, once in minutes, once in hours, once in days, never. The shares of
// these parts were chosen on seeds below 1000 so that the ages are like figure 6's. One service in four collects its garbage every 4 to 12 hours, which uses all it
// has once. Everything ran for three days before it is played; twelve hours are played, of which the last six are measured, each arm beside the same
// hours of the same machine with nothing done.
//
// The paper's figures do not fit each other where all that is idle can go: 14.7 % of the memory in use is anonymous and older than two days (figure 6), and of all that is older than
// six hours 7 % of the limit went (figure 8). Here swap is what keeps the rest: it is drawn at 3 to 7 % of the memory in use (chosen on seeds below 1000); the arms that compare thresholds have
// as much as they want, and no stops.
//
// Written down before the first run; it fails if, with the policy's defaults (6 h and 1.5 h, stops on),
//
//   - anonymous memory falls by other than 4 to 10 points of the limit, or file memory by other than 6 to 12 (figure 8: 7 and 9);
//   - the mean response time of services rises by more than 1.26 % (figure 9), or their CPI by more than 1 %;
//   - the mean of any one instance rises by more than 5 %;
//   - less is given back than by pressure, or at a greater rise of the response time;
//
// and, of the thresholds (figures 6 and 7), if
//
//   - what could be given back is not 14.7 % (longest threshold) and 29.8 % (shortest) of the memory in use for anonymous pages, and 2.2 % and 12.6 % for file
//     pages, each to within 4 points: then the mix is not like the paper's;
//   - pages do not fault more at each shorter threshold, and five times as much in all (the paper: 15.3 times).
//
// What it does not show: CPI changes only by what caches and memory do, since a simulated fault runs no kernel code; pages of one file that several tasks share; how well a
// kernel knows ages (here to the page); disks that many faults make slower.
package coldpages

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/model"
	policy "github.com/commensal-io/commensal/policy/coldpages"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// Options of a run.
type Options struct {
	Seed  uint64
	Quick bool // fewer mixes and arms' hours
}

const (
	mixes, quickMixes = 24, 3
	gib               = 1 << 30
	hour              = int64(3600e9)
	minute            = int64(60e9)
	playedHours       = 12 // of which the last six are measured
	quickHours        = 6  // the last three
)

// arm is what is done about idle memory.
type arm struct {
	name       string
	by         string // "": nothing
	anon, file int64  // thresholds
	roomy      bool   // as much swap as is wanted
	unstopped  bool   // refaults and stalls stop nothing
}

// arms are all of them; those between first and last threshold are figure 7's.
var arms = []arm{
	{name: "nothing"},
	{name: "48 h / 24 h", by: policy.ByAge, anon: 48 * hour, file: 24 * hour, roomy: true, unstopped: true},
	{name: "24 h / 12 h", by: policy.ByAge, anon: 24 * hour, file: 12 * hour, roomy: true, unstopped: true},
	{name: "12 h / 3 h", by: policy.ByAge, anon: 12 * hour, file: 3 * hour, roomy: true, unstopped: true},
	{name: "6 h / 1.5 h", by: policy.ByAge, anon: 6 * hour, file: 3 * hour / 2, roomy: true, unstopped: true},
	{name: "3 h / 30 min", by: policy.ByAge, anon: 3 * hour, file: hour / 2, roomy: true, unstopped: true},
	{name: "1 h / 5 min", by: policy.ByAge, anon: hour, file: hour / 12, roomy: true, unstopped: true},
	{name: "coldpages, as it comes", by: policy.ByAge, anon: 6 * hour, file: 3 * hour / 2},
	{name: "the same without stops", by: policy.ByAge, anon: 6 * hour, file: 3 * hour / 2, unstopped: true},
	{name: "by pressure (TMO)", by: policy.ByPressure, anon: 6 * hour, file: 3 * hour / 2},
}

const (
	nothing, longest, shortest = 0, 1, 6
	ours, unstopped, pressured = 7, 8, 9
)

// Mix is what came of one machine.
type Mix struct {
	Index    int       `json:"index"`
	Services int       `json:"services"`
	Sweeps   int       `json:"sweeps"` // services that collect garbage
	Figure6  Ages      `json:"figure_6"`
	Arms     []Outcome `json:"arms"`
}

// Ages is the share of the services' memory that is older than each of model.AgeEdges, at the beginning.
type Ages struct {
	Anon [model.NumAgeEdges]float64 `json:"anon"`
	File [model.NumAgeEdges]float64 `json:"file"`
}

// Outcome is what came of an arm on a machine.
type Outcome struct {
	Anon  []float64 `json:"anon"` // of each service, of its limit, at the end
	File  []float64 `json:"file"`
	RT    []float64 `json:"response_msec"` // mean of the measured hours
	Worst []float64 `json:"worst_minute_msec"`
	CPI   []float64 `json:"cpi"`
	// Faults are of services, a second; Stalled is the share of the time in which they waited for memory, mean over services.
	Faults  float64 `json:"faults"`
	Stalled float64 `json:"stalled"`
	// Saved is the memory of all tasks that is not there at the end, and Batch that of batch tasks, in bytes.
	Saved float64 `json:"saved_bytes"`
	Batch float64 `json:"batch_bytes"`
	Rests int     `json:"rests"` // decisions
}

// Run plays all mixes. Equal seeds give equal results on any number of CPUs.
func Run(ctx context.Context, o Options) (*Result, error) {
	n, hours := mixes, playedHours
	if o.Quick {
		n, hours = quickMixes, quickHours
	}
	return run(ctx, o, n, hours)
}

// run plays so many mixes for so many hours.
func run(ctx context.Context, o Options, n, hours int) (*Result, error) {
	list, err := parallel.Map(ctx, 0, n*len(arms), func(i int) (Mix, error) {
		m := Mix{Index: i / len(arms)}
		p := draw(o.Seed, &m)
		out, err := p.play(ctx, &arms[i%len(arms)], hours, &m)
		m.Arms = []Outcome{out}
		if err != nil {
			err = fmt.Errorf("mix %d, %s: %w", m.Index, arms[i%len(arms)].name, err)
		}
		return m, err
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Seed: o.Seed, Quick: o.Quick, Hours: hours}
	for i := range list {
		if i%len(arms) == 0 {
			r.Mixes = append(r.Mixes, list[i])
			continue
		}
		m := &r.Mixes[len(r.Mixes)-1]
		m.Arms = append(m.Arms, list[i].Arms...)
	}
	r.sum()
	return r, nil
}

// task is one task of a mix.
type task struct {
	class model.Class
	cfg   machine.TaskConfig
	limit float64 // bytes that it may use
	sweep int64   // it uses all of its memory that often, ns; 0: never
	first int64   // when that is first
}

// plan is a mix as it is drawn.
type plan struct {
	config machine.Config
	tasks  []task
	seed   uint64
	swap   float64 // bytes, where it is not roomy
}

// draw draws a mix.
func draw(seed uint64, m *Mix) *plan {
	rng := rand.New(rand.NewPCG(seed, uint64(m.Index)))
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }
	log := func(lo, hi float64) float64 { return math.Exp(between(math.Log(lo), math.Log(hi))) }
	p := &plan{config: machine.Skylake(), seed: seed*10_000 + uint64(m.Index)}
	c := &p.config
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.StepNsec = 1, 16, 1, 1e9
	used, cpu := 0.0, 0
	add := func(class model.Class, name string, threads int, limit, anon, file float64) *task {
		prof, _ := program.Find(name)
		t := task{class: class, limit: limit, cfg: machine.TaskConfig{Name: fmt.Sprintf("%s-%d", name, len(p.tasks)), Threads: threads, Spread: 0.04, SpreadNsec: 3e9, AgedNsec: 72 * hour}}
		for range threads {
			t.cfg.CPUs.Add(cpu % 16)
			cpu++
		}
		prof.Apply(&t.cfg)
		add := func(of, share, every float64, file bool) {
			t.cfg.Memory = append(t.cfg.Memory, machine.Heat{Bytes: limit * of * share, EveryNsec: int64(every * float64(hour)), File: file})
		}
		const never = 1e5 // hours
		cold, dead, warm := between(0.07, 0.17), between(0.08, 0.18), between(0.06, 0.18)
		add(anon, 1-cold-dead-warm, log(1.0/3600, 1.0/30), false)
		add(anon, warm, log(1, 6), false)
		add(anon, cold, log(24, 120), false)
		add(anon, dead, never, false)
		dead, warm, cold = between(0.05, 0.15), between(0.1, 0.25), between(0.4, 0.6)
		add(file, 1-cold-dead-warm, log(1.0/60, 1.0/6), true)
		add(file, warm, log(1, 4), true)
		add(file, cold, log(2, 12), true)
		add(file, dead, never, true)
		used += limit * (anon + file)
		p.tasks = append(p.tasks, t)
		return &p.tasks[len(p.tasks)-1]
	}
	m.Services = 4 + rng.IntN(5)
	for range m.Services {
		t := add(model.LC, "web-frontend", 2, gib*log(4, 24), between(0.6, 0.88), between(0.05, 0.21))
		t.cfg.Requests = &machine.Requests{Instructions: 20e6, Variation: 1, PerSecond: between(10, 40)}
		if t.sweep = int64(between(4, 12) * float64(hour)); rng.IntN(4) > 0 {
			t.sweep = 0
		} else {
			t.first = int64(between(0, float64(t.sweep)))
			m.Sweeps++
		}
	}
	for range 2 + rng.IntN(3) {
		add(model.BE, "compute", 1, gib*log(2, 16), between(0.3, 0.9), between(0.05, 0.3)).cfg.Work = &machine.Work{}
	}
	p.swap = used * between(0.03, 0.07)
	c.MemBytes = used * 1.2
	return p
}
