package rig

import "github.com/commensal-io/commensal/twin/machine"

// fixedAnswers are what the emulator reports for the last RMIDs of its geometry, whatever
// they run: tests of the drivers take monitoring groups until they hold these.
var fixedAnswers = map[int]Answer{
	57: {CPIMilli: 3000, MPKI: 20},
	58: {CPIMilli: 800, MPKI: 2},
	59: {RateBytes: 2e9},
	60: {Flags: AnswerUnavailable},
	61: {Flags: AnswerError},
	62: {OccupancyBytes: 3 << 20},
}

// contended is the guest as the physics knows it: its sockets, cores, ways and clock, with the cache that the emulator
// tells of and, for two cores, a tenth of what the memory of a server's socket gives.
func contended() machine.Config {
	c := machine.Skylake()
	c.CoresPerSocket, c.ThreadsPerCore, c.Hz = 2, 1, 2e9
	c.LLCBytes, c.LLCWays = 16<<20, 11
	c.MemPeakBytes, c.LinkPeakBytes = 11e9, 4e9
	return c
}

// What the tenants' instructions are like; none is a measured program.
var (
	// service lives in the cache, and waits for what it does not find there. Alone it has about 1 cycle an instruction.
	service = machine.TaskConfig{
		Name: "service", CPI: 0.4, APKI: 32, Overlap: 1.5, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{28, 21, 13, 6, 2, 0.8, 0.6}},
	}
	// scan reads through memory, and finds hardly more in a large cache than in a small one.
	scan = machine.TaskConfig{
		Name: "scan", CPI: 0.6, APKI: 32, Overlap: 8, Prefetched: 0.3, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{29, 28, 27}},
	}
	// compute needs neither cache nor memory.
	compute = machine.TaskConfig{
		Name: "compute", CPI: 0.8, APKI: 0.3, Overlap: 2, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{0.1}},
	}
	// waiter finds nothing in the cache, and waits for memory.
	waiter = machine.TaskConfig{
		Name: "waiter", CPI: 0.5, APKI: 20, Overlap: 1.1, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 512 << 10, MPKI: []float64{10, 10, 9.9, 9.9}},
	}
	// stream takes more of the memory's bandwidth than there is, however large the cache.
	stream = machine.TaskConfig{
		Name: "stream", CPI: 0.5, APKI: 120, Overlap: 40, Prefetched: 0.6, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{110}},
	}
	// solver lives in the cache; without it, it takes all the memory's bandwidth.
	solver = machine.TaskConfig{
		Name: "solver", CPI: 0.5, APKI: 120, Overlap: 12, Spread: 0.04, SpreadNsec: 500e6,
		Curve: machine.MissCurve{StepBytes: 2 << 20, MPKI: []float64{110, 100, 60, 20, 2, 1}},
	}
)

// tenants are whom the tests of stage contention put behind the first RMIDs, which a boot hands out in order: a test
// makes its monitoring groups on a fresh mount, and a class of the agent's takes the next. RMID 0 is the root group's.
var tenants = []Tenant{
	// agent.TestContentionCPI
	{RMID: 1, Task: service}, // beside the antagonist
	{RMID: 2, Task: service}, // another task of its job, on the other socket
	{RMID: 3, Task: scan},    // the antagonist
	{RMID: 4, Task: compute}, // a bystander
	// agent.TestContentionCache
	{RMID: 5, Task: service},
	{RMID: 6, Task: scan},
	{RMID: 7, Task: scan}, // the same in the agent's class
	// agent.TestContentionCacheWorse
	{RMID: 8, Task: waiter},
	{RMID: 9, Task: solver},
	{RMID: 10, Task: solver},
	// agent.TestContentionRemedy
	{RMID: 11, Task: service},
	{RMID: 12, Task: scan},
	{RMID: 13, Task: scan}, // the same in its own class
	// agent.TestContentionRemedyPages; seven groups of others have the next
	{RMID: 14, Task: waiter},
	{RMID: 15, Task: stream},
	// agent.TestContentionBandwidth
	{RMID: 23, Task: waiter},
	{RMID: 24, Task: stream},
	{RMID: 25, Task: stream}, // the same in the agent's class
	// agent.TestContentionBalm
	{RMID: 26, Task: waiter},
	{RMID: 27, Task: stream},
	{RMID: 28, Task: stream},
	{RMID: 29, Task: stream},
	{RMID: 30, Task: stream},
	// agent.TestContentionRemedyLevel
	{RMID: 31, Task: waiter},
	{RMID: 32, Task: stream},
	{RMID: 33, Task: stream}, // the same in its own class, and the next ones
	{RMID: 34, Task: stream},
	{RMID: 35, Task: stream},
	{RMID: 36, Task: stream},
}
