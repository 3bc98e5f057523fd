package record

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// classCollector follows which class of service a task is in. What is written to the class's
// knobs is not written to the task, but the task feels it.
type classCollector struct {
	in     model.TaskNum // ClassFound: none of ours
	latest []model.Result
	walls  []int64 // of latest, when it was written; 0: before the record begins
}

// begin takes up what stands where a segment begins.
func (c *classCollector) begin(l *engine.Ledger, task model.TaskNum) {
	*c = classCollector{}
	for i := range l.Knobs {
		k := &l.Knobs[i]
		if !k.Ours {
			continue
		}
		if class := k.Kind.Spec().Class; class != nil && k.Task() == task {
			c.in = class(k.Written)
		}
		c.note(&model.Result{Target: k.Target, Found: k.Found, Now: k.Written}, 0)
	}
}

// take returns the writes that the task feels because one of its own, or one of a class, was made.
func (c *classCollector) take(r *model.Result, mine bool, wallNsec int64) (felt []Write) {
	c.note(r, wallNsec)
	class := r.Now.Knob.Spec().Class
	switch {
	case r.Scope == model.ScopeCLOS && c.in != model.ClassFound && r.Num == c.in:
		felt = append(felt, Write{wallNsec, feltIn(r.Target), r.Found, r.Now})
	case mine && class != nil && class(r.Now) != c.in: // it feels what its new class was given before
		c.in = class(r.Now)
		for i := range c.latest {
			if x := &c.latest[i]; c.in != model.ClassFound && x.Num == c.in && x.Now != x.Found && c.walls[i] != 0 {
				felt = append(felt, Write{c.walls[i], feltIn(x.Target), x.Found, x.Now})
			}
		}
	}
	return felt
}

// feltIn names a knob of a class as a task in it would.
func feltIn(of model.Target) string {
	if model.Alone(of.Num) != 0 {
		return "class of its own, " + of.DomainName()
	}
	return of.Name()
}

// note keeps the latest write of each knob of a class.
func (c *classCollector) note(r *model.Result, wallNsec int64) {
	if r.Scope != model.ScopeCLOS {
		return
	}
	i := slices.IndexFunc(c.latest, func(o model.Result) bool { return o.Target == r.Target && o.Now.Knob == r.Now.Knob })
	if i < 0 {
		i = len(c.latest)
		c.latest, c.walls = append(c.latest, model.Result{}), append(c.walls, 0)
	}
	c.latest[i], c.walls[i] = *r, wallNsec
}

// byTime orders writes: those of a class may be told after they were made.
func byTime(list []Write) {
	slices.SortStableFunc(list, func(a, b Write) int { return cmp.Compare(a.WallNsec, b.WallNsec) })
}
