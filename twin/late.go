package twin

import (
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin/machine"
)

// Late is what actions that moved pages answer, held back until nothing is copied any more: a simulated call takes no time, and who judges a
// move by what services say is not to begin while it copies.
type Late struct{ held []model.Result }

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
	if len(l.held) == 0 || m.Copies() {
		return kept
	}
	for i := range l.held {
		l.held[i].MonoNsec = m.NowNsec()
	}
	kept, l.held = append(kept, l.held...), l.held[:0]
	return kept
}
