package machine

import "math"

// Pressure is what PSI counts, in nanoseconds: time in which some of the threads that had
// work to do waited, and in which all of them did (Documentation/accounting/psi.rst).
type Pressure struct {
	CPUSome, CPUFull       uint64
	MemorySome, MemoryFull uint64
	IOSome, IOFull         uint64
}

// pressure is Pressure before rounding.
type pressure struct{ cpuSome, cpuFull, memorySome, memoryFull, ioSome, ioFull float64 }

func (p *pressure) rounded() Pressure {
	return Pressure{CPUSome: uint64(p.cpuSome), CPUFull: uint64(p.cpuFull), MemorySome: uint64(p.memorySome), MemoryFull: uint64(p.memoryFull), IOSome: uint64(p.ioSome), IOFull: uint64(p.ioFull)}
}

// press counts the step's pressure: of each task, and of the machine, which stalls in some
// way when any task does.
func (m *Machine) press(dt int64) {
	step := float64(dt)
	var all, none pressure
	none = pressure{cpuSome: 1, cpuFull: 1, memorySome: 1, memoryFull: 1}
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

// StallWatch tells when programs begin to wait for memory, as a PSI trigger of the machine does (kernel/sched/psi.c,
// window_update and update_triggers): once a window at most, when so much stall has come together within it, of which what
// the window before had counts less and less. A kernel looks ten times a window; here it is whoever asks.
type StallWatch struct {
	m     *Machine
	marks [2]stallMark // some, full
	woken chan struct{}
}

// stallMark is one trigger.
type stallMark struct {
	stall          float64 // ns
	start          int64
	startAt, prev  float64 // the total when the window began, and what the one before had
	firedNsec      int64
	fired, started bool
}

// stallWindow is how long a window is, ns.
const stallWindow = 1e9

// WatchStalls watches for some and full stalls of such shares of a second.
func (m *Machine) WatchStalls(some, full float64) *StallWatch {
	w := &StallWatch{m: m, woken: make(chan struct{}, 1)}
	w.marks[0].stall, w.marks[1].stall = some*stallWindow, full*stallWindow
	return w
}

// Fork returns a watch that goes on as this one on a fork of its machine.
func (w *StallWatch) Fork(m *Machine) *StallWatch {
	return &StallWatch{m: m, marks: w.marks, woken: make(chan struct{}, 1)}
}

// Stalls looks, and returns what is ready to be received from when a trigger has fired since somebody received.
func (w *StallWatch) Stalls() <-chan struct{} {
	for i, total := range [...]float64{w.m.stall.memorySome, w.m.stall.memoryFull} {
		if w.marks[i].fires(w.m.now, total) {
			select {
			case w.woken <- struct{}{}:
			default:
			}
		}
	}
	return w.woken
}

// Close ends nothing: nobody looks by himself.
func (w *StallWatch) Close() error { return nil }

func (k *stallMark) fires(now int64, total float64) bool {
	if !k.started {
		k.started, k.start, k.startAt = true, now, total
	}
	growth := total - k.startAt
	if past := now - k.start; past > stallWindow {
		k.start, k.startAt, k.prev = now, total, growth
	} else {
		growth += k.prev * float64(stallWindow-past) / stallWindow
	}
	if growth < max(k.stall, 1e6) || k.fired && now-k.firedNsec < stallWindow {
		return false
	}
	k.fired, k.firedNsec = true, now
	return true
}
