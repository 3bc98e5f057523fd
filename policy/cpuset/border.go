package cpuset

import (
	"fmt"
	"math"
)

// moveReason is why the border moved.
type moveReason uint8

const (
	stays moveReason = iota
	full             // LC's set was full
	rise             // the mean load passed what the set is large enough for
	fall             // LC does not need all of its set
	blind            // the load cannot be read
)

func (r moveReason) text(had int, l *Load) string {
	switch r {
	case full:
		return fmt.Sprintf("LC used %.2f of its %d CPUs, and a full set hides what it needs", l.Rate, had)
	case rise:
		return fmt.Sprintf("LC uses %.2f CPUs in the mean, for which its %d are too few", l.Mean(), had)
	case blind:
		return "the load of LC cannot be read, BE gets its floor"
	}
	return fmt.Sprintf("LC uses %.2f CPUs in the mean and does not need its %d", l.Mean(), had)
}

// plan is what follows from the topology and the order of cores, kept between changes.
type plan struct {
	m     *machine
	cores []core // as State.Order
	// threads[n] and holds[n] are the logical CPUs of LC's side when it has n cores, and the
	// mean load, CPU-sec/sec, up to which siblings leave each other alone.
	threads []int
	holds   []float64
}

// derive works the plan out.
func (s *State) derive(p *Params, m *machine) *plan {
	n := len(s.Order)
	pl := &plan{m: m, cores: make([]core, 0, n), threads: make([]int, n+1), holds: make([]float64, n+1)}
	for _, id := range s.Order {
		if i, ok := m.find(id); ok {
			pl.cores = append(pl.cores, m.cores[i])
		}
	}
	for i := range pl.cores {
		c := &pl.cores[len(pl.cores)-1-i]
		target := p.TargetSiblings
		if c.threads == 1 {
			target = 1 // nothing is shared
		}
		pl.threads[i+1] = pl.threads[i] + c.threads
		pl.holds[i+1] = pl.holds[i] + target*float64(c.threads)
	}
	return pl
}

// queue returns with how few CPUs work waits for one with at most this chance, of a mean load
// of so many CPUs (Erlang C): requests that come at random and need about as long as
// exponential ones. Never more than limit.
func queue(cpus, wait float64, limit int) int {
	if cpus <= 0 {
		return 0
	}
	lost := 1.0 // Erlang B: the chance that all n are busy where nobody queues
	for n := 1; n < limit; n++ {
		lost = cpus * lost / (float64(n) + cpus*lost)
		if full := cpus / float64(n); full < 1 && lost <= wait*(1-full*(1-lost)) {
			return n
		}
	}
	return limit
}

// need returns the cores that a mean load asks for: the fewest that have the CPUs with which
// work waits with at most this chance, and on which siblings leave each other alone when the
// load is so many times as great; all when there are not enough.
func (pl *plan) need(cpus, wait, room float64) int {
	want := queue(cpus, wait, pl.threads[len(pl.cores)])
	lo, hi := 0, len(pl.cores)
	for lo < hi {
		if mid := (lo + hi) / 2; pl.holds[mid] >= cpus*room && pl.threads[mid] >= want {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// Between the size that LC gets and that at which it gets more nothing moves, in either
// direction, so that noise does not move the border. LC's set is enlarged when the chance
// to wait is waitMore times that for which it was sized, or the load siblingsMore times.
const (
	waitMore     = 5
	siblingsMore = 1.1
)

// size returns the cores that shared LC tasks get under a mean load.
func (s *State) size(p *Params, cpus float64) int { return s.needs(cpus, p.Wait, siblingsMore) }

// least returns the cores under which they get more.
func (s *State) least(p *Params, cpus float64) int { return s.needs(cpus, waitMore*p.Wait, 1) }

func (s *State) needs(cpus, wait, room float64) int {
	if s.LeastCores == 0 {
		return 0
	}
	return min(max(s.plan.need(cpus, wait, room)+s.UncountedCores, s.LeastCores), len(s.plan.cores))
}

// move moves the border as the load asks for.
func (s *State) move(p *Params, nowNsec int64, l load) moveReason {
	cores := len(s.plan.cores)
	if !l.known {
		return s.blind(p, nowNsec, cores-s.FloorCores)
	}
	if s.Load.Blind {
		s.Load.Blind = false
		s.Pace.MoveNsec = nowNsec // what LC needs must be watched anew
	}
	s.Pace.refill(p, nowNsec)
	to, why := s.wants(p, &s.Pace, nowNsec, l.cpus, s.Load.Mean())
	switch why {
	case full, rise:
		s.take(nowNsec, to)
	case fall:
		s.Pace.gave(nowNsec)
		s.BE = cores - to
	}
	return why
}

// wants returns how many cores LC should have under a load in the last pulse and in the mean, and
// why the border moves, if it does.
func (s *State) wants(p *Params, pace *Pace, nowNsec int64, cpus, mean float64) (to int, why moveReason) {
	cores := len(s.plan.cores)
	has, most := cores-s.BE, cores-s.FloorCores
	size := min(s.size(p, mean), most)
	switch {
	case has < most && s.LeastCores > 0 && has > 0 && cpus >= p.FullUtilisation*float64(s.plan.threads[has]):
		return most, full
	case min(s.least(p, mean), most) > has:
		return size, rise
	case size < has && pace.mayGive(p, nowNsec):
		return size, fall
	}
	return has, stays
}

// take gives LC so many cores.
func (s *State) take(nowNsec int64, to int) {
	s.Pace.took(nowNsec)
	s.BE = len(s.plan.cores) - to
}

// blind waits for the load to be readable again, with BE on its floor when that takes long.
func (s *State) blind(p *Params, nowNsec int64, most int) moveReason {
	if s.Load.Blind || nowNsec-s.Load.SeenNsec < p.BlindNsec {
		return stays
	}
	s.Load.Blind = true
	if len(s.plan.cores)-s.BE >= most {
		return stays
	}
	s.BE = len(s.plan.cores) - most
	return blind
}

// floor returns BE's floor in cores of all that there are.
func (p *Params) floor(cores int) int {
	if p.FloorCores == 0 && p.FloorShare == 0 {
		return 0 // BE may be parked
	}
	share := int(math.Ceil(p.FloorShare*float64(cores) - 1e-9))
	return max(p.FloorCores, share, 1)
}
