package calibrate

import (
	"fmt"

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

func missesByWays() ([]Curve, error) {
	published := map[string][11]float64{
		"xalancbmk": {34.9, 24.4, 17.3, 12.4, 8.8, 6.0, 4.1, 2.9, 1.9, 1.3, 1.0},
		"omnetpp":   {24.4, 19.7, 17.0, 14.8, 13.0, 11.3, 9.7, 8.4, 7.2, 6.1, 5.2},
		"mcf":       {53.6, 39.4, 31.7, 26.6, 23.2, 21.3, 20.3, 19.8, 19.5, 19.3, 19.2},
		"lbm":       {29.6, 26.1, 23.3, 21.2, 19.7, 18.9, 18.4, 18.0, 17.7, 17.6, 17.4},
	}
	misses := Curve{Name: "Misses by ways", Source: pbb, X: "program, ways", Unit: "MPKI", Bound: 0.03}
	for _, name := range []string{"xalancbmk", "omnetpp", "mcf", "lbm"} {
		for ways := 1; ways <= 11; ways++ {
			r, err := inWays(name, ways)
			if err != nil {
				return nil, err
			}
			misses.Points = append(misses.Points, Point{fmt.Sprintf("%s %d", name, ways), published[name][ways-1], r.mpki()})
		}
	}
	gain := Curve{
		Name: "IPC by ways", X: "program", Unit: "IPC(11)/IPC(1)", Bound: 0.03,
		Source: pbb + "; its 1.78 for mcf is that of SPEC 2000, here mcf-2000; that of SPEC 2006 is 1.60",
	}
	at1 := Curve{Name: "IPC at ways", Source: pbb, X: "program, ways", Unit: "IPC", Bound: 0.05}
	for _, p := range []struct {
		name              string
		gain              float64
		ipc1, ipc4, ipc11 float64
	}{
		{"xalancbmk", 1.93, 0.707, 1.065, 1.366},
		{"mcf", 1.60, 0.367, 0.516, 0.586}, {"mcf-2000", 1.78, 0.219, 0.368, 0.390},
		{"art", 1.69, 1.114, 1.872, 1.879},
		{"omnetpp", 1.63, 0.612, 0.752, 1.000},
		{"soplex", 1.43, 0.951, 1.142, 1.356},
		{"gcc", 1.38, 1.226, 1.502, 1.691},
		{"lbm", 1.009, 1.865, 1.876, 1.882},
	} {
		var ipc [12]float64
		for _, ways := range []int{1, 4, 11} {
			r, err := inWays(p.name, ways)
			if err != nil {
				return nil, err
			}
			ipc[ways] = 1 / r.cpi()
		}
		gain.Points = append(gain.Points, Point{p.name, p.gain, ipc[11] / ipc[1]})
		at1.Points = append(at1.Points, Point{p.name + " 1", p.ipc1, ipc[1]}, Point{p.name + " 4", p.ipc4, ipc[4]}, Point{p.name + " 11", p.ipc11, ipc[11]})
	}
	return []Curve{misses, gain, at1}, nil
}

// inWays runs a program alone in so many ways.
func inWays(name string, ways int) (*rates, error) {
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
	task, class := b.add(c)
	b.note(b.m.SetWays(class, 0, 1<<ways-1))
	r := b.over(30e9, 1e9, task)
	return &r[0], b.err
}
