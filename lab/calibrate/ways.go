package calibrate

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// pbbMachine is the server of PBBCache's table: 11 ways of 2.5 MiB, 2.0 GHz.
func pbbMachine() machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, 20, 1
	c.Hz, c.LLCBytes = 2.0e9, 27.5*(1<<20)
	return c
}

const pbb = "PBBCache (pbbcache/cachesim), SPEC programs alone under CAT on a Skylake of 11 ways"

// fitWays are the ways at which a program's two numbers (twin/program/spec.go) were fitted to its IPC; the other seven judge.
var fitWays = []int{1, 3, 6, 11}

// ipcs is instructions per cycle at 1 to 11 ways.
var ipcs = []struct {
	name string
	ipc  [11]float64
}{
	{"xalancbmk", [11]float64{0.707, 0.841, 0.962, 1.065, 1.155, 1.221, 1.275, 1.312, 1.339, 1.358, 1.366}},
	{"omnetpp", [11]float64{0.613, 0.671, 0.718, 0.752, 0.791, 0.830, 0.868, 0.902, 0.937, 0.972, 1.000}},
	{"mcf", [11]float64{0.367, 0.431, 0.478, 0.516, 0.546, 0.564, 0.575, 0.581, 0.584, 0.585, 0.586}},
	{"mcf-2000", [11]float64{0.219, 0.284, 0.336, 0.368, 0.383, 0.385, 0.386, 0.387, 0.388, 0.389, 0.390}},
	{"lbm", [11]float64{1.865, 1.870, 1.873, 1.876, 1.878, 1.880, 1.882, 1.883, 1.883, 1.883, 1.882}},
	{"art", [11]float64{1.114, 1.504, 1.781, 1.872, 1.871, 1.875, 1.884, 1.879, 1.875, 1.862, 1.879}},
	{"soplex", [11]float64{0.951, 1.029, 1.088, 1.142, 1.198, 1.242, 1.281, 1.307, 1.329, 1.351, 1.356}},
	{"gcc", [11]float64{1.226, 1.342, 1.436, 1.502, 1.562, 1.591, 1.614, 1.622, 1.671, 1.692, 1.691}},
	{"libquantum", [11]float64{2.515, 2.683, 2.686, 2.591, 2.618, 2.638, 2.866, 2.809, 2.847, 2.793, 2.937}},
	{"milc", [11]float64{0.977, 0.979, 0.984, 0.982, 0.986, 0.980, 0.995, 0.997, 0.995, 0.994, 1.002}},
}

// mpkis is misses per thousand instructions at 1 to 11 ways; programs have it as their curve.
var mpkis = []struct {
	name string
	mpki [11]float64
}{
	{"xalancbmk", [11]float64{34.9, 24.4, 17.3, 12.4, 8.8, 6.0, 4.1, 2.9, 1.9, 1.3, 1.0}},
	{"omnetpp", [11]float64{24.4, 19.7, 17.0, 14.8, 13.0, 11.3, 9.7, 8.4, 7.2, 6.1, 5.2}},
	{"mcf", [11]float64{53.6, 39.4, 31.7, 26.6, 23.2, 21.3, 20.3, 19.8, 19.5, 19.3, 19.2}},
	{"lbm", [11]float64{29.6, 26.1, 23.3, 21.2, 19.7, 18.9, 18.4, 18.0, 17.7, 17.6, 17.4}},
}

func missesByWays() ([]Curve, error) {
	misses := Curve{Name: "Misses by ways", Source: pbb, X: "program, ways", Unit: "MPKI", Bound: 0.03}
	between := Curve{Name: "Misses between the curve's points", Source: pbb + "; the programs are told their misses at even ways alone", X: "program, ways", Unit: "MPKI", Bound: 0.12}
	for _, p := range mpkis {
		whole, half := *curveOf(p.mpki[:], 1), *curveOf(p.mpki[:], 2)
		for ways := 1; ways <= 11; ways++ {
			r, err := inWays(p.name, ways, &whole)
			if err != nil {
				return nil, err
			}
			at := fmt.Sprintf("%s %d", p.name, ways)
			misses.Points = append(misses.Points, Point{at, p.mpki[ways-1], r.mpki(), Input})
			if ways < 3 || ways > 9 || ways%2 == 0 { // outside a line between two points says nothing
				continue
			}
			if r, err = inWays(p.name, ways, &half); err != nil {
				return nil, err
			}
			between.Points = append(between.Points, Point{at, p.mpki[ways-1], r.mpki(), Judged})
		}
	}
	ipc, err := ipcByWays()
	return append([]Curve{misses, between}, ipc...), err
}

// curveOf is a curve of which every so many-th way is known.
func curveOf(mpki []float64, step int) *machine.MissCurve {
	c := &machine.MissCurve{StepBytes: 2.5 * (1 << 20) * float64(step)}
	for i := step - 1; i < len(mpki); i += step {
		c.MPKI = append(c.MPKI, mpki[i])
	}
	return c
}

func ipcByWays() ([]Curve, error) {
	gain := Curve{
		Name: "IPC by ways", X: "program", Unit: "IPC(11)/IPC(1)", Bound: 0.03,
		Source: pbb + "; its 1.78 for mcf is that of SPEC 2000, here mcf-2000; that of SPEC 2006 is 1.60",
	}
	gains := map[string]float64{"xalancbmk": 1.93, "mcf": 1.60, "mcf-2000": 1.78, "art": 1.69, "omnetpp": 1.63, "soplex": 1.43, "gcc": 1.38, "lbm": 1.009}
	at := Curve{Name: "IPC at ways", Source: pbb + "; two numbers a program are fitted at 1, 3, 6 and 11 ways", X: "program, ways", Unit: "IPC", Bound: 0.1}
	for _, p := range ipcs {
		var ipc [12]float64
		for ways := 1; ways <= 11; ways++ {
			r, err := inWays(p.name, ways, nil)
			if err != nil {
				return nil, err
			}
			use := Judged
			if slices.Contains(fitWays, ways) {
				use = Fitted
			}
			ipc[ways] = 1 / r.cpi()
			at.Points = append(at.Points, Point{fmt.Sprintf("%s %d", p.name, ways), p.ipc[ways-1], ipc[ways], use})
		}
		if want, ok := gains[p.name]; ok {
			gain.Points = append(gain.Points, Point{p.name, want, ipc[11] / ipc[1], Fitted})
		}
	}
	return []Curve{gain, at}, nil
}

// inWays runs a program alone in so many ways, with another curve where there is one.
func inWays(name string, ways int, curve *machine.MissCurve) (*rates, error) {
	b, err := newBench(pbbMachine())
	if err != nil {
		return nil, err
	}
	p, ok := program.Find(name)
	if !ok {
		return nil, fmt.Errorf("calibrate: no program %s", name)
	}
	c := machine.TaskConfig{Name: name, Threads: 1, Work: &machine.Work{}}
	p.Apply(&c)
	if curve != nil {
		c.Curve = *curve
	}
	task, class := b.add(c)
	b.note(b.m.SetWays(class, 0, 1<<ways-1))
	r := b.over(30e9, 1e9, task)
	return &r[0], b.err
}
