package cpuset

import "github.com/commensal-io/commensal/model"

// Load follows the CPU time of all shared LC tasks from pulse to pulse.
type Load struct {
	Prev     model.Counter `json:"prev"`
	PrevNsec int64         `json:"prev_nsec"`
	// Rate is what they used over the last good pulse, CPU-sec/sec, and SeenNsec when that was
	// known (or when the policy began to look); 0: never.
	Rate     float64 `json:"rate"`
	SeenNsec int64   `json:"seen_nsec"`
	Blind    bool    `json:"blind,omitempty"` // it cannot be read for so long that BE was put on its floor
}

// load is what one step knows of the load.
type load struct {
	known    bool
	cpus     float64 // CPU-sec/sec
	spanNsec int64   // over which it was used
}

// measure takes a pulse in. A pulse that is missing, late or unreadable yields nothing by
// itself; the next good one covers the time since the last good one.
func (l *Load) measure(p *Params, v *model.CPUView) load {
	if l.SeenNsec == 0 {
		l.SeenNsec = v.NowNsec
	}
	if v.Pulse == nil || v.Pulse.LCUsage.Outcome != model.OK {
		return load{}
	}
	used, outcome := model.Delta(l.Prev, v.Pulse.LCUsage)
	span := v.Pulse.MonoNsec - l.PrevNsec
	if outcome == model.OK && span >= 0 && span < p.LeastPulseNsec {
		return load{} // too short to say anything; the next one covers this one
	}
	l.Prev, l.PrevNsec = v.Pulse.LCUsage, v.Pulse.MonoNsec
	if outcome != model.OK || span <= 0 {
		return load{}
	}
	l.Rate = min(float64(used)/float64(span), float64(len(v.Topology.CPUs)))
	l.SeenNsec = v.NowNsec
	return load{known: true, cpus: l.Rate, spanNsec: span}
}

// nobody is the load where there are no tasks to have one.
func (l *Load) nobody(v *model.CPUView) load {
	span := max(v.NowNsec-l.SeenNsec, 0)
	l.SeenNsec, l.Rate = v.NowNsec, 0
	return load{known: true, spanNsec: span}
}
