package kernfs

import "math"

// MemoryLatency is what uncore counters would say of a domain's memory: no file has it.
func (k *Kernel) MemoryLatency(domain int32) (nsec uint64, ok bool) {
	c := k.m.Config()
	if domain < 0 || int(domain) >= c.Caches() {
		return 0, false
	}
	return uint64(math.Round(k.m.Memory(c.Home(int(domain))).LatencyNsec)), true
}
