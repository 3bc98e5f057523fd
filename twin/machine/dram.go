package machine

import "fmt"

// DRAM is a kind of memory: which measured curve of latency against bandwidth a node
// follows, and how its peak falls with the share of writes.
type DRAM int

const (
	// DDR4 is Skylake's, measured at 78 and 60 % reads (Mess, MICRO'24).
	DDR4 DRAM = iota
	// DDR5 is Graviton3's, measured with reads only (Mess); the peak's fall with writes is
	// Graviton2's (Arm's ASCT: 169.6 GB/s with reads only, 151.7 with one write a read).
	DDR5
)

// loadPoints is how many points the curves have.
const loadPoints = 17

// dram is a measured curve: latency as a share of idle, at a share of the peak.
type dram struct {
	utilisation [loadPoints]float64
	few, many   [loadPoints]float64 // latency with few and with many writes
	// The shares of writes at which these were measured. Beyond them nothing is known
	// and nothing changes.
	fewWrites, manyWrites float64
	// Beyond the peak more demand delivers less: at bent times the latency at the peak,
	// delivered is left.
	fewBent, fewDelivered, manyBent, manyDelivered float64
	// writeLoss is the share of the peak that a traffic of writes only would lose.
	writeLoss float64
}

// 67 ns are idle and 101 and 92 GB/s the peaks; below 73 GB/s the curve with many writes
// is that with few, of the same shape over its own peak.
var skylakeDRAM = dram{
	utilisation: [loadPoints]float64{0, 0.10, 0.20, 0.30, 0.41, 0.51, 0.61, 0.69, 0.79, 0.83, 0.90, 0.93, 0.95, 0.97, 0.98, 0.99, 1},
	few:         [loadPoints]float64{1, 1.04, 1.10, 1.13, 1.18, 1.22, 1.24, 1.36, 1.56, 1.68, 1.83, 1.95, 2.05, 2.32, 2.48, 2.75, 3.05},
	many:        [loadPoints]float64{1, 1.04, 1.10, 1.13, 1.17, 1.20, 1.23, 1.29, 1.40, 1.52, 1.77, 1.86, 1.97, 2.11, 2.23, 2.36, 2.57},
	fewWrites:   0.22, manyWrites: 0.40,
	fewBent: 4.0 / 3.05, fewDelivered: 0.97, manyBent: 3.04 / 2.57, manyDelivered: 0.983,
	writeLoss: 0.446, // 101 GB/s at 22 % writes, 92 at 40: so 112 without
}

// 99 ns are idle and 284 GB/s the peak; what was measured ends there.
var gravitonDRAM = dram{
	utilisation: [loadPoints]float64{0, 0.10, 0.20, 0.30, 0.43, 0.50, 0.60, 0.725, 0.80, 0.85, 0.91, 0.935, 0.958, 0.97, 0.98, 0.99, 1},
	few:         [loadPoints]float64{1, 1.02, 1.04, 1.07, 1.10, 1.14, 1.20, 1.30, 1.39, 1.475, 1.69, 1.79, 1.91, 2.19, 2.47, 2.77, 3.11},
	many:        [loadPoints]float64{1, 1.02, 1.04, 1.07, 1.10, 1.14, 1.20, 1.30, 1.39, 1.475, 1.69, 1.79, 1.91, 2.19, 2.47, 2.77, 3.11},
	fewWrites:   0, manyWrites: 1,
	fewBent: 4.0 / 3.05, fewDelivered: 0.97, manyBent: 4.0 / 3.05, manyDelivered: 0.97, // Skylake's
	writeLoss: 0.211,
}

func (d DRAM) measured() *dram {
	if d == DDR5 {
		return &gravitonDRAM
	}
	return &skylakeDRAM
}

// LoadPoint is a point of a measured curve of latency under load.
type LoadPoint struct {
	Utilisation float64 // share of the peak
	Latency     float64 // as a share of idle
}

// curve returns the configuration's: its DRAM's, or between its own points a line, whatever the mix of reads and writes.
func (c *Config) curve() dram {
	d := *c.DRAM.measured()
	if len(c.LoadCurve) == 0 {
		return d
	}
	for i := range d.utilisation {
		// Of more points than there are the first segment is made.
		k := max(0, i-(loadPoints-len(c.LoadCurve)))
		p := c.LoadCurve[k]
		if k == 0 {
			part := float64(i) / float64(loadPoints-len(c.LoadCurve)+1)
			p.Utilisation, p.Latency = p.Utilisation+part*(c.LoadCurve[1].Utilisation-p.Utilisation), p.Latency+part*(c.LoadCurve[1].Latency-p.Latency)
		}
		d.utilisation[i], d.few[i], d.many[i] = p.Utilisation, p.Latency, p.Latency
	}
	return d
}

// checkLoadCurve returns what makes the configuration's own curve impossible.
func (c *Config) checkLoadCurve() error {
	n := len(c.LoadCurve)
	if n == 0 {
		return nil
	}
	if n < 2 || n > loadPoints || c.LoadCurve[0] != (LoadPoint{0, 1}) || c.LoadCurve[n-1].Utilisation != 1 {
		return fmt.Errorf("machine: a load curve has 2 to %d points, from the idle latency to the peak; this one is %v", loadPoints, c.LoadCurve)
	}
	for i := 1; i < n; i++ {
		if a, b := c.LoadCurve[i-1], c.LoadCurve[i]; !(b.Utilisation > a.Utilisation && b.Latency > a.Latency && b.Latency < maxLatency) {
			return fmt.Errorf("machine: a load curve rises; this one has %v after %v", b, a)
		}
	}
	return nil
}

// loadCurve is a measured curve at one mix of reads and writes.
type loadCurve struct {
	of              *dram
	latency         [loadPoints]float64
	bent, delivered float64
}

// maxLatency bounds the search for a latency. The requests that cores can have in flight
// hold it far below.
const maxLatency = 1 << 20

// at returns the curve at a share of writes.
func (d *dram) at(writes float64) loadCurve {
	part := max(0, min(1, (writes-d.fewWrites)/(d.manyWrites-d.fewWrites)))
	c := loadCurve{of: d, delivered: d.fewDelivered + (d.manyDelivered-d.fewDelivered)*part}
	for i := range c.latency {
		c.latency[i] = d.few[i] + (d.many[i]-d.few[i])*part
	}
	c.bent = c.latency[loadPoints-1] * (d.fewBent + (d.manyBent-d.fewBent)*part)
	return c
}

// deliveredAt returns which share of its peak a memory delivers at a latency: the inverse
// of the measured curve.
func (c *loadCurve) deliveredAt(latency float64) float64 {
	if peak := c.latency[loadPoints-1]; latency >= peak {
		bend := min(1, (latency-peak)/(c.bent-peak))
		return 1 - (1-c.delivered)*bend
	}
	i := 1
	for c.latency[i] < latency {
		i++
	}
	part := (latency - c.latency[i-1]) / (c.latency[i] - c.latency[i-1])
	return c.of.utilisation[i-1] + (c.of.utilisation[i]-c.of.utilisation[i-1])*part
}
