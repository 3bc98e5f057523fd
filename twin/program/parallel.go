package program

const balmSource = "BALM (SPAA'21), table I: GB/s written and read with a socket of a Xeon Gold 5218 to itself, 16 threads; CPI, overlap and curve are ours, chosen to give that traffic on machine.Skylake"

// traffic makes a profile of a parallel program that is known by its traffic. What it
// misses falls by a fifth from one way to all: stencils reuse a little.
func traffic(name, what string, writeGB, readGB, cycles, prefetched float64) Profile {
	const threads = 16
	mpki := missesFor(readGB, threads, cycles)
	p := Profile{
		Name: name, What: what, Source: balmSource, Threads: threads,
		APKI: 1.35 * mpki, Overlap: 8, Prefetched: prefetched, WriteShare: writeGB / (writeGB + readGB),
		Curve: falling(1.25*mpki, mpki, 4),
	}
	return p.alone(cycles)
}

// parallel is scientific programs that use a socket, and the kernels that load a memory.
func parallel() []Profile {
	return []Profile{
		traffic("npb-mg", "NPB MG.C, multigrid: the most traffic", 7.16, 26.31, 0.9, 0.7),
		traffic("ocean", "SPLASH Ocean, large-scale currents", 8.48, 23.81, 0.9, 0.6),
		traffic("npb-sp", "NPB SP.C, penta-diagonal solver: a third of it writes", 10.76, 20.48, 0.8, 0.6),
		traffic("npb-ua", "NPB UA.C, adaptive mesh: irregular accesses", 5.40, 16.79, 1.0, 0.3),
		traffic("blackscholes", "PARSEC Blackscholes, option prices: little traffic", 0.35, 2.50, 0.7, 0.5),
		traffic("npb-ep", "NPB EP.B, random numbers: no traffic", 0.01, 0.01, 0.7, 0),
		traffic("swaptions", "PARSEC Swaptions, Monte Carlo: no traffic", 0.01, 0.01, 0.6, 0),
		{
			Name: "stream", What: "STREAM triad: as much bandwidth as a core can take",
			Source: "the ratio of reads and writes is the benchmark's (two reads, a read for ownership, one write); the rest is ours: a core takes what it can have in flight",
			CPI:    0.5, APKI: 45, Overlap: 16, Prefetched: 0.9, WriteShare: 0.25, Curve: falling(44, 43, 2),
		},
		{
			Name: "memory-read", What: "reads a large array: as much as a core can take, no writes",
			Source: "ours, as programs that measure bandwidth do it: a core takes what it can have in flight",
			CPI:    0.5, APKI: 45, Overlap: 16, Prefetched: 0.9, Curve: flat(44),
		},
		{
			Name: "pointer-chase", What: "a list in random order: one miss at a time",
			Source: "ours; it is how memory latency is measured, and waits for all of it",
			CPI:    0.5, APKI: 100, Overlap: 1, Curve: flat(100),
		},
	}
}
