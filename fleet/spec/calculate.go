package spec

import (
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Calculate calculates what is due, and returns the sheets that changed and what was held back, in the order of their
// keys.
func (s *State) Calculate(p *Params, wallNsec int64) (sheets []wire.SpecSheet, held []Held) {
	changed, held := s.Changed(p, wallNsec)
	for _, k := range changed {
		sheets = append(sheets, s.Jobs[k].Sheet(k, wallNsec))
	}
	return sheets, held
}

// Changed is Calculate with the keys in place of the sheets, each of which takes more memory than what is known of its job.
func (s *State) Changed(p *Params, wallNsec int64) (changed []Key, held []Held) {
	for _, k := range s.due(p, wallNsec) {
		j := s.Jobs[k]
		published := false
		if j.due(p, wallNsec) {
			var back []Held
			published, back = j.calculate(p, k, wallNsec)
			held = append(held, back...)
		}
		if j.idle() {
			s.lose(k)
		}
		if published && !j.Pinned {
			j.Revision++
			changed = append(changed, k)
		}
	}
	return changed, held
}

// due reports whether a job is to be calculated.
func (j *Job) due(p *Params, wallNsec int64) bool {
	return !j.Waits && len(j.Signals) > 0 && (j.AtNsec == 0 || wallNsec-j.AtNsec >= p.PeriodNsec)
}

// due returns the keys of which something is to be calculated, or nothing is worth keeping, in their order.
func (s *State) due(p *Params, wallNsec int64) (keys []Key) {
	for k, j := range s.Jobs {
		if j.idle() || j.due(p, wallNsec) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Sheet is what is published of a job, which is of that key.
func (j *Job) Sheet(k Key, wallNsec int64) wire.SpecSheet {
	sh := wire.SpecSheet{Version: 1, Job: k.Job, Platform: k.Platform, Size: k.Size, Revision: j.Revision, WallNsec: wallNsec, Pinned: j.Pinned}
	if sh.Size != "" {
		sh.Version = 2
	}
	for i := range j.Signals {
		if f, ok := j.Spec(i); ok {
			sh.Specs, sh.Nodes = append(sh.Specs, j.Signals[i].spec(k, &f)), max(sh.Nodes, int(j.Signals[i].Nodes))
			j.quantiles(i, &sh.Specs[len(sh.Specs)-1])
		}
	}
	return sh
}

// quantiles fills in those that the sketch has now: nothing of them is kept. One that has fewer samples than were adopted says nothing yet.
func (j *Job) quantiles(k int, sp *model.Spec) {
	s := &j.Signals[k]
	if n := s.Sketch.Count(); n > 0 && n >= float64(s.Sketch.Unseen) {
		sp.P50, sp.P90, sp.P99 = s.Sketch.Quantile(0.5), s.Sketch.Quantile(0.9), s.Sketch.Quantile(0.99)
	}
}

// age is what the last calculation of a signal weighs at a moment.
func (j *Job) age(p *Params, k int, wallNsec int64) float64 {
	at := j.at(k)
	if at == 0 {
		return 1
	}
	return math.Pow(p.AgeWeight, float64(max(0, wallNsec-at))/(24*3600e9))
}

// counted is about how many tasks have samples enough of a signal, and whether a spec can be of them.
type counted struct {
	about  int
	enough bool
}

// calculate works the specs of a job out once a signal has tasks enough, and says whether one is published. Of signals that have too few what came is kept in their history.
func (j *Job) calculate(p *Params, key Key, wallNsec int64) (published bool, held []Held) {
	j.turn(p, wallNsec)
	j.look(p, wallNsec)
	tasks, some := make([]counted, len(j.Signals)), false
	for k := range j.Signals {
		n, about := j.haveEnough(p, k)
		tasks[k] = counted{about, n >= p.MinTasks}
		some = some || tasks[k].enough && j.Signals[k].Row > 0
	}
	if !some {
		return false, nil
	}
	ats := make([]int64, len(j.Signals))
	for k := range j.Signals {
		if ats[k] = j.at(k); j.Signals[k].Row == 0 {
			continue
		}
		is, back := j.calculateSignal(p, k, key, wallNsec, tasks[k])
		if published = published || is; back != nil {
			held = append(held, *back)
		}
		ats[k] = wallNsec
	}
	j.setAts(ats)
	j.together()
	j.since(nil, false)
	return published, held
}

// calculateSignal works a signal's spec out, and says whether it is published.
func (j *Job) calculateSignal(p *Params, k int, key Key, wallNsec int64, tasks counted) (published bool, held *Held) {
	s := &j.Signals[k]
	recent, nodes, leftOut := j.fair(s)
	age := j.age(p, k, wallNsec)
	s.Sketch.Age(age)
	all := recent
	all.merge(s.History, age)
	old, known := j.Spec(k)
	j.remember(k, all)
	s.Nodes = whole16(max(nodes, 1))
	if !tasks.enough {
		return false, nil
	}
	sp := s.spec(key, &Figures{NumSamples: float32(math.Round(all.N)), Tasks: whole(int64(tasks.about)), UsageMean: float32(all.Usage), Mean: all.Mean, StdDev: float32(all.stddev()), LeftOut: whole(int64(leftOut))})
	if !(sp.StdDev >= 0 && sp.NumSamples > 0) || math.IsInf(sp.Mean, 0) {
		return false, nil
	}
	if j.Pinned {
		return false, nil
	}
	if p.Fit {
		if g, ok := FitGEV(&s.Sketch); ok && s.Sketch.Count() >= float64(s.Sketch.Unseen) {
			if tail := g.Quantile(beyond(p.Sigmas)); tail >= sp.Mean+leastTail*float64(sp.StdDev) && tail <= sp.Mean+mostTail*float64(sp.StdDev) {
				sp.Tail = tail
			}
		} else if known {
			sp.Tail = float64(old.Tail)
		}
	}
	if why := p.jump(&old, known, &sp); why != "" {
		first := j.Held(k) == nil
		held = &Held{Spec: sp, Why: why}
		if j.setHeld(k, held); first {
			return false, held
		}
		return false, nil
	}
	j.setSpec(k, figuresOf(&sp))
	j.setHeld(k, nil)
	return true, nil
}

const (
	// So many standard deviations above the mean is a fitted threshold, or it is none: mean and deviation do without nodes that are far off, and the sketch
	// of all samples cannot. At 2 sigmas a right-skewed distribution's 97.7th percentile lies between 1.5 and 2.5 (CPI², figure 7).
	leastTail, mostTail = 1, 4
	// jumpTimes is by how much the distance of the threshold from the mean may change at once.
	jumpTimes = 3
)

// jump says why a spec is held back; "" where it is not, as where none is known.
func (p *Params) jump(old *Figures, known bool, sp *model.Spec) string {
	if !known {
		return ""
	}
	moved := math.Abs(sp.Mean - old.Mean)
	if moved > p.JumpSigmas*float64(old.StdDev) && moved > p.JumpShare*math.Abs(old.Mean) {
		return fmt.Sprintf("%s of %s moved from %.4g to %.4g, more than %.3g standard deviations (%.3g) and %.0f %%",
			sp.Source, Key{sp.Job, sp.Platform, sp.Size}, old.Mean, sp.Mean, p.JumpSigmas, old.StdDev, 100*p.JumpShare)
	}
	was, is := p.Threshold(old)-old.Mean, p.Threshold(figuresOf(sp))-sp.Mean
	if was > 0 && (is > jumpTimes*was || jumpTimes*is < was) {
		return fmt.Sprintf("the threshold of %s of %s is %.4g above the mean, and was %.4g", sp.Source, Key{sp.Job, sp.Platform, sp.Size}, is, was)
	}
	return ""
}
