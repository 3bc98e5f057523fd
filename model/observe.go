package model

import "slices"

// Observe derives what the window between two snapshots says. out is reused. Both
// snapshots must have their tasks ordered by Num; a task that is in only one of them
// is Fresh or not listed.
func Observe(prev, cur *Snapshot, out *Observation) {
	elapsed := cur.MonoNsec - prev.MonoNsec
	*out = Observation{
		MonoNsec: cur.MonoNsec, WallNsec: cur.WallNsec, ElapsedNsec: elapsed,
		CPUs: cur.Node.CPUs, Tasks: out.Tasks[:0], Waiting: cur.Waiting, Memory: out.Memory[:0], Ages: cur.Ages, GPUs: cur.GPUs, IO: out.IO[:0], Domains: out.Domains[:0],
	}
	if elapsed <= 0 {
		return
	}
	out.Busy = rate(prev.Node.C[CountBusy], cur.Node.C[CountBusy], elapsed)
	out.Memory = observeMemory(prev, cur, out.Memory)
	out.IO = observeIO(prev, cur, elapsed, out.IO)
	out.Domains = observeDomains(prev, cur, out.Domains)
	out.Room = ObserveRoom(&prev.Node, &cur.Node, elapsed)
	out.Steal = rate(prev.Node.C[CountSteal], cur.Node.C[CountSteal], elapsed)

	// In whole nanoseconds: what the rounding of a sum of rates leaves over would pass for
	// CPU that no task used, and correlate with anything.
	managed := uint64(0)
	j := 0
	for i := range cur.Tasks {
		c := &cur.Tasks[i]
		for j < len(prev.Tasks) && prev.Tasks[j].Num < c.Num {
			j++
		}
		p := &out.none
		if j < len(prev.Tasks) && prev.Tasks[j].Num == c.Num {
			p = &prev.Tasks[j]
		}
		out.Tasks = append(out.Tasks, observeTask(p, c, elapsed))
		if used, oc := c.grown(p, CountUsage); oc == OK {
			managed += used
		}
	}
	out.leaveOutLost()
	out.Managed = Known(float64(managed) / float64(elapsed))
	busy, oc := Delta(prev.Node.C[CountBusy], cur.Node.C[CountBusy])
	switch {
	case oc != OK:
		out.Unmanaged = Missing(oc)
	case busy <= managed:
		out.Unmanaged = Known(0)
	default:
		out.Unmanaged = Known(float64(busy-managed) / float64(elapsed))
	}
}

// leaveOutLost takes back the signals that are measured of waits where too much of these is lost.
func (out *Observation) leaveOutLost() {
	for i := range out.Waiting {
		w := &out.Waiting[i]
		if w.Judged() {
			continue
		}
		k := slices.IndexFunc(out.Tasks, func(t TaskObservation) bool { return t.Num == w.Num })
		for src := range signals {
			if k >= 0 && signals[src].Charged {
				out.Tasks[k].Raw[src], out.Tasks[k].Signals[src] = Missing(Unavailable), Missing(Unavailable)
			}
		}
	}
}

func observeTask(p, c *TaskSample, elapsed int64) TaskObservation {
	o := TaskObservation{Num: c.Num, CPU: rate(p.C[CountUsage], c.C[CountUsage], elapsed)}
	o.ThrottledRate = rate(p.C[CountThrottled], c.C[CountThrottled], elapsed)
	if o.ThrottledRate.Outcome == OK {
		o.ThrottledKnown, o.Throttled = true, o.ThrottledRate.V > 0
		o.ThrottledRate.V *= 1e9
	}
	o.CoreCPI = c.ratio(p, CountCycles, CountInstructions)
	o.MPKI = c.ratio(p, CountLLCMisses, CountInstructions)
	if o.MPKI.Outcome == OK {
		o.MPKI.V *= 1000
	}
	if o.Misses = rate(p.C[CountLLCMisses], c.C[CountLLCMisses], elapsed); o.Misses.Outcome == OK {
		o.Misses.V *= 1e9
	}
	if o.Spent = c.C[CountUsage].gauge(); o.Spent.Outcome == OK {
		o.Spent.V /= 1e9
	}
	o.InUse, o.Anon, o.File = c.C[CountMemory].gauge(), c.C[CountMemoryAnon].gauge(), c.C[CountMemoryFile].gauge()
	o.Inactive, o.Limit = c.C[CountMemoryInactive].gauge(), c.C[CountMemoryLimit].gauge()
	if o.Refaults = rate(p.C[CountRefaults], c.C[CountRefaults], elapsed); o.Refaults.Outcome == OK {
		o.Refaults.V *= 1e9
	}
	o.Stalled = memoryShare(p, c, elapsed)
	o.Foreign = c.ratio(p, CountWaitedForeign, CountWaited)
	for i := range signals {
		o.Raw[i] = signals[i].Derive(p, c, elapsed)
	}
	o.Signals = o.Raw
	return o
}

// Discount leaves of the signals that are time spent waiting the part that others can have
// caused. While a thread of the task waits, the CPUs it may use run either the task's
// other threads or somebody else; aggregate counters do not say which, so the wait is
// charged in proportion to the CPU time that each took. What others took on the task's
// CPUs is at most what they took in all, and at most what the task left over there.
//
//	own = cpu / (cpu + min(busy - cpu, cpus - cpu))
//	signal = rest + (raw - rest) * (1 - own)
//
// Two spinners of one task on one CPU wait half their time, but cpus - cpu is zero
// there, so nothing is charged to others. cpus is the number of CPUs that the task may
// use; 0 means all of the node's. What this does not see: affinity set per thread.
//
// Where the scheduler's events tell who had the CPU, signals that are made of them (SignalRow.
// Charged) take that share instead.
func (o *TaskObservation) Discount(node *Observation, cpus int) {
	for i := range signals {
		if row := &signals[i]; row.Charged && o.Raw[i].Outcome == OK {
			o.Signals[i] = Known(row.Rest + (o.Raw[i].V-row.Rest)*min(1, o.Foreign.V))
		}
	}
	if o.CPU.Outcome != OK || node.Busy.Outcome != OK {
		return
	}
	if cpus <= 0 || cpus > node.CPUs {
		cpus = node.CPUs
	}
	others := max(0, min(node.Busy.V-o.CPU.V, float64(cpus)-o.CPU.V))
	if o.CPU.V+others <= 0 {
		return
	}
	own := o.CPU.V / (o.CPU.V + others)
	for i := range signals {
		if row := &signals[i]; row.Waits && !row.Charged && o.Raw[i].Outcome == OK {
			o.Signals[i] = Known(row.Rest + (o.Raw[i].V-row.Rest)*(1-own))
		}
	}
}

// rate returns growth by the nanosecond: CPU-sec/sec of readings in nanoseconds.
func rate(p, c Counter, elapsedNsec int64) Value {
	d, oc := Delta(p, c)
	if oc != OK {
		return Missing(oc)
	}
	return Known(float64(d) / float64(elapsedNsec))
}

// grown returns by how much a counter grew since an earlier sample.
func (s *TaskSample) grown(since *TaskSample, k TaskCounter) (uint64, Outcome) {
	return Delta(since.C[k], s.C[k])
}

// ratio returns the quotient of two counters' growth.
func (s *TaskSample) ratio(since *TaskSample, over, under TaskCounter) Value {
	n, oc := s.grown(since, over)
	if oc != OK {
		return Missing(oc)
	}
	d, oc := s.grown(since, under)
	if oc != OK {
		return Missing(oc)
	}
	if d == 0 {
		return Missing(Absent)
	}
	return Known(float64(n) / float64(d))
}
