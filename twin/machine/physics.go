package machine

// Physics is what public measurements say beyond the model that the docs' tables were made with,
// a switch each. The zero value changes nothing. docs/TWIN.md has the equations, the sources and
// what each term changes ("What public measurements add").
type Physics struct {
	// MBAClocks has an MBA level keep the lines that a core reads and writes apart by a number of
	// reference clocks that was measured for each level (mba.go), and not by a linear reading of
	// the percentage.
	MBAClocks bool
	// SiblingBursts has threads meet a busy sibling as often as the number of them that is busy
	// fluctuates, and not as often as at its mean (siblings.go).
	SiblingBursts bool
	// DemandMisses has LLC misses leave out what prefetchers fetch in time, as they may: Intel's manual (SDM 3B, architectural event 2EH/41H) says that
	// the event "may exclude cache line fills due to other hardware-prefetchers" than that of the first level. Traffic is the same.
	DemandMisses bool

	// Two that measurements refute, and that Published is without.

	// WritesApart counts, of a core's lines on their way (Config.InFlight), only those that come
	// in. Intel's uncore manual (329468, WPQ_INSERTS): a write is complete for the rest of the
	// system as soon as the memory controller has taken it. But one core of STREAM moves a fifth
	// less than this allows, and Mess's curves end earlier the more is written.
	WritesApart bool
	// QueueLines is how many lines may wait at a memory node: latency grows by no more than it takes
	// to deliver them, and what is beyond waits in the cores that ask for so much. 0: all that
	// come. But who asks for one line at a time feels 56 waiting ones a channel, as many as 27 cores
	// have on their way.
	QueueLines float64
}

// Published returns a machine with the terms that public measurements support, or that follow from
// counting (SiblingBursts). Its reference clock is taken for the clock with all cores at work.
func Published(c Config) Config {
	c.Physics = Physics{MBAClocks: true, SiblingBursts: true}
	c.Turbo = TurboOver(c.Hz, c.CoresPerSocket)
	return c
}

// measuredTurbo is the clock in GHz with up to so many of 20 cores at work: turbostat's lines
// "max turbo N active cores" of a server with 20 cores a socket and 2.3 GHz (2.9 with more than
// 16), quoted in public notes that do not name the CPU.
var measuredTurbo = []struct {
	cores int
	ghz   float64
}{{2, 3.5}, {4, 3.3}, {12, 3.2}, {16, 3.1}, {20, 2.9}}

// TurboOver returns a table for Config.Turbo: a clock in Hz with all cores of a socket at work, and
// with fewer as much more as on a server of 20 cores whose table is public, at the same share of
// the cores.
func TurboOver(hz float64, cores int) []float64 {
	table, all := make([]float64, cores), measuredTurbo[len(measuredTurbo)-1]
	for i := range table {
		for _, bin := range measuredTurbo {
			if (i+1)*all.cores <= bin.cores*cores {
				table[i] = hz * (bin.ghz / all.ghz) // 1 with all of them
				break
			}
		}
	}
	return table
}
