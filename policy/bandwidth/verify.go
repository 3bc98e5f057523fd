package bandwidth

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/tally"
)

// Whether limits help. LC's CPI is summed up over windows in which a threshold asked for a limit and none stood (when
// trouble begins, and where limits were let go too far), and over those in which one stood. While BE rests there is
// no trouble with or without a limit: such windows of the second kind are not counted, since there are none of the first
// (beWorks). Where the first do not come by themselves BE is let go for as many, once: what that costs LC is the price of knowing. Where CPI
// is not lower by a share, and by more than twice the standard error, BE has no limit for an hour.

// verify takes a window in.
func (s *State) verify(p *Params, v *policy.View, w *policy.Wishes) {
	if v.NowNsec >= s.FreeNsec {
		s.FreeNsec = 0
	}
	if !v.Enforced() || v.NowNsec < s.FreeNsec || v.NowNsec < s.KeptNsec {
		s.Loose, s.Tight, s.TightNsec, s.Probing = tally.Tally{}, tally.Tally{}, 0, 0
		return
	}
	limited, asked := s.stands(p, v)
	works := s.beWorks(p, v)
	switch {
	case limited:
		if s.TightNsec == 0 {
			s.TightNsec = v.NowNsec
		}
		if s.Tight.Windows < p.Windows && works {
			s.Tight.Add(&v.Window)
		}
	case asked && s.Loose.Windows < p.Windows:
		s.Loose.Add(&v.Window)
	}
	if s.Probing > 0 && s.read() {
		s.Probing--
	}
	switch {
	case s.Tight.Windows < p.Windows:
	case s.Loose.Windows >= p.Windows:
		s.Probing = 0
		s.judge(p, v, w)
	case s.Probing == 0 && v.NowNsec-s.TightNsec >= p.PatienceNsec:
		// Twice: the first of them see the change, and not all bear LC's CPI. TightNsec: not again for as long.
		s.Probing, s.TightNsec = 2*p.Windows+2, v.NowNsec
		w.Decide(model.Decision{Kind: model.DecideTrial, Reason: "best-effort work has all memory bandwidth for some windows, to see what its limit is worth"})
	}
}

// read reports whether it is known of some memory how much of it is in use. In a window without, a reading came late: no limit can be asked for
// in it, and a trial goes on without it.
func (s *State) read() bool {
	return slices.ContainsFunc(s.Domains, func(d Domain) bool { return d.Utilisation.Outcome == model.OK })
}

// restful is the share of the CPU time that BE uses while it is to have a limit, below which it rests. Levels of bandwidth
// leave CPU time as it is.
const restful = 0.5

// beWorks reports whether BE ran in the window about as much as where it was to have a limit; so it does where nobody can tell.
func (s *State) beWorks(p *Params, v *policy.View) bool {
	if v.Window.Observation == nil {
		return true
	}
	ran, known := 0.0, false
	for i := range v.Window.Observation.Tasks {
		o := &v.Window.Observation.Tasks[i]
		if t := v.Task(o.Num); t != nil && t.Task.Class == model.BE && o.CPU.Outcome == model.OK && o.CPU.V >= 0 && o.CPU.V < policy.Absurd {
			ran, known = ran+o.CPU.V, true
		}
	}
	if !known {
		return true
	}
	if slices.ContainsFunc(s.Domains, func(d Domain) bool { return d.P < p.ThresholdMost }) {
		if s.Ran == 0 {
			s.Ran = ran
		}
		s.Ran += fresh * (ran - s.Ran)
	}
	return ran >= restful*s.Ran
}

// stands reports whether some limit stood during all of a window, and whether none did where one was asked for.
func (s *State) stands(p *Params, v *policy.View) (limited, asked bool) {
	for i := range s.Domains {
		d := &s.Domains[i]
		if !d.began(v.Window.StartNsec, v.NowNsec) {
			return false, false
		}
		limited = limited || d.limits(v.Topology.Classes) && d.InForce <= d.Level
		asked = asked || d.P < p.ThresholdMost && d.InForce >= v.Topology.Classes.MostLevel
	}
	return limited, asked && !limited
}

// judge compares the windows with a limit with those without.
func (s *State) judge(p *Params, v *policy.View, w *policy.Wishes) {
	ratio, noise := s.Tight.Beside(&s.Loose)
	d := model.Decision{
		Kind: model.DecideKept, Facts: []model.Fact{model.FactRatio.Is(ratio)},
		Reason: fmt.Sprintf("with less memory bandwidth for best-effort work LC's CPI is %.3g times what it was without a limit", ratio),
	}
	if s.KeptNsec = v.NowNsec + p.RestNsec; ratio > 1-p.Gain || 1-ratio < 2*noise {
		s.FreeNsec, s.KeptNsec, d.Kind = s.KeptNsec, 0, model.DecideTakenBack
	}
	s.Loose, s.Tight, s.TightNsec = tally.Tally{}, tally.Tally{}, 0
	w.Decide(d)
}
