package program

import "github.com/commensal-io/commensal/twin/machine"

// Requests returns requests that ask a service of this program for so many CPUs in the
// mean, each for eachNsec of CPU time, as long as it has a core of a machine to itself;
// beside others they take longer. Their work varies as an exponential one does, and they
// come evenly: set Bursts where they are to come in bursts.
func (p *Profile) Requests(m *machine.Config, cpus, eachNsec float64) *machine.Requests {
	return &machine.Requests{
		PerSecond: cpus * 1e9 / eachNsec, Instructions: eachNsec * m.Hz / 1e9 / p.cycles(m), Variation: 1,
	}
}

// cycles is what an instruction takes in all, alone on an idle machine.
func (p *Profile) cycles(m *machine.Config) float64 {
	misses := p.Curve.At(m.LLCBytes, p.APKI)
	felt := (1 - p.Prefetched) / p.Overlap
	return p.CPI + felt/1000*((p.APKI-misses)*m.LLCHitCycles+misses*m.MemLatencyNsec*m.Hz/1e9)
}
