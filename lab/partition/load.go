package partition

import (
	"math/rand/v2"
	"time"

	"github.com/commensal-io/commensal/lab/openloop"
)

// Load is an open loop that steps up and down: what one block of the host's part plays.
// Rates are requests per second, times are from the block's start.
type Load struct {
	Seed    uint64        `json:"seed"`
	Low     float64       `json:"low_per_second"`
	High    float64       `json:"high_per_second"`
	LeadIn  time.Duration `json:"lead_in_nsec"` // low, before the first step is prepared
	LowFor  time.Duration `json:"low_nsec"`     // before each step, in the mean
	HighFor time.Duration `json:"high_nsec"`    // after each step
	Steps   int           `json:"steps"`
	// Work is the CPU time of a request, in the mean. Each takes half to one and a half of it.
	Work time.Duration `json:"work_nsec"`
}

// lowJitter is by how much the time before a step varies: a step that always came after
// the same time would always meet the agent's pulse at the same phase.
const lowJitter = 0.1

// steps returns when the load goes up, nanoseconds from the block's start.
func (l *Load) steps() []int64 {
	rng := rand.New(rand.NewPCG(l.Seed, 0x7061727469746573))
	at := l.LeadIn.Nanoseconds()
	list := make([]int64, l.Steps)
	for i := range list {
		at += int64(l.LowFor.Seconds() * (1 + lowJitter*(2*rng.Float64()-1)) * 1e9)
		list[i] = at
		at += l.HighFor.Nanoseconds()
	}
	return list
}

// length is how long the block takes. It ends low, so that the last step is not the last
// thing that happens.
func (l *Load) length() time.Duration {
	steps := l.steps()
	if len(steps) == 0 {
		return l.LeadIn + l.LowFor
	}
	return time.Duration(steps[len(steps)-1]) + l.HighFor + time.Second
}

// arrivals draws the block's requests: equal loads have equal requests, so that the arms
// can be compared block by block.
func (l *Load) arrivals() []openloop.Request {
	rng := rand.New(rand.NewPCG(l.Seed, 0x6172726976616c73))
	var list []openloop.Request
	from := int64(0)
	stretch := func(to int64, perSecond float64) {
		for at := from; perSecond > 0; {
			at += int64(rng.ExpFloat64() / perSecond * 1e9)
			if at >= to {
				break
			}
			list = append(list, openloop.Request{At: time.Duration(at), CPU: time.Duration(l.Work.Seconds() * (0.5 + rng.Float64()) * 1e9)})
		}
		from = to
	}
	for _, s := range l.steps() {
		stretch(s, l.Low)
		stretch(s+l.HighFor.Nanoseconds(), l.High)
	}
	stretch(l.length().Nanoseconds(), l.Low)
	return list
}
