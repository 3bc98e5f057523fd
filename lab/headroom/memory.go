package headroom

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/model"
	forecast "github.com/commensal-io/commensal/policy/headroom"
)

// The same of memory: a node's Series are working sets in GiB, and Limit is what a task may have. Written down before the first run on
// reported seeds: with its defaults the policy fails if it is exceeded in more than 1 % of the windows of any horizon.

// memoryArms are the forecasters of memory, the policy first, without and with what sets memory apart.
var memoryArms = []arm{
	{"commensal", func(n *Node) forecaster { return openMemory(n, forecast.Defaults()) }},
	{"commensal, profile alone", func(n *Node) forecaster {
		p := forecast.Defaults()
		p.MaxLevel, p.RecentNsec = 1, 0
		return openMemory(n, p)
	}},
	{"last value", func(n *Node) forecaster { return &lastValue{n: n, last: make([]float64, len(n.Tasks))} }},
	// pkg/koordlet/prediction: of memory p98, half-life 24 h, + 10 %.
	{"Koordinator", func(n *Node) forecaster {
		return &histogram{n: n, margin: 0.1, share: 0.98, sum: true, tasks: decaying(len(n.Tasks)+1, perDay, exponential)}
	}},
	{"Crane dsp, max value", func(n *Node) forecaster { return &daily{n: n} }},
	{"Katalyst N-sigma", func(n *Node) forecaster { return &daily{n: n, sigma: true} }},
}

// oursOfMemory is the policy itself, shown working sets.
type oursOfMemory struct{ *ours }

const gib = 1 << 30

func openMemory(n *Node, p forecast.Params) oursOfMemory {
	o := openOurs(n, p)
	for i := range n.Tasks {
		o.obs.Tasks[i].Limit = model.Known(n.Tasks[i].Limit * gib)
	}
	o.obs.Room.Total = model.Known(n.capacity() * gib)
	return oursOfMemory{o}
}

func (o oursOfMemory) see(step int, has []float64) {
	cpu, free := make([]float64, len(has)), o.obs.Room.Total.V
	for i, v := range has {
		if o.obs.Tasks[i].InUse = model.Known(v * gib); math.IsNaN(v) {
			o.obs.Tasks[i].InUse = model.Missing(model.Unavailable)
			continue
		}
		free -= v * gib
	}
	o.obs.Room.Available = model.Known(max(0, free))
	o.ours.see(step, cpu)
}

func (o oursOfMemory) say(int) (all [numHorizons]float64) {
	for i, h := range o.s.Report().Memory.Horizons {
		all[i] = h.LC / gib
	}
	return all
}

// DrawMemory makes the memory of a node's services by seed: heaps that follow the tide or hold what they once had, that warm up after a
// start, that leak until somebody restarts them, that collectors of garbage saw at, with deploys that change the level, and holes.
func DrawMemory(seed uint64) Node {
	rng := rand.New(rand.NewPCG(seed, 0x6d656d6f7279))
	n := Node{Name: fmt.Sprintf("seed %d", seed)}
	for i := range 4 + rng.IntN(5) {
		s := Series{Name: fmt.Sprintf("task%d", i), CPU: make([]float64, drawnDays*perDay)}
		drawMemory(rng, &s)
		n.Tasks = append(n.Tasks, s)
	}
	return n
}

func drawMemory(rng *rand.Rand, s *Series) {
	base, phase, tide, weekend := 2*math.Exp(0.8*rng.NormFloat64()), rng.Float64(), 0.0, 1.0
	if rng.IntN(2) == 0 { // most heaps hold what they have (Alibaba, figure 4)
		tide, weekend = 0.6*rng.Float64(), 0.6+0.5*rng.Float64()
	}
	leak := 0.0 // shares of the base a day
	if rng.IntN(3) == 0 {
		leak = 0.3 * rng.Float64() * rng.Float64()
	}
	restart := perDay * math.Exp(1.5+rng.NormFloat64()) // in steps, in the mean
	cold, warms := 0.6*rng.Float64(), perHour*math.Exp(1.5*rng.Float64()*2)
	saw, every := 0.2*rng.Float64()*rng.Float64(), 2+rng.IntN(6*perHour)
	noise, lasts, x := 0.002+0.02*rng.Float64(), 0.9+0.09*rng.Float64(), 0.0
	level, age, hole, peak := 1.0, float64(rng.IntN(drawnDays*perDay)), 0, 0.0
	for i := range s.CPU {
		if age++; rng.Float64() < 1/restart {
			age = 0
			if rng.IntN(3) == 0 { // a deploy
				level *= math.Exp(0.15 * rng.NormFloat64())
			}
		}
		week := 1.0
		if i/perDay%7 >= 5 {
			week = weekend
		}
		x = lasts*x + noise*math.Sqrt(1-lasts*lasts)*rng.NormFloat64()
		day := float64(i)/perDay + phase
		v := base * level * (1 - cold*math.Exp(-age/warms)) * (1 + tide*week*(1+math.Sin(2*math.Pi*day))/2) * math.Exp(x)
		v += base*saw*float64(i%every)/float64(every) + base*leak*age/perDay
		if rng.Float64() < 1.0/(10*perDay) {
			hole = 1 + rng.IntN(4*perHour)
		}
		peak = max(peak, v)
		if s.CPU[i] = v; hole > 0 {
			hole--
			s.CPU[i] = math.NaN()
		}
	}
	s.Limit = peak * (1.1 + 0.6*rng.Float64())
}
