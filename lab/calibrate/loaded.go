package calibrate

import (
	"fmt"

	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// loadScene is how latency under load is measured: one core of socket 0 chases pointers,
// the others of all sockets stream with pauses that are made shorter and shorter.
type loadScene struct {
	name, source string
	config       machine.Config
	writes       float64
	bound        float64
	points       []loadPoint
	// ends: idle latency and peak are fitted to the first and the last point, and the others judge.
	ends bool
}

// loadPoint is a published latency at a bandwidth in GB/s; past is set beyond the peak,
// where the bandwidth at the latency is compared.
type loadPoint struct {
	gb, nsec float64
	past     bool
}

func onCores(sockets, cores int, hz, idle, peak float64, dram machine.DRAM) machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = sockets, cores, 1
	c.Hz, c.MemLatencyNsec, c.MemPeakBytes, c.DRAM = hz, idle, peak, dram
	return c
}

func scenes() []loadScene {
	const mess = "Mess-simulator (MICRO'24)"
	return []loadScene{
		{
			name: "Latency under load, 78 % reads; Skylake, DDR4", source: mess + ", bwlat_78; beyond the peak: GB/s at the latency",
			config: onCores(1, 24, 2.1e9, 67, 112e9, machine.DDR4), writes: 0.22, bound: 0.08,
			points: []loadPoint{
				{1, 67, false}, {10, 70, false}, {20, 74, false}, {30, 76, false}, {41, 79, false}, {52, 82, false}, {62, 83, false},
				{70, 91, false}, {80, 105, false}, {84, 113, false}, {91, 123, false}, {94, 131, false}, {96, 138, false}, {98, 156, false},
				{99, 166, false}, {101, 204, false}, {98, 268, true},
			},
		},
		{
			name: "Latency under load, 60 % reads; Skylake, DDR4", source: mess + ", bwlat_60; beyond the peak: GB/s at the latency",
			config: onCores(1, 24, 2.1e9, 67, 112e9, machine.DDR4), writes: 0.40, bound: 0.08,
			points: []loadPoint{{73, 94, false}, {84, 121, false}, {91, 153, false}, {92, 172, false}, {90.4, 204, true}},
		},
		{
			name: "Latency under load, reads; Graviton3, DDR5", source: mess + ", bwlat_100",
			config: onCores(1, 64, 2.6e9, 98, 284e9, machine.DDR5), bound: 0.2, // the peak itself is as steep as the sweep is fine
			points: []loadPoint{{10, 99, false}, {121, 109, false}, {206, 129, false}, {241, 146, false}, {258, 167, false}, {272, 189, false}, {284, 308, false}},
		},
		{
			// Skylake's curve over an idle latency and a peak of its own: 82 ns by the first point, 82.5 GB/s a socket by the last.
			name: "Latency under load, reads; 2 x Xeon Silver 4110", source: "Intel MLC, 12 x DDR4-2666, GB/s of both sockets",
			config: onCores(2, 8, 2.1e9, 82, 82.5e9, machine.DDR4), bound: 0.06, ends: true,
			points: []loadPoint{
				{1.2, 82, false}, {9.7, 87.8, false}, {18.4, 90.2, false}, {29.5, 92.3, false}, {42.7, 94.6, false},
				{68.4, 98.9, false}, {131.3, 123.7, false}, {135.7, 130.3, false},
			},
		},
	}
}

func loaded() ([]Curve, error) {
	var out []Curve
	between := Curve{
		Name: "Latency between the curves' points", Source: "Mess-simulator (MICRO'24); the memories are told idle, peak and every other point", X: "reads, GB/s", Unit: "ns", Bound: 0.3, // the last tenth is nearly upright
	}
	for _, scene := range scenes() {
		c := Curve{Name: scene.name, Source: scene.source, X: "GB/s", Unit: "ns", Bound: scene.bound}
		locus, err := scene.sweep()
		if err != nil {
			return nil, err
		}
		for i, p := range scene.points {
			use := Input
			switch {
			case scene.ends && (i == 0 || i == len(scene.points)-1):
				use = Fitted
			case scene.ends:
				use = Judged
			}
			if p.past {
				c.Points = append(c.Points, Point{fmt.Sprintf("at %g ns", p.nsec), p.gb, bandwidthAt(locus, p.nsec), use})
				continue
			}
			c.Points = append(c.Points, Point{fmt.Sprintf("%g", p.gb), p.nsec, latencyAt(locus, p.gb), use})
		}
		out = append(out, c)
		if scene.ends {
			continue
		}
		points, err := scene.between()
		if err != nil {
			return nil, err
		}
		between.Points = append(between.Points, points...)
	}
	return append(out, between), nil
}

