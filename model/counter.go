package model

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// CounterRow describes one counter: what it is called wherever it is written down (records,
// exports, documents), what it counts in, and where Linux has it from.
type CounterRow struct {
	Name string
	Unit string // ns, periods, cycles, instructions, misses, bytes, pages, operations
	From string
	// Optional: many machines do not have it, and what needs it goes without.
	Optional bool
}

// TaskCounter says which counter of a task is meant. Records name counters, so that the
// order here is nobody's business: a new one goes to the end.
type TaskCounter uint8

// The counters of a task.
const (
	CountUsage TaskCounter = iota
	CountThrottled
	CountRun
	CountDelay
	CountCycles
	CountRefCycles
	CountInstructions
	CountLLCMisses
	CountCPUStall
	CountWaited
	CountWaitedForeign
	CountWaitP99
	CountMemory
	CountMemoryAnon
	CountMemoryFile
	CountRefaults
	CountMemoryInactive
	CountMemoryLimit
	CountMemoryStall
	CountIOBytes
	CountIODelay
	NumTaskCounters
)

var taskCounters = [NumTaskCounters]CounterRow{
	CountUsage: {Name: "usage", Unit: "ns", From: "CPU time of the cgroup and its descendants: cpuacct.usage, or usage_usec of cpu.stat"},
	// On the task's own path: quotas of groups below it are their own affair.
	CountThrottled: {Name: "throttled", Unit: "periods", From: "nr_throttled of cpu.stat, of the group and those above it"},
	// Of the thread groups that could be followed since the agent first saw them.
	CountRun:   {Name: "run", Unit: "ns", From: "cpu_run_virtual_total of taskstats, or schedstat"},
	CountDelay: {Name: "delay", Unit: "ns", From: "cpu_delay_total of taskstats, or schedstat"},
	// Of the cgroup, scaled when the kernel multiplexed them.
	CountCycles:       {Name: "cycles", Unit: "cycles", From: "perf: PERF_COUNT_HW_CPU_CYCLES", Optional: true},
	CountRefCycles:    {Name: "ref_cycles", Unit: "cycles", From: "perf: PERF_COUNT_HW_REF_CPU_CYCLES, which tick at one rate whatever the core's clock does", Optional: true},
	CountInstructions: {Name: "instructions", Unit: "instructions", From: "perf: PERF_COUNT_HW_INSTRUCTIONS", Optional: true},
	CountLLCMisses:    {Name: "llc_misses", Unit: "misses", From: "perf: PERF_COUNT_HW_CACHE_MISSES", Optional: true},
	CountCPUStall:     {Name: "cpu_stall", Unit: "ns", From: "cpu.pressure of the cgroup (v2): time in which a thread of it waited for a CPU, the some line", Optional: true},
	// From the scheduler's events (docs/WAITS.md), of LC tasks, since the agent began to measure them.
	CountWaited:        {Name: "waited", Unit: "ns", From: "BPF at sched_switch and sched_wakeup: time in which threads could have run and did not, over all threads", Optional: true},
	CountWaitedForeign: {Name: "waited_foreign", Unit: "ns", From: "of it, while another than the task itself had the CPU", Optional: true},
	// No count: of the time since the reading before.
	CountWaitP99: {Name: "wait_p99", Unit: "ns", From: "99 of 100 waits after a wake-up were shorter", Optional: true},
	// No counts: as it is at the reading. Of the cgroup and its descendants, while a policy asks.
	CountMemory:     {Name: "memory", Unit: "bytes", From: "memory.current (v2) or memory.usage_in_bytes (v1): anonymous memory, page cache and the kernel's", Optional: true},
	CountMemoryAnon: {Name: "memory_anon", Unit: "bytes", From: "of it anonymous memory: anon of memory.stat (v2), total_rss (v1)", Optional: true},
	CountMemoryFile: {Name: "memory_file", Unit: "bytes", From: "of it page cache, with shared memory: file of memory.stat (v2), total_cache (v1)", Optional: true},
	// A count again.
	CountRefaults: {Name: "refaults", Unit: "pages", From: "memory.stat: workingset_refault_anon and workingset_refault_file, pages that came back after they were reclaimed", Optional: true},
	// No counts.
	CountMemoryInactive: {Name: "memory_inactive_file", Unit: "bytes", From: "memory.stat: inactive_file (v1: total_inactive_file), page cache that the kernel takes back first", Optional: true},
	CountMemoryLimit:    {Name: "memory_limit", Unit: "bytes", From: "memory.max (v2) or memory.limit_in_bytes (v1), the least of the group and those above it; missing where none has one", Optional: true},
	CountMemoryStall:    {Name: "memory_stall", Unit: "ns", From: "memory.pressure of the cgroup (v2): time in which a thread of it waited for memory, the some line", Optional: true},
	// Of the cgroup and its descendants, while a policy asks: over all devices that do not lie on others. Snapshot.IO has them, and operations, by device and direction.
	CountIOBytes: {Name: "io_bytes", Unit: "bytes", From: "read and written: rbytes and wbytes of io.stat (v2), blkio.throttle.io_service_bytes_recursive (v1, without what the page cache writes later)", Optional: true},
	CountIODelay: {Name: "io_delay", Unit: "ns", From: "io.pressure of the cgroup (v2), the some line: time in which a thread of it waited for a device; else blkio_delay_total of taskstats, over all threads (sysctl kernel.task_delayacct)", Optional: true},
}

