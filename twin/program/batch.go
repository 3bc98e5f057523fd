package program

const ours = "ours: a plausible mixture, from no measurement"

// batch is programs that run beside services.
func batch() []Profile {
	list := []Profile{
		{
			Name: "stream-big", What: "WCA's STREAM: 4 cores, mostly non-temporal writes", Threads: 4,
			Source: wcaSource,
			APKI:   1.1 * missesFor(1.21, 4, 0.6), Overlap: 8, Prefetched: 0.8, WriteShare: 6.24 / 7.45,
			Curve: flat(missesFor(1.21, 4, 0.6)), CPI: 0.6,
		},
		{
			Name: "sysbench-memory", What: "WCA's sysbench memory: 4 cores, writes only", Threads: 4,
			Source: wcaSource + "; its 99.6 % of writes are 99 here",
			APKI:   1.1 * missesFor(0.144, 4, 0.6), Overlap: 8, Prefetched: 0.8, WriteShare: 0.99,
			Curve: flat(missesFor(0.144, 4, 0.6)), CPI: 0.6,
		},
		mixed("video-processing", "transcoding: frames streamed, motion search in cache", 0.75, 14, 10, 4, 0.6, 0.3),
		mixed("compilation", "many short compilers", 0.95, 16, 11, 2.5, 0.1, 0.2),
		mixed("scientific-simulation", "stencils over a large grid", 0.8, 24, 20, 14, 0.75, 0.35),
		mixed("mapreduce-worker", "parses, sorts and spills", 1.0, 14, 10, 5, 0.4, 0.35),
		mixed("log-processing", "scans and matches text", 0.7, 9, 8, 7, 0.8, 0.1),
		mixed("index-building", "merges sorted runs, random lookups", 1.3, 22, 17, 8, 0.2, 0.3),
		mixed("ml-training", "dense algebra with blocked reuse", 0.6, 18, 13, 5, 0.7, 0.25),
		mixed("replayer", "replays logs against a store: bursts of traffic", 1.1, 18, 15, 9, 0.4, 0.4),
		mixed("batch-analytics", "joins whose hash tables exceed the cache", 1.2, 26, 20, 9, 0.2, 0.25),
		mixed("compute", "arithmetic in registers", 0.6, 0.3, 0.1, 0.02, 0, 0.1),
	}
	for i := range list[:2] {
		list[i] = list[i].alone(0.6)
	}
	return list
}

// mixed makes a profile by what it takes in all on an idle machine.Skylake, its accesses,
// its misses in one way and in all, how much is prefetched and the share of writes.
func mixed(name, what string, cycles, apki, first, last, prefetched, writes float64) Profile {
	p := Profile{
		Name: name, What: what, Source: ours,
		APKI: apki, Overlap: 4, Prefetched: prefetched, WriteShare: writes, Curve: falling(first, last, 3.5),
	}
	return p.alone(cycles)
}
