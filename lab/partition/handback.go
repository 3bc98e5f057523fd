package partition

import (
	"time"

	"github.com/commensal-io/commensal/lab/openloop"
	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// write is a knob that the agent has written.
type write struct {
	nsec  int64 // when it was read back
	value model.Setting
}

// HandBack is what became of one step in the load. Times are from the step, in
// milliseconds; NaN is written as null.
type HandBack struct {
	StepNsec int64 `json:"step_mono_nsec"`
	// HadBE: batch work had a core to hand back. Without it the step says nothing.
	HadBE bool `json:"batch_had_a_core"`
	// FreedMsec is until batch work was sent off the core, GrownMsec until the service was
	// allowed on it, and RunMsec until a thread of the service ran there.
	FreedMsec stat.Number `json:"freed_ms"`
	GrownMsec stat.Number `json:"grown_ms"`
	RunMsec   stat.Number `json:"ran_ms"`
	// CPUs are those that the service got.
	CPUs string `json:"cpus"`
}

// handBack follows one step: what the service's and the batch work's knobs were at the step,
// what was written until the deadline, and when the service first ran where it was let.
func handBack(step int64, within time.Duration, service, batch []write, moves []openloop.Move) HandBack {
	h := HandBack{StepNsec: step, FreedMsec: stat.Absent(), GrownMsec: stat.Absent(), RunMsec: stat.Absent()}
	end := step + within.Nanoseconds()
	had, mine := placeAt(batch, step), placeAt(service, step)
	h.HadBE = !had.Without(mine).Empty()
	if !h.HadBE {
		return h
	}
	for i := range batch {
		if w := &batch[i]; w.nsec > step && w.nsec <= end && gives(w, had) {
			h.FreedMsec = msecBetween(step, w.nsec)
			break
		}
	}
	for i := range service {
		w := &service[i]
		if w.nsec <= step || w.nsec > end || w.value.Knob != model.CPUPlace {
			continue
		}
		gained := w.value.CPUs.Without(mine)
		if gained.Empty() {
			continue
		}
		h.GrownMsec, h.CPUs = msecBetween(step, w.nsec), gained.String()
		for _, m := range moves {
			// A thread may be there before the write was read back.
			if m.Nsec > step && m.Nsec <= end && gained.Has(m.CPU) {
				h.RunMsec = msecBetween(step, m.Nsec)
				break
			}
		}
		break
	}
	return h
}

// gives says whether a write takes from batch work any of the CPUs that it had: it may not
// run there any more, or, where it is parked, hardly.
func gives(w *write, had model.CPUSet) bool {
	if w.value.Knob == model.CPUBandwidth {
		return w.value.Ratio() < parkedBelow
	}
	return !had.Without(w.value.CPUs).Empty()
}

// parkedBelow, in CPUs, parts a parked task's limit from all others.
const parkedBelow = 0.1

// placeAt returns the CPUs that the last write before a time set.
func placeAt(writes []write, at int64) model.CPUSet {
	var s model.CPUSet
	for i := range writes {
		if w := &writes[i]; w.nsec <= at && w.value.Knob == model.CPUPlace {
			s = w.value.CPUs
		}
	}
	return s
}

func msecBetween(from, to int64) stat.Number { return stat.Number(float64(to-from) / 1e6) }

// Spread is a distribution in few numbers.
type Spread struct {
	N    int         `json:"n"`
	P50  stat.Number `json:"p50"`
	P99  stat.Number `json:"p99"`
	Most stat.Number `json:"most"`
}

// spread sums values up; those that are absent are not among them.
func spread(values []stat.Number) Spread {
	list := sortedOf(values)
	q := func(share float64) stat.Number { return stat.Number(stat.Quantile(share, list)) }
	return Spread{N: len(list), P50: q(0.5), P99: q(0.99), Most: q(1)}
}

// sortedOf returns those values that are there, in rising order.
func sortedOf(values []stat.Number) []float64 {
	var list []float64
	for _, v := range values {
		if v.Known() {
			list = append(list, float64(v))
		}
	}
	return stat.Sorted(list)
}
