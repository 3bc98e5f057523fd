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
}

// truthCap is the CPU that a task gets in the counterfactual: CPI²'s harshest cap.
const truthCap = 0.01

// truth replays the minutes in which the anomaly arose once for each BE task, and once for
// all that came together. An antagonist is who cost the victim more than cpi_stddev:
// the margin of CPI²'s own judge.
func (r *run) truth() error {
	t, from, minutes := r.trial, r.from, truthMinutes
	factual, err := from.fork().capped(nil, minutes, t.victim)
	if err != nil {
		return err
	}
	limit := threshold(&t.Spec)
	for i := range factual {
		factual[i].ok = factual[i].ok && factual[i].cpi > limit
	}
	without := func(limits map[string]float64) (float64, error) {
		ws, err := from.fork().capped(limits, minutes, t.victim)
		if err != nil {
			return 0, err
		}
		sum, n := 0.0, 0.0
		for i := range ws {
			if factual[i].ok && ws[i].cpi > 0 {
				sum += factual[i].cpi - ws[i].cpi
				n++
			}
		}
		return stat.Ratio(sum, n), nil
	}
	for _, path := range r.suspects() {
		cost, err := without(map[string]float64{path: truthCap})
		if err != nil {
			return err
		}
		t.Harm = append(t.Harm, harm{Path: path, CPI: cost, Antagonist: cost > t.Spec.StdDev})
	}
	slices.SortStableFunc(t.Harm, func(a, b harm) int { return cmp.Compare(b.CPI, a.CPI) })
	if c := t.Cause; c != concert && c != turns {
		return nil
	}
	all := map[string]float64{}
	for _, path := range r.mix.actors {
		all[path] = truthCap
	}
	t.GroupHarm, err = without(all)
	return err
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
