package uncore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/procstat"
)

// method is how one kind of CPU is asked how long its memory takes to answer.
//
// What is meant is the whole of it: from when a read has missed the last-level cache to when its data is there (Alibaba
// §4.2 has a threshold of 200 ns for it). So
//
//   - Intel: the agents of the cache (CHA) keep a table of requests (TOR). The sum of its entries over clocks, by the requests
//     that came in, is how long one stays, by Little's law; perf(1) has it as llc_data_read_demand_plus_prefetch_miss_latency
//     and llc_demand_data_read_miss_latency, each with _for_local_requests.
//   - AMD: the unit of the last-level cache samples misses and sums how long they took, in steps of 10 ns: perf(1)'s
//     l3_read_miss_latency_for_local_dram. (Its first lists called the unit core clocks; AMD corrected that to nanoseconds.)
//
// Rejected: the read queues of Intel's memory controller (RPQ_OCCUPANCY by RPQ_INSERTS): they are the part of the way
// that queues most, but of 200 ns from core to core only some, and the threshold would mean another thing.
//
// Of both only reads of the socket's own memory count. One of another socket's takes longer even where both idle, so a
// service with its pages there would pass for a slow memory here; and what its own CPUs wait for there is no limit's business here.
type method struct {
	cpu            string
	vendor         string
	family         int
	models         []uint64
	pmu            string
	wait, requests string // terms (PMU.Encode)
	// clock counts with them, where wait is a sum over clocks; "": it is a sum of steps of so many ns.
	clock    string
	stepNsec float64
}

// methods has CPUs of servers only. The codes are those of the makers' own lists: of Intel github.com/intel/perfmon (SKX, CLX,
// ICX, SPR, EMR, GNR: UNC_CHA_TOR_OCCUPANCY, UNC_CHA_TOR_INSERTS, UNC_CHA_CLOCKTICKS, and of the families the mapfile); of AMD
// the kernel's tools/perf/pmu-events/arch/x86/amdzen4 and amdzen5.
//
// Before Zen 4, AMD's units count clocks whose frequency nothing beside them counts (xi_sys_fill_latency), so there is no row.
var methods = []method{
	{
		// IA_MISS_DRD with "filter1" 0x40432. That is the upper half of the kernel's config1, to which its fields
		// are written here: opcode DRd (0x202), local, near memory and not.
		cpu: "Skylake-SP or Cascade Lake-SP", vendor: intel, family: 6, models: []uint64{0x55}, pmu: cha,
		wait:     "event=0x36,umask=0x21,filter_loc,filter_nm,filter_not_nm,filter_opc0=0x202",
		requests: "event=0x35,umask=0x21,filter_loc,filter_nm,filter_not_nm,filter_opc0=0x202",
		clock:    "event=0x00",
	},
	{
		// IA_MISS_DRD_LOCAL: umask 0x01, extended umask 0xC816FE.
		cpu: "Ice Lake-SP", vendor: intel, family: 6, models: []uint64{0x6a, 0x6c}, pmu: cha,
		wait: "event=0x36,umask=0xc816fe01", requests: "event=0x35,umask=0xc816fe01", clock: "event=0x00",
	},
	{
		cpu: "Sapphire, Emerald or Granite Rapids", vendor: intel, family: 6, models: []uint64{0x8f, 0xcf, 0xad, 0xae}, pmu: cha,
		wait: "event=0x36,umask=0xc816fe01", requests: "event=0x35,umask=0xc816fe01", clock: "event=0x01",
	},
	{
		// l3_xi_sampled_latency.dram_near. Without slice 3 the unit counts nothing at all.
		cpu: "EPYC of Zen 4", vendor: amd, family: 25, models: append(sixteen(0x10), sixteen(0xa0)...), pmu: l3,
		wait: "event=0xac," + nearDRAM, requests: "event=0xad," + nearDRAM, stepNsec: 10,
	},
	{
		cpu: "EPYC of Zen 5", vendor: amd, family: 26, models: append(sixteen(0x00), sixteen(0x10)...), pmu: l3,
		wait: "event=0xac," + nearDRAM, requests: "event=0xad," + nearDRAM, stepNsec: 10,
	},
}

const (
	intel, amd = "GenuineIntel", "AuthenticAMD"
	cha, l3    = "uncore_cha", "amd_l3"
	nearDRAM   = "umask=0x01,enallcores,enallslices,sliceid=3,threadmask=3"
)

// sixteen are the models of which a hexadecimal digit is the last.
func sixteen(from uint64) []uint64 {
	list := make([]uint64, 16)
	for i := range list {
		list[i] = from + uint64(i)
	}
	return list
}

// ErrUnknownCPU means that nobody wrote down yet how this CPU is asked.
var ErrUnknownCPU = errors.New("how long memory takes to answer is not asked of this type of CPU")

// methodOf returns how this machine's CPUs are asked.
func methodOf(files hostfs.FS) (*method, error) {
	c, err := procstat.ReadCPUInfo(files)
	if err != nil {
		return nil, err
	}
	family, err := strconv.Atoi(c.Family)
	number, err2 := strconv.ParseUint(c.Model, 10, 32)
	for i := range methods {
		m := &methods[i]
		if err == nil && err2 == nil && m.vendor == c.VendorID && m.family == family && slices.Contains(m.models, number) {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%w: %q family %q model %q", ErrUnknownCPU, clip(c.VendorID), clip(c.Family), clip(c.Model))
}
