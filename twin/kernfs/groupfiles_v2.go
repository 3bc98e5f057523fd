package kernfs

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/twin/machine"
)

// The files of v2 groups.

// tickNsec is what the root group's CPU time is counted in.
const tickNsec = 10_000_000

// systemShare is the part of CPU time that counts as the kernel's: one in so many.
const systemShare = 20

// v2CPUStat is cpu.stat: CPU time for every group, throttling with the controller.
func (k *Kernel) v2CPUStat(g *group, buf []byte) []byte {
	nsec := k.usageNsec(g)
	if g.up == nil {
		nsec -= nsec % tickNsec
	}
	usec := nsec / 1000
	buf = number(append(buf, "usage_usec "...), usec)
	buf = number(append(buf, "user_usec "...), usec-usec/systemShare)
	buf = number(append(buf, "system_usec "...), usec/systemShare)
	if g.up == nil || !g.has(cgroup.CPU) {
		return buf
	}
	t := k.throttled(g)
	buf = number(append(buf, "nr_periods "...), t.periods)
	buf = number(append(buf, "nr_throttled "...), t.throttled)
	buf = number(append(buf, "throttled_usec "...), t.nsec/1000)
	if k.kernel() != machine.NoBurst {
		buf = number(append(buf, "nr_bursts "...), t.bursts)
		buf = number(append(buf, "burst_usec "...), t.burstNsec/1000)
	}
	return buf
}

func (k *Kernel) addV2CPU(g *group) {
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "cpu.max", always(func(buf []byte) []byte {
		v := g.bandwidth.max
		if v.QuotaUsec < 0 {
			buf = append(buf, "max "...)
		} else {
			buf = append(strconv.AppendInt(buf, v.QuotaUsec, 10), ' ')
		}
		return signed(buf, v.PeriodUsec)
	}), func(data []byte) error { return k.writeMax(g, string(data)) })
	if k.kernel() != machine.NoBurst {
		k.addFile(g.dir, "cpu.max.burst", always(func(buf []byte) []byte { return signed(buf, g.bandwidth.max.BurstUsec) }), func(data []byte) error {
			v, err := integer(data)
			if err != nil || v < 0 {
				return unix.EINVAL
			}
			want := g.bandwidth.max
			want.BurstUsec = v
			return k.setMax(g, want)
		})
	}
	k.addFile(g.dir, "cpu.weight", always(func(buf []byte) []byte { return signed(buf, weightOf(g)) }), func(data []byte) error {
		v, err := integer(data)
		switch {
		case err != nil || v < 0:
			return unix.EINVAL
		case v < 1 || v > 10000:
			return unix.ERANGE
		}
		return k.setShares(g, (v*defaultShares+50)/100)
	})
	if k.kernel() != machine.NoBurst { // as on v1
		k.addFile(g.dir, "cpu.idle", always(func(buf []byte) []byte { return flag(buf, g.bandwidth.idle) }),
			func(data []byte) error { return k.setIdle(g, data) })
	}
}

// weightOf is cpu.weight; of an idle group the least, as since Linux 6.12.
func weightOf(g *group) int64 {
	return min(max((g.weight()*100+defaultShares/2)/defaultShares, 1), 10000)
}

// writeMax is a write of cpu.max: "QUOTA [PERIOD]".
func (k *Kernel) writeMax(g *group, text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return unix.EINVAL
	}
	want := g.bandwidth.max
	want.QuotaUsec = -1
	var err error
	if words[0] != "max" {
		want.QuotaUsec, err = strconv.ParseInt(words[0], 10, 64)
		if err != nil || want.QuotaUsec < 0 {
			return unix.EINVAL
		}
	}
	if len(words) > 1 {
		if want.PeriodUsec, err = strconv.ParseInt(words[1], 10, 64); err != nil {
			return unix.EINVAL
		}
	}
	return k.setMax(g, want)
}

func (k *Kernel) addV2CPUSet(g *group) {
	k.addFile(g.dir, "cpuset.cpus.effective", always(func(buf []byte) []byte { return append(append(buf, k.effective(g).String()...), '\n') }), nil)
	k.addFile(g.dir, "cpuset.mems.effective", always(func(buf []byte) []byte {
		return append(append(buf, k.effectiveMems(g).String()...), '\n')
	}), nil)
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "cpuset.cpus", always(func(buf []byte) []byte { return append(append(buf, g.place.cpus.String()...), '\n') }),
		func(data []byte) error { return k.setCPUs(g, data) })
	k.addFile(g.dir, "cpuset.mems", always(func(buf []byte) []byte { return append(append(buf, g.place.mems.String()...), '\n') }),
		func(data []byte) error { return k.setMems(g, data) })
	k.addFile(g.dir, "cpuset.cpus.partition", func(buf []byte) ([]byte, error) { return append(buf, "member\n"...), nil }, func(data []byte) error {
		switch trim(data) {
		case "member":
			return nil
		case "root", "isolated":
			return unix.EOPNOTSUPP // left out
		}
		return unix.EINVAL
	})
}

func (k *Kernel) addV2Memory(g *group) {
	k.addFile(g.dir, "memory.stat", always(func(buf []byte) []byte { return k.memoryStat(g, buf) }), nil)
	k.addFile(g.dir, "memory.numa_stat", always(func(buf []byte) []byte { return k.showNumaStat(g, buf) }), nil)
	if g.up == nil {
		return
	}
	k.addFile(g.dir, "memory.current", always(func(buf []byte) []byte {
		h := k.held(g)
		return number(buf, wholePages(h.anon)+wholePages(h.file)+wholePages(h.zswap))
	}), nil)
	if k.m.Config().ZswapShare > 0 {
		k.addFile(g.dir, "memory.zswap.current", always(func(buf []byte) []byte { return number(buf, uint64(k.held(g).zswap)) }), nil)
	}
	k.addFile(g.dir, "memory.swap.current", always(func(buf []byte) []byte { return number(buf, wholePages(k.held(g).swap)) }), nil)
	k.addFile(g.dir, "memory.reclaim", nil, func(data []byte) error { return k.reclaimMemory(g, data) })
	for _, name := range []string{"memory.events", "memory.events.local"} {
		k.addFile(g.dir, name, always(func(buf []byte) []byte { return k.memoryEvents(g, buf) }), nil)
	}
	m := &g.memory
	for _, b := range []struct {
		name string
		of   *uint64
	}{{"memory.min", &m.min}, {"memory.low", &m.low}, {"memory.high", &m.high}, {"memory.max", &m.max}, {"memory.swap.max", &m.swapMax}} {
		k.addFile(g.dir, b.name, always(func(buf []byte) []byte { return appendBound(buf, *b.of) }),
			func(data []byte) error { return k.setBound(g, b.of, data) })
	}
}
