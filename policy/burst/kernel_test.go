package burst_test

import (
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
)

// group is one cgroup with a CFS limit, as the kernel keeps it: what it may use now
// (runtime) is filled up by the quota at each period's end, and at each write, up to
// quota + burst. Microseconds throughout.
type group struct {
	*enginetest.Task
	found   model.CPUMax
	bound   float64 // the kernel's: burst up to bound times the quota
	runtime float64
	phase   int64   // of its periods
	width   float64 // CPUs that it can use at once
	backlog float64 // work that waits
	used    float64
	ran     bool // in this period
	dry     bool
	periods uint64
	limited uint64

	level   float64 // of the ideal bucket
	least   float64 // its least
	odd     bool    // it takes nothing but what was found
	written int     // writes of the quota
}

func newGroup(num int, quota, period int64) *group {
	g := &group{
		Task: enginetest.NewTask(num, model.LC).Quota(quota, period), found: model.CPUMax{QuotaUsec: quota, PeriodUsec: period},
		runtime: float64(quota), width: math.Inf(1),
	}
	g.knob().Write = g.write
	return g
}

// wide is a group that can use 16 CPUs at once.
func wide(num int, quota, period int64) *group {
	g := newGroup(num, quota, period)
	g.width = 16
	return g
}

func (g *group) knob() *enginetest.Knob { return &g.Knobs[model.CPUBandwidth] }
func (g *group) now() model.CPUMax      { return g.knob().Value.CPUMax }

// refill is __refill_cfs_bandwidth_runtime.
func (g *group) refill(now model.CPUMax) {
	g.runtime = min(g.runtime+float64(now.QuotaUsec), float64(now.QuotaUsec+now.BurstUsec))
}

// write is tg_set_cfs_bandwidth: quota and burst are two files, so two refills.
func (g *group) write(v model.Setting) (refusal string) {
	to, now := v.CPUMax, g.now()
	if g.odd && to != g.found || float64(to.BurstUsec) > g.bound*float64(to.QuotaUsec) {
		return "invalid argument"
	}
	if to.BurstUsec != now.BurstUsec {
		now.BurstUsec = to.BurstUsec
		g.refill(now)
	}
	if to.QuotaUsec != now.QuotaUsec {
		g.refill(to)
		g.written++
	}
	return ""
}

// msec plays one millisecond in which so much is asked for, and follows the ideal bucket.
func (g *group) msec(ms int64, asked float64, p *burst.Params) float64 {
	now := g.now()
	if (ms+g.phase)%(now.PeriodUsec/1000) == 0 {
		if g.ran {
			g.periods++
		}
		if g.dry {
			g.limited++
		}
		g.ran, g.dry = false, false
		g.refill(now)
	}
	asked = min(asked, g.width*1000)
	use := min(asked, g.runtime)
	g.dry = g.dry || asked > g.runtime+1e-9
	g.ran = g.ran || asked > 0
	g.runtime -= use
	g.used += use
	g.level -= use
	g.least = min(g.least, g.level)
	g.level = min(g.level+float64(g.found.QuotaUsec)/float64(g.found.PeriodUsec)*1000, (p.Bucket+1)*float64(g.found.QuotaUsec))
	return use
}

// host is a node of such groups, with a clock of milliseconds.
type host struct {
	*enginetest.Node
	p      *burst.Params
	s      *burst.State
	groups []*group
	ms     int64
	detail int // pulses with detail
	pulses int
	pulse  model.Pulse
	spoil  func(*model.Pulse)
}

func newHost(p burst.Params, bound float64, groups ...*group) *host {
	h := &host{Node: enginetest.New(enginetest.Params(), enginetest.Flat(64)), groups: groups, ms: 1000}
	for _, g := range groups {
		g.bound, g.level = bound, (p.Bucket+1)*float64(g.found.QuotaUsec)
		h.Add(g.Task)
	}
	h.p, h.s = &h.Engine.Params.CPU.Burst, &h.Engine.State.CPU.Burst
	*h.p = p
	h.mode(model.ModeEnforce)
	h.Pulse = &h.pulse
	return h
}

func (h *host) mode(m model.Mode) { h.Engine.Params.CPU.BurstMode = m }

// claim returns what the policy claims for a group, nil when that is nothing.
func (h *host) claim(g *group) *model.Claim {
	return h.Claim(model.PolicyBurst, g.Num, model.CPUBandwidth)
}

// look makes the pulse of now.
func (h *host) look(detail bool) {
	h.NowNsec = h.ms * 1e6
	sum := 0.0
	h.pulse = model.Pulse{MonoNsec: h.NowNsec, Tasks: h.pulse.Tasks[:0]}
	for _, g := range h.groups {
		sum += g.used
		if detail {
			h.pulse.Tasks = append(h.pulse.Tasks, model.TaskPulse{
				Num: g.Num, Usage: model.Read(uint64(g.used * 1000)), Periods: model.Read(g.periods), Throttled: model.Read(g.limited),
			})
		}
	}
	h.pulse.LCUsage = model.Read(uint64(sum * 1000))
	if !detail {
		h.pulse.Tasks = nil
	}
	if h.spoil != nil {
		h.spoil(&h.pulse)
	}
}

// step is one pulse. What it decides lands when Land is called.
func (h *host) step() {
	detail := h.Engine.NeedsDetail(h.ms * 1e6)
	h.pulses++
	if detail {
		h.detail++
	}
	h.look(detail)
	h.Step()
}

// work is a task's demand in one millisecond.
type work func(ms int64, g *group) float64

// run plays so many milliseconds; pulses come gap apart and land delay later.
func (h *host) run(msec int64, gap, delay func() int64, asks ...work) {
	next, landing := h.ms+gap(), int64(-1)
	for end := h.ms + msec; h.ms < end; h.ms++ {
		if h.ms == landing {
			h.Land()
		}
		if h.ms >= next {
			if landing > h.ms { // the pulse before has to be over
				h.Land()
			}
			h.step()
			landing = h.ms + delay()
			next = h.ms + max(gap(), landing-h.ms+1)
			if landing == h.ms {
				h.Land()
			}
		}
		for i, g := range h.groups {
			g.msec(h.ms, asks[i%len(asks)](h.ms, g), h.p)
		}
	}
}

func every(ms int64) func() int64 { return func() int64 { return ms } }

// spikes asks for so much, within 30 ms, so often, on top of an even load; what is not done
// waits.
func spikes(rng *rand.Rand, even, size float64, everyMsec int) work {
	left := 0
	rate := 0.0
	return func(_ int64, g *group) float64 {
		if left == 0 && rng.IntN(everyMsec) == 0 {
			left, rate = 30, size/30
		}
		g.backlog += even
		if left > 0 {
			left--
			g.backlog += rate
		}
		ask := min(g.backlog, g.width*1000)
		g.backlog -= min(ask, g.runtime)
		return ask
	}
}
