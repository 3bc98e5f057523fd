package burst

import (
	"math"
	"math/rand/v2"

	"github.com/commensal-io/commensal/model"
)

// group is one cgroup with a CFS limit, as the kernel keeps it: what it may use now
// (runtime) is filled up by the quota at each period's end, and at each write, up to
// quota + burst. Microseconds throughout.
type group struct {
	task    model.Task
	found   model.CPUMax
	now     model.CPUMax
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
	refused string
	odd     bool // it takes nothing but what was found
	ours    bool
	claim   *model.Claim
	written int // writes of the quota
}

func newGroup(num model.TaskNum, quota, period int64) *group {
	return &group{
		task:  model.Task{Num: num, Path: "/lc", Class: model.LC},
		found: model.CPUMax{QuotaUsec: quota, PeriodUsec: period}, now: model.CPUMax{QuotaUsec: quota, PeriodUsec: period},
		runtime: float64(quota), width: math.Inf(1),
	}
}

// refill is __refill_cfs_bandwidth_runtime.
func (g *group) refill() {
	g.runtime = min(g.runtime+float64(g.now.QuotaUsec), float64(g.now.QuotaUsec+g.now.BurstUsec))
}

// write is tg_set_cfs_bandwidth: quota and burst are two files, so two refills.
func (g *group) write(to model.CPUMax, bound float64) bool {
	if g.odd && to != g.found || float64(to.BurstUsec) > bound*float64(to.QuotaUsec) {
		g.refused = "invalid argument"
		return false
	}
	if to.BurstUsec != g.now.BurstUsec {
		g.now.BurstUsec = to.BurstUsec
		g.refill()
	}
	if to.QuotaUsec != g.now.QuotaUsec {
		g.now.QuotaUsec = to.QuotaUsec
		g.refill()
		g.written++
	}
	return true
}

// msec plays one millisecond in which so much is asked for, and follows the ideal bucket.
func (g *group) msec(ms int64, asked float64, p *Params) float64 {
	if (ms+g.phase)%(g.now.PeriodUsec/1000) == 0 {
		if g.ran {
			g.periods++
		}
		if g.dry {
			g.limited++
		}
		g.ran, g.dry = false, false
		g.refill()
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

// host plays kernel, ledger and clock around the policy.
type host struct {
	p      Params
	s      State
	v      model.CPUView
	w      model.Wishes
	bound  float64 // the kernel's: burst up to bound times the quota
	groups []*group
	ms     int64
	said   []model.Decision
	claims int
	detail int // pulses with detail
	pulses int
	pulse  model.Pulse
}

func newHost(p Params, bound float64, groups ...*group) *host {
	h := &host{p: p, bound: bound, groups: groups, ms: 1000}
	h.v.Mode, h.v.PoolCPUs, h.v.Changed = model.ModeEnforce, model.FullSet(64), true
	h.v.Tasks = make([]model.TaskView, len(groups))
	for i, g := range groups {
		h.v.Tasks[i].Task = g.task
		g.level = (p.Bucket + 1) * float64(g.found.QuotaUsec)
	}
	return h
}

// look makes the view of now.
func (h *host) look(detail bool) {
	h.v.NowNsec = h.ms * 1e6
	sum := 0.0
	h.pulse = model.Pulse{MonoNsec: h.ms * 1e6, Tasks: h.pulse.Tasks[:0]}
	for i, g := range h.groups {
		k := model.KnobView{
			Known: true, Found: model.Bandwidth(g.found), Now: model.Bandwidth(g.now), Ours: g.ours, Refused: g.refused != "", Why: g.refused,
		}
		if h.v.Tasks[i].Knobs[model.CPUBandwidth] != k {
			h.v.Tasks[i].Knobs[model.CPUBandwidth] = k
			h.v.Changed = true
		}
		sum += g.used
		if detail {
			h.pulse.Tasks = append(h.pulse.Tasks, model.TaskPulse{
				Num: g.task.Num, Usage: model.Read(uint64(g.used * 1000)), Periods: model.Read(g.periods), Throttled: model.Read(g.limited),
			})
		}
	}
	h.pulse.LCUsage = model.Read(uint64(sum * 1000))
	if !detail {
		h.pulse.Tasks = nil
	}
	h.v.Pulse = &h.pulse
}

// step is one pulse. What it decides lands when land is called.
func (h *host) step() {
	detail := h.s.Detail(&h.p, h.ms*1e6)
	h.pulses++
	if detail {
		h.detail++
	}
	h.look(detail)
	h.w.Reset()
	h.s.Step(&h.p, &h.v, &h.w)
	h.v.Changed = false
	h.said = append(h.said, h.w.Decisions...)
	h.claims += len(h.w.Claims)
	for _, d := range h.w.Drops {
		if g := h.group(d.Task); g != nil {
			g.claim = nil
		}
	}
	for i := range h.w.Claims {
		c := h.w.Claims[i]
		if g := h.group(c.Task); g != nil {
			g.claim = &c
		}
	}
}

func (h *host) group(num model.TaskNum) *group {
	for _, g := range h.groups {
		if g.task.Num == num {
			return g
		}
	}
	return nil
}

// land writes what the claims come to.
func (h *host) land() {
	for _, g := range h.groups {
		if g.claim != nil && h.ms*1e6 >= g.claim.ExpiresNsec {
			g.claim = nil
		}
		want := g.found
		if g.claim != nil {
			want.QuotaUsec = max(want.QuotaUsec, g.claim.QuotaUsec)
			want.BurstUsec = max(want.BurstUsec, g.claim.BurstUsec)
		}
		if want == g.now {
			g.ours = g.claim != nil
			continue
		}
		if g.write(want, h.bound) {
			g.ours, g.refused = g.claim != nil, ""
		} else {
			why := g.refused
			g.claim, g.ours = nil, false
			g.write(g.found, h.bound)
			g.refused = why
		}
	}
}

// work is a task's demand in one millisecond.
type work func(ms int64, g *group) float64

// run plays so many milliseconds; pulses come gap apart and land delay later.
func (h *host) run(msec int64, gap, delay func() int64, asks ...work) {
	next, landing := h.ms+gap(), int64(-1)
	for end := h.ms + msec; h.ms < end; h.ms++ {
		if h.ms == landing {
			h.land()
		}
		if h.ms >= next {
			if landing > h.ms { // the pulse before has to be over
				h.land()
			}
			h.step()
			landing = h.ms + delay()
			next = h.ms + max(gap(), landing-h.ms+1)
			if landing == h.ms {
				h.land()
			}
		}
		for i, g := range h.groups {
			g.msec(h.ms, asks[i%len(asks)](h.ms, g), &h.p)
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
