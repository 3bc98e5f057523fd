package cpuset

import "github.com/commensal-io/commensal/model"

// Watch follows between two pulses how much LC can have used at most. As long as even that would leave
// the border where it is, nothing could come of a pulse. Others whose work is in the bound cost pulses
// that might have been passed over; they never count as LC's load.
type Watch struct {
	load  Load
	known bool
}

// Begin takes up from a step at a time, up to which the bound had grown so far.
func (w *Watch) Begin(s *State, nowNsec int64, busy model.Counter) {
	w.known = busy.Outcome == model.OK && s.Load.SeenNsec == nowNsec && !s.Load.Blind
	if w.known {
		w.load = s.Load
		w.load.Prev, w.load.PrevNsec = busy, nowNsec
	}
}

// Stays reports whether the border stays where it is although all that the bound grew by since was LC's.
// cpus is how many the machine has.
func (w *Watch) Stays(p *Params, s *State, nowNsec int64, busy model.Counter, cpus int) bool {
	if !w.known || s.plan == nil || busy.Outcome != model.OK {
		return false
	}
	l := w.load.take(p, nowNsec, nowNsec, busy, cpus)
	if !l.known {
		return false
	}
	pace := s.Pace
	pace.refill(p, nowNsec)
	_, why := s.wants(p, &pace, nowNsec, l.cpus, w.load.Mean())
	return why == stays
}
