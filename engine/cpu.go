package engine

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
	"github.com/commensal-io/commensal/policy/cpupool"
	"github.com/commensal-io/commensal/policy/cpuset"
)

// CPUParams are what the configuration says to the policies of the CPU.
type CPUParams struct {
	CPUSetMode  model.Mode     `json:"cpuset_mode"`
	CPUSet      cpuset.Params  `json:"cpuset"`
	CPUPoolMode model.Mode     `json:"cpu_pool_mode"`
	CPUPool     cpupool.Params `json:"cpu_pool"`
	BurstMode   model.Mode     `json:"burst_mode"`
	Burst       burst.Params   `json:"burst"`
}

// CPUState is what the engine remembers for the policies of the CPU.
type CPUState struct {
	Topology *model.Topology `json:"topology,omitempty"`
	CPUSet   cpuset.State    `json:"cpuset"`
	CPUPool  cpupool.State   `json:"cpu_pool"`
	Burst    burst.State     `json:"burst"`
	// Modes are how far each policy could go in the step before, ordered as they run.
	Modes [len(cpuPolicies)]model.Mode `json:"modes"`
	// Changed: something that the policies see is new since the last pulse.
	Changed bool `json:"changed"`
}

// cpuScratch is what the engine works out anew when something changed.
type cpuScratch struct {
	view   model.CPUView
	wishes model.Wishes
	fresh  bool // view.Tasks is as the ledger is
}

// cpuPolicies are the policies of the CPU in the order in which they run: the later ones go
// by the place that the first gives the pool.
var cpuPolicies = [...]string{model.PolicyCPUSet, model.PolicyCPUPool, model.PolicyBurst}

// mode is how far a policy may go by the configuration.
func (p *CPUParams) mode(policy string) model.Mode {
	switch policy {
	case model.PolicyCPUSet:
		return p.CPUSetMode
	case model.PolicyCPUPool:
		return p.CPUPoolMode
	}
	return p.BurstMode
}

// Off reports whether none of the policies of the CPU looks at anything.
func (p *CPUParams) Off() bool {
	return p.CPUSetMode == model.ModeOff && p.CPUPoolMode == model.ModeOff && p.BurstMode == model.ModeOff
}

// step lets a policy take its step.
func (s *CPUState) step(policy string, p *CPUParams, v *model.CPUView, w *model.Wishes) {
	switch policy {
	case model.PolicyCPUSet:
		s.CPUSet.Step(&p.CPUSet, v, w)
	case model.PolicyCPUPool:
		s.CPUPool.Step(&p.CPUPool, v, w)
	case model.PolicyBurst:
		s.Burst.Step(&p.Burst, v, w)
	}
}

// cpuSnapshot takes in what a snapshot says of the CPUs and their knobs.
func (e *Engine) cpuSnapshot(snap *model.Snapshot) {
	if snap.Topology != nil {
		t := *snap.Topology
		t.CPUs = slices.Clone(t.CPUs)
		e.State.CPU.Topology = &t
	}
	if snap.Topology != nil || len(snap.Added) > 0 || len(snap.Removed) > 0 || len(snap.Settings) > 0 {
		e.moved()
	}
}

// moved notes that the policies of the CPU will see something new.
func (e *Engine) moved() { e.State.CPU.Changed, e.cpu.fresh = true, false }

// cpuPulse runs the policies of the CPU when a pulse came.
func (e *Engine) cpuPulse(in *Input) {
	s := &e.State.CPU
	for i, name := range cpuPolicies {
		e.cpuMode(in, name, &s.Modes[i])
	}
	if in.Pulse == nil {
		return
	}
	e.lookAround(in)
	for i, name := range cpuPolicies {
		e.cpuStep(in, name, s.Modes[i])
	}
	s.Changed = false
}

// cpuMode works out how far a policy may go now. One that may no longer enforce gives back
// what it has; one whose mode changed looks at everything anew.
func (e *Engine) cpuMode(in *Input, policy string, was *model.Mode) {
	m := e.Params.CPU.mode(policy)
	if m == model.ModeEnforce && e.disarmed(in) {
		m = model.ModeObserve
	}
	if m == *was {
		return
	}
	if *was == model.ModeEnforce {
		e.State.Ledger.DropPolicy(policy)
	}
	*was = m
	e.moved()
}

