package machine

import "math"

// Pressure is what PSI counts, in nanoseconds: time in which some of the threads that had
// work to do waited, and in which all of them did (Documentation/accounting/psi.rst).
type Pressure struct {
	CPUSome, CPUFull       uint64
	MemorySome, MemoryFull uint64
}

// pressure is Pressure before rounding.
type pressure struct{ cpuSome, cpuFull, memorySome, memoryFull float64 }

func (p *pressure) rounded() Pressure {
	return Pressure{CPUSome: uint64(p.cpuSome), CPUFull: uint64(p.cpuFull), MemorySome: uint64(p.memorySome), MemoryFull: uint64(p.memoryFull)}
}

// press counts the step's pressure: of each task, and of the machine, which stalls in some
// way when any task does.
func (m *Machine) press(dt int64) {
	step := float64(dt)
	var all, none pressure
	none = pressure{1, 1, 1, 1}
	working := false
	for _, t := range m.live {
		if t.want <= 0 {
			continue
		}
		working = true
		p := t.pressure(t.queue.own / float64(m.partNsec)) // of the last part: this one's is not known yet
		t.stall.cpuSome += p.cpuSome * step
		t.stall.cpuFull += p.cpuFull * step
		t.stall.memorySome += p.memorySome * step
		t.stall.memoryFull += p.memoryFull * step
		// Tasks stall independently of each other.
		none.cpuSome *= 1 - p.cpuSome
		none.memorySome *= 1 - p.memorySome
		none.memoryFull *= p.memoryFull
	}
	if !working {
		return
	}
	all.cpuSome, all.memorySome, all.memoryFull = 1-none.cpuSome, 1-none.memorySome, none.memoryFull
	m.stall.cpuSome += all.cpuSome * step
	m.stall.memorySome += all.memorySome * step
	m.stall.memoryFull += all.memoryFull * step
}

// pressure is the shares of the step in which a task stalls. CPU: as many threads as t.wait
// stand in a queue, and as own behind their own kind; while its own quota is used up nobody
// of it runs. Memory: of k threads that have work each waits for pages the share
// t.mem.blocked.
func (t *Task) pressure(own float64) pressure {
	var p pressure
	held := t.held() / t.want
	p.cpuFull = held
	p.cpuSome = min(1, max(held, t.wait+own+t.late*t.given))
	if b := t.mem.blocked; b > 0 {
		k := max(1, t.want)
		p.memorySome = 1 - math.Pow(1-b, k)
		p.memoryFull = math.Pow(b, k)
	}
	return p
}

// Pressure returns a task's stalls since it started.
func (m *Machine) Pressure(num int) (Pressure, error) {
	t, err := m.task(num)
	if err != nil {
		return Pressure{}, err
	}
	return t.stall.rounded(), nil
}

// SystemPressure returns the machine's. CPUFull is 0: some CPU always works.
func (m *Machine) SystemPressure() Pressure { return m.stall.rounded() }
