package perf

import "math/bits"

// Status says whether the numbers beside it may be used.
type Status uint8

// The outcomes of one reading. The zero value is Unavailable.
const (
	Unavailable Status = iota // the cgroup ran, but nowhere did its group get onto the counters since the last reading
	OK                        // the numbers are good; an idle cgroup's stand still
	Gone                      // the cgroup was removed
	Backwards                 // a counter fell since the last reading, which starts it anew: this window gives no rate
)

// String returns the status as it is printed in reports.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Gone:
		return "gone"
	case Backwards:
		return "went backwards"
	default:
		return "unavailable"
	}
}

// Count is one event of a cgroup over all its CPUs, cumulative since the counters were opened.
type Count struct {
	// Raw is what was counted while the group was on the counters.
	Raw uint64
	// EnabledNsec is time that the cgroup was on a CPU while the group was enabled, summed over CPUs.
	EnabledNsec uint64
	// RunningNsec is the part of EnabledNsec in which the group was on the counters.
	RunningNsec uint64
	// EstimateRaw is Raw as it would be, had the group been on the counters all the time: each reading adds what each
	// CPU counted since the last one, times enabled/running of that CPU and that while. Scaling the
	// totals instead would let a late change of the ratio rewrite the past, and differences go backwards.
	EstimateRaw uint64
	// Status says whether the above may be used; they are zero when it is Gone.
	Status Status
}

// Scaled returns the estimate for the whole enabled time, and whether it may be used.
func (c Count) Scaled() (uint64, bool) { return c.EstimateRaw, c.Status == OK }

// Tally makes Counts of the cumulative readings of a group on several CPUs.
//
// A CPU on which the cgroup ran while its group waited for counters keeps its place: what it counts by the next reading is
// scaled over the wait too. The place is given up when the reading as a whole was Unavailable, for the caller got no
// number for that while and must not get it as part of another, and at the end of a window: counters that
// another tool held for an hour would otherwise come back with that hour's worth at once.
type Tally struct {
	cpus []place
	sums []Count
	fell bool
	ran  bool
	wait bool
}

// place is where one CPU's last reading ended.
type place struct {
	seen    uint64 // enabled, as last read
	enabled uint64 // enabled, running and values, up to where the estimate goes
	running uint64
	values  []uint64
}

// NewTally makes a tally of so many events on so many CPUs, all at zero.
func NewTally(cpus, events int) *Tally {
	t := &Tally{cpus: make([]place, cpus), sums: make([]Count, events)}
	values := make([]uint64, cpus*events)
	for i := range t.cpus {
		t.cpus[i].values, values = values[:events:events], values[events:]
	}
	return t
}

// outcome is what one CPU's group did since its last reading.
type outcome uint8

const (
	idle    outcome = iota // the cgroup did not run here, or the group was disabled
	counted                // it ran, and was counted at least in part
	starved                // it ran, and the group did not get onto the counters
	fell                   // a number went backwards
)

// Add adds the reading of the i-th CPU: the group's times in ns and its values, all cumulative.
func (t *Tally) Add(i int, enabled, running uint64, values []uint64) {
	switch t.advance(&t.cpus[i], enabled, running, values) {
	case counted:
		t.ran = true
	case starved:
		t.wait = true
	case fell:
		t.fell = true
	}
}

// Rebase says that the i-th CPU stands at these numbers and that nothing of them is to be counted: zeros for a group that
// was opened anew.
func (t *Tally) Rebase(i int, enabled, running uint64, values []uint64) {
	p := &t.cpus[i]
	p.seen, p.enabled, p.running = enabled, enabled, running
	copy(p.values, values)
}

// Starved says that the i-th CPU's group is in error and could not be read.
func (t *Tally) Starved(int) { t.wait = true }

// Finish ends a reading: it fills out and says how it went. ended says that the counters are disabled: what waits now
// is not made up for by what is counted in another window.
func (t *Tally) Finish(out []Count, ended bool) {
	status := OK
	switch {
	case t.fell:
		status = Backwards
	case t.wait && !t.ran:
		status = Unavailable
	}
	if ended || status == Unavailable {
		for i := range t.cpus {
			t.cpus[i].enabled = t.cpus[i].seen
		}
	}
	t.fell, t.wait, t.ran = false, false, false
	copy(out, t.sums)
	for i := range t.sums {
		out[i].Status = status
	}
}

// advance adds what was counted since the last reading to the sums.
func (t *Tally) advance(p *place, enabled, running uint64, values []uint64) outcome {
	if enabled < p.seen || running < p.running || anyLess(values, p.values) {
		p.seen, p.enabled, p.running = enabled, enabled, running
		copy(p.values, values)
		return fell
	}
	if enabled == p.seen && running == p.running {
		return idle
	}
	for i := range t.sums {
		t.sums[i].EnabledNsec += enabled - p.seen
	}
	p.seen = enabled
	if running == p.running {
		return starved
	}
	for i, v := range values {
		t.sums[i].Raw += v - p.values[i]
		t.sums[i].RunningNsec += running - p.running
		t.sums[i].EstimateRaw += scale(v-p.values[i], enabled-p.enabled, running-p.running)
	}
	p.enabled, p.running = enabled, running
	copy(p.values, values)
	return counted
}

// anyLess says whether a value is below the one before.
func anyLess(now, before []uint64) bool {
	for i, v := range now {
		if v < before[i] {
			return true
		}
	}
	return false
}

// scale returns value × enabled / running, rounded down, in 128 bits between; it stays at the largest number
// when the result has no room. running is not zero.
func scale(value, enabled, running uint64) uint64 {
	if enabled <= running { // never less than was counted: the two clocks are read a moment apart
		return value
	}
	hi, lo := bits.Mul64(value, enabled)
	if hi >= running {
		return ^uint64(0)
	}
	quotient, _ := bits.Div64(hi, lo, running)
	return quotient
}
