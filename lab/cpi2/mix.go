package cpi2

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// cause is what happens on a machine that could make somebody suffer.
type cause uint8

const (
	quiet    cause = iota // nothing but what the tenants do anyway
	single                // a batch task comes that may hurt
	concert               // a group comes, in step: each alone hurts little
	turns                 // a group comes whose members take turns
	surge                 // an LC tenant's load multiplies: nobody who hurts may be held
	ownFault              // a protected task is slower of itself for a while: nobody hurts it
	numCauses
)

var causeNames = [numCauses]string{"quiet", "single", "concert", "turns", "surge", "own fault"}

// String returns the cause's name.
func (c cause) String() string { return causeNames[c] }

// MarshalText writes the cause's name.
func (c cause) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// causeWeights are how often each is drawn, given that something happens. Nobody published
// them; the tables by cause let a reader weigh anew.
var causeWeights = [numCauses]float64{single: 0.65, concert: 0.10, turns: 0.05, surge: 0.08, ownFault: 0.12}

// action is something that happens to a machine at a time: exactly one of the three.
type action struct {
	atNsec int64
	start  *start
	stop   string  // path of the task that ends
	rate   string  // path of the task whose requests change ...
	times  float64 // ... to so many times what it began with
}

// mix is a machine drawn: its tenants and what will happen. It is not written after it was
// drawn, so that forks share it.
type mix struct {
	seed    uint64
	config  machine.Config
	counted bool     // each task by resctrl
	plan    []action // in order of time
	cause   cause
	actors  []string // paths of the tasks that the cause is about
	atNsec  int64    // when it happens
	tenants int
}

// serverConfig is the machine that all mixes run on: the cores and the cache of one socket
// of machine.Skylake, with the memory of CPI²'s time. Two sockets of 2010 with 24
// threads in all streamed some 40 GB/s, 1.65 a thread, and here are 32 threads; a socket
// of 2017 has twice that a thread, and its tenants hurt each other less than CPI²'s.
// Steps are ten times as long as the physics' own: nothing here is judged on less than
// 10 s, and TestStepLength holds the difference.
func serverConfig() machine.Config {
	c := machine.Skylake()
	c.Sockets, c.StepNsec = 1, 100e6
	c.MemPeakBytes = 53e9
	return c
}

const minuteNsec = int64(60e9)

// fewest and most tenants: CPI²'s own cases have 28 to 57, figure 1 goes from a few to
// a hundred.
const fewestTenants, mostTenants = 10, 60

// drawMix draws a machine that is played for so many minutes. What happens, happens in
// minute from at the earliest and before minute to.
func (c *catalogue) drawMix(rng *rand.Rand, what cause, from, to, minutes int) *mix {
	return c.drawMixOn(rng, c.config, what, from, to, minutes)
}

// drawMixOn is drawMix on another platform: requests are drawn for its clock.
func (c *catalogue) drawMixOn(rng *rand.Rand, config machine.Config, what cause, from, to, minutes int) *mix {
	m := &mix{seed: rng.Uint64(), config: config, counted: c.counted, cause: what}
	m.tenants = int(clamp(26*logNormal(rng, 0.4), fewestTenants, mostTenants))
	var services []start
	for i := range m.tenants {
		j := &c.jobs[c.pick(rng)]
		s := j.draw(rng, fmt.Sprintf("/%s/%d", j.name, i), &m.config)
		m.plan = append(m.plan, action{start: &s})
		if s.cfg.Requests != nil {
			services = append(services, s)
			m.drawLoad(rng, s.task.Path, minutes)
		}
	}
	m.atNsec = int64(from)*minuteNsec + int64(rng.Float64()*float64(to-from)*float64(minuteNsec))
	c.happen(rng, m, services)
	m.sortPlan()
	return m
}

func (m *mix) sortPlan() {
	slices.SortStableFunc(m.plan, func(a, b action) int { return cmp.Compare(a.atNsec, b.atNsec) })
}

// pick draws a tenant's job: 40 % production, 25 % non-production, 35 % batch.
func (c *catalogue) pick(rng *rand.Rand) int {
	u := rng.Float64()
	switch {
	case u < 0.40:
		return rng.IntN(jobsProduction)
	case u < 0.65:
		return jobsProduction + rng.IntN(jobsNonProduction)
	}
	return jobsProduction + jobsNonProduction + rng.IntN(jobsTenant)
}

