package cpi2

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/lab/stat"
	"github.com/commensal-io/commensal/model"
)

// harm is what one BE task did to the victim, by counterfactual: how much lower the
// victim's CPI would have been over the bad ones of the windows in which the anomaly
// arose, on the same machine with the same chances, had the task had next to no CPU.
type harm struct {
	Path       string  `json:"path"`
	CPI        float64 `json:"cpi"` // the victim's, less
	Antagonist bool    `json:"antagonist"`
	// Anybody: it hurt another protected task that suffered.
	Anybody bool `json:"anybody,omitempty"`
}

// truthCap is the CPU that a task gets in the counterfactual: CPI²'s harshest cap.
const truthCap = 0.01

// sufferer is a protected task with a spec, and its windows while the anomaly arose; those that were not bad
// say nothing.
type sufferer struct {
	num     model.TaskNum
	stddev  float64
	limit   float64 // its outlier threshold
	factual []window
}

// leastBad is how many of these windows must be bad for a task to have suffered: CPI²'s three violations.
const leastBad = 3

// truth replays the minutes in which the anomaly arose once for each BE task, and once for
// all that came together. An antagonist is who cost the victim more than cpi_stddev: the margin of
// CPI²'s own judge. Who cost another protected task that suffered more than its cpi_stddev hurts somebody, though
// not this victim: who is held for that one's sake is no innocent.
func (r *run) truth() error {
	t := r.trial
	own, all, err := r.sufferers()
	if err != nil {
		return err
	}
	without := func(limits map[string]float64) (cost float64, anybody bool, err error) {
		seen := make([][]window, len(all))
		var mine []window
		err = r.from.fork().under(limits, truthMinutes, func(s *server) {
			mine = append(mine, s.windowOf(t.victim))
			for i := range all {
				seen[i] = append(seen[i], s.windowOf(all[i].num))
			}
		})
		for i := range all {
			anybody = anybody || costs(all[i].factual, seen[i]) > all[i].stddev
		}
		return costs(own.factual, mine), anybody, err
	}
	for _, path := range r.suspects() {
		cost, anybody, err := without(map[string]float64{path: truthCap})
		if err != nil {
			return err
		}
		t.Harm = append(t.Harm, harm{Path: path, CPI: cost, Antagonist: cost > t.Spec.StdDev, Anybody: anybody})
	}
	slices.SortStableFunc(t.Harm, func(a, b harm) int { return cmp.Compare(b.CPI, a.CPI) })
	if c := t.Cause; c != concert && c != turns {
		return nil
	}
	together := map[string]float64{}
	for _, path := range r.mix.actors {
		together[path] = truthCap
	}
	t.GroupHarm, t.GroupHurts, err = without(together)
	return err
}

// costs is by how much the CPI was higher, over the windows that count, than it was without somebody.
func costs(factual, without []window) float64 {
	sum, n := 0.0, 0.0
	for i := range without {
		if factual[i].ok && without[i].cpi > 0 {
			sum += factual[i].cpi - without[i].cpi
			n++
		}
	}
	return stat.Ratio(sum, n)
}

// sufferers plays the minutes as they were: the trial's victim, and all protected tasks that suffered.
func (r *run) sufferers() (own sufferer, all []sufferer, err error) {
	t, state := r.trial, r.watchers[0].Engine.State
	own = sufferer{num: t.victim, stddev: t.Spec.StdDev, limit: threshold(&t.Spec)}
	every := []*sufferer{&own}
	for i := range state.Tasks.Tasks {
		task := &state.Tasks.Tasks[i]
		if sp := state.Specs.Lookup(task.Job, model.SourceCPI); task.Protected() && sp != nil && task.Num != t.victim {
			every = append(every, &sufferer{num: task.Num, stddev: sp.StdDev, limit: threshold(sp)})
		}
	}
	err = r.from.fork().under(nil, truthMinutes, func(s *server) {
		for _, o := range every {
			w := s.windowOf(o.num)
			w.ok = w.ok && w.cpi > o.limit
			o.factual = append(o.factual, w)
		}
	})
	for _, o := range every[1:] {
		bad := 0
		for _, w := range o.factual {
			if w.ok {
				bad++
			}
		}
		if bad >= leastBad {
			all = append(all, *o)
		}
	}
	return own, all, err
}

// suspects returns the BE tasks that used any CPU worth the name.
func (r *run) suspects() []string {
	var list []string
	srv := r.branch.srv
	for i := range r.mix.plan {
		p := r.mix.plan[i].start
		if p == nil || p.task.Class != model.BE {
			continue
		}
		n, ok := srv.nums[p.task.Path]
		if !ok || !srv.lives(n) {
			continue
		}
		phys, err := srv.host.Physical(n)
		if err != nil {
			continue
		}
		if c, err := srv.host.Machine().Counters(phys); err == nil && float64(c.UsageNsec) > leastUsage*float64(srv.host.Machine().NowNsec()) {
			list = append(list, p.task.Path)
		}
	}
	return list
}

// leastUsage is the CPU that a task must have used, as a mean over the machine's life, to
// have its harm asked for: 0.01 CPU hurt nobody.
const leastUsage = 0.01
