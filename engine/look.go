package engine

import "github.com/commensal-io/commensal/model"

// InForce returns what a knob is set to, as far as it is known.
func (l *Ledger) InForce(task model.TaskNum, kind model.KnobKind) (model.Setting, bool) {
	if k := l.knob(task, kind); k != nil && k.Ours {
		return k.Written, true
	}
	return l.Bases.get(task, kind)
}

// CPUMode is how far one policy of the CPU may go.
type CPUMode struct {
	Policy          string
	Configured, Now model.Mode
}

// CPUModes returns how far the policies of the CPU may go, in the order in which they run.
func (e *Engine) CPUModes() []CPUMode {
	list := make([]CPUMode, len(cpuPolicies))
	for i, name := range cpuPolicies {
		list[i] = CPUMode{name, e.Params.CPU.mode(name), e.State.CPU.Modes[i]}
	}
	return list
}

// PoolCPUs returns the CPUs on which shared LC tasks run, as the policies last saw it: none
// before the first pulse.
func (e *Engine) PoolCPUs() model.CPUSet { return e.cpu.view.PoolCPUs }