// drawLoad lets a service's load wander: every 4 to 12 minutes it is another 70 to 140 %.
func (m *mix) drawLoad(rng *rand.Rand, path string, minutes int) {
	for at := 0.0; ; {
		at += 4 + 8*rng.Float64()
		if at >= float64(minutes) {
			return
		}
		m.plan = append(m.plan, action{atNsec: int64(at * float64(minuteNsec)), rate: path, times: clamp(logNormal(rng, 0.15), 0.7, 1.4)})
	}
}

// happen plans what the mix is about.
func (c *catalogue) happen(rng *rand.Rand, m *mix, services []start) {
	switch m.cause {
	case single:
		m.arrive(rng, c.drawAggressor(rng, "/visitor/0", drawStrength(rng), drawPhases(rng)))
	case concert, turns:
		c.group(rng, m)
	case surge:
		if len(services) > 0 {
			m.surge(rng, &services[rng.IntN(len(services))])
		}
	case ownFault:
		if len(services) > 0 {
			m.restart(rng, &services[rng.IntN(len(services))])
		}
	}
}

// drawStrength draws the CPUs that an aggressor could use: from 2 to 24, log-uniform, so
// that most hurt few. Batch work is let in speculatively (section 2).
func drawStrength(rng *rand.Rand) float64 { return 2 * math.Exp(rng.Float64()*math.Log(12)) }

func (c *catalogue) drawAggressor(rng *rand.Rand, path string, cpus float64, phases []machine.Phase) start {
	s := start{task: model.Task{Path: path, Job: "visitor", Class: model.BE}, cfg: c.aggressors[rng.IntN(len(c.aggressors))]}
	if rng.IntN(2) == 0 {
		s.task.Importance = model.BestEffort
	}
	s.cfg.Name, s.cfg.Threads = path, max(1, int(math.Ceil(cpus)))
	s.cfg.CPI = clamp(s.cfg.CPI*logNormal(rng, 0.15), 0.2, 6)
	s.cfg.Spread, s.cfg.SpreadNsec = 0.05, withinNsec
	s.cfg.Work = &machine.Work{Phases: sized(phases, cpus)}
	return s
}

// drawPhases draws an aggressor's rhythm: half of them work on, the others pause.
func drawPhases(rng *rand.Rand) []machine.Phase {
	if rng.IntN(2) == 0 {
		return nil
	}
	nsec := func() int64 { return int64(40e9 * math.Exp(rng.Float64()*math.Log(6))) } // 40 s to 4 min
	return []machine.Phase{{Nsec: nsec(), Jitter: 0.3, CPUs: 1}, {Nsec: nsec(), Jitter: 0.3, CPUs: 0.15 * rng.Float64()}}
}

// arrive plans a visit of 12 minutes to an hour.
func (m *mix) arrive(rng *rand.Rand, s start) {
	stay := int64(12 * math.Exp(rng.Float64()*math.Log(5)) * float64(minuteNsec))
	m.plan = append(m.plan, action{atNsec: m.atNsec, start: &s}, action{atNsec: m.atNsec + stay, stop: s.task.Path})
	m.actors = append(m.actors, s.task.Path)
}

// groupLag is how far apart the members of a group begin, at most: nobody is started on the same instant.
const groupLag = 10e9

// group plans a job of three to six tasks. In concert they divide one aggressor's strength
// and rhythm; in turns each has all of it while the others pause.
func (c *catalogue) group(rng *rand.Rand, m *mix) {
	n := 3 + rng.IntN(4)
	strength := drawStrength(rng)
	prog := c.aggressors[rng.IntN(len(c.aggressors))]
	var beat []machine.Phase
	if m.cause == concert {
		beat = together(rng, drawPhases(rng))
	} else {
		beat = drawBeat(rng, n)
	}
	began := m.atNsec
	for k := range n {
		cpus, phases := strength/float64(n), beat
		if m.cause == turns {
			cpus, phases = strength, turnOf(beat, k, n)
		}
		s := c.drawAggressor(rng, fmt.Sprintf("/visitor/%d", k), cpus, phases)
		spread, nsec := s.cfg.Spread, s.cfg.SpreadNsec
		name, threads, work := s.cfg.Name, s.cfg.Threads, s.cfg.Work
		s.cfg = prog
		s.cfg.Spread, s.cfg.SpreadNsec = spread, nsec
		s.cfg.Name, s.cfg.Threads, s.cfg.Work = name, threads, work
		m.atNsec = began + int64(groupLag*rng.Float64())
		m.arrive(rng, s)
	}
	m.atNsec = began
}