// between plays a scene on a memory that is told every other point of its curve, and asks for those in between.
func (s loadScene) between() (out []Point, err error) {
	upward := s.points
	for upward[len(upward)-1].past {
		upward = upward[:len(upward)-1]
	}
	idle, last := s.config.MemLatencyNsec, len(upward)-1
	s.config.LoadCurve = []machine.LoadPoint{{Utilisation: 0, Latency: 1}}
	var asked []loadPoint
	for i, p := range upward {
		switch {
		case i%2 == 1 && i < last:
			asked = append(asked, p)
		case p.nsec > idle*1.02: // what is hardly more is idle
			s.config.LoadCurve = append(s.config.LoadCurve, machine.LoadPoint{Utilisation: p.gb / upward[last].gb, Latency: p.nsec / idle})
		}
	}
	locus, err := s.sweep()
	if err != nil {
		return nil, err
	}
	for _, p := range asked {
		out = append(out, Point{fmt.Sprintf("%.0f %%, %g", 100*(1-s.writes), p.gb), p.nsec, latencyAt(locus, p.gb), Judged})
	}
	return out, nil
}

// sweep measures bandwidth and latency at growing loads.
func (s *loadScene) sweep() ([]loadPoint, error) {
	b, err := newBench(s.config)
	if err != nil {
		return nil, err
	}
	cores := s.config.CoresPerSocket * s.config.Sockets
	chase, _ := program.Find("pointer-chase")
	prober := machine.TaskConfig{Name: "prober", Threads: 1, CPUs: cpus(0, 1), Pages: []float64{1}, Work: &machine.Work{}}
	chase.Apply(&prober)
	probe, _ := b.add(prober)
	var locus []loadPoint
	for pause := 300.0; pause >= 0.2; pause /= 1.015 {
		var loaders []int
		for socket := range s.config.Sockets {
			from := max(1, socket*s.config.CoresPerSocket)
			to := min(cores, (socket+1)*s.config.CoresPerSocket)
			l := machine.TaskConfig{
				Name: "loader", Threads: to - from, CPUs: cpus(from, to), Pages: make([]float64, s.config.Sockets),
				CPI: min(100, pause), APKI: 60 * min(1, 100/pause), Overlap: 16, Prefetched: 1, WriteShare: s.writes, Work: &machine.Work{},
			}
			l.Pages[socket] = 1
			l.Curve = machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{l.APKI}}
			n, _ := b.add(l)
			loaders = append(loaders, n)
		}
		r := b.over(200e6, 100e6, append(loaders, probe)...)
		bytes := 0.0
		for i := range r {
			// The prober is on socket 0, and its traffic with it.
			bytes += r[i].bytes
		}
		p := &r[len(r)-1]
		nsec := (p.cycles - chase.CPI*p.instructions) / p.misses / s.config.Hz * 1e9
		locus = append(locus, loadPoint{gb: bytes / 1e9, nsec: nsec})
		for _, n := range loaders {
			b.note(b.m.Remove(n))
		}
	}
	return locus, b.err
}

// latencyAt reads the latency at a bandwidth below the peak; what is over the peak is read
// at the peak.
func latencyAt(locus []loadPoint, gb float64) float64 {
	for i := 1; i < len(locus); i++ {
		a, b := &locus[i-1], &locus[i]
		if b.gb < a.gb {
			return a.nsec
		}
		if b.gb >= gb {
			return a.nsec + (b.nsec-a.nsec)*max(0, gb-a.gb)/(b.gb-a.gb)
		}
	}
	return locus[len(locus)-1].nsec
}

// bandwidthAt reads the bandwidth at a latency.
func bandwidthAt(locus []loadPoint, nsec float64) float64 {
	for i := 1; i < len(locus); i++ {
		if a, b := &locus[i-1], &locus[i]; b.nsec >= nsec {
			return a.gb + (b.gb-a.gb)*(nsec-a.nsec)/(b.nsec-a.nsec)
		}
	}
	return locus[len(locus)-1].gb
}
