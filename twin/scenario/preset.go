package scenario

import (
	"strings"
	"time"

	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/twin/machine"
)

const defaultPreset = "skylake"

// Presets lists the machines that a scenario can begin with.
func Presets() []string { return []string{defaultPreset} }

func presetMachine(name string) (Machine, bool) {
	if name != defaultPreset {
		return Machine{}, false
	}
	c := machine.Skylake()
	return Machine{
		Preset: name, Platform: name, PMU: true,
		Sockets: c.Sockets, CoresPerSocket: c.CoresPerSocket, ThreadsPerCore: c.ThreadsPerCore, Hz: c.Hz,
		LLC: Size(c.LLCBytes), LLCWays: c.LLCWays, LLCHitCycles: c.LLCHitCycles,
		MemLatency: nsec(c.MemLatencyNsec), MemBandwidth: Size(c.MemPeakBytes),
		LinkLatency: nsec(c.LinkLatencyNsec), LinkBandwidth: Size(c.LinkPeakBytes), Memory: Size(c.MemBytes), FaultTime: defaultFaultTime,
		SMTSlowdown: c.SMTSlowdown, Step: time.Duration(c.StepNsec),
	}, true
}

// defaultFaultTime is about one read of a fast disk.
const defaultFaultTime = 100 * time.Microsecond

func nsec(v float64) time.Duration { return time.Duration(v) }

// config returns the machine as the physics wants it. What a scenario cannot change has
// the preset's value.
func (m *Machine) config() machine.Config {
	c := machine.Skylake()
	c.Sockets, c.CoresPerSocket, c.ThreadsPerCore, c.Hz = m.Sockets, m.CoresPerSocket, m.ThreadsPerCore, m.Hz
	c.CachesPerSocket = m.CachesPerSocket
	c.LLCBytes, c.LLCWays, c.LLCHitCycles = float64(m.LLC), m.LLCWays, m.LLCHitCycles
	c.MemLatencyNsec, c.MemPeakBytes = float64(m.MemLatency), float64(m.MemBandwidth)
	c.LinkLatencyNsec, c.LinkPeakBytes, c.MemBytes = float64(m.LinkLatency), float64(m.LinkBandwidth), float64(m.Memory)
	c.Turbo = m.Turbo
	c.SwapBytes, c.FaultNsec = float64(m.Swap), float64(m.FaultTime)
	c.DiskBytes, c.DiskOps = float64(m.DiskBandwidth), m.DiskOps
	c.SMTSlowdown, c.StepNsec = m.SMTSlowdown, int64(m.Step)
	return c
}

// machineKeys are the keys that the physics' names stand for in its errors.
var machineKeys = []struct{ name, key string }{
	{"sockets", "sockets"}, {"cores per socket", "cores_per_socket"}, {"threads per core", "threads_per_core"},
	{"caches of a socket", "caches_per_socket"},
	{"frequency", "hz"}, {"turbo", "turbo"}, {"LLC size", "llc"}, {"LLC ways", "llc_ways"}, {"cycles of an LLC hit", "llc_hit_cycles"},
	{"memory latency", "memory_latency"}, {"memory bandwidth", "memory_bandwidth"}, {"link latency", "link_latency"},
	{"link bandwidth", "link_bandwidth"}, {"memory size", "memory"},
	{"swap", "swap"}, {"time of a page fault", "fault_time"}, {"disk bandwidth", "disk_bandwidth"}, {"disk operations", "disk_ops"}, {"SMT slowdown", "smt_slowdown"}, {"step", "step"},
}

// check returns what makes the machine impossible.
func (m *Machine) check(doc *strictyaml.Doc) error {
	c := m.config()
	if err := c.Check(); err != nil {
		text := strings.TrimPrefix(err.Error(), "machine: ")
		for _, k := range machineKeys {
			if rest, ok := strings.CutPrefix(text, k.name+" "); ok {
				return doc.Errorf("machine."+k.key, "is %s", rest)
			}
		}
		return doc.Errorf("machine", "%s", text)
	}
	if c.CPUs() > maxCPUs {
		return doc.Errorf("machine.cores_per_socket", "makes %d CPUs; expected at most %d", c.CPUs(), maxCPUs)
	}
	if m.Platform == "" {
		return doc.Errorf("machine.platform", "is empty; expected the name of a CPU type")
	}
	return nil
}

// maxCPUs is what the physics counts to.
const maxCPUs = 1024
