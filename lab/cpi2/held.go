package cpi2

import "github.com/commensal-io/commensal/model"

// Who is held, and to what.

// holds reports whether a task is held to less CPU, or in a class of service of its own.
func (l *loop) holds(n model.TaskNum) bool {
	_, ok := l.limit(n)
	return ok || l.divided(n)
}

// divided reports whether a task is in a class of service of its own.
func (l *loop) divided(n model.TaskNum) bool {
	phys, err := l.srv.host.Physical(n)
	if err != nil {
		return false
	}
	class, err := l.srv.host.Machine().CLOS(phys)
	return err == nil && class != 0
}

// limit is the CPU-sec/sec that a task is held to; ok is false where it has no limit.
func (l *loop) limit(n model.TaskNum) (cpu float64, ok bool) {
	phys, err := l.srv.host.Physical(n)
	if err != nil {
		return 0, false
	}
	v, err := l.srv.host.Machine().CPUMax(phys)
	return float64(v.QuotaUsec) / float64(v.PeriodUsec), err == nil && v.QuotaUsec >= 0
}

// holdLargest is the baseline that needs no correlation.
func (l *loop) holdLargest(k int) error {
	for path, until := range l.until {
		if k >= until {
			delete(l.until, path)
			if n := l.srv.nums[path]; l.srv.lives(n) {
				if err := l.srv.hold(n, 0); err != nil {
					return err
				}
			}
		}
	}
	for _, inc := range l.fresh {
		var best *model.TaskObservation
		for i := range l.srv.obs.Tasks {
			o := &l.srv.obs.Tasks[i]
			t := l.w.Engine.State.Tasks.Get(o.Num)
			if t != nil && t.Class == model.BE && l.srv.lives(o.Num) && !l.holds(o.Num) && (best == nil || o.CPU.V > best.CPU.V) {
				best = o
			}
		}
		if best == nil {
			continue
		}
		t := l.w.Engine.State.Tasks.Get(best.Num)
		if err := l.srv.hold(best.Num, capOf(t)); err != nil {
			return err
		}
		l.until[t.Path] = k + capMinutes
		l.add(inc, t.Num, t.Path, inc.Signal).Minute = k // its first window is the next
	}
	l.fresh = l.fresh[:0]
	return nil
}

// capOf is the cap of a task (CPI² §5).
func capOf(t *model.Task) float64 {
	if t.Importance == model.BestEffort {
		return 0.01
	}
	return 0.1
}
