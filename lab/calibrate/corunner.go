package calibrate

import (
	"fmt"

	"github.com/commensal-io/commensal/twin/machine"
)

// Measurements of servers under STREAM that no term's form was chosen by, but for the levels of one
// core. Played under any terms.

// temenos is node 0 of the artifact of Temenos (CloudCom'26, kaltinsoy/cloud): a Xeon Gold 6136,
// 12 cores of 3.0 GHz, 11 ways of 2.25 MB, two channels of DDR4-2666. What its memory delivers is
// fitted (under); its idle latency is that of FD.io's Skylake, which has the same cores.
func temenos(peak float64) machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, 12, 1
	c.Hz, c.LLCBytes, c.MemLatencyNsec, c.MemPeakBytes = 3.0e9, 24.75*(1<<20), 81.4, peak
	return c
}

const temenosSource = "Temenos (CloudCom'26), artifact kaltinsoy/cloud: Xeon Gold 6136, two channels of DDR4-2666"

// oneCore plays STREAM alone on a core at each MBA level.
func (p *physics) oneCore() (Curve, error) {
	c := Curve{Name: "Bandwidth of one core of STREAM at MBA levels", Source: temenosSource + ", exp9_mba_calibration*.txt, two runs", X: "MBA %", Unit: "GB/s"}
	for _, at := range []struct {
		percent int
		gb      float64
	}{{10, 2.785}, {20, 4.08}, {30, 5.475}, {40, 8.82}, {50, 9.705}, {60, 10.80}, {90, 11.78}, {100, 13.24}} {
		b, err := newBench(p.on(temenos(41e9)))
		if err != nil {
			return c, err
		}
		task, class, err := b.program(p, "stream", 1, 1)
		if err != nil {
			return c, err
		}
		b.note(b.m.SetMBA(class, 0, at.percent))
		r := b.over(1e9, 1e9, task)
		if b.err != nil {
			return c, b.err
		}
		use := Fitted // of the clocks
		if at.percent == 100 {
			use = Judged
		}
		c.Points = append(c.Points, Point{fmt.Sprint(at.percent), at.gb, r[0].bytes / 1e9, use})
	}
	return c, nil
}

// program starts threads of a program of the catalogue on the cores from one on, in a class of its own.
func (b *bench) program(p *physics, name string, threads, from int) (task, class int, err error) {
	prog, err := p.find(name)
	if err != nil {
		return 0, 0, err
	}
	c := machine.TaskConfig{Name: name, Threads: threads, CPUs: cpus(from, from+threads), Pages: []float64{1}, Work: &machine.Work{}}
	prog.Apply(&c)
	task, class = b.add(c)
	return task, class, b.err
}

// memBench is Temenos' victim: read-modify-writes of a line each, at a stride that no prefetcher follows, over
// 256 MiB. Alone an instruction takes aloneCPI cycles (sweep.csv: 0.268 a cycle) and it moves aloneBytes
// (exp6_results_*.txt), half of it writes; 0.4 cycles of the core's own are ours.
func memBench(overlap float64) machine.TaskConfig {
	mpki := aloneBytes / 2 / 64 / (3.0e9 / aloneCPI) * 1000
	return machine.TaskConfig{
		Name: "membench", Threads: 1, CPUs: cpus(0, 1), Pages: []float64{1}, Work: &machine.Work{},
		CPI: 0.4, APKI: mpki, Overlap: overlap, WriteShare: 0.5, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{mpki}},
	}
}

const (
	aloneCPI      = 1 / 0.268
	aloneBytes    = 10.8e9
	attackedBytes = 36.15e9
)

// attack is a cell of Temenos' experiment: what five cores of STREAM may have beside MemBench, what
// MemBench then does of what it does alone, and what the node moves; means of all runs.
type attack struct {
	name      string
	percent   int
	ways      uint32
	share, gb float64
}

var attacks = []attack{
	{"nothing held", 100, 0, 0.305, attackedBytes / 1e9},
	{"MBA 20 %", 20, 0, 0.596, 30.1}, {"MBA 20 %, 2 ways", 20, 0x003, 0.614, 30.1},
	{"MBA 10 %", 10, 0, 0.797, 24.37}, {"MBA 10 %, 2 ways", 10, 0x003, 0.813, 24.33},
}

// play returns the victim's instructions a second and the node's GB/s; without an attack it is alone.
func (a *attack) play(p *physics, peak, overlap float64) (instructions, gb float64, err error) {
	b, err := newBench(p.on(temenos(peak)))
	if err != nil {
		return 0, 0, err
	}
	victim, mine := b.add(memBench(overlap))
	if a != nil {
		_, class, err := b.program(p, "stream", 5, 1)
		if err != nil {
			return 0, 0, err
		}
		b.note(b.m.SetMBA(class, 0, a.percent))
		if a.ways != 0 {
			b.note(b.m.SetWays(class, 0, a.ways))
			b.note(b.m.SetWays(mine, 0, 0x7ff&^a.ways))
		}
	}
	r := b.over(1e9, 1e9, victim)
	return r[0].instructions, b.m.Memory(0).BytesPerSecond / 1e9, b.err
}

