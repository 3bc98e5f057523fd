package machine

import "math"

// Siblings that meet in bursts. Whole cores are filled first, so that of k CPUs of which n are busy
// max(0, 2n - k) work beside a busy sibling. n fluctuates: the share of the work that is done so is
// the mean of that over n, and by convexity more than at the mean of n.

// together returns the share of the work on so many CPUs that is done beside a busy sibling, when n
// of them are busy in the mean, with a variance; n is taken as normal, and cut at the CPUs.
func together(cpus, mean, variance float64) float64 {
	dev := math.Sqrt(variance)
	beyond := above(mean, dev, cpus)
	busy := mean - beyond
	if busy <= 0 {
		return 0
	}
	return max(0, min(1, 2*(above(mean, dev, cpus/2)-beyond)/busy))
}

// above is the mean of what a normal variable is above a level.
func above(mean, dev, level float64) float64 {
	if dev <= 0 {
		return max(0, mean-level)
	}
	z := (mean - level) / dev
	return dev*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) + (mean-level)*math.Erfc(-z/math.Sqrt2)/2
}

// fluctuate sets of each atom by how much the number of its CPUs that are busy varies within a part
// of a step. From one part to the next it is in the load of each.
func (m *Machine) fluctuate(dt float64) {
	p := &m.placement
	for a := range p.atoms {
		p.atoms[a].variance = 0
	}
	for i, t := range m.live {
		if d := t.dispersion(dt); d > 0 {
			for _, a := range p.of[i] {
				p.atoms[a].variance += d * t.share[a]
			}
		}
	}
}

// dispersion is the variance of the number of CPUs that a task keeps busy within a time of dt, over
// the mean: with requests that come at random (Poisson) and CPUs enough it is 1 over a long time; the
// parts of one come together; and bursts add the square of what they bring. Threads of closed-loop
// work are ready throughout.
func (t *Task) dispersion(dt float64) float64 {
	r := t.cfg.Requests
	if r == nil || t.given <= 0 || t.ips <= 0 {
		return 0
	}
	each := r.Instructions / t.ips * 1e9
	d := float64(max(1, r.FanOut)) * within(dt/each)
	if b := r.Bursts; b != nil {
		on := b.Nsec / b.EveryNsec
		cpus := t.queue.rate * d / within(dt/each) * each / 1e9
		d += cpus * b.Share * b.Share * (1 - on) / on * within(dt/b.Nsec)
	}
	return d
}

// within is which share of the variance of something that is forgotten as e^-t is seen within a time
// x; the rest is between one such time and the next.
func within(x float64) float64 {
	if x < 1e-3 {
		return x / 3
	}
	return 1 - 2*(x-1+math.Exp(-x))/(x*x)
}
