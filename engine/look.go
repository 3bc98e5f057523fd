package engine

import "github.com/commensal-io/commensal/model"

// InForce returns what a knob is set to, as far as it is known.
func (l *Ledger) InForce(task model.TaskNum, kind model.KnobKind) (model.Setting, bool) {
	if k := l.knob(model.OfTask(task), kind); k != nil && k.Ours {
		return k.Written, true
	}
	return l.Bases.get(model.OfTask(task), kind)
}
