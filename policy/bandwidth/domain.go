package bandwidth

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Domain is one memory (View.Memories), and the level that the class has in each of its domains.
type Domain struct {
	ID int32 `json:"id"` // of the memory: its first domain
	// PeakBytes is what the memory can deliver a second, SeenBytes the largest rate that was seen, since SeenNsec.
	PeakBytes float64 `json:"peak_bytes,omitempty"`
	SeenBytes float64 `json:"seen_bytes,omitempty"`
	SeenNsec  int64   `json:"seen_nsec,omitempty"`
	// Of the last reading: U, L, what BE moves, and the threshold of it all.
	Utilisation model.Value `json:"utilisation"`
	Latency     model.Value `json:"latency"`
	BE          model.Value `json:"be"`
	P           float64     `json:"p"`
	ToNsec      int64       `json:"to_nsec,omitempty"`
	Settled     bool        `json:"settled,omitempty"` // it began after the last change of the level
	New         bool        `json:"new,omitempty"`     // it is of the window at hand

	Level   int   `json:"level"`    // that is wished for
	InForce int   `json:"in_force"` // that stands
	SetNsec int64 `json:"set_nsec,omitempty"`
	Void    bool  `json:"void,omitempty"`
	Limited bool  `json:"limited,omitempty"` // what stands is a limit
	Fit     fit   `json:"fit,omitzero"`

	// Of adaptive: the level that was too high, when it is tried again, and after how many windows.
	Bad       int   `json:"bad,omitempty"`
	RetryNsec int64 `json:"retry_nsec,omitempty"`
	Patience  int   `json:"patience,omitempty"`
	QuietNsec int64 `json:"quiet_nsec,omitempty"` // when it was last known how LC does while BE moves least
}

// late is how much of a reading may have passed before a change, for it to speak of what was changed.
const late = 0.1

// began reports whether what happened between two times happened after the last change.
func (d *Domain) began(fromNsec, toNsec int64) bool {
	return float64(d.SetNsec-fromNsec) <= late*float64(toNsec-fromNsec)
}

// look takes the readings of a window in.
func (s *State) look(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	for i := range s.Domains {
		s.Domains[i].New = false
	}
	if !v.Window.Closed {
		return
	}
	known, fresh := false, false
	use := v.MemoryUse(have)
	for i := range s.Domains {
		d := &s.Domains[i]
		o := model.MemoryObservation{}
		if len(use) > 0 {
			o = use[i]
		}
		d.take(p, &o, v.NowNsec)
		if l := s.ladder(have, v, i); d.New && d.Settled && d.BE.Outcome == model.OK {
			d.Fit.add(l.rung(d.InForce), d.BE.V)
		}
		d.P = p.threshold(d.Utilisation, s.slow(p, d, v))
		known, fresh = known || d.Utilisation.Outcome == model.OK, fresh || d.Utilisation.Outcome == model.Fresh
	}
	if !known && !fresh && !p.Adaptive {
		w.Once("no utilisation", model.Decision{
			Kind:   model.DecideLeftAlone,
			Reason: "how much of the memory bandwidth is in use is not known: the machine does not count it, or bandwidth.peak is 0 and the largest rate is not known yet",
		})
	}
}

// take takes one reading in.
func (d *Domain) take(p *Params, o *model.MemoryObservation, nowNsec int64) {
	node := finite(o.Node)
	d.Utilisation, d.Latency, d.BE = model.Missing(node.Outcome), finite(o.Latency), finite(o.BE)
	if node.Outcome == model.OK {
		if d.SeenNsec == 0 {
			d.SeenNsec = nowNsec
		}
		d.SeenBytes = max(d.SeenBytes, node.V)
	}
	d.PeakBytes = p.Peak * 1e9
	if p.Peak == 0 && d.SeenNsec > 0 && nowNsec-d.SeenNsec >= p.LearnNsec {
		d.PeakBytes = d.SeenBytes
	}
	switch {
	case node.Outcome == model.OK && d.PeakBytes > 0:
		d.Utilisation = model.Known(node.V / d.PeakBytes)
	case node.Outcome == model.OK:
		d.Utilisation = model.Missing(model.Unavailable) // a share of what?
	}
	d.New = o.ToNsec > d.ToNsec
	d.Settled = d.New && d.began(o.FromNsec, o.ToNsec)
	d.ToNsec = max(d.ToNsec, o.ToNsec)
}

