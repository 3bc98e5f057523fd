package remedy

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// The way home. Nothing holds a task's pages that were moved for a service, so nothing gave them back, and each read of the task passed between the sockets
// for as long as it lived. They go back as ways and levels do, in two steps: once there is room for what their going was worth, and some quiet
// times have passed, since copying costs both; or after a long time. What costs its task most for what it is worth goes first. Pages of who runs
// elsewhere, or there, too, are at home where they went: where they lay before is not known.

const (
	home      = 1 - leastStay // a task with so many of its pages beside it has them at home
	homeAfter = 8             // quiet times
)

// Home is what is known of a task's pages that are not beside it.
type Home struct {
	// Worth is the logarithm by which services' signals came down as they went, Cost by which the task's own CPI went up.
	Worth    float64 `json:"worth,omitempty"`
	Cost     float64 `json:"cost,omitempty"`
	WentNsec int64   `json:"went_nsec,omitempty"` // when the last of them did; 0: it was worth nothing
	Patience int     `json:"waits,omitempty"`     // of RetryNsec, since their coming back brought trouble
}

func (h *Home) dear() float64 { return dear(h.Cost, h.Worth) }

// wentAway notes that more of a task's pages went away, and what that was worth.
func (s *State) wentAway(p *Params, v *policy.View, t *Trial, worth float64) {
	b := s.batch(t.Task)
	if !p.Home {
		return
	}
	if b.Worth, b.WentNsec = b.Worth+worth, 0; worth > 0 {
		b.WentNsec, b.Patience = v.NowNsec, 0
	}
	cost, _, _ := b.rose(t)
	b.Cost += max(0, cost)
}

// back is the share of its pages that a task has beside it after a step home, and what that is reckoned to cost services.
func (b *Batch) back() (left, lost float64) {
	left = min(1, max(0.5, 2*b.Left))
	return left, b.Worth * (left - b.Left) / (1 - b.Left)
}

// came takes in that pages came home by a step, and nobody was in trouble for it.
func (b *Batch) came(h *Hold) {
	rest := (1 - h.Amount) / max(1-h.Was, leastStay)
	b.Worth, b.Cost, b.WentNsec, b.Patience, b.Dear = rest*b.Worth, rest*b.Cost, 0, 0, true // there was no need of more room
	if h.Amount > home {
		b.Left, b.Home = 1, Home{}
	}
}

// goesBack has pages that came home go away again.
func (b *Batch) goesBack(h *Hold) {
	b.WentNsec, b.Patience = h.FreshNsec, later(b.Patience)
	h.Off, h.Home, h.Moved = b.Off, false, ""
}

// kept is the share of the pages that is to stay on the nodes off which they are moved.
func (h *Hold) kept() float64 {
	if h.Home {
		return 1 - h.Amount
	}
	return h.Amount
}

// away reports whether a task's pages are not beside it.
func (b *Batch) away() bool { return !b.Off.Empty() && b.Left < home }

// homeward is whose pages may come home by a step, the dearest; nil: nobody's.
func (s *State) homeward(p *Params, have *model.Classes, v *policy.View) (dearest *Batch) {
	for i := range s.Batch {
		if b := &s.Batch[i]; p.Home && b.away() && (dearest == nil || b.dear() > dearest.dear()) && s.mayComeHome(p, have, v, b) {
			dearest = b
		}
	}
	return dearest
}

// mayComeHome reports whether a task's pages may come home by a step now.
func (s *State) mayComeHome(p *Params, have *model.Classes, v *policy.View, b *Batch) bool {
	t := v.Task(b.Task)
	if t == nil || t.Task.Class != model.BE || t.Exempt != "" || v.Frozen(b.Task) || v.LeaveAlone(b.Task, model.PolicyRemedy) != "" || !s.calm(p, v, b.Task) {
		return false
	}
	if _, why := t.Closed(model.MemoryPages); why != "" || slices.ContainsFunc(s.Tried, func(f Tried) bool { return f.Task == b.Task && f.Means == Pages && f.Victim == 0 }) {
		return false
	}
	if slices.ContainsFunc(v.Memories(have), func(m model.Memory) bool { return t.NearMemory(have, &m) && !m.Nodes.Within(b.Off) }) {
		return false
	}
	gone := v.NowNsec - b.WentNsec
	_, lost := b.back()
	return gone >= int64(max(1, b.Patience))*p.RetryNsec || b.Patience == 0 && gone >= homeAfter*p.QuietNsec && s.room(p, b.Task, lost)
}

// goHome has pages come home by a step.
func (s *State) goHome(have *model.Classes, v *policy.View, w *policy.Wishes, b *Batch) {
	left, _ := b.back()
	off := v.MemoryAt(have, func(m *model.Memory) bool { return !m.Nodes.Within(b.Off) })
	s.Holds = append(s.Holds, Hold{Task: b.Task, Victim: s.closest(b.Task).Task, Means: Pages, Amount: b.Left, Full: 1, Off: off, Home: true})
	s.stepBack(v, w, &s.Holds[len(s.Holds)-1], left)
}
