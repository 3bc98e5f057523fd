package calibrate

import (
	"cmp"
	"fmt"

	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// goldMachine is a Xeon Gold 6148: 20 cores at 2.4 GHz, 6 channels of DDR4-2666.
func goldMachine() machine.Config {
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore, c.Hz, c.LLCBytes = 20, 1, 2.4e9, 27.5*(1<<20)
	return c
}

// streaming runs STREAM on so many cores of socket 0 at an MBA level, with its pages on a
// node, and returns GB/s.
func streaming(name string, threads, percent, node int) (float64, error) {
	b, err := newBench(goldMachine())
	if err != nil {
		return 0, err
	}
	p, ok := program.Find(name)
	if !ok {
		return 0, fmt.Errorf("calibrate: no program %s", name)
	}
	c := machine.TaskConfig{Name: name, Threads: threads, CPUs: cpus(0, threads), Pages: make([]float64, 2), Work: &machine.Work{}}
	p.Apply(&c)
	c.Pages[node] = 1
	task, class := b.add(c)
	b.note(b.m.SetMBA(class, 0, percent))
	r := b.over(2e9, 1e9, task)
	return r[0].bytes / 1e9, b.err
}

func levels() ([]Curve, error) {
	c := Curve{
		Name: "Bandwidth at MBA 10 %", X: "cores", Unit: "GB/s", Bound: 0.15,
		Source: "intel-cmt-cat issues 277 and 285 (Xeon Gold 6148; the latter says \"over 40\")",
	}
	for _, p := range []struct {
		cores int
		gb    float64
	}{{6, 13.63}, {20, 40}} {
		gb, err := streaming("memory-read", p.cores, 10, 0)
		if err != nil {
			return nil, err
		}
		c.Points = append(c.Points, Point{fmt.Sprint(p.cores), p.gb, gb, Fitted}) // the gap was chosen between the two
	}
	return []Curve{c}, nil
}

// beside is an LC service on 4 cores beside a BE on 16 of the same socket.
type beside struct {
	service, batch string
	threads        int    // of the batch; 0: 16
	ways           uint32 // of the BE; 0: all
	percent        int    // MBA of the BE; 0: 100
	own            bool   // the service has the ways that the BE has not
	under          *physics
}

// outcome is what became of it.
type outcome struct {
	cpi, mpki, batchIPC, gb, nsec float64
	refCPI, batch                 float64 // the service's in reference cycles; the batch's instructions a second
}

func (x beside) play() (outcome, error) {
	b, err := newBench(x.under.on(goldMachine()))
	if err != nil {
		return outcome{}, err
	}
	find := func(name string, threads, from int) machine.TaskConfig {
		p, err := x.under.find(name)
		b.note(err)
		c := machine.TaskConfig{Name: name, Threads: threads, CPUs: cpus(from, from+threads), Pages: []float64{1}, Work: &machine.Work{}}
		p.Apply(&c)
		return c
	}
	lc, lcClass := b.add(find(x.service, 4, 0))
	tasks := []int{lc}
	if x.batch != "" {
		threads := cmp.Or(x.threads, 16)
		be, class := b.add(find(x.batch, threads, 4))
		tasks = append(tasks, be)
		if x.ways != 0 {
			b.note(b.m.SetWays(class, 0, x.ways))
			if x.own {
				b.note(b.m.SetWays(lcClass, 0, 0x7ff&^x.ways))
			}
		}
		if x.percent != 0 {
			b.note(b.m.SetMBA(class, 0, x.percent))
		}
	}
	if b.err != nil {
		return outcome{}, b.err
	}
	r := b.over(10e9, 1e9, tasks...)
	o := outcome{cpi: r[0].cpi(), mpki: r[0].mpki(), gb: b.m.Memory(0).BytesPerSecond / 1e9, nsec: b.m.Memory(0).LatencyNsec, refCPI: r[0].refCycles / r[0].instructions}
	if len(r) > 1 {
		o.batchIPC, o.batch = 1/r[1].cpi(), r[1].instructions
	}
	return o, b.err
}
