package cpi2

import (
	"sort"

	"github.com/commensal-io/commensal/model"
)

// The oracle is the bound of all arms: it holds those whom the counterfactual convicts, from the minute of the anomaly on,
// and as mildly as suffices. Nobody who has to find out can do that.

// oracleLevels are the shares of the CPUs that a task could use to which it may be held, from mild to harsh; the last is
// CPI²'s own cap, which is never undercut.
var oracleLevels = []float64{0.5, 0.25, 0.1, 0}

// mildest returns the limits of the guilty at the mildest level at which the victim has no more windows above its
// threshold, over the whole of the trial, than under CPI²'s caps; none where it has no more without any. Each level is
// played on a fork of the machine.
func (r *run) mildest() (map[string]float64, error) {
	last := len(oracleLevels) - 1
	limits := r.limitsAt(oracleLevels[last])
	if len(limits) == 0 {
		return nil, nil
	}
	least, err := r.badUnder(limits)
	if err != nil || least >= r.trial.Arms[0].Bad {
		return nil, err
	}
	// A harsher level is taken to be no worse, as it is but for chance.
	k := sort.Search(last, func(i int) bool {
		if err != nil {
			return true
		}
		var bad int
		bad, err = r.badUnder(r.limitsAt(oracleLevels[i]))
		return bad <= least
	})
	return r.limitsAt(oracleLevels[k]), err
}

// limitsAt are the limits of those who are guilty, by path.
func (r *run) limitsAt(level float64) map[string]float64 {
	limits := map[string]float64{}
	for i := range r.mix.plan {
		if p := r.mix.plan[i].start; p != nil && p.task.Class == model.BE && r.guilty(p.task.Path) {
			could := 0.0
			for _, ph := range p.cfg.Work.Phases {
				could = max(could, ph.CPUs)
			}
			limits[p.task.Path] = max(capOf(&p.task), level*could)
		}
	}
	return limits
}

// badUnder counts the victim's windows above its threshold, of a trial under limits.
func (r *run) badUnder(limits map[string]float64) (bad int, err error) {
	limit := threshold(&r.trial.Spec)
	err = r.branch.srv.fork().under(limits, horizonMinutes, func(s *server) {
		if w := s.windowOf(r.trial.victim); w.ok && w.cpi > limit {
			bad++
		}
	})
	return bad, err
}

// convict notes those whom the oracle holds as its caps, which begin before the first window.
func (l *loop) convict() {
	inc := &model.Incident{ID: oracleArm, Victim: l.run.trial.victim, Spec: l.run.trial.Spec}
	for i := range l.run.mix.plan {
		p := l.run.mix.plan[i].start
		if p == nil || l.limits[p.task.Path] == 0 {
			continue
		}
		if n, ok := l.srv.nums[p.task.Path]; ok && l.srv.lives(n) {
			l.add(inc, n, p.task.Path, l.run.trial.CPI).Minute = -1
		}
	}
}
