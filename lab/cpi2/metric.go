package cpi2

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/lab/parallel"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Pair is a scatter of two figures and its correlation.
type Pair struct {
	Name string    `json:"name"`
	Seed string    `json:"seed"` // what CPI² has
	R    float64   `json:"r"`
	X    []float64 `json:"x"`
	Y    []float64 `json:"y"`
}

func newPair(name, seed string, x, y []float64) Pair {
	return Pair{Name: name, Seed: seed, R: zeroNaN(stat.Correlation(x, y)), X: x, Y: y}
}

// throughput is figure 2: a batch job's transactions and instructions per second, each
// point the mean over its tasks in ten minutes. The transactions are requests of which
// there are always more than it can serve; their lengths differ, so that the two rates
// need not agree.
func throughput(ctx context.Context, workers int, c *catalogue, seed uint64, machines, minutes int) (Pair, error) {
	const step = 10
	type rates struct{ tps, ips []float64 }
	parts, err := parallel.Map(ctx, workers, machines, func(i int) (rates, error) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)|1<<40))
		m := c.drawMix(rng, quiet, 0, 1, minutes)
		s, err := newServer(m)
		if err != nil {
			return rates{}, err
		}
		num, err := s.startTransactions(c)
		if err != nil {
			return rates{}, err
		}
		var out rates
		var was machine.Counters
		for k := range minutes/step + 1 {
			if k > 0 {
				s.neighbour(c, rng, k)
			}
			for range step {
				if err := s.minute(nil); err != nil {
					return rates{}, err
				}
			}
			now, err := s.counters(num)
			if err != nil {
				return rates{}, err
			}
			if k > 0 {
				seconds := float64(step) * 60
				hz := m.config.Hz
				cpi := float64(now.RefCycles-was.RefCycles) / float64(now.Instructions-was.Instructions)
				busy := float64(now.UsageNsec-was.UsageNsec) / 1e9 / seconds
				out.tps = append(out.tps, float64(now.Requests-was.Requests)/seconds)
				out.ips = append(out.ips, hz/cpi*busy) // "the cycle speed divided by the CPI"
			}
			was = now
		}
		return out, nil
	})
	if err != nil {
		return Pair{}, err
	}
	tps, ips := make([]float64, minutes/step), make([]float64, minutes/step)
	for _, part := range parts {
		for k := range tps {
			tps[k] += part.tps[k] / float64(machines)
			ips[k] += part.ips[k] / float64(machines)
		}
	}
	return newPair("2: TPS and IPS of a batch job, means of 10 min", "0.97", normalised(ips), normalised(tps)), nil
}

// startTransactions starts a task of the batch job of figure 2.
func (s *server) startTransactions(c *catalogue) (model.TaskNum, error) {
	cfg := c.jobs[0].base
	cfg.Name, cfg.Threads = "transactions", 2
	cfg.Requests = requestsFor(&cfg, &s.mix.config, 3)
	cfg.Requests.Variation = 1
	return s.host.Start(model.Task{Path: "/transactions/0", Job: "transactions", Class: model.LC}, cfg)
}

// neighbour lets an aggressor come or go, so that there is something to see: in CPI²
// the rates vary by a tenth or two.
func (s *server) neighbour(c *catalogue, rng *rand.Rand, k int) {
	path := fmt.Sprintf("/visitor/%d", k)
	// The job's input comes in waves: in the second and the fourth part of the time half
	// of all machines have a neighbour.
	if k/3%2 == 0 || rng.IntN(2) == 0 {
		return
	}
	a := c.drawAggressor(rng, path, drawStrength(rng), nil)
	n, err := s.host.Start(a.task, a.cfg)
	if err != nil {
		return
	}
	next := *s.mix
	next.plan = append(append([]action(nil), s.mix.plan[:s.next]...), action{atNsec: s.host.Machine().NowNsec() + 10*minuteNsec, stop: path})
	next.plan = append(next.plan, s.mix.plan[s.next:]...)
	next.sortPlan()
	s.nums[path] = n
	s.mix = &next
}

func (s *server) counters(n model.TaskNum) (machine.Counters, error) {
	phys, err := s.host.Physical(n)
	if err != nil {
		return machine.Counters{}, err
	}
	return s.host.Machine().Counters(phys)
}

// normalised divides by the least value, as CPI²'s figures do.
func normalised(v []float64) []float64 {
	least := math.Inf(1)
	for _, x := range v {
		least = math.Min(least, x)
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = x / least
	}
	return out
}

