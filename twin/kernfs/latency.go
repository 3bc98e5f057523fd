package kernfs

import "math"

// MemoryLatency is what uncore counters would say of a domain's memory: no file has it.
func (k *Kernel) MemoryLatency(domain int32) (nsec uint64, ok bool) {
	if domain < 0 || int(domain) >= k.m.Config().Sockets {
		return 0, false
	}
	return uint64(math.Round(k.m.Memory(int(domain)).LatencyNsec)), true
}
