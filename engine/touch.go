package engine

import (
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Who changed what, for the policies that look what comes of a step: what somebody else did to the same task meanwhile would pass for its effect.

// Who changes something beside policies.
const (
	byOperator      = "an operator"
	byStranger      = "another program"
	byConfiguration = "a new configuration"
)

// touchNsec is for how long it is remembered who touched a task: no trial takes longer.
const touchNsec = int64(3600e9)

// holder is who made a claim; "" where it only follows what all batch work has, which disturbs nobody's trial of any of it.
func holder(c *model.Claim) string {
	switch {
	case c.Owner == model.OwnerOperator:
		return byOperator
	case c.Follows:
		return ""
	}
	return c.Policy
}

// owe notes whose change follows: of whose claim decides from now on, or, where one ended that went before it, of whose that was.
func (k *Knob) owe(to string) {
	if k.AskedBy = to; k.Ours && k.By != "" && to != byOperator && !slices.ContainsFunc(k.Claims, func(c model.Claim) bool { return holder(&c) == k.By }) {
		k.AskedBy = k.By
	}
	k.By = to
}

// touched notes who changed a knob of a task. What policies do that follow the load at each pulse says nothing: it is so with and without a trial.
func (e *Engine) touched(in *Input, of model.Target, kind model.KnobKind, did model.ChangeKind, by string) {
	t := policy.Touch{Task: of.Task(), By: by, Knob: kind, Did: did, AtNsec: in.MonoNsec}
	if of.Scope == model.ScopeCLOS {
		t.Task = model.Alone(of.Num)
	}
	if t.Task == 0 && by != byConfiguration || by == "" || steady(by) {
		return
	}
	s := e.State
	if i := slices.IndexFunc(s.Touched, func(o policy.Touch) bool { return o.Task == t.Task && o.By == by && o.Knob == kind }); i >= 0 {
		s.Touched[i] = t
		return
	}
	s.Touched = slices.DeleteFunc(s.Touched, func(o policy.Touch) bool { return in.MonoNsec-o.AtNsec >= touchNsec })
	s.Touched = append(s.Touched, t)
}

// steady reports whether a policy follows the load all the time.
func steady(name string) bool {
	for i := range policyRows {
		if policyRows[i].name == name {
			return policyRows[i].steady
		}
	}
	return false
}

// answered notes what became of a change that a host did.
func (e *Engine) answered(in *Input, r *model.Result) {
	k := e.State.Ledger.asked(r)
	switch {
	case k == nil:
	case r.Kind == model.Applied:
		e.touched(in, k.Target, k.Kind, k.AskedFor, k.AskedBy)
	case r.Kind == model.Foreign:
		e.touched(in, k.Target, k.Kind, model.Set, byStranger)
	}
}
