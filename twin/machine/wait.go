package machine

import (
	"math/bits"
	"slices"
)

// WaitClasses is how many classes of length waits are counted in: those of kernel/schedwait, four
// from each power of two to the next, in units of 1024 ns.
const WaitClasses = 96

// Waits is how the threads of a task waited for a CPU, and who had it meanwhile. What is charged
// adds up to what Counters.DelayNsec grew by.
type Waits struct {
	// Charged is for how long which task had the CPU, ns, by its number. What stands under the
	// task's own number its threads waited for each other.
	Charged []float64
	// TakenNsec is for how long each taker had it.
	TakenNsec [takers]float64
	// ThrottledNsec is for how long the task's own quota was used up.
	ThrottledNsec float64
	// Wakeups are the waits after a wake-up that ended, one a request, and Lengths how long they
	// were. Preempted are those of threads that are always ready, one a slice.
	Wakeups     int64
	Lengths     [WaitClasses]uint64
	Preempted   float64
	LongestNsec float64 // of all
}

// sliceNsec is for how long a thread runs that others wait for: the scheduler's own choice with
// eight CPUs or more (kernel/sched/fair.c, sysctl_sched_base_slice). The physics divides CPU time
// without slices; only how often it would switch is counted by them.
const sliceNsec = 3e6

// Watch has the waits of a task measured from now on, or not any more.
func (m *Machine) Watch(num int, on bool) error {
	t, err := m.task(num)
	switch {
	case err != nil:
		return err
	case !on:
		t.waits = nil
	case t.waits == nil:
		t.waits = &Waits{}
	}
	return nil
}

// Name is what a task is called, "" when it is gone.
func (m *Machine) Name(num int) string {
	t, err := m.task(num)
	if err != nil {
		return ""
	}
	return t.cfg.Name
}

// TakeWaits adds to w how a task that is watched waited since it was last asked, or watched.
func (m *Machine) TakeWaits(num int, w *Waits) error {
	t, err := m.task(num)
	if err != nil || t.waits == nil {
		return err
	}
	from := t.waits
	w.grow(len(from.Charged))
	for i, nsec := range from.Charged {
		w.Charged[i] += nsec
	}
	for i, n := range from.Lengths {
		w.Lengths[i] += n
	}
	for by, nsec := range from.TakenNsec {
		w.TakenNsec[by] += nsec
	}
	w.ThrottledNsec += from.ThrottledNsec
	w.Wakeups += from.Wakeups
	w.Preempted += from.Preempted
	w.LongestNsec = max(w.LongestNsec, from.LongestNsec)
	clear(from.Charged)
	*from = Waits{Charged: from.Charged}
	return nil
}

func (w *Waits) grow(n int) {
	if more := n - len(w.Charged); more > 0 {
		w.Charged = append(w.Charged, make([]float64, more)...)
	}
}

// ran is who was given an atom's CPUs in a step.
type ran struct {
	by  []float64 // CPUs, by number of the task
	all float64
}

// chargeAll charges what the watched tasks waited in a step.
func (m *Machine) chargeAll(dt int64) {
	filled := false
	for i, t := range m.live {
		if t.waits == nil {
			continue
		}
		if !filled {
			filled = true
			m.fillRan()
		}
		t.waits.grow(len(m.tasks))
		m.charge(i, float64(dt))
	}
}

func (m *Machine) fillRan() {
	atoms := len(m.placement.atoms)
	for len(m.ran) < atoms {
		m.ran = append(m.ran, ran{})
	}
	for a := range m.ran[:atoms] {
		r := &m.ran[a]
		if len(r.by) < len(m.tasks) {
			r.by = make([]float64, len(m.tasks)+8)
		}
		clear(r.by)
		r.all = 0
		for _, t := range m.live {
			r.by[t.num] = t.share[a]
			r.all += t.share[a]
		}
	}
}

