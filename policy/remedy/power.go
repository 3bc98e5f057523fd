package remedy

import "fmt"

// Power. Cores that are at work share what a socket may draw: where batch work wakes more of them the clock of all falls, and a service's instructions take longer without a
// miss more (PRM's detection of power: a frequency below that of quiet times; PRM has no remedy for it). Ways, bandwidth, pages and other CPUs of the socket give none of
// it back; fewer cores at work do: CPU time of who uses most comes first.

// slower is by how much the clock has to be below that of quiet windows. It hardly scatters: cycles and reference cycles are counted together.
const slower = 0.03

// clock takes in a window's core cycles and reference cycles per instruction.
func (x *Victim) clock(core, reference float64) {
	if reference > 0 {
		x.Clock.wary(core/reference, x.quiet(), true)
	}
}

// forPower reports whether a service is slow for the clock of its cores, and why: the clock fell, and at least half of what its CPI rose by is that.
func (x *Victim) forPower(p *Params) (text string, ok bool) {
	if _, counted := x.MPKI.above(p.Rise, p.Windows); !p.Power || !counted || x.Clock.N < p.Windows || !(x.Clock.Now > 0) {
		return "", false
	}
	fell := x.Clock.Quiet/x.Clock.Now - 1
	if fell < slower || x.Cycles.N >= p.Windows && x.Cycles.Now/x.Cycles.Quiet-1 > 2*fell {
		return "", false
	}
	return fmt.Sprintf("its cores run at %.3g times their reference clock, %.3g in quiet windows, and neither misses nor memory are above those: power", x.Clock.Now, x.Clock.Quiet), true
}
