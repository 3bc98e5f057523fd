package model

// Fact is one number that a decision rests on. A name means the same in every policy.
type Fact struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // "": a share, a score, or the unit of the signal
}

// FactKind is one name with its unit.
type FactKind uint8

// The kinds of fact.
const (
	FactCorrelation FactKind = iota
	FactAsked
	FactExplained
	FactSignal
	FactThreshold
	FactMean
	FactCap
	FactUsage
	FactLimit
	FactUtilisation
	FactHigh
	FactLoad
	FactCPUs
	FactCores
	FactSavings
	FactBurst
	FactBurstAsked
	FactLevel
	FactBytes
	FactNode
	FactKeep
	FactBlame
	FactBlameAsked
	FactRatio
	FactMemoryUse
	FactMemoryLatency
	FactMemoryLevel
	FactThresholdP
	FactEvidence
	FactEvidenceAsked
	FactExperiments
	FactPrior
	FactLost
	FactFigure
	FactTarget
	FactDraw
	FactTried
	FactPagesLeft
	FactAvailable
	FactAvailableShare
	FactLeft
	FactMemorySome
	FactMemoryFull
	FactHeld
	FactMPKI
	FactMPKIQuiet
	FactWays
	FactNoise
	FactCold
	FactAge
	FactRefaults
	FactRefaultsUsual
	FactCameBack
	FactFreed
	FactStalled
	FactTook
	FactIOBytes
	FactIOOps
	FactIOShare
	FactOccupancy
	FactMoved
	FactMemoryMore
	FactMemoryShare
	FactPagesFar
	FactSockets
	FactOwn
	FactSheet
	NumFacts
)

// FactSpec describes a kind of fact.
type FactSpec struct{ Name, Unit, Means string }

