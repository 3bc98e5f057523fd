package program

import "github.com/commensal-io/commensal/twin/machine"

// exposedOverlap is the middle of 1.4 to 2.3 misses that cores have under way at a time while they run
// scale-out services (Ferdman et al., "Clearing the Clouds", ASPLOS'12). The range is as it is
// commonly quoted; we could not read the paper's table.
const exposedOverlap = 1.8

// Exposed returns the program with as much memory parallelism as was published of services, in place of
// 3, which is ours: it waits for more of the latency of its misses. Alone on an idle
// machine.Skylake its instructions take as long as before. A program that serves no requests is
// left as it is.
func (p Profile) Exposed() Profile {
	if !p.Service {
		return p
	}
	c := machine.Skylake()
	cycles := p.cycles(&c)
	p.Overlap = exposedOverlap
	return p.alone(cycles)
}
