package calibrate

import (
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// alone runs a program with the source's threads alone on a socket.
func alone(name string) (*rates, error) {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore = 1, 24, 1
	b, err := newBench(c)
	if err != nil {
		return nil, err
	}
	p, _ := program.Find(name)
	t := machine.TaskConfig{Name: name, Threads: max(1, p.Threads), Work: &machine.Work{}}
	p.Apply(&t)
	task, _ := b.add(t)
	r := b.over(20e9, 1e9, task)
	return &r[0], b.err
}

func shapes() ([]Curve, error) {
	traffic := Curve{Name: "Traffic of programs alone", Source: "BALM table I; Intel WCA's profiles (read and written)", X: "program", Unit: "GB/s", Bound: 0.03}
	for _, p := range []struct {
		name string
		gb   float64
	}{
		{"npb-mg", 33.47}, {"ocean", 32.29}, {"npb-sp", 31.24}, {"npb-ua", 22.19}, {"blackscholes", 2.85}, {"npb-ep", 0.02}, {"swaptions", 0.02},
		{"memcached-small", 3.40}, {"memcached-big", 3.72}, {"redis-big", 3.62}, {"specjbb-big", 16.27}, {"stream-big", 7.45}, {"sysbench-memory", 14.38},
	} {
		r, err := alone(p.name)
		if err != nil {
			return nil, err
		}
		traffic.Points = append(traffic.Points, Point{p.name, p.gb, r.bytes / 1e9, Input})
	}
	cpi := Curve{Name: "CPI of services alone", Source: "CPI2 (EuroSys'13), table 1 and figure 7", X: "program", Unit: "CPI", Bound: 0.03}
	for _, p := range []struct {
		name string
		cpi  float64
	}{{"cpi2-job-a", 0.88}, {"cpi2-job-b", 1.36}, {"cpi2-job-c", 2.03}, {"web-search-leaf", 1.8}} {
		r, err := alone(p.name)
		if err != nil {
			return nil, err
		}
		cpi.Points = append(cpi.Points, Point{p.name, p.cpi, r.cpi(), Input})
	}
	return []Curve{traffic, cpi}, nil
}
