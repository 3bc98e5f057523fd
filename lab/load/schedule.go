package load

import (
	"math/rand/v2"
	"time"
)

// Streams of the seeded generator. Times have one of their own, so that another share of
// sets or number of keys does not move a single request in time.
const (
	streamTimes   = 1
	streamChoices = 2
)

// arrival is one request before it is sent.
type arrival struct {
	at   time.Duration // since the start of the run
	conn int
	key  uint32
	set  bool
}

// schedule is the sequence of requests: a Poisson process whose rate changes in steps. It
// is pure: equal configurations give equal sequences.
//
// Times are drawn exactly and not by thinning: the time to the next request is the one in
// which the integral of the rate grows by an exponential variate of mean 1.
type schedule struct {
	times, choices *rand.Rand
	config         Config
	at             time.Duration
	frac           float64 // of a nanosecond, kept so that rounding does not add up
	rate           float64 // in force at at
	steps          []RateStep
}

func newSchedule(c Config) *schedule {
	return &schedule{
		times:   rand.New(rand.NewPCG(c.Seed, streamTimes)),
		choices: rand.New(rand.NewPCG(c.Seed, streamChoices)),
		config:  c, rate: c.RatePerSec, steps: c.Rates,
	}
}

// next returns the next request; false when the run's duration is over.
func (s *schedule) next() (arrival, bool) {
	left := s.times.ExpFloat64()
	for len(s.steps) > 0 {
		toStep := float64(s.steps[0].At-s.at) - s.frac // ns
		if grown := s.rate * toStep * 1e-9; grown >= left {
			break
		} else if toStep > 0 {
			left -= grown
		}
		s.at, s.frac, s.rate = max(s.at, s.steps[0].At), 0, s.steps[0].RatePerSec
		s.steps = s.steps[1:]
	}
	if s.rate == 0 { // and no step follows
		return arrival{}, false
	}
	wait := left/s.rate*1e9 + s.frac
	if wait >= float64(s.config.Duration-s.at) {
		return arrival{}, false
	}
	whole := time.Duration(wait)
	s.at += whole
	s.frac = wait - float64(whole)
	return arrival{
		at:   s.at,
		conn: s.choices.IntN(s.config.Connections),
		key:  uint32(s.choices.IntN(s.config.KeyCount)),
		set:  s.choices.Float64() < s.config.SetFraction,
	}, true
}
