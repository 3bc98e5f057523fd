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
	rise             // the load passed what the set holds at the target
	fall             // LC did not need a core for long enough
	short            // a short rise is over
	blind            // the load cannot be read
)

func (r moveReason) text(had int, l load) string {
	switch r {
	case full:
		return fmt.Sprintf("LC used %.2f of its %d CPUs, and a full set hides what it needs", l.cpus, had)
	case rise:
		return fmt.Sprintf("LC used %.2f CPUs, more than its %d hold at the target", l.cpus, had)
	case short:
		return fmt.Sprintf("the rise of LC did not last, it uses %.2f CPUs", l.cpus)
	case blind:
		return "the load of LC cannot be read, BE gets its floor"
	}
	return fmt.Sprintf("LC uses %.2f CPUs and did not need its last core for the hold", l.cpus)
}

// plan is what follows from the topology and the order of cores, kept between changes.
type plan struct {
	m     *machine
	cores []core // as State.Order
	// threads[n] and holds[n] are the logical CPUs of LC's side when it has n cores, and the
	// load, CPU-sec/sec, that it takes at the target.
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
			target = p.TargetAlone
		}
		pl.threads[i+1] = pl.threads[i] + c.threads
		pl.holds[i+1] = pl.holds[i] + target*float64(c.threads)
	}
	return pl
}

// need returns the cores that a load asks for: the fewest that hold it at the target, all
// when there are not enough.
func (pl *plan) need(cpus float64) int {
	lo, hi := 0, len(pl.cores)
	for lo < hi {
		if mid := (lo + hi) / 2; pl.holds[mid] >= cpus {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// needs returns the cores that shared LC tasks need under a load, without the reserve.
func (s *State) needs(cpus float64) int {
	if s.LeastCores == 0 {
		return 0
	}
	return min(max(s.plan.need(cpus)+s.UncountedCores, s.LeastCores), len(s.plan.cores))
}

// reserve is what LC has beyond that.
func (s *State) reserve(p *Params) int {
	if s.LeastCores == 0 {
		return 0
	}
	return p.ReserveCores
}

// move moves the border as the load asks for.
func (s *State) move(p *Params, nowNsec int64, l load) moveReason {
	cores := len(s.plan.cores)
	has, most := cores-s.BE, cores-s.FloorCores
	if !l.known {
		return s.blind(p, nowNsec, most)
	}
	s.Load.Blind = false
	isFull := has > 0 && s.LeastCores > 0 && l.cpus >= p.FullUtilisation*float64(s.plan.threads[has])
	keep := cores
	if !isFull {
		keep = s.needs(l.cpus*(1+p.Hysteresis)) + s.reserve(p)
	}
	kept := min(max(s.Keep.need(p, keep, l.spanNsec), s.LeastCores), most)
	s.Keep.relax(p, nowNsec)
	need := s.needs(l.cpus)
	switch {
	case isFull && has < most:
		s.take(p, nowNsec, most)
		return full
	case need > has && has < most:
		s.take(p, nowNsec, min(need+s.reserve(p), most))
		return rise
	case kept < has && (s.Keep.LastGiveNsec == 0 || nowNsec-s.Keep.LastGiveNsec >= p.GiveEveryNsec):
		return s.give(p, nowNsec, has, kept)
	}
	return stays
}

// take gives LC so many cores.
func (s *State) take(p *Params, nowNsec int64, to int) {
	s.Keep.tookBack(p, nowNsec)
	s.BE = len(s.plan.cores) - to
}

// give gives BE one core, or all that a short rise took from it. A rise is over when its last
// part is (an alarm is taller and shorter than the load behind it), so that it takes one move
// and not several; but the parts do not wait for each other longer than one hold.
func (s *State) give(p *Params, nowNsec int64, has, kept int) moveReason {
	to, why := has-1, fall
	if has > s.Keep.Lasting {
		most, _ := s.Keep.hold(p)
		if kept > s.Keep.Lasting && nowNsec-s.Keep.LastTakeNsec < most {
			return stays
		}
		to, why = max(kept, s.Keep.Lasting), short
	}
	s.BE = len(s.plan.cores) - to
	s.Keep.Lasting = min(s.Keep.Lasting, to)
	s.Keep.LastGiveNsec = nowNsec
	return why
}

// blind waits for the load to be readable again, with BE on its floor when that takes long.
func (s *State) blind(p *Params, nowNsec int64, most int) moveReason {
	if s.Load.Blind || nowNsec-s.Load.SeenNsec < p.BlindNsec {
		return stays
	}
	s.Load.Blind = true
	s.Keep.fill(p)
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