// charge charges what a task waited in a step to whoever was given the CPUs on which its threads
// stood in line. There are four kinds of waiting, those that make up its delay:
//
//   - What its own quota held back.
//   - What it is ready for and is not given (t.wait). Ready threads are spread evenly over its
//     CPUs, as the balancer does. In an atom of k CPUs, of which it is given g, n threads are n/k
//     a CPU: while another runs there, which is the share 1-g/k of the time, all of them wait for
//     that one; while one of them runs, the n/k-1 others wait for their own.
//   - The moments until a CPU is found (atom.met), which are for the others' load by definition, as far
//     as it is in the way (rank.stays).
//   - A service's threads that wait for each other. Whoever has the CPU that they wait for is one of
//     their own only as far as that one gets on: what it waits itself, they wait for the same.
//
// Whoever has a CPU meanwhile, takers have their share of the time.
func (m *Machine) charge(i int, step float64) {
	t, p := m.live[i], &m.placement
	w := t.waits
	behind, waiting := t.queue.own, t.wait*step
	if t.want > 0 {
		held := t.held()
		w.ThrottledNsec += held*step + behind*held/t.want
		waiting += behind * t.wait / t.want
		w.took(&t.robbed, behind/t.want)
		behind *= max(0, t.want-held-t.wait-t.robbed.all()) / t.want
	}
	own := behind
	each := (t.had() + t.wait) / float64(max(1, t.may)) // threads that are ready, a CPU
	short := 0.0                                        // of CPUs, where it has fewer than threads
	for _, a := range p.of[i] {
		short += max(0, each*p.atoms[a].cpus-t.share[a]/(1-p.atoms[a].taken.all()))
	}
	if short <= 0 {
		own += waiting // a rounding's
	}
	for _, a := range p.of[i] {
		at, given, others := &p.atoms[a], t.share[a], m.ran[a].all-t.share[a]
		taken, foreign := at.taken.all(), 0.0
		if short > 0 {
			had := given / (1 - taken)
			here := max(0, each*at.cpus-had) / short
			w.took(&at.taken, waiting*here)
			stood := waiting * here * (1 - taken) // while somebody got on
			mine := min(stood, max(0, (had+t.wait*here)/at.cpus-1)*given*step)
			own += mine
			foreign = stood - mine
		}
		own += w.share(t.num, foreign, others, at.cpus, m.ran[a].by)
		if t.cfg.Requests != nil && given > 0 {
			own += m.chargeWoken(i, a, step)
		}
	}
	w.Charged[t.num] += own
	if t.cfg.Work != nil && t.wait > 0 && t.given > 0 {
		w.Preempted += t.given * step / sliceNsec
		w.LongestNsec = max(w.LongestNsec, t.wait/t.given*sliceNsec)
	}
}

// took charges takers with their shares of a time, ns.
func (w *Waits) took(of *taken, nsec float64) {
	for by, share := range of {
		w.TakenNsec[by] += share * nsec
	}
}

// share charges foreign waiting to the others in an atom, who were given so many CPUs together. What
// it returns there is nobody for: a rounding's.
func (w *Waits) share(own int, foreign, others, cpus float64, by []float64) float64 {
	if foreign <= 0 || others <= 1e-9*cpus {
		return foreign
	}
	rate, to := foreign/others, w.Charged
	by, mine := by[:len(to)], to[own]
	for num := range to {
		to[num] += rate * by[num]
	}
	to[own] = mine
	return 0
}

// woken counts the wait of a thread that was woken for a request.
func (w *Waits) woken(nsec float64) {
	nsec = max(0, nsec)
	w.Wakeups++
	w.Lengths[ClassOf(nsec)]++
	w.LongestNsec = max(w.LongestNsec, nsec)
}

// Quantile returns below what length a share q of the waits after a wake-up is, to a quarter; 0
// without any.
func (w *Waits) Quantile(q float64) int64 {
	if w.Wakeups == 0 {
		return 0
	}
	i, sum := 0, uint64(0)
	for ; i < WaitClasses-1; i++ {
		if sum += w.Lengths[i]; sum > 0 && float64(sum) >= q*float64(w.Wakeups) {
			break
		}
	}
	if i++; i < 4 {
		return int64(i) << 10
	}
	return int64(4+i%4) << (i/4 - 1) << 10
}

// ClassOf is the class of a length, as kernel/schedwait has them.
func ClassOf(nsec float64) int {
	v := uint64(min(nsec, 1<<62)) >> 10
	switch {
	case v >= 1<<24:
		return WaitClasses - 4
	case v < 4:
		return int(v)
	}
	e := bits.Len64(v) - 1
	return (e-1)*4 + int(v>>(e-2)&3)
}

func (w *Waits) fork() *Waits {
	if w == nil {
		return nil
	}
	f := *w
	f.Charged = slices.Clone(w.Charged)
	return &f
}