// FactSpecs is the one list of facts, by kind.
var FactSpecs = [NumFacts]FactSpec{
	FactCorrelation: {"correlation", "", "antagonist correlation of the suspect, -1 to 1 (CPI² §4.2)"},
	FactAsked:       {"correlation_asked", "", "the correlation that was asked for"},
	FactExplained:   {"explained", "", "share of the victim's variance that a group explains"},
	FactSignal:      {"signal", "", "the victim's signal, in the unit of its source"},
	FactThreshold:   {"signal_threshold", "", "the signal above which a window is an outlier"},
	FactMean:        {"signal_mean", "", "mean of a spec"},
	FactCap:         {"cap", "cpu", "CPU-sec/sec that a held task may use"},
	FactUsage:       {"usage", "cpu", "CPU-sec/sec that a task used"},
	FactLimit:       {"limit", "cpu", "quota over period, CPU-sec/sec"},
	FactUtilisation: {"utilisation", "", "share of the CPUs of a pool, or of LC's side, in use"},
	FactHigh:        {"utilisation_high", "", "utilisation above which a pool is busy (Alibaba §4.1: U_H)"},
	FactLoad:        {"lc_load", "cpu", "CPU-sec/sec of shared LC tasks"},
	FactCPUs:        {"cpus", "cpus", "logical CPUs"},
	FactCores:       {"cores", "cores", "physical cores"},
	FactSavings:     {"savings", "quotas", "what a task has saved up, in quotas"},
	FactBurst:       {"burst", "quotas", "the burst that the kernel takes, in quotas"},
	FactBurstAsked:  {"burst_asked", "quotas", "the burst that was asked for, in quotas"},
	FactLevel:       {"level", "", "how far a cap is loosened: 0 as tight as it gets, 1 not at all"},
	FactBytes:       {"bytes", "bytes", "of memory"},
	FactNode:        {"node", "", "a memory node"},
	FactKeep:        {"keep", "", "share of a task's pages that may stay on the node"},
	FactBlame:       {"blame", "", "share of what the victim waited for others more than usual that the suspect answers for: it had the CPU, or took the room (docs/WAITS.md)"},
	FactBlameAsked:  {"blame_asked", "", "the share that was asked for"},
	FactRatio:       {"signal_ratio", "", "LC's signals with a measure beside those without it, mean over tasks"},

	FactMemoryUse:     {"memory_utilisation", "", "share of a memory's bandwidth in use (Alibaba §4.2: U)"},
	FactMemoryLatency: {"memory_latency", "ns", "until an access to a memory is answered (Alibaba §4.2: L)"},
	FactMemoryLevel:   {"memory_level", "", "level of memory bandwidth of BE's class, or of the task's own, in the machine's unit"},
	FactThresholdP:    {"memory_threshold", "%", "what BE may move of a memory's bandwidth, above 100 there is no limit (Alibaba §4.2: P)"},
	FactEvidence:      {"evidence", "", "of earlier incidents of the two jobs: logarithm of how much likelier what nudges have shown is of one who hurts"},
	FactEvidenceAsked: {"evidence_asked", "", "the evidence that was asked for"},
	FactExperiments:   {"experiments", "", "nudges that the evidence rests on"},
	FactPrior:         {"prior", "", "part of the evidence that is a fleet's word on the two jobs (docs/CONFIG.md, `repeat.prior`)"},
	FactLost:          {"wait_lost", "", "largest share of the victim's waiting that a window lost which counts (docs/WAITS.md)"},
	FactFigure:        {"slo_figure", "ms", "the quantile of a job's latency that is held against its target"},
	FactTarget:        {"slo_target", "ms", "the target of that quantile"},
	FactDraw:          {"memory_draw", "bytes/s", "what a task draws from the memory of the victim, estimated by its LLC misses (docs/policies/balm.md)"},
	FactTried:         {"tried", "tasks", "BE tasks from which something was taken for the victim"},
	FactPagesLeft:     {"pages_left", "", "share of a task's pages that may stay on the memory of services in trouble"},

	FactAvailable:      {"memory_available", "bytes", "of the machine's memory, what programs could have without swapping"},
	FactAvailableShare: {"memory_available_share", "", "that as a share of all its memory"},
	FactLeft:           {"memory_left", "s", "until no more than the reserve is available, as it falls now; a day: it does not"},
	FactMemorySome:     {"memory_some", "", "share of the window in which a task waited for memory (PSI of the machine)"},
	FactMemoryFull:     {"memory_full", "", "share in which all that had work did"},
	FactHeld:           {"memory_held", "bytes", "of memory that a task has"},

	FactMPKI:          {"mpki", "", "LLC misses of the victim per thousand instructions, of its last windows"},
	FactMPKIQuiet:     {"mpki_quiet", "", "the same of the windows in which it was well"},
	FactWays:          {"ways", "ways", "ways of each last-level cache that a task may fill"},
	FactNoise:         {"signal_noise", "", "standard error of the logarithm of a ratio of signals"},
	FactCold:          {"memory_cold", "bytes", "of memory that a task did not use for as long as is asked for, and that could be taken back"},
	FactAge:           {"memory_age", "s", "for so long the memory that is taken back was not used"},
	FactRefaults:      {"refaults", "pages/s", "pages of a task that came back after they were reclaimed"},
	FactRefaultsUsual: {"refaults_usual", "pages/s", "that rate while nothing was taken back"},
	FactCameBack:      {"came_back", "bytes", "of what was taken back, that came back beyond the usual"},
	FactFreed:         {"freed", "bytes", "of what was taken back, that came free; compressed copies (zswap, zram) keep the rest"},
	FactStalled:       {"memory_stalled", "", "share of the time in which a task waited for memory (PSI of its group; of the machine where groups have none)"},
	FactTook:          {"took", "s", "until memory was taken back"},
	FactIOBytes:       {"io_bytes", "bytes/s", "that a suspect moved on the device while the victim suffered"},
	FactIOOps:         {"io_ops", "1/s", "operations that it did there"},
	FactIOShare:       {"io_share", "", "of these, that it may still do"},
	FactOccupancy:     {"llc_occupancy", "bytes", "that a task's lines fill of the last-level caches of the victim (resctrl)"},
	FactMoved:         {"memory_moved", "bytes/s", "that a task moved to and from memory, by the CPUs of the victim's domains (resctrl)"},
	FactMemoryMore:    {"memory_more", "bytes", "of memory that a suspect has more than while the victim was well"},
	FactMemoryShare:   {"memory_share", "", "of these, that it may still have"},
	FactPagesFar:      {"pages_far", "", "share of a service's pages on memory of sockets on which it may not run"},
	FactSockets:       {"sockets", "sockets", "on whose CPUs a service may run; 0: not known"},
	FactOwn:           {"memory_own", "", "share of what a memory delivers that services themselves draw"},
	FactSheet:         {"sheet", "", "revision of the fleet's sheet whose spec of the victim's job the incident rests on (docs/WIRE.md); absent: the node's own spec, or what its job promises"},
}

// Is returns the fact with a value.
func (k FactKind) Is(v float64) Fact { return Fact{FactSpecs[k].Name, v, FactSpecs[k].Unit} }

// String returns the fact's name.
func (k FactKind) String() string { return FactSpecs[k].Name }

// Fact returns the value of a fact, and whether the decision has it.
func (d *Decision) Fact(k FactKind) (float64, bool) {
	for i := range d.Facts {
		if d.Facts[i].Name == FactSpecs[k].Name {
			return d.Facts[i].Value, true
		}
	}
	return 0, false
}
