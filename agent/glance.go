package agent

import "github.com/commensal-io/commensal/model"

// glance is what the loop last saw of LC. A pulse reads every LC task; what all of them used at most
// takes a few reads (node.Host.LCBound): where nothing could come of a pulse even if they used so
// much, it is passed over, and no policy hears of it.
type glance struct {
	cpus   model.CPUSet  // of LC
	busy   model.Counter // the bound until the last pulse
	lc     model.Counter // what all LC tasks had used by then
	passed []look        // since then
	told   []model.Passed
	vain   int // pulses to be taken without a look: the last look was in vain
	row    int // looks in vain, one after the other
}

// vainPulses is how many pulses are taken at most after a look that passed none over, of which the first
// in a row costs one: where others' work is in the bound all the time every pulse is needed, and
// looks would only be added to what it costs.
const vainPulses = 4

// look is one look at the bound.
type look struct {
	nsec int64
	busy uint64
}

// takePulse takes the fast reading.
func (c *Core) takePulse() {
	g, p := &c.glance, &c.pulse
	cpus, _ := c.Engine.PoolCPUs()
	vain, busy := max(g.vain-1, 0), model.Counter{}
	if vain == 0 || len(g.passed) > 0 {
		busy = c.Host.LCBound(cpus)
	}
	if c.Host.Pulse(c.Engine.NeedsDetail(c.Clock.MonoNsec()), p); len(p.Tasks) == 0 {
		p.Tasks = nil // as a record has it
	}
	if g.cpus == cpus && busy.Outcome == model.OK {
		g.tell(busy.Value, p)
	}
	*g = glance{cpus: cpus, busy: busy, lc: p.LCUsage, passed: g.passed[:0], told: g.told, vain: vain, row: g.row}
	c.in.Pulse = p
}

// tell adds the pulses that were passed over to the one that was not, so that what LC did in its
// last moments does not drown in a second (model.Passed).
func (g *glance) tell(busy uint64, p *model.Pulse) {
	used, outcome := model.Delta(g.lc, p.LCUsage)
	if len(g.passed) == 0 || outcome != model.OK {
		return
	}
	last := g.passed[len(g.passed)-1].busy
	before := used - min(used, busy-min(last, busy))
	share := 0.0
	if last > g.busy.Value {
		share = min(float64(before)/float64(last-g.busy.Value), 1)
	}
	g.told = g.told[:0]
	for _, l := range g.passed {
		at := g.lc.Value + uint64(share*float64(l.busy-g.busy.Value))
		g.told = append(g.told, model.Passed{MonoNsec: l.nsec, LCUsage: min(at, p.LCUsage.Value)})
	}
	p.Passed = g.told
}

// passes looks whether the pulse that is due can be passed over.
func (c *Core) passes() bool {
	g := &c.glance
	if cpus, _ := c.Engine.PoolCPUs(); g.vain > 0 || g.busy.Outcome != model.OK || g.cpus != cpus {
		return false
	}
	now := c.Clock.MonoNsec()
	if !c.Engine.MayPass(now) {
		return false
	}
	busy := c.Host.LCBound(g.cpus)
	if !c.Engine.Passes(now, busy) {
		g.vain = min(1<<g.row, vainPulses)
		g.row = min(g.row+1, vainPulses)
		return false
	}
	g.row = 0
	g.passed = append(g.passed, look{now, busy.Value})
	return true
}
