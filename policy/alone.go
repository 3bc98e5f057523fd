package policy

import "github.com/commensal-io/commensal/model"

// What one task alone has of caches and memory bandwidth, for policies that take something from one task.

// Near reports whether a task may run on the CPUs of a domain; who may run everywhere, or whose CPUs or domains are
// not known, is near.
func (t *TaskView) Near(have *model.Classes, domain int32) bool {
	cpus := t.Knobs[model.CPUPlace].Now.CPUs
	for i := range have.Domains {
		if d := &have.Domains[i]; d.ID == domain && !cpus.Empty() {
			return !cpus.And(d.CPUs).Empty()
		}
	}
	return true
}

// MovePages wishes that at most so many per mille of a task's pages on some memory nodes stay there.
func (w *Wishes) MovePages(task model.TaskNum, off model.CPUSet, left int64, reason string, holdNsec int64) {
	w.Claims = append(w.Claims, model.Claim{
		Target: model.OfTask(task), Kind: model.ClaimRun, Value: model.Setting{Knob: model.MemoryPages, CPUs: off, Amount: left}, Reason: reason, HoldNsec: holdNsec,
	})
}

// PagesMoved returns what became of a wish to move a task's pages off some memory nodes; nil: nothing was heard. What others moved off other nodes is no answer.
func (v *View) PagesMoved(task model.TaskNum, off model.CPUSet) (last *model.Result) {
	for i := range v.Results {
		if r := &v.Results[i]; r.Target == model.OfTask(task) && r.Now.Knob == model.MemoryPages && (r.Kind != model.Applied || r.Now.CPUs == off) {
			last = r
		}
	}
	return last
}

// Alone returns how many tasks can have a class of service for themselves: fewer where services have some.
func (v *View) Alone(have *model.Classes) int {
	return max(0, have.Alone()-v.count(model.OfServices))
}

// count counts classes of a kind that somebody asked for.
func (v *View) count(of func(class model.TaskNum) bool) (n int) {
	last := model.ClassFound
	for i := range v.Classes { // ordered by target
		if class := v.Classes[i].Target.Num; of(class) && class != last {
			n, last = n+1, class
		}
	}
	return n
}

// NotAlone returns how many classes are left of what single tasks can have, whoever asked for them, where services have none.
func (v *View) NotAlone(have *model.Classes) int {
	return have.Alone() - v.count(func(class model.TaskNum) bool { return model.Alone(class) != 0 })
}

// Alone wishes for a class of service of its own for a task, with so many ways and such a level of memory bandwidth
// in all domains: it has them wherever it runs. 0 limits nothing. Of what the class of BE has, a task that is out of it has no more.
func (w *Wishes) Alone(v *View, task model.TaskNum, ways, level int, reason string, holdNsec int64) {
	class, have := model.ClassOf(task), v.Topology.Classes
	w.Claims = append(w.Claims, model.Claim{Target: model.OfTask(task), Kind: model.ClaimPlace, Value: model.InClass(class), Reason: reason, HoldNsec: holdNsec})
	limit := func(kind model.KnobKind, domains []int32, amount int64) {
		for _, domain := range domains {
			least := amount
			k := v.Class(model.ClassBE, domain, kind)
			follows := k.Ours && (least == 0 || k.Now.Amount < least)
			if follows {
				least = k.Now.Amount
			}
			if least > 0 {
				w.Claims = append(w.Claims, model.Claim{
					Target: model.OfClass(class, domain), Kind: model.ClaimCap, Value: model.Ask(kind), Cap: float64(least), Uncounted: true, Follows: follows, Reason: reason, HoldNsec: holdNsec,
				})
			}
		}
	}
	limit(model.CacheWays, have.Caches, int64(ways))
	limit(model.MemoryBandwidth, have.Memory, int64(level))
	limit(model.L2Ways, []int32{model.EveryDomain}, 0)
}
