package kernfs

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// The files of v1 groups.

func (k *Kernel) addV1CPU(g *group) {
	b := &g.bandwidth
	limit := func(name string, of func() *int64, set func(v int64) error) {
		k.addFile(g.dir, name, always(func(buf []byte) []byte { return signed(buf, *of()) }), func(data []byte) error {
			v, err := integer(data)
			if err != nil {
				return err
			}
			return set(v)
		})
	}
	limit("cpu.cfs_quota_us", func() *int64 { return &b.max.QuotaUsec }, func(v int64) error {
		want := b.max
		want.QuotaUsec = max(v, -1)
		return k.setMax(g, want)
	})
	limit("cpu.cfs_period_us", func() *int64 { return &b.max.PeriodUsec }, func(v int64) error {
		want := b.max
		want.PeriodUsec = v
		return k.setMax(g, want)
	})
	if k.kernel() != machine.NoBurst {
		limit("cpu.cfs_burst_us", func() *int64 { return &b.max.BurstUsec }, func(v int64) error {
			want := b.max
			want.BurstUsec = v
			return k.setMax(g, want)
		})
	}
	k.addFile(g.dir, "cpu.shares", always(func(buf []byte) []byte { return signed(buf, g.weight()) }), func(data []byte) error {
		v, err := integer(data)
		if err != nil || v < 0 {
			return unix.EINVAL
		}
		return k.setShares(g, v)
	})
	if k.kernel() != machine.NoBurst { // bursts came with Linux 5.14, cpu.idle with 5.15
		k.addFile(g.dir, "cpu.idle", always(func(buf []byte) []byte { return flag(buf, b.idle) }),
			func(data []byte) error { return k.setIdle(g, data) })
	}
	k.addFile(g.dir, "cpu.stat", always(func(buf []byte) []byte {
		t := k.throttled(g)
		buf = number(append(buf, "nr_periods "...), t.periods)
		buf = number(append(buf, "nr_throttled "...), t.throttled)
		buf = number(append(buf, "throttled_time "...), t.nsec)
		if k.kernel() != machine.NoBurst {
			buf = number(append(buf, "nr_bursts "...), t.bursts)
			buf = number(append(buf, "burst_time "...), t.burstNsec)
		}
		return buf
	}), nil)
}

func (k *Kernel) addV1CPUAcct(g *group) {
	k.addFile(g.dir, "cpuacct.usage", always(func(buf []byte) []byte { return number(buf, k.usageNsec(g)) }), func(data []byte) error {
		if v, err := integer(data); err != nil || v != 0 {
			return unix.EINVAL
		}
		g.offset = k.sum(g).UsageNsec
		return nil
	})
	if g.up != nil {
		return // of the groups below nobody asks by CPU
	}
	k.addFile(g.dir, "cpuacct.usage_percpu", always(func(buf []byte) []byte {
		cfg := k.m.Config()
		for cpu := range cfg.CPUs() {
			buf = append(strconv.AppendUint(buf, k.m.CPUNsec(cpu), 10), ' ')
		}
		return append(buf, '\n')
	}), nil)
}

// usageNsec is cpuacct.usage: what a group and those below used since it was made, or set
// to 0. What ran in no group counts for the root.
func (k *Kernel) usageNsec(g *group) uint64 {
	if g.up == nil {
		return k.m.BusyNsec() - min(g.offset, k.m.BusyNsec())
	}
	u := k.sum(g).UsageNsec
	return u - min(g.offset, u)
}

func (k *Kernel) addV1CPUSet(g *group) {
	k.addFile(g.dir, "cpuset.cpus", always(func(buf []byte) []byte { return append(append(buf, g.place.cpus.String()...), '\n') }),
		func(data []byte) error { return k.setCPUs(g, data) })
	k.addFile(g.dir, "cpuset.mems", always(func(buf []byte) []byte { return append(append(buf, g.place.mems.String()...), '\n') }),
		func(data []byte) error { return k.setMems(g, data) })
	k.addFile(g.dir, "cpuset.effective_cpus", always(func(buf []byte) []byte { return append(append(buf, k.effective(g).String()...), '\n') }), nil)
	k.addFile(g.dir, "cpuset.effective_mems", always(func(buf []byte) []byte {
		return append(append(buf, k.effectiveMems(g).String()...), '\n')
	}), nil)
}

func (k *Kernel) addV1Freezer(g *group) {
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "freezer.state", always(func(buf []byte) []byte {
		if g.frozen() {
			return append(append(buf, cgroup.Frozen...), '\n')
		}
		return append(append(buf, cgroup.Thawed...), '\n')
	}), func(data []byte) error { return k.setFreezerState(g, data) })
	k.addFile(g.dir, "freezer.self_freezing", always(func(buf []byte) []byte { return flag(buf, g.freeze.asked) }), nil)
	k.addFile(g.dir, "freezer.parent_freezing", always(func(buf []byte) []byte { return flag(buf, g.up.frozen()) }), nil)
}

func (k *Kernel) addV1Memory(g *group) {
	k.addFile(g.dir, "memory.numa_stat", always(func(buf []byte) []byte { return k.showNumaStat(g, buf) }), nil)
	k.addFile(g.dir, "memory.stat", always(func(buf []byte) []byte { return k.memoryStatV1(g, buf) }), nil)
	k.addFile(g.dir, "memory.usage_in_bytes", always(func(buf []byte) []byte {
		h := k.held(g)
		return number(buf, wholePages(h.anon)+wholePages(h.file))
	}), nil)
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "memory.limit_in_bytes", always(func(buf []byte) []byte {
		if g.memory.max == noBound {
			return append(buf, "9223372036854771712\n"...)
		}
		return number(buf, g.memory.max)
	}), func(data []byte) error {
		if trim(data) == "-1" {
			data = []byte("max")
		}
		return k.setBound(g, &g.memory.max, data)
	})
}
