package machine

import (
	"fmt"
)

// CPUMax is a limit of CFS bandwidth control; a quota of -1 is none.
type CPUMax struct{ QuotaUsec, PeriodUsec, BurstUsec int64 }

// Kernel says whose CFS bandwidth control a machine has: they differ in the burst.
type Kernel uint8

// The kernels.
const (
	// Mainline is Linux since 5.14: a burst of at most the quota; any burst without a quota.
	Mainline Kernel = iota
	// AnyBurst is the kernel of Alibaba (Alibaba's, whose patches of January 2021 were posted
	// to linux-kernel): a burst of any size.
	AnyBurst
	// NoBurst is Linux before 5.14.
	NoBurst
)

// String returns the kernel's name.
func (k Kernel) String() string {
	switch k {
	case Mainline:
		return "mainline"
	case AnyBurst:
		return "any-burst"
	case NoBurst:
		return "no-burst"
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// The kernel's bounds of a limit (kernel/sched/core.c, tg_set_cfs_bandwidth).
const (
	minQuotaUsec  = 1000
	minPeriodUsec = 1000
	maxPeriodUsec = 1_000_000
	maxQuotaUsec  = 1<<(64-20) - 1
)

// Takes says whether a kernel takes a limit; else the answer is EINVAL.
func (k Kernel) Takes(v CPUMax) bool {
	limited := v.QuotaUsec >= 0
	switch {
	case limited && (v.QuotaUsec < minQuotaUsec || v.QuotaUsec > maxQuotaUsec),
		!limited && v.QuotaUsec != -1,
		v.PeriodUsec < minPeriodUsec || v.PeriodUsec > maxPeriodUsec,
		v.BurstUsec < 0 || v.BurstUsec > maxQuotaUsec,
		limited && v.BurstUsec+v.QuotaUsec > maxQuotaUsec,
		k == Mainline && limited && v.BurstUsec > v.QuotaUsec,
		k == NoBurst && v.BurstUsec != 0:
		return false
	}
	return true
}

// bandwidth accounts a limit as the kernel does (struct cfs_bandwidth): a timer that runs
// while the group does gives a quota at the end of each period, and what is not used is
// lost but for the burst. What is left out are the slices of 5 ms in which run queues take
// from it: of the last slice on each CPU up to 1 ms can lie idle there.
type bandwidth struct {
	kernel Kernel
	max    CPUMax
	ends   int64   // the timer's next expiry
	left   float64 // ns of CPU time
	begun  float64 // what was left when the period began
	hit    bool    // somebody waits for the period to end
	active bool    // the timer runs
	idle   bool    // nothing was taken since it last expired
}

// unlimited is the limit of a task as it starts. The timers of groups are not in step: each
// begins at an offset of its own, as since Linux 6.4.
func unlimited(k Kernel, num int, now int64) bandwidth {
	const period, scatter = 100_000, 0x9e3779b97f4a7c15 // by the golden ratio: evenly
	offset := int64(uint64(num+1) * scatter >> 32 * (period * 1000) >> 32)
	return bandwidth{kernel: k, max: CPUMax{QuotaUsec: -1, PeriodUsec: period}, ends: now - period*1000 + offset}
}

// SetCPUMax sets a task's limit as a write to its control group does. Also one that changes
// nothing gives a fresh quota at once and lets those run that waited
// (tg_set_cfs_bandwidth). A limit that the kernel does not take is an error.
func (m *Machine) SetCPUMax(num int, v CPUMax) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if !m.cfg.Kernel.Takes(v) {
		return fmt.Errorf("machine: a %s kernel takes no limit of %+v", m.cfg.Kernel, v)
	}
	t.limit.write(v, m.now, &t.count)
	return nil
}

// MoveCPUMax puts a task under another limit that nobody wrote just now, as when it moves
// to another control group: what it has left stays, within the limit.
func (m *Machine) MoveCPUMax(num int, v CPUMax) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	if !m.cfg.Kernel.Takes(v) {
		return fmt.Errorf("machine: a %s kernel takes no limit of %+v", m.cfg.Kernel, v)
	}
	b := &t.limit
	left, hit, fresh := b.left, b.hit, b.max.QuotaUsec < 0
	b.write(v, m.now, &t.count)
	if most := float64(v.QuotaUsec+v.BurstUsec) * 1000; !fresh && v.QuotaUsec >= 0 {
		b.left = min(left, most)
		b.begun, b.hit = b.left, hit
	}
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

// write takes a new limit.
func (b *bandwidth) write(v CPUMax, now int64, c *counters) {
	b.max, b.hit = v, false
	if v.QuotaUsec < 0 {
		b.active = false
		return
	}
	if b.kernel == AnyBurst {
		b.left = float64(v.QuotaUsec) * 1000
		b.begun = b.left
	} else {
		b.refill(c)
	}
	if !b.active {
		b.active = true
		for period := v.PeriodUsec * 1000; b.ends <= now; {
			b.ends += (now-b.ends)/period*period + period
		}
	}
}

// refill gives a quota, and counts what was used beyond one of what had been saved up.
func (b *bandwidth) refill(c *counters) {
	quota := float64(b.max.QuotaUsec) * 1000
	if b.kernel == NoBurst {
		b.left = quota
		return
	}
	b.left += quota
	if over := b.begun - b.left; over > 0 {
		c.bursts++
		c.burstNsec += over
	}
	b.left = min(b.left, quota+float64(b.max.BurstUsec)*1000)
	b.begun = b.left
}

// begin ends the periods that are due. One that was quiet is counted, and so is the one
// after it; then the timer rests until somebody runs (do_sched_cfs_period_timer). What a
// group saves up meanwhile it gets when it runs again.
func (b *bandwidth) begin(now int64, c *counters) {
	if b.max.QuotaUsec < 0 {
		return
	}
	for ; now >= b.ends; b.ends += b.max.PeriodUsec * 1000 {
		b.refill(c)
		if !b.active {
			continue
		}
		c.periods++
		switch {
		case b.hit:
			c.throttled++
			b.hit, b.idle = false, false
		case b.idle:
			b.active = false
		default:
			b.idle = true
		}
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

// No part of a step is shorter than leastPart, nor made for the sake of a rest that is not worth it.
const (
	leastPart = 100e3 // ns
	worthPart = 20e3  // ns of CPU time
)

// lasts returns for how much of a step of dt the quota lasts, where in the rest of it more than a CPU
// would be wanted and not given.
func (b *bandwidth) lasts(want float64, dt int64) int64 {
	if b.max.QuotaUsec < 0 || b.left < worthPart || want-b.left/float64(dt) <= 1 {
		return dt
	}
	if part := int64(max(leastPart, b.left/want)); part <= dt-leastPart {
		return part
	}
	return dt
}

// take uses CPU time.
func (b *bandwidth) take(nsec float64) {
	if b.max.QuotaUsec < 0 || nsec <= 0 {
		return
	}
	b.left -= nsec
	b.active, b.idle = true, false
}
