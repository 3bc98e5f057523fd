package headroom

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// drawnDays is how long a drawn node is watched: half to learn, half to judge.
const drawnDays = 28

// Draw makes a node's load by seed. Its form is none that a forecaster here assumes: tides are of two harmonics with a steep
// morning, their phase drifts, weekends are lower or higher, and there are trends, deploys that change the level for good,
// noise that lasts, bursts of random size, jobs with periods that fit no day, days of a campaign, restarts, and holes.
func Draw(seed uint64) Node {
	rng := rand.New(rand.NewPCG(seed, 0x6865616472))
	n := Node{Name: fmt.Sprintf("seed %d", seed)}
	shared := make([]float64, drawnDays*perDay) // customers who come to all of a node's services
	for i, x := 0, 0.0; i < len(shared); i++ {
		x = 0.995*x + 0.01*rng.NormFloat64()
		shared[i] = x
	}
	campaign := rng.IntN(drawnDays)
	for i := range 4 + rng.IntN(5) {
		s := Series{Name: fmt.Sprintf("task%d", i), CPU: make([]float64, len(shared))}
		draw(rng, &s, shared, campaign)
		n.Tasks = append(n.Tasks, s)
	}
	return n
}

// shape is how a drawn service behaves.
type shape struct {
	base, tide, second, phase, second2, steep, drift float64
	weekend, trend, noise, lasts                     float64
	burstEvery, burstSize, burstLasts                float64
	cronEvery, cronLasts                             int
	cronSize                                         float64
}

func drawShape(rng *rand.Rand) shape {
	s := shape{
		base: math.Exp(0.7 * rng.NormFloat64()), tide: rng.Float64() * 1.2, second: 0.4 * rng.Float64(), phase: rng.Float64(), second2: rng.Float64(),
		steep: 3 * rng.Float64(), drift: 0.04 * rng.NormFloat64(), weekend: 0.4 + 0.8*rng.Float64(), trend: 0.08 * rng.NormFloat64(),
		noise: 0.03 + 0.15*rng.Float64(), lasts: 0.5 + 0.45*rng.Float64(), burstEvery: perDay * math.Exp(rng.NormFloat64()), burstSize: 0.2 + 0.6*rng.Float64(),
		burstLasts: 1 + 5*rng.Float64(),
	}
	if rng.IntN(3) == 0 {
		s.cronEvery, s.cronLasts, s.cronSize = 7+rng.IntN(400), 1+rng.IntN(6), 0.2+rng.Float64()
	}
	return s
}

func draw(rng *rand.Rand, s *Series, shared []float64, campaign int) {
	sh := drawShape(rng)
	level, noise, burst, down, hole, peak := 1.0, 0.0, 0.0, 0, 0, 0.0
	for i := range s.CPU {
		day := float64(i) / perDay
		at := day + sh.phase + sh.drift*day/7
		tide := math.Exp(sh.tide * (math.Sin(2*math.Pi*at) + sh.second*math.Sin(4*math.Pi*(at+sh.second2)) + 0.3*math.Tanh(sh.steep*math.Sin(2*math.Pi*at))))
		week := 1.0
		if i/perDay%7 >= 5 {
			week = sh.weekend
		}
		if i/perDay == campaign {
			week *= 1.5
		}
		if rng.Float64() < 1.0/(8*perDay) { // a deploy
			level *= math.Exp(0.2 * rng.NormFloat64())
			down = rng.IntN(3)
		}
		noise = sh.lasts*noise + sh.noise*math.Sqrt(1-sh.lasts*sh.lasts)*rng.NormFloat64()
		burst *= 1 - 1/sh.burstLasts
		if rng.Float64() < 1/sh.burstEvery {
			burst += sh.burstSize * (math.Pow(1-rng.Float64(), -1/2.5) - 0.5)
		}
		cpu := sh.base * level * week * tide * math.Exp(noise+shared[i]+sh.trend*day/7) * (1 + min(burst, 4))
		if sh.cronEvery > 0 && i%sh.cronEvery < sh.cronLasts {
			cpu += sh.base * sh.cronSize
		}
		if down > 0 {
			down--
			cpu *= 0.02
		}
		if rng.Float64() < 1.0/(10*perDay) { // nobody reads it for a while
			hole = 1 + rng.IntN(4*perHour)
		}
		peak = max(peak, cpu)
		if s.CPU[i] = cpu; hole > 0 {
			hole--
			s.CPU[i] = math.NaN()
		}
	}
	s.Limit = math.Ceil(peak * (1.05 + 0.5*rng.Float64()))
}
