package machine

import (
	"fmt"
	"math"
)

// Bursts is how requests come that do not come evenly: a share of them in bursts, within
// which, and outside of which, they are Poisson (an interrupted Poisson process over a
// steady one). Alibaba §4.1: "tiny CPU load spikes, each lasting no more than 100
// milliseconds", of services that use far less than their quota in most periods. Bursts of
// milliseconds want a Config.StepNsec of 1 ms.
//
// With r requests a second in the mean, a burst brings them at r x Share x EveryNsec / Nsec
// a second; times the CPU time of one that is how many CPUs it asks for.
type Bursts struct {
	Share     float64 // of all requests that come in bursts, above 0; the rest comes evenly
	EveryNsec float64 // from a burst's begin to the next one's, in the mean; what lies between two is exponential
	Nsec      float64 // a burst's length, in the mean
	// Tail is how heavy the tail of the lengths is: the exponent of a Pareto distribution,
	// which is cut at 20 times its least; smaller is heavier, 1.5 is heavy. 0: exponential.
	Tail float64
}

// tailCut is the longest burst against the shortest.
const tailCut = 20

func (b *Bursts) check(name string) error {
	if !(b.Share > 0 && b.Share <= 1) || !(b.Nsec >= 1e4 && b.Nsec < b.EveryNsec && b.EveryNsec <= 1e13) || b.Tail != 0 && !(b.Tail > 1 && b.Tail <= 10) {
		return fmt.Errorf("machine: task %s: bursts are impossible: %+v", name, *b)
	}
	return nil
}

// length draws a burst's length.
func (b *Bursts) length(g generator) float64 {
	if b.Tail == 0 {
		return b.Nsec * g.ExpFloat64()
	}
	a := b.Tail
	least := b.Nsec * (a - 1) / (a - math.Pow(tailCut, 1-a))
	return least * min(tailCut, math.Pow(1-g.Float64(), -1/a))
}

// arrivals is when requests come.
type arrivals struct {
	rate float64 // a second, in the mean
	next float64 // when the next one comes, ns
	burst
}

// burst is where a task is between its bursts.
type burst struct {
	known bool // turn was drawn
	on    bool
	turn  float64 // when that ends, ns
}

// come draws the requests of a step.
func (q *queue) come(t *Task, from, to int64) {
	if q.rate <= 0 {
		return
	}
	b := t.cfg.Requests.Bursts
	if b == nil {
		q.draw(t, float64(from), float64(to), q.rate)
		return
	}
	if !q.known {
		// A burst has no past: the first one comes when one would.
		q.known, q.turn = true, float64(from)+(b.EveryNsec-b.Nsec)*t.rng.ExpFloat64()
	}
	for at := float64(from); at < float64(to); {
		end := min(float64(to), q.turn)
		q.draw(t, at, end, q.pace(b))
		if at = end; at < q.turn {
			return
		}
		if q.on = !q.on; q.on {
			q.turn += b.length(t.rng)
		} else {
			q.turn += (b.EveryNsec - b.Nsec) * t.rng.ExpFloat64()
		}
		q.next = -1 // at another rate from here on
	}
}

// pace returns how many requests come a second now.
func (q *queue) pace(b *Bursts) float64 {
	rate := q.rate * (1 - b.Share)
	if q.on {
		rate += q.rate * b.Share * b.EveryNsec / b.Nsec
	}
	return rate
}

// draw draws the requests of a stretch of time in which they come at one rate.
func (q *queue) draw(t *Task, from, to, rate float64) {
	if rate <= 0 {
		return
	}
	gap := 1e9 / rate
	if q.next < from {
		q.next = from + gap*t.rng.ExpFloat64()
	}
	for ; q.next < to; q.next += gap * t.rng.ExpFloat64() {
		whole, parts := -1, max(1, t.cfg.Requests.FanOut)
		if parts > 1 {
			whole = q.split(parts)
		}
		for range parts {
			if len(q.waiting)-q.head >= maxQueue {
				q.lose()
			}
			r := request{int64(q.next), math.Exp(q.mu + q.dev*t.rng.NormFloat64()), whole}
			q.waiting = append(q.waiting, r)
		}
	}
}
