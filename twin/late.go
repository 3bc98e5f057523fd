package twin

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node"
	"github.com/commensal-io/commensal/twin/machine"
)

// Late is what actions that moved pages answer, held back until nothing is copied any more: a simulated call takes no time, and who judges a
// move by what services say is not to begin while it copies.
type Late struct {
	held  []model.Result
	ready []model.Result // to be told: of moves that are done, or were ended
}

// Pass holds back, of the results from one on, those of moves, and appends those whose time has come.
func (l *Late) Pass(m *machine.Machine, list []model.Result, from int) []model.Result {
	kept := list[:from]
	for _, r := range list[from:] {
		if r.Kind == model.Applied && r.Now.Knob == model.MemoryPages {
			l.held = append(l.held, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(l.held) > 0 && !m.Copies() {
		l.ready, l.held = append(l.ready, l.held...), l.held[:0]
	}
	for _, r := range l.ready {
		r.MonoNsec = m.NowNsec()
		kept = append(kept, r)
	}
	l.ready = l.ready[:0]
	return kept
}

// End leaves the pages of a task, which the machine knows by some numbers, where they are, if its move has not answered yet: the answer says how many are there.
func (l *Late) End(m *machine.Machine, of model.Target, nums ...int) {
	i := slices.IndexFunc(l.held, func(r model.Result) bool { return r.Target == of })
	if i < 0 {
		return
	}
	r, there, all := l.held[i], 0.0, 0.0
	for _, num := range nums {
		if on, size, err := m.StopPages(num, r.Now.CPUs); err == nil {
			there, all = there+on, all+size
		}
	}
	if r.Error = node.ErrEnded.Error(); all > 0 {
		r.Now.Amount = perMille(there / all)
	}
	l.held, l.ready = slices.Delete(l.held, i, i+1), append(l.ready, r)
}
