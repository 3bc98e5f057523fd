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
// not this victim: who is held for that one's sake is no innocent. Nor is who came later than these minutes began, and did so in the minutes for which arms are played.
func (r *run) truth() error {
	t := r.trial
	o, err := r.ordealOf(r.from, truthMinutes)
	if err != nil {
		return err
	}
	for _, path := range r.suspects() {
		cost, anybody, err := o.without(t.victim, path)
		if err != nil {
			return err
		}
		t.Harm = append(t.Harm, harm{Path: path, CPI: cost, Antagonist: cost > t.Spec.StdDev, Anybody: anybody})
	}
	slices.SortStableFunc(t.Harm, func(a, b harm) int { return cmp.Compare(b.CPI, a.CPI) })
	if t.together() {
		if t.GroupHarm, t.GroupHurts, err = o.without(t.victim, r.mix.actors...); err != nil {
			return err
		}
	}
	return r.truthOfLater()
}

// truthOfLater asks the same of the BE tasks that came after these minutes had begun, over as many minutes from there as arms are played for: the anomaly may have arisen before
// it came, and what follows may be its doing all the same; one that works in a rhythm need not have three windows in five.
func (r *run) truthOfLater() error {
	t := r.trial
	for i := range r.mix.plan {
		p := &r.mix.plan[i]
		minute := int(p.atNsec / minuteNsec)
		if p.start == nil || p.start.task.Class != model.BE || minute < r.from.min || minute >= len(r.before) || r.hurts(p.start.task.Path) {
			continue
		}
		o, err := r.ordealOf(r.before[minute].srv, horizonMinutes)
		if err != nil {
			return err
		}
		came := []string{p.start.task.Path}
		if t.together() {
			came = r.mix.actors
		}
		cost, anybody, err := o.without(t.victim, came...)
		if err != nil {
			return err
		}
		if anybody || o.own.suffered() && cost > t.Spec.StdDev {
			t.hurts(p.start.task.Path)
		}
	}
	return nil
}

// together reports whether those who came are a group.
func (t *Trial) together() bool { return t.Cause == concert || t.Cause == turns }

// hurts notes that a task hurt somebody.
func (t *Trial) hurts(path string) {
	i := slices.IndexFunc(t.Harm, func(h harm) bool { return h.Path == path })
	if i < 0 {
		i = len(t.Harm)
		t.Harm = append(t.Harm, harm{Path: path})
	}
	t.Harm[i].Anybody = true
}

// ordeal is minutes as they were, and who suffered in them.
type ordeal struct {
	from    *server
	minutes int
	own     sufferer // the trial's victim
	all     []sufferer
}

// without is by how much the victim's CPI was higher than it is when some tasks have next to no CPU, and whether anybody's was by more than its cpi_stddev.
func (o *ordeal) without(victim model.TaskNum, paths ...string) (cost float64, anybody bool, err error) {
	limits := map[string]float64{}
	for _, path := range paths {
		limits[path] = truthCap
	}
	seen := make([][]window, len(o.all))
	var mine []window
	err = o.from.fork().under(limits, o.minutes, func(s *server) {
		mine = append(mine, s.windowOf(victim))
		for i := range o.all {
			seen[i] = append(seen[i], s.windowOf(o.all[i].num))
		}
	})
	for i := range o.all {
		anybody = anybody || costs(o.all[i].factual, seen[i]) > o.all[i].stddev
	}
	return costs(o.own.factual, mine), anybody, err
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

// suffered reports whether enough of the windows were bad.
func (s *sufferer) suffered() bool {
	bad := 0
	for _, w := range s.factual {
		if w.ok {
			bad++
		}
	}
	return bad >= leastBad
}

// ordealOf plays minutes as they were: the trial's victim, and all protected tasks that suffered.
func (r *run) ordealOf(from *server, minutes int) (*ordeal, error) {
	t, state := r.trial, r.watchers[0].Engine.State
	o := &ordeal{from: from, minutes: minutes, own: sufferer{num: t.victim, stddev: t.Spec.StdDev, limit: threshold(&t.Spec)}}
	every := []*sufferer{&o.own}
	for i := range state.Tasks.Tasks {
		task := &state.Tasks.Tasks[i]
		if sp := state.Specs.Lookup(task.Job, model.SourceCPI); task.Protected() && sp != nil && task.Num != t.victim {
			every = append(every, &sufferer{num: task.Num, stddev: sp.StdDev, limit: threshold(sp)})
		}
	}
	err := from.fork().under(nil, minutes, func(s *server) {
		for _, x := range every {
			w := s.windowOf(x.num)
			w.ok = w.ok && w.cpi > x.limit
			x.factual = append(x.factual, w)
		}
	})
	for _, x := range every[1:] {
		if x.suffered() {
			o.all = append(o.all, *x)
		}
	}
	return o, err
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
