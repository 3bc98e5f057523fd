package oracle

// heracles grows all batch work together by CPU and ways while there is slack, and stops it where there is none
// (Lo et al., ISCA 2015: polled each 15 s; no growth under 10 % of slack, cores back under 5 %, off for five minutes when the target is
// missed; memory bandwidth under 90 % of the peak).
type heracles struct {
	now   Share
	until int64 // it is off
	ways  bool  // the next step is one of ways
}

const (
	heraclesPoll, heraclesOff      = 15, 300
	heraclesGrow, heraclesCut      = 0.1, 0.05
	heraclesBandwidth              = 0.9
	smallest, partiesPoll          = 0.05, 3 // of CPUs; s
	partiesCut, partiesGive        = 0.05, 0.2
	partiesRest                    = 30
	partiesStepWays, partiesStepMB = 1, 10
)

func (h *heracles) second(r *run) error {
	if h.now.Level == 0 {
		h.now = Share{2, 100, 0.25}
	}
	slack := 1 - r.worst()
	switch {
	case slack < 0 && r.now >= h.until:
		h.until, h.now = r.now+heraclesOff, Share{2, 100, smallest}
	case r.now < h.until || r.now%heraclesPoll != 0:
		return nil
	case slack < heraclesCut:
		h.now.CPUs = max(smallest, h.now.CPUs/2)
	case r.moves() > heraclesBandwidth*r.config.MemPeakBytes:
		h.now.CPUs = max(smallest, h.now.CPUs-0.1)
	case slack < heraclesGrow:
		return nil
	case h.ways && h.now.Ways < allWays:
		h.now.Ways++
		h.ways = false
	default:
		h.now.CPUs, h.ways = min(1, h.now.CPUs+0.1), true
	}
	return r.divide(r.shares(h.now))
}

// moves is what the memory moves a second that moves most.
func (r *run) moves() (most float64) {
	for n := range r.config.Sockets {
		most = max(most, r.host.Machine().Memory(n).BytesPerSecond)
	}
	return most
}

// parties moves one resource at a time: from batch work when a service has less than 5 % of slack, to it when all have more than 20 %; a
// step that brings a service under 5 % is taken back, and the resource rests (Chen et al., ASPLOS 2019; cores, ways, and memory
// bandwidth, which their prototype could not divide).
type parties struct {
	now   Share
	next  int      // resource to try
	rests [3]int64 // until when each is not given
	tried int      // the last one given, from 1; 0: none is on trial
}

func (p *parties) second(r *run) error {
	if p.now.Level == 0 {
		p.now = Share{allWays, 100, 1}
	}
	if r.now%partiesPoll != 0 {
		return nil
	}
	slack := 1 - r.worst()
	switch {
	case slack < partiesCut && p.tried > 0:
		p.rests[p.tried-1] = r.now + partiesRest
		p.move(p.tried-1, -1)
		p.tried = 0
	case slack < partiesCut:
		for range p.rests {
			moved := p.move(p.next, -1)
			if p.next = (p.next + 1) % len(p.rests); moved {
				break
			}
		}
	case slack > partiesGive:
		p.tried = 0
		for range p.rests {
			at := p.next
			p.next = (p.next + 1) % len(p.rests)
			if r.now >= p.rests[at] && p.move(at, 1) {
				p.tried = at + 1
				break
			}
		}
	default:
		p.tried = 0
		return nil
	}
	return r.divide(r.shares(p.now))
}

// move gives a step of a resource, or takes it, and reports whether there was one.
func (p *parties) move(resource, by int) bool {
	was := p.now
	switch resource {
	case 0:
		p.now.CPUs = min(1, max(smallest, p.now.CPUs+0.1*float64(by)))
	case 1:
		p.now.Ways = min(allWays, max(2, p.now.Ways+partiesStepWays*by))
	default:
		p.now.Level = min(100, max(10, p.now.Level+partiesStepMB*by))
	}
	return p.now != was
}
