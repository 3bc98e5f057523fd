package twin

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Late is what actions that moved pages answer, held back until nothing is copied any more: a simulated call takes no time, and who judges a
// move by what services say is not to begin while it copies.
type Late struct {
	held  []model.Result
	ended []model.Target // whose move was ended: their answer waits for nobody
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
	if len(l.held) == 0 {
		return kept
	}
	copies, wait := m.Copies(), l.held[:0]
	for _, r := range l.held {
		if copies && !slices.Contains(l.ended, r.Target) {
			wait = append(wait, r)
			continue
		}
		r.MonoNsec = m.NowNsec()
		kept = append(kept, r)
	}
	l.held, l.ended = wait, l.ended[:0]
	return kept
}

// End leaves the pages of a task, which the machine knows by some numbers, where they are, if its move has not answered yet: the answer says how many are there.
func (l *Late) End(m *machine.Machine, of model.Target, nums ...int) {
	for i := range l.held {
		r := &l.held[i]
		if r.Target != of {
			continue
		}
		there, all := 0.0, 0.0
		for _, num := range nums {
			on, size, err := m.StopPages(num, r.Now.CPUs)
			if err == nil {
				there, all = there+on, all+size
			}
		}
		r.Error = "it was ended before it was done"
		if l.ended = append(l.ended, of); all > 0 {
			r.Now.Amount = int64(math.Ceil(1000*there/all - 1e-6))
		}
	}
}
