package cpi2

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// role is what a job is in the evaluation.
type role uint8

const (
	production    role = iota // LC, many like tasks: CPI²'s production band
	nonProduction             // LC too, but less uniform: CPI²'s other band
	tenant                    // batch that minds its own business
	aggressor                 // batch that may hurt, by how much is drawn
)

// job is a set of like tasks. A catalogue of jobs is drawn once for a lab seed; machines
// then draw tasks of them.
type job struct {
	name    string
	role    role
	base    machine.TaskConfig // of the program, without threads and demand
	cpu     float64            // CPU-sec/sec of a mean task when nobody disturbs it
	between float64            // relative spread of CPI from task to task
	rhythm  []machine.Phase    // of a batch task; CPUs as a share of its size
}

// The catalogue's sizes and spreads. docs/EVALUATION.md says where each comes from.
const (
	jobsProduction, jobsNonProduction, jobsTenant = 10, 8, 10

	betweenNonProduction, withinNonProduction = 0.18, 0.15
	withinNsec                                = int64(30e9)
	withinNonProductionNsec                   = int64(180e9) // an experiment goes on for minutes
)

// kind is what specs spread by: the CPI of a production job's tasks differs from task to task, and that of one task from
// half minute to half minute; but most of all by who works on the sibling thread.
type kind struct {
	between, within float64
	alone           bool // every thread has a core to itself: as many cores as the machine else has threads
	published       bool // machines and services have what public measurements say beyond the twin's usual physics
	counted         bool // resctrl counts each task, and engines remember what it has
	demand          bool // LLC misses leave out what prefetchers fetch
	fleet           int  // machines that the specs of a catalogue come from; 0: catalogueFleet
}

// CPI²'s standard deviations are 9 % of the mean in figure 7 and 10, 19 and 10 % in table 1. What comes of the kinds is
// printed.
var (
	usual  = kind{between: 0.06, within: 0.05}
	narrow = kind{between: 0.08, within: 0.06, alone: true}
)

// programs are what the roles run, by their names in twin/program.
var programs = map[role][]string{
	production: {
		"web-search-leaf", "cpi2-job-a", "cpi2-job-b", "cpi2-job-c", "web-frontend", "ad-server",
		"memcached-small", "memcached-big", "redis-big", "specjbb-big",
	},
	nonProduction: {"web-search-leaf", "cpi2-job-b", "cpi2-job-c", "ad-server", "specjbb-big", "gcc", "omnetpp", "xalancbmk"},
	tenant:        {"compute", "compilation", "log-processing", "blackscholes", "video-processing", "mapreduce-worker", "index-building"},
	aggressor: {
		"video-processing", "scientific-simulation", "mapreduce-worker", "replayer", "batch-analytics",
		"stream", "lbm", "npb-mg", "npb-sp",
	},
}

// catalogue is the jobs of a fleet.
type catalogue struct {
	jobs       []job
	aggressors []machine.TaskConfig
	config     machine.Config // of the machines
	counted    bool           // each task by resctrl
}

// drawCatalogue draws the jobs of a fleet. A seed's jobs run the same code whatever their spread.
func drawCatalogue(seed uint64, of kind) (*catalogue, error) {
	rng := rand.New(rand.NewPCG(seed, 0x63617461))
	c := &catalogue{config: serverConfig(), counted: of.counted}
	if of.alone {
		c.config.CoresPerSocket, c.config.ThreadsPerCore = c.config.CoresPerSocket*c.config.ThreadsPerCore, 1
	}
	if of.published {
		c.config = machine.Published(c.config)
	}
	c.config.Physics.DemandMisses = of.demand
	for _, k := range []struct {
		role role
		name string
		n    int
	}{{production, "prod", jobsProduction}, {nonProduction, "test", jobsNonProduction}, {tenant, "batch", jobsTenant}} {
		for i := range k.n {
			names := programs[k.role]
			j, err := drawJob(rng, fmt.Sprintf("%s-%02d", k.name, i), k.role, names[i%len(names)], of)
			if err != nil {
				return nil, err
			}
			c.jobs = append(c.jobs, j)
		}
	}
	for _, name := range programs[aggressor] {
		base, err := baseOf(name, of)
		if err != nil {
			return nil, err
		}
		c.aggressors = append(c.aggressors, base)
	}
	return c, nil
}

func baseOf(name string, of kind) (machine.TaskConfig, error) {
	p, ok := program.Find(name)
	if !ok {
		return machine.TaskConfig{}, fmt.Errorf("cpi2: no program %q in twin/program", name)
	}
	if of.published {
		p = p.Exposed()
	}
	var c machine.TaskConfig
	p.Apply(&c)
	return c, nil
}

