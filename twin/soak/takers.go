package soak

import (
	"fmt"
	"math/rand/v2"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/program"
)

// drawTakers draws what takes CPUs and is in no group of anybody's: kernel threads, a network card's soft
// interrupts, and a hypervisor. It draws from a stream of its own, as it came after the others.
func (p *plan) drawTakers(r source, end int64) {
	if !r.chance(0.3) {
		return
	}
	for i := range r.count(0, 2) {
		c := machine.TaskConfig{
			Name: fmt.Sprintf("kworker/%d:1", i), Kernel: true, Threads: 1, CPUs: p.drawCPUs(r, 0.7, model.CPUSet{}),
			Work: &machine.Work{Phases: []machine.Phase{{Nsec: r.seconds(0.1, 5), Jitter: 0.5, CPUs: r.between(0.1, 1)}, {Nsec: r.seconds(0.1, 10), Jitter: 0.5, CPUs: 0.01}}},
		}
		prof, _ := program.Find("compute")
		prof.Apply(&c)
		p.kernel = append(p.kernel, c)
	}
	for range r.count(1, 8) {
		p.events = append(p.events, event{at: r.seconds(0, float64(end)/1e9), do: taken, pick: r.Uint64()})
	}
	sortEvents(p.events)
}

// take has some of a CPU's time taken from whatever runs there, or ends that.
func (w *world) take(e *event) {
	r := source{rand.New(rand.NewPCG(e.pick, 7))}
	by := pick(r, machine.SoftIRQ, machine.Steal)
	if err := w.machine.Take(by, w.plan.drawCPUs(r, 1, model.CPUSet{}), pick(r, 0, 0.05, r.between(0, machine.MaxTaken))); err != nil {
		w.fail("simulation", err.Error())
	}
	w.inj.Note("cpu-taken", "")
}

// kernelThreads ends those of the kernel before, and starts this one's.
func (w *world) kernelThreads() error {
	for _, num := range w.kernel {
		if err := w.machine.Remove(num); err != nil {
			return err
		}
	}
	w.kernel = w.kernel[:0]
	for i := range w.plan.kernel {
		pid, err := w.k.Spawn(w.plan.kernel[i])
		if err != nil {
			return err
		}
		num, _ := w.k.Task(pid) // it lives
		w.kernel = append(w.kernel, num)
	}
	return nil
}
