package program

import "github.com/commensal-io/commensal/twin/machine"

// pbbWay is the size of a way of the LLC that the SPEC numbers were measured on: a Skylake
// at 2.0 GHz with 11 ways. The file gives no sizes; what a program that fills the cache
// fills at 11 ways is 27.4 MB (lbm06), so 2.5 MiB each (27.5 MiB: 20 cores).
const pbbWay = 2.5 * (1 << 20)

const pbbSource = "PBBCache (pbbcache/cachesim, simulator/input/metrics.csv): misses and accesses at 1 to 11 ways; CPI and overlap fitted to its IPC at 1, 3, 6 and 11 of them"

// stalls are the cycles that a miss costs a core which waits for it alone, idle memory, on
// the machine of pbbWay: 67 ns at 2.0 GHz, less the 26 cycles that a hit would cost.
const stalls = 67*2.0 - hitCycles

// hitCycles is machine.Skylake's LLCHitCycles.
const hitCycles = 26

// maxOverlap is the most accesses that a core has under way; what is hidden beyond that
// was prefetched.
const maxOverlap = 16

// measured makes a profile from a line through measured cycles per instruction against
// misses per instruction: what it has without misses, and its slope.
func measured(name, what string, noMisses, slope, apki float64, mpki ...float64) Profile {
	p := Profile{
		Name: name, What: what, Source: pbbSource, Threads: 1, APKI: apki, WriteShare: 0.2,
		Curve: machine.MissCurve{StepBytes: pbbWay, MPKI: mpki},
	}
	felt := slope / stalls // of an access's latency
	p.Overlap, p.Prefetched = overlap(felt)
	p.CPI = noMisses - felt*apki/1000*hitCycles
	return p
}

// overlap divides the share of latencies that a core feels.
func overlap(felt float64) (overlap, prefetched float64) {
	if felt*maxOverlap >= 1 {
		return 1 / felt, 0
	}
	return maxOverlap, 1 - felt*maxOverlap
}

// spec is programs of SPEC CPU, alone on a server with CAT.
func spec() []Profile {
	list := []Profile{
		measured("xalancbmk", "SPEC CPU 2006, XML transformation: gains most from cache", 0.705, 20.0, 46.3,
			34.9, 24.4, 17.3, 12.4, 8.8, 6.0, 4.1, 2.9, 1.9, 1.3, 1.0),
		measured("omnetpp", "SPEC CPU 2006, network simulation: waits for every miss", 0.830, 33.0, 33.1,
			24.4, 19.7, 17.0, 14.8, 13.0, 11.3, 9.7, 8.4, 7.2, 6.1, 5.2),
		measured("mcf", "SPEC CPU 2006, vehicle scheduling: misses much, and waits", 1.140, 29.8, 69.4,
			53.6, 39.4, 31.7, 26.6, 23.2, 21.3, 20.3, 19.8, 19.5, 19.3, 19.2),
		measured("mcf-2000", "SPEC CPU 2000, vehicle scheduling: 200 accesses per 1000 instructions", 2.434, 18.0, 203,
			118.4, 57.9, 29.3, 17.1, 11.2, 9.6, 8.7, 8.0, 7.6, 7.3, 7.1),
		measured("lbm", "SPEC CPU 2006, fluid dynamics: streams, prefetched", 0.524, 0.4, 31.9,
			29.6, 26.1, 23.3, 21.2, 19.7, 18.9, 18.4, 18.0, 17.7, 17.6, 17.4),
		measured("art", "SPEC CPU 2000, neural network: all or nothing in three ways", 0.538, 10.5, 67.5,
			34.3, 7.1, 1.2, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
		measured("soplex", "SPEC CPU 2006, linear programming", 0.729, 12.1, 36.9,
			27.2, 19.2, 14.7, 10.8, 8.5, 6.2, 4.3, 2.9, 2.2, 1.3, 1.0),
		measured("gcc", "SPEC CPU 2006, compiler", 0.554, 17.0, 19.1,
			14.7, 11.4, 9.1, 7.3, 5.7, 4.6, 3.7, 3.0, 2.5, 2.1, 1.8),
		measured("libquantum", "SPEC CPU 2006, quantum computer: streams over one array", 0.323, 3.0, 23.8,
			22.5, 21.5, 20.7, 19.4, 18.2, 17.5, 15.5, 13.2, 10.2, 8.2, 6.0),
		measured("milc", "SPEC CPU 2006, lattice physics: no cache is large enough", 0.772, 7.5, 34.2,
			33.6, 33.1, 32.7, 32.4, 32.1, 31.8, 31.5, 31.2, 30.8, 30.5, 30.4),
	}
	for i := range list {
		if list[i].Name == "lbm" {
			list[i].WriteShare = 0.45 // it writes most of what it reads; the file does not tell
		}
	}
	return list
}
