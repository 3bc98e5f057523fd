package hardcap

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// An alibi is for batch work that has a rhythm of its own beside harm that nobody can hold: it runs more in some
// bad windows, is charged with a part of them, and its rhythm decides how large that part is. The bad windows in
// which it ran no more than usual say what the victim waits without it.

// leastEach is how many bad windows with and without a suspect are asked for: with fewer it is chance.
const leastEach = 3

// alibi reports whether the most of what a victim waits in bad windows in which a suspect uses more than in good ones
// it waits as well in those in which the suspect does not: to hold it would not take away what a hold should.
func (s *State) alibi(in *policy.View, victim, num model.TaskNum) bool {
	w := s.waiter(victim)
	if w == nil {
		return false
	}
	good := w.good()
	usual := in.History.MeanUsage(num, good.at)
	var with, without side
	for i := range w.Windows {
		of := &w.Windows[i]
		used, kept := in.History.UsageAt(num, of.AtNsec)
		switch {
		case !of.Bad || !kept:
		case used > usual:
			with.add(of)
		default:
			without.add(of)
		}
	}
	if len(with.at) < leastEach || len(without.at) < leastEach {
		return false
	}
	present, _ := excess(with.mean().charged, good.forAsMany(&with).charged)
	absent, _ := excess(without.mean().charged, good.forAsMany(&without).charged)
	return absent > (1-most)*present
}