// Diurnal is figures 3 and 5: leaves of a search job whose load follows the day, among
// tenants whose load does too.
type Diurnal struct {
	Latency Pair      `json:"latency"` // figure 3, of the first day
	Days    float64   `json:"days"`
	CPI     []float64 `json:"cpi"` // mean over the leaves, each half hour
	CoV     float64   `json:"cov"` // figure 5
	Minimum float64   `json:"min"`
	Maximum float64   `json:"max"`
}

// diurnalSwing is how far a service's load goes up and down over the day: between 0.7 and
// 1.3 times its mean. CPI² does not say; nor does it for the batch work, which is kept.
const diurnalSwing = 0.3

// diurnalLoad is the load at a time of the day.
func diurnalLoad(nsec int64) float64 {
	return 1 + diurnalSwing*math.Sin(2*math.Pi*float64(nsec)/86400e9)
}

const halfHour = 30 // minutes

func diurnal(ctx context.Context, workers int, c *catalogue, seed uint64, machines, hours int) (Diurnal, error) {
	points := hours * 60 / halfHour
	type series struct{ cpi, latency []float64 }
	parts, err := parallel.Map(ctx, workers, machines, func(i int) (series, error) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)|1<<41))
		return c.playDays(rng, points)
	})
	if err != nil {
		return Diurnal{}, err
	}
	cpi, latency := make([]float64, points), make([]float64, points)
	for _, part := range parts {
		for k := range cpi {
			cpi[k] += part.cpi[k] / float64(machines)
			latency[k] += part.latency[k] / float64(machines)
		}
	}
	first := min(points, 24*60/halfHour)
	d := Diurnal{Days: float64(hours) / 24, CPI: cpi}
	d.Latency = newPair("3: latency and CPI of a leaf, 24 h", "0.97", normalised(cpi[:first]), normalised(latency[:first]))
	m, sd := stat.MeanStdDev(cpi)
	d.CoV, d.Minimum, d.Maximum = sd/m, stat.Quantile(0, cpi), stat.Quantile(1, cpi)
	return d, nil
}

// playDays plays a machine with a leaf and returns the leaf's mean CPI and latency by half
// hour.
func (c *catalogue) playDays(rng *rand.Rand, points int) (out struct{ cpi, latency []float64 }, err error) {
	m := c.drawMix(rng, quiet, 0, 1, 1)
	m.plan = m.plan[:m.tenants] // all loads follow the day instead of wandering
	s, err := newServer(m)
	if err != nil {
		return out, err
	}
	num, err := s.startLeaf(c, rng)
	if err != nil {
		return out, err
	}
	var was machine.Counters
	for range points {
		for k := range halfHour {
			if k%5 == 0 {
				if err := s.setLoads(); err != nil {
					return out, err
				}
			}
			if err := s.minute(nil); err != nil {
				return out, err
			}
		}
		now, err := s.counters(num)
		if err != nil {
			return out, err
		}
		lat, err := s.latency(num)
		if err != nil {
			return out, err
		}
		out.cpi = append(out.cpi, float64(now.RefCycles-was.RefCycles)/float64(now.Instructions-was.Instructions))
		out.latency = append(out.latency, lat)
		was = now
	}
	return out, nil
}

// startLeaf puts a task of the search job on a machine, at the end of its plan.
func (s *server) startLeaf(c *catalogue, rng *rand.Rand) (model.TaskNum, error) {
	leaf := c.jobs[0].draw(rng, "/leaf/0", &s.mix.config)
	m := *s.mix
	m.plan = append(append([]action(nil), s.mix.plan...), action{start: &leaf})
	s.mix = &m
	if err := s.play(1, nil, nil); err != nil { // everybody starts
		return 0, err
	}
	return s.nums["/leaf/0"], nil
}

// setLoads sets every service's load to that of the time of the day.
func (s *server) setLoads() error {
	times := diurnalLoad(s.host.Machine().NowNsec())
	for i := range s.mix.plan {
		p := s.mix.plan[i].start
		if p == nil || p.cfg.Requests == nil {
			continue
		}
		if err := s.act(&action{rate: p.task.Path, times: times}); err != nil {
			return err
		}
	}
	return nil
}

// latency returns the mean latency in nanoseconds since the last call.
func (s *server) latency(n model.TaskNum) (float64, error) {
	phys, err := s.host.Physical(n)
	if err != nil {
		return 0, err
	}
	h, _, err := s.host.Machine().Latencies(phys)
	if err != nil {
		return 0, err
	}
	return h.Mean(), nil
}

// platforms are the two of figure 4.
func platforms() (names []string, configs []machine.Config) {
	slow := serverConfig()
	slow.Hz, slow.LLCBytes, slow.MemLatencyNsec = 2.0e9, 27.5*(1<<20), 75
	return []string{"2.6 GHz", "2.0 GHz"}, []machine.Config{serverConfig(), slow}
}

