package localspec

import "github.com/commensal-io/commensal/model"

// A guest whose hypervisor runs other guests while the agent learns would learn that as what is normal: in one
// demo a quarter of both CPUs was stolen in those twenty seconds and hardly anything later, so that a threshold that belonged
// at 1 came to 5.7, and nobody was named (docs/FIRST-LIGHT.md). Whatever waits behind a stolen CPU waits longer as well,
// so that the hypervisor's part cannot be taken out of a window as a neighbour's can (alone.go): the window is passed over.
//
// On a host where there is always so much, that is what is normal. So no more than twice as many windows are passed
// over as a spec asks for, and then all are learned from.
//
// It goes for signals that wait, and for the first spec alone: later a window above the threshold enters at the
// threshold, and a young spec that is too high is refuted by thirty quiet windows (few.go).

// PassOver reports whether a window that ended at a time is not to be learned from, since the hypervisor took this
// share of the machine's CPU time, and counts it.
func (s *State) PassOver(p Params, task *model.Task, src model.Source, stolen float64, monoNsec int64) bool {
	if !(p.Stolen > 0 && stolen >= p.Stolen) {
		return false
	}
	e := s.entry(task.Job, src)
	if e.StolenNsec != monoNsec && e.Stolen <= p.mostStolen() { // and not counted for another task of the job
		e.Stolen, e.StolenNsec = e.Stolen+1, monoNsec
	}
	return e.Stolen <= p.mostStolen()
}

// mostStolen is how many windows are passed over at the most.
func (p *Params) mostStolen() int { return 2 * p.MinSamplesPerTask }