// finite is a value that can be one.
func finite(v model.Value) model.Value {
	switch {
	case v.Outcome != model.OK:
		return model.Missing(v.Outcome)
	case !(v.V >= 0 && v.V < policy.Absurd):
		return model.Missing(model.Unavailable)
	}
	return v
}

// slow reports whether memory takes long enough to answer for BE to be limited, as far as anybody can tell.
func (s *State) slow(p *Params, d *Domain, v *policy.View) bool {
	if d.Latency.Outcome == model.OK {
		return d.Latency.V > float64(p.LatencyNsec)
	}
	told := false
	for i := range v.Window.Victims {
		x := &v.Window.Victims[i]
		if x.Source != model.SourceCPI {
			continue
		}
		told = true
		// Who hardly misses the cache has another reason than memory.
		if x.Verdict.Evidence() && x.Signal > x.Threshold && (x.MPKI.Outcome != model.OK || x.MPKI.V >= policy.FewMisses) {
			return true
		}
	}
	return !told
}

// threshold is P (Alibaba §4.2).
func (p *Params) threshold(u model.Value, slow bool) float64 {
	if u.Outcome != model.OK || !slow || !(u.V > p.UtilisationLow) {
		return p.ThresholdMost
	}
	share := min(1, (u.V-p.UtilisationLow)/(p.UtilisationHigh-p.UtilisationLow))
	return p.ThresholdMost - (p.ThresholdMost-p.ThresholdLeast)*share
}

// hold goes to the level of the threshold: down at once, up by one rung. A reading that began before the last
// change says nothing.
func (d *Domain) hold(p *Params, l *ladder, enforced bool) {
	if !d.New || d.Utilisation.Outcome != model.OK || enforced && (!d.Settled || !d.stands(l)) {
		return
	}
	want, now := l.top(), l.rung(d.Level)
	if d.P < p.ThresholdMost {
		want = d.Fit.choose(l, d.P/100*d.PeakBytes)
	}
	d.Level = l.levels[min(want, now+1)]
}

// stands reports whether what is wished for is in force.
func (d *Domain) stands(l *ladder) bool { return l.rung(d.InForce) == l.rung(d.Level) }

// limits reports whether the level is one.
func (d *Domain) limits(have *model.Classes) bool { return d.Level < have.MostLevel }

// tell says what a level is and was.
func (d *Domain) tell(was int) model.Decision {
	facts := []model.Fact{model.FactMemoryLevel.Is(float64(d.Level)), model.FactThresholdP.Is(d.P)}
	if d.Utilisation.Outcome == model.OK {
		facts = append(facts, model.FactMemoryUse.Is(d.Utilisation.V))
	}
	if d.Latency.Outcome == model.OK {
		facts = append(facts, model.FactMemoryLatency.Is(d.Latency.V))
	}
	return model.Decision{
		Kind: model.DecideLevel, Facts: facts, Reason: fmt.Sprintf("%s; level %d of memory bandwidth for best-effort work, was %d", d, d.Level, was),
	}
}

// String says how the memory fares, in one line.
func (d *Domain) String() string {
	text := fmt.Sprintf("memory %d", d.ID)
	if d.Utilisation.Outcome == model.OK {
		text += fmt.Sprintf(" U %.0f%% of %.0f GB/s", 100*d.Utilisation.V, d.PeakBytes/1e9)
	} else {
		text += " U not known"
	}
	if d.Latency.Outcome == model.OK {
		text += fmt.Sprintf(" L %.0f ns", d.Latency.V)
	}
	if d.P > 0 {
		text += fmt.Sprintf(" P %.0f", d.P)
	}
	return text
}
