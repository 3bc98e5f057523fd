package engine

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// promises appends what is new of jobs that promise something, and that no operator took protection from.
func (e *Engine) promises(in *Input, dst []model.Latency) []model.Latency {
	for i := range in.SLO {
		if l := &in.SLO[i]; l.Target > 0 && !e.State.off(l.Job) {
			dst = append(dst, *l)
		}
	}
	return dst
}

// lookAround brings the view of tasks and their knobs up to date.
func (e *Engine) lookAround() {
	if e.scratch.fresh {
		return
	}
	s, v := e.State, &e.scratch.view
	e.scratch.fresh = true
	v.Tasks = slices.Grow(v.Tasks[:0], len(s.Tasks.Tasks))[:len(s.Tasks.Tasks)]
	for i := range v.Tasks {
		s.Ledger.view(&s.Tasks.Tasks[i], &v.Tasks[i])
	}
	v.Classes = s.Ledger.classes(v.Classes[:0])
	v.PoolCPUs, v.PoolShared = e.poolCPUs()
}

// poolCPUs returns the CPUs of shared LC tasks: those that the partition has placed them on,
// all that are online, which they then share with everybody, as long as one of them is not placed.
func (e *Engine) poolCPUs() (cpus model.CPUSet, shared bool) {
	if e.State.CPU.Topology == nil {
		return model.CPUSet{}, true
	}
	online, pool := e.State.CPU.Topology.Online(), model.CPUSet{}
	for i := range e.scratch.view.Tasks {
		t := &e.scratch.view.Tasks[i]
		if t.Task.Class != model.LC || t.Task.Exclusive {
			continue
		}
		if !t.Knobs[model.CPUPlace].Ours {
			return online, true
		}
		pool = pool.Or(t.Knobs[model.CPUPlace].Now.CPUs)
	}
	if pool = pool.And(online); pool.Empty() {
		return online, true
	}
	return pool, false
}

// view fills in what the policies see of a task.
func (l *Ledger) view(t *model.Task, v *policy.TaskView) {
	v.Task, v.Exempt = *t, l.Exempt(t.Num)
	of := model.OfTask(t.Num)
	for kind := range model.NumKnobs {
		kv := &v.Knobs[kind]
		*kv = policy.KnobView{}
		if kind.Spec().Scope != model.ScopeTask {
			continue
		}
		kv.Found, kv.Known = l.Bases.get(of, kind)
		if k := l.knob(of, kind); k != nil {
			k.view(kv)
		}
		if !kv.Ours {
			kv.Now = kv.Found
		}
	}
}

// view fills in what the policies see of a knob in the ledger.
func (k *Knob) view(kv *policy.KnobView) {
	if k.Ours {
		kv.Found, kv.Known = k.Found, true
	}
	kv.Ours, kv.Pending, kv.Void = k.Ours, k.State == KnobAsked, k.State == KnobVoid
	kv.Refused, kv.Why = k.Failures > 0, k.Why
	kv.Now = k.Written
}

// classes appends what the policies see of classes of service.
func (l *Ledger) classes(dst []policy.ClassView) []policy.ClassView {
	for i := range l.Knobs {
		if k := &l.Knobs[i]; k.Scope == model.ScopeCLOS {
			v := policy.ClassView{Target: k.Target, Kind: k.Kind}
			k.view(&v.KnobView)
			dst = append(dst, v)
		}
	}
	return dst
}