// TaskCounters describes the counters of a task, by number.
func TaskCounters() []CounterRow { return taskCounters[:] }

// NodeCounter says which counter of the node is meant.
type NodeCounter uint8

// The counters of the node.
const (
	CountBusy NodeCounter = iota
	CountSteal
	CountMemoryTotal
	CountMemoryAvailable
	CountSwapFree
	CountMemorySome
	CountMemoryFull
	NumNodeCounters
)

var nodeCounters = [NumNodeCounters]CounterRow{
	CountBusy:  {Name: "busy", Unit: "ns", From: "CPU time that was not idle, iowait or steal: cpuacct.usage of the root, or /proc/stat"},
	CountSteal: {Name: "steal", Unit: "ns", From: "/proc/stat: time in which the hypervisor ran something else"},
	// No counts: as it is at the reading, while a policy asks.
	CountMemoryTotal:     {Name: "memory_total", Unit: "bytes", From: "/proc/meminfo: MemTotal", Optional: true},
	CountMemoryAvailable: {Name: "memory_available", Unit: "bytes", From: "/proc/meminfo: MemAvailable, what programs could have without swapping", Optional: true},
	CountSwapFree:        {Name: "swap_free", Unit: "bytes", From: "/proc/meminfo: SwapFree", Optional: true},
	// Counts again.
	CountMemorySome: {Name: "memory_some", Unit: "ns", From: "/proc/pressure/memory: time in which a task waited for memory", Optional: true},
	CountMemoryFull: {Name: "memory_full", Unit: "ns", From: "/proc/pressure/memory: time in which all that had work did", Optional: true},
}

// NodeCounters describes the counters of the node, by number.
func NodeCounters() []CounterRow { return nodeCounters[:] }

// appendCounters appends counters as members of a JSON object, by name. Those that are
// Unavailable are left out.
func appendCounters(b []byte, rows []CounterRow, counters []Counter) []byte {
	for i, c := range counters {
		if c.Outcome == Unavailable {
			continue
		}
		b = append(b, ',', '"')
		b = append(b, rows[i].Name...)
		b = append(b, `":{"value":`...)
		b = strconv.AppendUint(b, c.Value, 10)
		b = append(b, `,"outcome":"`...)
		b = append(b, c.Outcome.String()...)
		b = append(b, '"', '}')
	}
	return append(b, '}')
}

// readCounters reads counters from a JSON object, by name, and its member that is no counter.
// Names that are not known are passed over: other versions have other counters.
func readCounters(text []byte, rows []CounterRow, counters []Counter, other string, value any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	if m, ok := members[other]; ok {
		if err := json.Unmarshal(m, value); err != nil {
			return fmt.Errorf("%s: %w", other, err)
		}
	}
	for i := range rows {
		counters[i] = Counter{}
		if m, ok := members[rows[i].Name]; ok {
			if err := json.Unmarshal(m, &counters[i]); err != nil {
				return fmt.Errorf("%s: %w", rows[i].Name, err)
			}
		}
	}
	return nil
}

// MarshalJSON writes the counters by name.
func (s TaskSample) MarshalJSON() ([]byte, error) {
	b := strconv.AppendUint([]byte(`{"num":`), uint64(s.Num), 10)
	return appendCounters(b, taskCounters[:], s.C[:]), nil
}

// UnmarshalJSON reads the counters by name.
func (s *TaskSample) UnmarshalJSON(b []byte) error {
	return readCounters(b, taskCounters[:], s.C[:], "num", &s.Num)
}

// MarshalJSON writes the counters by name.
func (s NodeSample) MarshalJSON() ([]byte, error) {
	b := strconv.AppendInt([]byte(`{"cpus":`), int64(s.CPUs), 10)
	return appendCounters(b, nodeCounters[:], s.C[:]), nil
}

// UnmarshalJSON reads the counters by name.
func (s *NodeSample) UnmarshalJSON(b []byte) error {
	return readCounters(b, nodeCounters[:], s.C[:], "cpus", &s.CPUs)
}
