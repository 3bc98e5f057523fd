package machine

import (
	"fmt"
)

// CPUMax is a limit of CFS bandwidth control; a quota of -1 is none.
type CPUMax struct{ QuotaUsec, PeriodUsec, BurstUsec int64 }

// bandwidth accounts a limit period by period, as the kernel does: a quota is given at
// the start of a period, what is not used is lost but for the burst.
type bandwidth struct {
	max   CPUMax
	begun int64   // of the current period
	left  float64 // ns of CPU time
	hit   bool    // the quota was used up in this period

}

func unlimited() bandwidth {
	return bandwidth{max: CPUMax{QuotaUsec: -1, PeriodUsec: 100_000}}
}

// minQuotaUsec is the kernel's: a smaller quota or period is EINVAL.
const minQuotaUsec, maxPeriodUsec = 1000, 1_000_000

// SetCPUMax sets a task's limit, as the kernel takes it: a quota and period of at least 1
// ms, a period of at most 1 s, a burst of at most the quota.
func (m *Machine) SetCPUMax(num int, v CPUMax) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if v.PeriodUsec < minQuotaUsec || v.PeriodUsec > maxPeriodUsec || v.QuotaUsec < minQuotaUsec && v.QuotaUsec != -1 ||
		v.BurstUsec < 0 || v.QuotaUsec != -1 && v.BurstUsec > v.QuotaUsec {
		return fmt.Errorf("machine: the kernel takes no limit of %+v", v)
	}
	t.limit = bandwidth{max: v, begun: m.now, left: float64(v.QuotaUsec) * 1000}
	return nil
}

// CPUMax returns a task's limit.
func (m *Machine) CPUMax(num int) (CPUMax, error) {
	t, err := m.task(num)
	if err != nil {
		return CPUMax{}, err
	}
	return t.limit.max, nil
}

// begin starts the periods that are due.
func (b *bandwidth) begin(now int64, c *counters) {
	if b.max.QuotaUsec < 0 {
		return
	}
	period, quota := b.max.PeriodUsec*1000, float64(b.max.QuotaUsec)*1000
	for now-b.begun >= period {
		b.begun += period
		c.periods++
		if b.hit {
			c.throttled++
			b.hit = false
		}
		b.left = min(b.left+quota, quota+float64(b.max.BurstUsec)*1000)
	}
}

// allow returns how many CPUs the limit lets through in a step of dt, and notes when that
// is less than was wanted.
func (b *bandwidth) allow(want float64, dt int64) float64 {
	if b.max.QuotaUsec < 0 {
		return want
	}
	most := max(0, b.left) / float64(dt)
	if want > most {
		b.hit = true
		return most
	}
	return want
}