// rounds is how often a group's rhythm is drawn before it begins anew: its members share the lengths, which a jitter that
// each draws for itself would let drift apart.
const rounds = 8

// drawBeat draws whose turn is how long: 25 s to 150 s, log-uniform, for a group, each time up to 30 % longer or shorter. So turns are
// seldom as long as the minute between two samples.
func drawBeat(rng *rand.Rand, n int) []machine.Phase {
	turn := 25e9 * math.Exp(rng.Float64()*math.Log(6))
	return jittered(rng, []machine.Phase{{Nsec: int64(turn), Jitter: 0.3}}, n*rounds)
}

// together draws the lengths of a rhythm once for all who keep it.
func together(rng *rand.Rand, rhythm []machine.Phase) []machine.Phase {
	return jittered(rng, rhythm, len(rhythm)*rounds)
}

// jittered repeats phases until there are so many, with lengths that are drawn now.
func jittered(rng *rand.Rand, phases []machine.Phase, count int) []machine.Phase {
	out := make([]machine.Phase, 0, count)
	for i := range count {
		p := phases[i%len(phases)]
		p.Nsec, p.Jitter = int64(float64(p.Nsec)*(1+p.Jitter*(2*rng.Float64()-1))), 0
		out = append(out, p)
	}
	return out
}

// turnOf is the beat as member k of n keeps it.
func turnOf(beat []machine.Phase, k, n int) []machine.Phase {
	out := slices.Clone(beat)
	for i := range out {
		out[i].CPUs = 0.02
		if i%n == k {
			out[i].CPUs = 1
		}
	}
	return out
}

// surge plans an LC tenant's load at 3 to 10 times for 10 to 25 minutes. It has the
// threads for it: CPI² provisions for peaks.
func (m *mix) surge(rng *rand.Rand, s *start) {
	m.plan = slices.DeleteFunc(m.plan, func(a action) bool { return a.rate == s.task.Path && a.atNsec >= m.atNsec })
	for i := range m.plan {
		if p := m.plan[i].start; p != nil && p.task.Path == s.task.Path {
			wide := *p
			wide.cfg.Threads = 24
			m.plan[i].start = &wide
		}
	}
	end := m.atNsec + int64((10+15*rng.Float64())*float64(minuteNsec))
	m.plan = append(m.plan,
		action{atNsec: m.atNsec, rate: s.task.Path, times: 3 + 7*rng.Float64()}, action{atNsec: end, rate: s.task.Path, times: 1})
	m.actors = append(m.actors, s.task.Path)
}

// restart plans that a protected task comes back with other data or another version: its
// instructions take 1.3 to 3 times as long of themselves. After 10 to 40 minutes it is put right again.
func (m *mix) restart(rng *rand.Rand, s *start) {
	slow, again := *s, *s
	slow.task.Path, again.task.Path = s.task.Path+"-new", s.task.Path+"-again"
	slow.cfg.Name, again.cfg.Name = slow.task.Path, again.task.Path
	slow.cfg.CPI = clamp(slow.cfg.CPI*(1.3+1.7*rng.Float64()), 0.2, 50)
	end := m.atNsec + int64(10*math.Exp(rng.Float64()*math.Log(4))*float64(minuteNsec))
	m.plan = slices.DeleteFunc(m.plan, func(a action) bool { return a.rate == s.task.Path && a.atNsec >= m.atNsec })
	m.plan = append(m.plan, action{atNsec: m.atNsec, stop: s.task.Path}, action{atNsec: m.atNsec, start: &slow},
		action{atNsec: end, stop: slow.task.Path}, action{atNsec: end, start: &again})
	m.actors = append(m.actors, slow.task.Path)
}
