package machine

import (
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Moving pages takes what copying takes: a kernel thread's CPU, a read of each byte at the node that it leaves and a write at the one that it comes to,
// and the link between them (mm/migrate.c: a page is unmapped, copied to one on the other node, and mapped there). What the kernel does for a page beside
// copying it takes moveNsec, with which 4,096 pages take the ten milliseconds of kernel/numa; the copy takes what a core's lines in flight take, so that a busy memory copies slowly.
// The agent's mover rests after stepBytes as kernel/numa has it. The task has each page where it is meanwhile.
//
// Left out: that the moved task waits for pages that are on their way and for its CPUs to forget where they were (it draws more for that, which is to its services' harm), the lines
// of the cache that the copy takes, and huge pages but by their MoveNsec.
const (
	moveNsec  = 2000
	stepBytes = 4 << 20
	copyRate  = 128 << 20 // bytes a second, at most
	// defaultBytes is the size of a task of which nothing is said, as in twin/kernfs.
	defaultBytes = 64 << 20
)

// copying is the pages of a task that are on their way.
type copying struct {
	aim         []float64 // share of the task's pages on each node when it is done
	left        float64   // bytes
	step, took  float64   // bytes of the step that is on, and ns
	rest        float64   // ns until the next step; less than 0: it begins late by that
	source      int       // the node that gives up most
	leave, come []float64 // shares of what is left, by node
}

// MovePages has a task's pages copied until they are on the nodes by these shares. Pages says so from now on, as of pages that are there: only the physics knows those on their way.
func (m *Machine) MovePages(num int, pages []float64) error {
	t, err := m.task(num)
	if err != nil {
		return err
	}
	before, told, size, c := t.pages, t.told(), m.size(t), t.copying
	if err := m.SetPages(num, pages); err != nil {
		return err
	}
	if c == nil {
		c = &copying{leave: make([]float64, len(before)), come: make([]float64, len(before))}
	}
	for n, p := range t.pages {
		c.left += max(0, told[n]-p) * size
	}
	c.aim, t.pages, t.copying = t.pages, before, c
	c.point(before)
	return nil
}

// size is what a task's pages are, in bytes.
func (m *Machine) size(t *Task) float64 {
	if len(t.cfg.Memory) == 0 {
		return defaultBytes
	}
	return m.resident(t)
}

// told is where a task's pages are, of those on their way where they go.
func (t *Task) told() []float64 {
	if t.copying != nil {
		return t.copying.aim
	}
	return t.pages
}

// point finds which way pages go.
func (c *copying) point(now []float64) {
	sum := 0.0
	for n, p := range now {
		c.leave[n], c.come[n] = max(0, p-c.aim[n]), max(0, c.aim[n]-p)
		if sum += c.leave[n]; c.leave[n] > c.leave[c.source] {
			c.source = n
		}
	}
	if sum < 1e-12 || c.left < pageBytes { // there already, but for rounding
		c.left = 0
		return
	}
	for n := range now {
		c.leave[n] /= sum
		c.come[n] /= sum
	}
}

// goes reports whether a part of a step copies.
func (c *copying) goes() bool { return c != nil && c.left > 0 && c.rest <= 0 }

// movers is how many tasks' pages are being copied.
func (m *Machine) movers() (n int) {
	for _, t := range m.live {
		if t.copying.goes() {
			n++
		}
	}
	return n
}

// seat gives each mover a CPU: one that was idle in the last part, and where there is none a share of everybody's. It may run anywhere, as the agent does.
func (m *Machine) seat() {
	p, movers := &m.placement, float64(m.movers())
	idle, cpus := 0.0, 0.0
	for a := range p.atoms {
		at := &p.atoms[a]
		at.idle = max(0, at.cpus-max(0, at.load-at.mover))
		idle, cpus = idle+at.idle, cpus+at.cpus
	}
	found := min(movers, idle)
	for a := range p.atoms {
		at := &p.atoms[a]
		at.mover = 0
		if movers > 0 {
			at.mover = min(at.cpus*MaxTaken, found*at.idle/max(idle, 1e-9)+(movers-found)*at.cpus/cpus)
		}
	}
}

// pageNsec is what moving a page takes now.
func (m *Machine) pageNsec(c *copying) float64 {
	nsec := m.cfg.MoveNsec
	for n := range c.leave {
		nsec += (c.leave[n] + c.come[n]) * m.lineNsec() * m.mem[n].latency
	}
	return nsec + m.lineNsec()*m.cfg.LinkLatencyNsec/m.cfg.MemLatencyNsec*m.mem[c.source].link
}

// lineNsec is for how long a core's lines in flight hold up a page at an unloaded node.
func (m *Machine) lineNsec() float64 {
	return pageBytes / cacheLine * m.cfg.MemLatencyNsec / m.cfg.InFlight
}

// copies adds what copying asks of node n to the flows.
func (m *Machine) copies(n int) {
	for _, t := range m.live {
		c := t.copying
		if !c.goes() {
			continue
		}
		if share := c.leave[n] + c.come[n]; share > 0 {
			slope := share * m.lineNsec()
			m.flows = append(m.flows, flow{
				rate: pageBytes * 1e9 * share, fixed: m.pageNsec(c) - slope*m.mem[n].latency, slope: slope, writes: c.come[n] / share, socket: n,
			})
			if c.come[n] > 0 {
				m.flows[len(m.flows)-1].socket = c.source // over whose link it comes
			}
		}
	}
}

// copied lets pages arrive in a part of a step of dt.
func (m *Machine) copied(dt float64) {
	for _, t := range m.live {
		c := t.copying
		switch {
		case c == nil:
			continue
		case c.goes():
			bytes := min(c.left, dt/m.pageNsec(c)*pageBytes)
			for n := range t.pages {
				t.pages[n] += (c.aim[n] - t.pages[n]) * bytes / c.left
				m.mem[n].step.bytes += (c.leave[n] + c.come[n]) * bytes
			}
			c.left -= bytes
			c.step, c.took = c.step+bytes, c.took+dt
			if c.step >= stepBytes {
				c.rest, c.step, c.took = c.rest+max(c.took, c.step*1e9/copyRate-c.took), 0, 0
			}
		default:
			c.rest -= dt
		}
		if c.left < 1 { // a byte
			t.pages, t.copying = c.aim, nil
		}
	}
}

// StopPages leaves a task's pages where they are, also those on their way, and returns how many bytes are on some nodes then, and of how many.
func (m *Machine) StopPages(num int, nodes model.CPUSet) (there, all float64, err error) {
	t, err := m.task(num)
	if err != nil {
		return 0, 0, err
	}
	t.copying, all = nil, m.size(t)
	for node, share := range t.pages {
		if nodes.Has(node) {
			there += share * all
		}
	}
	return there, all, nil
}

// StopCopying leaves everybody's pages where they are: who had them moved is gone.
func (m *Machine) StopCopying() {
	for _, t := range m.live {
		t.copying = nil
	}
}

// Copies reports whether pages of anybody are on their way.
func (m *Machine) Copies() bool {
	return slices.ContainsFunc(m.live, func(t *Task) bool { return t.copying != nil })
}

// Copying returns how many bytes of a task's pages are yet on their way.
func (m *Machine) Copying(num int) (left float64, err error) {
	t, err := m.task(num)
	if err != nil || t.copying == nil {
		return 0, err
	}
	return t.copying.left, nil
}
