package beside

import "github.com/commensal-io/commensal/model"

// disturbed reports whether the window says nothing of what is on trial, since somebody else changed something of the held task or of the victim after the
// last change here, or, where nothing is on trial, in the window. What is verified is looked at from the beginning after an action, under the limit that stands; what stays ends the incident, and the
// next anomaly begins a new one. A limit that was raised goes back to what was good where the victim suffers, and nothing is remembered of that; where it suffers under
// what was good, that counts as ever.
func (s *step) disturbed(inc *Incident, bad bool) bool {
	r := inc.Round()
	onTrial, since := inc.State != model.Recovered || inc.Share > inc.Good, s.v.Window.StartNsec
	switch {
	case onTrial && inc.MovedNsec == r.AppliedNsec:
		since = inc.HeldNsec // what was done while the limit was on its way would pass for its effect just the same
	case onTrial:
		since = inc.MovedNsec
	}
	why, stays := s.v.Disturbed(s.words.Policy, since, *r.Chosen, inc.Victim)
	if why == "" || bad && !onTrial {
		return false
	}
	inc.GoodRow, inc.GoodSum, inc.BadRow = 0, 0, 0
	why = "the trial says nothing: " + why
	d := model.Decision{Kind: model.DecideVoid, Task: *r.Chosen, Path: r.ChosenPath, Incident: inc.ID, Reason: why + "; it is looked at from now on"}
	switch {
	case !onTrial:
	case inc.State == model.Recovered && bad:
		s.move(inc, inc.Good, "tightened", why)
	case inc.State != model.Recovered && stays:
		d.Reason = why + "; given back"
		s.say(inc, d)
		s.close(inc, model.Dropped, why)
	default:
		inc.MovedNsec, inc.Sum, r.WindowsJudged, r.SignalAfter = s.v.NowNsec, 0, 0, 0
		s.w.Once("void "+inc.ID, d)
	}
	return true
}
