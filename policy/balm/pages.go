package balm

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Pages away from the memories that services in trouble are at (BALM III-A, its second dimension): a step back that
// brought trouble is taken back, and then a tenth of the task's pages goes elsewhere, so that the step does no harm the
// next time. The paper leaves the step standing while it copies; here no target is missed for that. Pages move, too, where all
// that draw have the lowest level and services are in trouble still: a level is no limit for who asks for less. And they go on
// between well and in trouble, where the paper waits: nothing is given back there.
//
// Hard cases. Where services at all memories are in trouble there is nowhere to go. How many of a task's pages lie there
// nobody knows before the first move, which may find that there are fewer than were to be left. One move at a time, since
// copying takes bandwidth, too. They are not moved back: the harm would be, too. And where services fill their memory by themselves
// there is hardly a page of others there whose going they would feel.

// pageStep is how much of a task's pages moves at once, in per mille (BALM: 10 %). While a target is missed that levels do not
// help it is hasty: ten steps with a look after each would be a minute of that.
const pageStep, hastyStep = 100, 300

// Moved is where a rung's pages are.
type Moved struct {
	// Off is the memory nodes that the last move took pages off, and Left how many per mille were left there, or are
	// to be while it is Moving.
	Off    model.CPUSet `json:"off,omitzero"`
	Left   int          `json:"left,omitempty"`
	Was    int          `json:"was,omitempty"` // Left before the last move
	Moving bool         `json:"moving,omitempty"`
	// Done: no more can be moved off these nodes.
	Done bool `json:"done,omitempty"`
}

// away has so much of a rung's pages moved, and reports whether it could ask for that.
func (s *State) away(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, r *Rung, step int) bool {
	off := v.MemoryAt(have, s.troubles)
	if l, _ := s.filled(have, v); l != nil {
		return false
	}
	if len(s.Domains) == 0 { // nobody is in trouble any more: on from where they were
		off = r.Pages.Off
	}
	if !p.Pages || off.Empty() || len(r.Tasks) != 1 || r.Class == model.ClassBE || s.moving() != nil || leftAlone(v, r) {
		return false
	}
	if r.Pages.Off != off {
		r.Pages = Moved{Off: off, Left: 1000}
	}
	t := v.Task(r.Tasks[0])
	if r.Pages.Done || t == nil || t.Exempt != "" {
		return false
	}
	r.Pages.Was, r.Pages.Left = r.Pages.Left, max(0, r.Pages.Left-step)
	r.Pages.Moving, s.changed = true, true
	w.Decide(model.Decision{
		Kind: model.DecidePages, Task: t.Task.Num, Path: t.Task.Path, Facts: append(s.facts(), model.FactPagesLeft.Is(float64(r.Pages.Left)/1000)),
		Reason: fmt.Sprintf("%s; at most %.0f %% of its pages stay on the memory of nodes %s, where services in trouble are", s.text(), float64(r.Pages.Left)/10, off),
	})
	return true
}

// moving returns the rung whose pages are on their way, nil: none.
func (s *State) moving() *Rung {
	for i := range s.Rungs {
		if s.Rungs[i].Pages.Moving {
			return &s.Rungs[i]
		}
	}
	return nil
}

// arrive takes in what became of a move. What it is good for shows when services have been looked at since; the step back that
// it was made for may be tried then.
func (s *State) arrive(v *policy.View) {
	r := s.moving()
	if r == nil {
		return
	}
	if v.Pending(r.Tasks[0], model.MemoryPages) {
		return
	}
	asked, res := r.Pages.Left, v.PagesMoved(r.Tasks[0], r.Pages.Off)
	// What was not granted, for too many actions in a short time, is asked for again when it is its turn.
	if r.Pages.Moving, s.changed = false, true; res == nil {
		r.Pages.Left = r.Pages.Was
		return
	}
	if r.Pages.Done = res.Kind != model.Applied; !r.Pages.Done {
		r.Pages.Left = int(res.Now.Amount)
	}
	// Pages that cannot be moved, or are taken anew, are left there: less than half of the step came off. A little less than all of it is huge pages, of
	// which none is divided, or what the task took meanwhile.
	if r.Pages.Done = r.Pages.Done || r.Pages.Left == 0 || r.Pages.Left-asked > (r.Pages.Was-asked)/2; !r.Pages.Done || r.Pages.Left == 0 {
		r.RetryNsec, r.Patience = 0, 0
	}
}
