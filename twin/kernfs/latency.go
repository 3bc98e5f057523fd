package kernfs

import (
	"math"

	"github.com/commensal-io/commensal/model"
)

// MemoryLatency is what uncore counters would say of a domain's memory: no file has it.
func (k *Kernel) MemoryLatency(domain int32) model.Counter {
	c := k.m.Config()
	if domain < 0 || int(domain) >= c.Caches() {
		return model.Counter{Outcome: model.Absent}
	}
	return model.Read(uint64(math.Round(k.m.Memory(c.Home(int(domain))).LatencyNsec)))
}