// lcShares is the weight of services in figure 4: above that of batch work, as any fleet has them, so that
// CPI and not the run queue is what differs.
const lcShares = 8 * 1024

// saturated is the utilisation from which on open-loop requests queue without end, whatever the CPI.
const saturated = 0.95

// tier is what figure 4 has of one machine in five minutes.
type tier struct {
	cpi, latency [3]float64 // leaf, intermediate, root
	saturated    bool
}

// tiers is figure 4: single tasks of three search jobs, in samples of five minutes, on two
// platforms. A root's latency is its own work and the wait for the slowest of its leaves,
// which run on other machines. It returns how many samples of saturated machines were left out.
func tiers(ctx context.Context, workers int, c *catalogue, seed uint64, machines, minutes int) ([]Pair, int, error) {
	names, configs := platforms()
	if c.config.Physics != (machine.Physics{}) {
		for i := range configs {
			configs[i] = machine.Published(configs[i])
		}
	}
	parts, err := parallel.Map(ctx, workers, machines, func(i int) ([]tier, error) {
		rng := rand.New(rand.NewPCG(seed, uint64(i)|1<<42))
		return c.playTiers(rng, configs[i%len(configs)], minutes)
	})
	if err != nil {
		return nil, 0, err
	}
	pairs, out := scatter(parts, names)
	return pairs, out, nil
}

// scatter makes the pairs of figure 4 of the machines' samples, whose platforms take turns.
func scatter(parts [][]tier, platforms []string) (pairs []Pair, out int) {
	figures := []string{"4a: leaf, single tasks, 5 min", "4b: intermediate", "4c: root, which waits for its leaves"}
	seeds := []string{"0.68-0.75", "0.68-0.75", "poor"}
	for k := range figures {
		for p := range platforms {
			var x, y []float64
			for i := p; i < len(parts); i += len(platforms) {
				for n, one := range parts[i] {
					if one.saturated {
						if k == 0 {
							out++
						}
						continue
					}
					lat := one.latency[k]
					if k == 2 {
						lat += slowestLeaf(parts, i, n)
					}
					x, y = append(x, one.cpi[k]), append(y, lat)
				}
			}
			pairs = append(pairs, newPair(figures[k]+", "+platforms[p], seeds[k], normalised(x), normalised(y)))
		}
	}
	return pairs, out
}

// slowestLeaf is the latency of the slowest leaf of all other machines at a time.
func slowestLeaf(parts [][]tier, but, n int) float64 {
	slowest := 0.0
	for i := range parts {
		if i != but && !parts[i][n].saturated {
			slowest = math.Max(slowest, parts[i][n].latency[0])
		}
	}
	return slowest
}

// startTiers draws a machine with a task of each tier.
func (c *catalogue) startTiers(rng *rand.Rand, config machine.Config, minutes int) (s *server, nums [3]model.TaskNum, err error) {
	m := c.drawMixOn(rng, config, c.natural(rng, 600), 5, minutes, minutes)
	for i := range m.plan {
		if p := m.plan[i].start; p != nil && p.task.Class == model.LC {
			p.cfg.Shares = lcShares
		}
	}
	if s, err = newServer(m); err != nil {
		return nil, nums, err
	}
	for k, j := range []int{0, 4, 1} { // search leaf, front end as intermediate, a light job as root
		t := c.jobs[j].draw(rng, fmt.Sprintf("/tier/%d", k), &m.config)
		t.cfg.Shares = lcShares
		if nums[k], err = s.host.Start(t.task, t.cfg); err != nil {
			return nil, nums, err
		}
	}
	return s, nums, nil
}

// playTiers plays a machine with a task of each tier.
func (c *catalogue) playTiers(rng *rand.Rand, config machine.Config, minutes int) ([]tier, error) {
	s, nums, err := c.startTiers(rng, config, minutes)
	if err != nil {
		return nil, err
	}
	var out []tier
	var was [3]machine.Counters
	busy := 0.0
	for n := range minutes / 5 {
		for range 5 {
			if err := s.minute(nil); err != nil {
				return nil, err
			}
		}
		now := float64(s.host.Machine().BusyNsec())
		one := tier{saturated: now-busy > saturated*300e9*float64(config.CPUs())}
		busy = now
		for k, num := range nums {
			now, err := s.counters(num)
			if err != nil {
				return nil, err
			}
			one.cpi[k] = float64(now.RefCycles-was[k].RefCycles) / float64(now.Instructions-was[k].Instructions)
			was[k] = now
			if one.latency[k], err = s.latency(num); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			out = append(out, one)
		}
	}
	return out, nil
}