// coRunner plays the cells. Two numbers are fitted first, under the terms at hand: the memory's peak by what the
// node moves while nothing is held, and MemBench's overlap by what it does alone.
func (p *physics) coRunner() (shares, traffic Curve, err error) {
	shares = Curve{Name: "A memory-bound program beside five cores of STREAM", Source: temenosSource + ", exp6_results_{1,2,3}.txt, median of three runs", X: "STREAM is held to", Unit: "of what it does alone"}
	traffic = Curve{Name: "What the node moves then", Source: shares.Source, X: shares.X, Unit: "GB/s"}
	peak, overlap, alone := 41e9, 8.0, 0.0
	for range 6 {
		if alone, _, err = (*attack)(nil).play(p, peak, overlap); err != nil {
			return shares, traffic, err
		}
		cycles := 3.0e9 / alone
		overlap *= (cycles - 0.4) / (aloneCPI - 0.4)
		_, gb, err := attacks[0].play(p, peak, overlap)
		if err != nil {
			return shares, traffic, err
		}
		peak *= attackedBytes / 1e9 / gb
	}
	for i := range attacks {
		a := &attacks[i]
		did, gb, err := a.play(p, peak, overlap)
		if err != nil {
			return shares, traffic, err
		}
		use := Judged
		if i == 0 {
			use = Fitted
		}
		shares.Points = append(shares.Points, Point{a.name, a.share, did / alone, Judged})
		traffic.Points = append(traffic.Points, Point{a.name, a.gb, gb, use})
	}
	return shares, traffic, nil
}

// fullLoad is the latency that one core sees while all others read and write as fast as they can: idle latency and peak
// are the measured ones, what cores have on their way makes the rest. The lines on their way (18) were chosen by the first
// of Mess's points among others; the others judge.
func (p *physics) fullLoad() (Curve, error) {
	c := Curve{
		Name: "Latency at full load", X: "server", Unit: "ns",
		Source: "Intel MLC by FD.io's CSIT (FDio/csit, docs/report/introduction: SUT calibration data, Skylake 8180 and Cascade Lake of 24 cores); the ends of Mess's curves (MICRO'24)",
	}
	for _, s := range []struct {
		name              string
		cores             int
		hz, idle, gb, was float64
		writes            float64
		use               Use
	}{
		{"MLC, 28 cores", 28, 2.5e9, 81.4, 108.3, 282.7, 0, Judged}, {"MLC, 24 cores", 24, 2.3e9, 81.2, 122.1, 233.9, 0, Judged},
		{"Mess, 22 % writes", 24, 2.1e9, 67, 112, 268, 0.22, Fitted}, {"Mess, 40 % writes", 24, 2.1e9, 67, 112, 204, 0.40, Judged},
	} {
		b, err := newBench(p.on(onCores(1, s.cores, s.hz, s.idle, s.gb*1e9, machine.DDR4)))
		if err != nil {
			return c, err
		}
		chase, err := p.find("pointer-chase")
		if err != nil {
			return c, err
		}
		prober, _, err := b.program(p, "pointer-chase", 1, 0)
		if err != nil {
			return c, err
		}
		b.add(machine.TaskConfig{
			Name: "loader", Threads: s.cores - 1, CPUs: cpus(1, s.cores), CPI: 0.2, APKI: 60, Overlap: 16, Prefetched: 1, WriteShare: s.writes,
			Pages: []float64{1}, Curve: machine.MissCurve{StepBytes: 1 << 20, MPKI: []float64{60}}, Work: &machine.Work{},
		})
		r := b.over(1e9, 1e9, prober)
		if b.err != nil {
			return c, b.err
		}
		nsec := (r[0].cycles - chase.CPI*r[0].instructions) / r[0].misses / s.hz * 1e9
		c.Points = append(c.Points, Point{s.name, s.was, nsec, s.use})
	}
	return c, nil
}

// sixCores is what a Xeon Gold 6148 moves at a level of 10 % (intel-cmt-cat issue 277). The clocks of a level are of
// another CPU; which clocks, and of which lines, was chosen by this.
func (p *physics) sixCores() (Curve, error) {
	b, err := newBench(p.on(goldMachine()))
	if err != nil {
		return Curve{}, err
	}
	task, class, err := b.program(p, "memory-read", 6, 0)
	if err != nil {
		return Curve{}, err
	}
	b.note(b.m.SetMBA(class, 0, 10))
	r := b.over(2e9, 1e9, task)
	return Curve{
		Name: "Bandwidth of six cores at MBA 10 %", Source: "intel-cmt-cat issue 277: Xeon Gold 6148", X: "cores", Unit: "GB/s",
		Points: []Point{{"6", 13.63, r[0].bytes / 1e9, Fitted}},
	}, b.err
}