// NeedsDetail reports whether a pulse at a time should tell of each LC task: a period of the
// pool is over, or somebody bursts.
func (e *Engine) NeedsDetail(nowNsec int64) bool {
	s, p := &e.State.CPU, &e.Params.CPU
	return p.CPUPoolMode != model.ModeOff && s.CPUPool.Detail(&p.CPUPool, nowNsec) ||
		p.BurstMode != model.ModeOff && s.Burst.Detail(&p.Burst, nowNsec)
}

// lookAround brings the view up to date.
func (e *Engine) lookAround(in *Input) {
	s, v := e.State, &e.cpu.view
	if !e.cpu.fresh {
		e.cpu.fresh = true
		v.Tasks = slices.Grow(v.Tasks[:0], len(s.Tasks.Tasks))[:len(s.Tasks.Tasks)]
		for i := range v.Tasks {
			s.Ledger.view(&s.Tasks.Tasks[i], &v.Tasks[i])
		}
		v.PoolCPUs = e.poolCPUs()
	}
	v.NowNsec, v.WallNsec, v.Pulse = in.MonoNsec, in.WallNsec, in.Pulse
	v.Topology, v.Changed = s.CPU.Topology, s.CPU.Changed
}

// cpuStep lets one policy take its step and takes its wishes.
func (e *Engine) cpuStep(in *Input, policy string, mode model.Mode) {
	if mode == model.ModeOff {
		return
	}
	v, w := &e.cpu.view, &e.cpu.wishes
	v.Mode = mode
	w.Reset()
	e.State.CPU.step(policy, &e.Params.CPU, v, w)
	for i := range w.Decisions {
		d := w.Decisions[i]
		d.Policy, d.Mode = policy, mode.String()
		e.decide(in, d)
	}
	if mode != model.ModeEnforce {
		return
	}
	for _, d := range w.Drops {
		if e.State.Ledger.DropClaim(d.Task, d.Kind, policy) {
			e.decide(in, model.Decision{Kind: model.DecideRelease, Policy: policy, Mode: mode.String(), Task: d.Task, Reason: d.Reason})
		}
	}
	for i := range w.Claims {
		claim := w.Claims[i]
		claim.Owner, claim.Policy, claim.MadeNsec = model.OwnerPolicy, policy, in.MonoNsec
		// What is refused outright shows in the view: void, exempt or refused.
		_ = e.State.Ledger.Claim(claim, e.Params.Limits, e.State.BECPU)
	}
}

// poolCPUs returns the CPUs of shared LC tasks: those that the partition has placed them on,
// all that are online as long as one of them is not placed.
func (e *Engine) poolCPUs() model.CPUSet {
	if e.State.CPU.Topology == nil {
		return model.CPUSet{}
	}
	online, pool := e.State.CPU.Topology.Online(), model.CPUSet{}
	for i := range e.cpu.view.Tasks {
		t := &e.cpu.view.Tasks[i]
		if t.Task.Class != model.LC || t.Task.Exclusive {
			continue
		}
		if !t.Knobs[model.CPUPlace].Ours {
			return online
		}
		pool = pool.Or(t.Knobs[model.CPUPlace].Now.CPUs)
	}
	if pool = pool.And(online); pool.Empty() {
		return online
	}
	return pool
}

// view fills in what the policies see of a task.
func (l *Ledger) view(t *model.Task, v *model.TaskView) {
	v.Task, v.Exempt = *t, l.Exempt(t.Num)
	for kind := range model.NumKnobs {
		kv := &v.Knobs[kind]
		*kv = model.KnobView{}
		kv.Found, kv.Known = l.Bases.get(t.Num, kind)
		if k := l.knob(t.Num, kind); k != nil {
			if k.Ours {
				kv.Found, kv.Known = k.Found, true
			}
			kv.Ours, kv.Pending, kv.Void = k.Ours, k.State == KnobAsked, k.State == KnobVoid
			kv.Refused, kv.Why = k.Failures > 0, k.Why
			kv.Now = k.Written
		}
		if !kv.Ours {
			kv.Now = kv.Found
		}
	}
}
