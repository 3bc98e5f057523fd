package model

import (
	"encoding/json"
	"fmt"
)

// MemoryCounter says which counter of a memory domain is meant. Records name counters.
type MemoryCounter uint8

// The counters of a memory domain.
const (
	CountMemTotal MemoryCounter = iota
	CountMemLocal
	CountMemBE
	CountMemLatency
	NumMemoryCounters
)

var memoryCounters = [NumMemoryCounters]CounterRow{
	CountMemTotal: {Name: "total", Unit: "bytes", From: "mbm_total_bytes of all control groups of resctrl: to and from any memory", Optional: true},
	CountMemLocal: {Name: "local", Unit: "bytes", From: "mbm_local_bytes of all control groups: the part to the domain's own memory", Optional: true},
	// Only while there is such a class.
	CountMemBE: {Name: "be", Unit: "bytes", From: "mbm_total_bytes of the agent's classes of BE tasks", Optional: true},
	// No count: the mean since the reading before.
	CountMemLatency: {Name: "latency", Unit: "ns", From: "uncore counters of the domain's CPUs, while policy bandwidth is on: how long reads of the socket's own memory took that missed the cache", Optional: true},
}

// MemoryCounters describes the counters of a memory domain, by number.
func MemoryCounters() []CounterRow { return memoryCounters[:] }

// MemorySample is one raw reading of what the CPUs of one domain move to and from memory. It is taken beside the loop,
// so it has a time of its own.
type MemorySample struct {
	Domain   int32
	MonoNsec int64
	C        [NumMemoryCounters]Counter
}

// MarshalJSON writes the counters by name.
func (s MemorySample) MarshalJSON() ([]byte, error) {
	return appendCounters(fmt.Appendf(nil, `{"domain":%d,"mono_nsec":%d`, s.Domain, s.MonoNsec), memoryCounters[:], s.C[:]), nil
}

// UnmarshalJSON reads the counters by name.
func (s *MemorySample) UnmarshalJSON(b []byte) error {
	var at struct {
		MonoNsec int64 `json:"mono_nsec"`
	}
	if err := json.Unmarshal(b, &at); err != nil {
		return err
	}
	s.MonoNsec = at.MonoNsec
	return readCounters(b, memoryCounters[:], s.C[:], "domain", &s.Domain)
}

// MemoryObservation is what two readings of a memory domain say. Rates are bytes a second.
type MemoryObservation struct {
	Domain   int32 `json:"domain"`
	FromNsec int64 `json:"from_nsec"` // of the readings, on the monotonic clock
	ToNsec   int64 `json:"to_nsec"`
	Total    Value `json:"total"` // of the domain's CPUs, to and from any memory
	Local    Value `json:"local"` // the part to the domain's own
	BE       Value `json:"be"`    // the part of BE tasks, while they are in a class of their own
	// Node is what the domain's memory delivers, to all CPUs. Of one domain it is Total; of two it is known where Local
	// is; of more nobody counts whose memory is meant, and Total stands in its place.
	Node    Value `json:"node"`
	Latency Value `json:"latency"` // ns until an access is answered
}

// observeMemory derives the rates of each domain that both snapshots have.
func observeMemory(prev, cur *Snapshot, dst []MemoryObservation) []MemoryObservation {
	for i := range cur.Memory {
		c := &cur.Memory[i]
		o := MemoryObservation{Domain: c.Domain, ToNsec: c.MonoNsec, Latency: Missing(c.C[CountMemLatency].Outcome)}
		if l := c.C[CountMemLatency]; l.Outcome == OK {
			o.Latency = Known(float64(l.Value))
		}
		p := MemorySample{MonoNsec: c.MonoNsec}
		for k := range prev.Memory {
			if prev.Memory[k].Domain == c.Domain {
				p = prev.Memory[k]
			}
		}
		if o.FromNsec = p.MonoNsec; c.MonoNsec < p.MonoNsec {
			continue
		}
		bytes := func(k MemoryCounter) Value {
			if c.MonoNsec == p.MonoNsec {
				return Missing(Fresh)
			}
			v := rate(p.C[k], c.C[k], c.MonoNsec-p.MonoNsec)
			v.V *= 1e9
			return v
		}
		o.Total, o.Local, o.BE = bytes(CountMemTotal), bytes(CountMemLocal), bytes(CountMemBE)
		o.Node = o.Total
		dst = append(dst, o)
	}
	if len(dst) == 2 && dst[0].Local.Outcome == OK && dst[1].Local.Outcome == OK {
		for i := range dst {
			own, other := &dst[i], &dst[1-i]
			if own.Total.Outcome == OK && other.Total.Outcome == OK {
				own.Node = Known(own.Local.V + max(0, other.Total.V-other.Local.V))
			}
		}
	}
	return dst
}
