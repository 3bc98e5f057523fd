package bandwidth

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// The adaptive search (Alibaba §4.3 leaves it open): no program is profiled, and no figure of the machine is needed. How
// LC does while BE moves least is learned first, by holding it to the lowest level for some windows, and again after an
// hour. Then the level goes up by one a window until LC's CPI is more than a tolerance above that; the level is taken
// back, and not tried again for a while that doubles each time it turns out badly. Far above the tolerance it goes
// to the lowest level at once. A service counts for the memories of the CPUs that it may use.

// Quiet is a service's CPI while BE moves least.
type Quiet struct {
	Num model.TaskNum `json:"task"`
	CPI float64       `json:"cpi"`
	N   float64       `json:"n"` // windows
}

const (
	mostPatience = 16 // times Retry
	farAbove     = 3  // times the tolerance
)

// quietOf returns what is known of a service, nil: nothing.
func (s *State) quietOf(num model.TaskNum) *Quiet {
	at, ok := slices.BinarySearchFunc(s.Quiet, num, func(q Quiet, n model.TaskNum) int { return cmp.Compare(q.Num, n) })
	if !ok {
		return nil
	}
	return &s.Quiet[at]
}

// learnQuiet takes the services' CPI in where BE is at the lowest level in all their memories.
func (s *State) learnQuiet(p *Params, have *model.Classes, v *policy.View) {
	s.Quiet = slices.DeleteFunc(s.Quiet, func(q Quiet) bool {
		return !slices.ContainsFunc(v.Tasks, func(t policy.TaskView) bool { return t.Task.Num == q.Num })
	})
	for i := range v.Window.Victims {
		x := &v.Window.Victims[i]
		if cpi(x) == 0 || !s.quietAround(have, v, x.Num) {
			continue
		}
		q := s.quietOf(x.Num)
		if q == nil {
			at, _ := slices.BinarySearchFunc(s.Quiet, x.Num, func(q Quiet, n model.TaskNum) int { return cmp.Compare(q.Num, n) })
			s.Quiet = slices.Insert(s.Quiet, at, Quiet{Num: x.Num})
			q = &s.Quiet[at]
		}
		q.N = min(q.N+1, float64(p.Windows))
		q.CPI += (x.Signal - q.CPI) / q.N
	}
}

// cpi returns a service's CPI in the window, 0 where it says nothing.
func cpi(x *policy.Victim) float64 {
	if x.Source != model.SourceCPI || !x.Verdict.Evidence() || !(x.Signal > 0 && x.Signal < 1e6) {
		return 0
	}
	return x.Signal
}

// quietAround reports whether BE was at the lowest level during the window in all memories of a task.
func (s *State) quietAround(have *model.Classes, v *policy.View, num model.TaskNum) bool {
	for i := range s.Domains {
		d := &s.Domains[i]
		l := s.ladder(have, v, i)
		if near(have, v, num, i) && (d.InForce > l.levels[0] || !d.began(v.Window.StartNsec, v.NowNsec)) {
			return false
		}
	}
	return true
}

// near reports whether a task may run on the CPUs that are near the ith memory; who is not known is near.
func near(have *model.Classes, v *policy.View, num model.TaskNum, i int) bool {
	t := v.Task(num)
	return t == nil || t.NearMemory(have, &v.Memories(have)[i])
}

// above is LC's CPI in the window beside that while BE moves least, mean over the services near the ith memory. known is
// false where one of them was not seen so often enough, told where none says anything.
func (s *State) above(p *Params, at int, have *model.Classes, v *policy.View) (ratio float64, known, told bool) {
	n := 0.0
	known = true
	for i := range v.Window.Victims {
		x := &v.Window.Victims[i]
		if cpi(x) == 0 || !near(have, v, x.Num, at) {
			continue
		}
		told = true
		q := s.quietOf(x.Num)
		if q == nil || q.N < float64(min(p.Windows, 3)) {
			known = false
			continue
		}
		ratio, n = ratio+cpi(x)/q.CPI, n+1
	}
	if n > 0 {
		ratio /= n
	}
	return ratio, known && n > 0, told
}

// search moves the level of the ith memory by what a window says of the services near it.
func (s *State) search(p *Params, l *ladder, i int, have *model.Classes, v *policy.View) {
	d := &s.Domains[i]
	now := l.rung(d.Level)
	if !d.stands(l) || !d.began(v.Window.StartNsec, v.NowNsec) {
		return
	}
	ratio, known, told := s.above(p, i, have, v)
	switch {
	case !told: // nobody suffers who could be seen to
		return
	case !known || d.QuietNsec == 0 || v.NowNsec-d.QuietNsec >= p.RestNsec:
		if now == 0 && known {
			d.QuietNsec = v.NowNsec
		}
		d.Level = l.levels[0]
	case ratio > 1+p.Tolerance:
		d.tooHigh(p, now, v)
		if d.Level = l.levels[max(now-1, 0)]; ratio > 1+farAbove*p.Tolerance {
			d.Level = l.levels[0]
		}
	case now < l.top() && (now+1 < d.Bad || d.Bad == 0 || v.NowNsec >= d.RetryNsec):
		d.Level = l.levels[now+1]
	}
}

// tooHigh notes that a rung was too high.
func (d *Domain) tooHigh(p *Params, now int, v *policy.View) {
	if now == 0 {
		return
	}
	if d.Patience = min(2*d.Patience, mostPatience*p.Retry); now != d.Bad {
		d.Patience = p.Retry // something else is there than before
	}
	d.Bad = now
	d.RetryNsec = v.NowNsec + int64(d.Patience)*max(v.Window.LengthNsec, 1)
}