// logNormal draws a factor with median 1.
func logNormal(rng *rand.Rand, spread float64) float64 { return math.Exp(spread * rng.NormFloat64()) }

// drawJob draws a job around a program: no two jobs run quite the same code on the same
// data.
func drawJob(rng *rand.Rand, name string, r role, prog string, k kind) (job, error) {
	base, err := baseOf(prog, k)
	if err != nil {
		return job{}, err
	}
	j := job{name: name, role: r, base: base, cpu: clamp(0.38*logNormal(rng, 0.4), 0.25, 1.2)}
	b := &j.base
	b.CPI = clamp(b.CPI*logNormal(rng, 0.1), 0.3, 4)
	hungry := logNormal(rng, 0.2) // how much memory it touches per instruction
	b.APKI = clamp(b.APKI*hungry, 0.1, 200)
	b.Curve.MPKI = slices.Clone(b.Curve.MPKI)
	for i := range b.Curve.MPKI {
		b.Curve.MPKI[i] = math.Min(b.Curve.MPKI[i]*hungry, b.APKI)
	}
	switch r {
	case production:
		j.between, b.Spread, b.SpreadNsec = k.between, k.within, withinNsec
	case nonProduction:
		j.between, b.Spread, b.SpreadNsec = betweenNonProduction, withinNonProduction, withinNonProductionNsec
	default:
		j.between, b.Spread, b.SpreadNsec = 0.05, 0.05, withinNsec
		j.rhythm = drawRhythm(rng)
	}
	return j, nil
}

// drawRhythm draws how a batch job's CPU use comes and goes, as shares of its size: a
// third is steady, the others alternate between busy and quiet, each for 20 seconds to
// 5 minutes.
func drawRhythm(rng *rand.Rand) []machine.Phase {
	if rng.IntN(3) == 0 {
		return nil
	}
	nsec := func() int64 { return int64(20e9 * math.Exp(rng.Float64()*math.Log(15))) }
	return []machine.Phase{{Nsec: nsec(), Jitter: 0.4, CPUs: 1}, {Nsec: nsec(), Jitter: 0.4, CPUs: 0.4 * rng.Float64()}}
}

func clamp(v, low, high float64) float64 { return math.Min(high, math.Max(low, v)) }

// start is a task that starts.
type start struct {
	task model.Task
	cfg  machine.TaskConfig
}

// draw draws a task of a job.
func (j *job) draw(rng *rand.Rand, path string, m *machine.Config) start {
	s := start{task: model.Task{Path: path, Job: j.name}, cfg: j.base}
	s.cfg.Name = path
	s.cfg.CPI = clamp(s.cfg.CPI*logNormal(rng, j.between), 0.2, 6)
	cpu := clamp(j.cpu*logNormal(rng, 0.2), 0.1, 4)
	switch j.role {
	case production, nonProduction:
		s.task.Class, s.task.Production = model.LC, j.role == production
		s.cfg.Threads = 8
		s.cfg.Requests = requestsFor(&j.base, m, cpu)
	default:
		s.task.Class = model.BE
		if rng.IntN(2) == 0 {
			s.task.Importance = model.BestEffort
		}
		s.cfg.Threads = max(1, int(math.Ceil(cpu)))
		s.cfg.Work = &machine.Work{Phases: sized(j.rhythm, cpu)}
	}
	return s
}

// requestInstructions is one request's: 15 to 40 ms, like a leaf's. Services with smaller
// requests have more of them; in windows of 10 s that makes no difference.
const requestInstructions = 3e7

// requestsFor returns the requests that keep so many CPUs busy on a quiet machine.
func requestsFor(c *machine.TaskConfig, m *machine.Config, cpu float64) *machine.Requests {
	idle := m.MemLatencyNsec * m.Hz / 1e9
	misses := c.Curve.At(1<<20, c.APKI) // with a megabyte of cache, which is a tenant's share
	felt := (1 - c.Prefetched) / c.Overlap / 1000
	quiet := c.CPI + felt*((c.APKI-misses)*m.LLCHitCycles+misses*idle)
	return &machine.Requests{PerSecond: cpu * m.Hz / quiet / requestInstructions, Instructions: requestInstructions, Variation: 0.5}
}

// sized returns a rhythm for a task of so many CPUs; without one, a phase for ever.
func sized(rhythm []machine.Phase, cpu float64) []machine.Phase {
	if len(rhythm) == 0 {
		return []machine.Phase{{Nsec: 3600e9, CPUs: cpu}}
	}
	out := slices.Clone(rhythm)
	for i := range out {
		out[i].CPUs *= cpu
	}
	return out
}
