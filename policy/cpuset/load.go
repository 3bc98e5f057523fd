package cpuset

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Load follows the CPU time of all shared LC tasks from pulse to pulse.
type Load struct {
	Prev     model.Counter `json:"prev"`
	PrevNsec int64         `json:"prev_nsec"`
	// Rate is what they used over the last good pulse, CPU-sec/sec, and SeenNsec when that was
	// known (or when the policy began to look); 0: never.
	Rate     float64 `json:"rate"`
	SeenNsec int64   `json:"seen_nsec"`
	// Fast and Slow are its means over Params.RiseNsec and Params.FallNsec, CPU-sec/sec; not
	// Begun: there was no rate yet.
	Fast  float64 `json:"fast"`
	Slow  float64 `json:"slow"`
	Begun bool    `json:"begun,omitempty"`
	Blind bool    `json:"blind,omitempty"` // it cannot be read for so long that BE was put on its floor
}

// Mean is the load to which LC's side is sized, CPU-sec/sec: the greater of the two means.
func (l *Load) Mean() float64 { return max(l.Fast, l.Slow) }

// load is what one step knows of the load.
type load struct {
	known bool
	cpus  float64 // CPU-sec/sec, in this pulse
}

// measure takes a pulse in. A pulse that is missing, late or unreadable yields nothing by
// itself; the next good one covers the time since the last good one.
func (l *Load) measure(p *Params, v *policy.View) load {
	if l.SeenNsec == 0 {
		l.SeenNsec = v.NowNsec
	}
	if v.Pulse == nil || v.Pulse.LCUsage.Outcome != model.OK {
		return load{}
	}
	cpus := len(v.Topology.CPUs)
	for _, was := range v.Pulse.Passed {
		l.take(p, v.NowNsec, was.MonoNsec, model.Read(was.LCUsage), cpus)
	}
	return l.take(p, v.NowNsec, v.Pulse.MonoNsec, v.Pulse.LCUsage, cpus)
}

// take takes in what was used until a time, on a machine of so many CPUs.
func (l *Load) take(p *Params, nowNsec, monoNsec int64, usage model.Counter, cpus int) load {
	used, outcome := model.Delta(l.Prev, usage)
	span := monoNsec - l.PrevNsec
	if outcome == model.OK && span >= 0 && span < p.LeastPulseNsec {
		return load{} // too short to say anything; the next one covers this one
	}
	l.Prev, l.PrevNsec = usage, monoNsec
	if span < 0 { // of another clock: the next pulse is a new beginning
		l.Prev = model.Counter{Outcome: model.Unavailable}
	}
	if outcome != model.OK || span <= 0 {
		return load{}
	}
	l.Rate = min(float64(used)/float64(span), float64(cpus))
	l.SeenNsec = nowNsec
	l.average(p, span)
	return load{known: true, cpus: l.Rate}
}

// average takes the rate into both means, by how long it lasted.
func (l *Load) average(p *Params, spanNsec int64) {
	if !l.Begun {
		l.Fast, l.Slow, l.Begun = l.Rate, l.Rate, true
		return
	}
	span := float64(spanNsec)
	l.Fast += (l.Rate - l.Fast) * span / (span + float64(p.RiseNsec))
	l.Slow += (l.Rate - l.Slow) * span / (span + float64(p.FallNsec))
}

// nobody notes that there is no shared LC task: the load is 0, and that is known.
func (l *Load) nobody(v *policy.View) load {
	l.SeenNsec, l.Rate, l.Fast, l.Slow, l.Begun = v.NowNsec, 0, 0, 0, false
	return load{known: true}
}
