package model

import "fmt"

// cacheWaysSpec is how many ways of one last-level cache a class of service may fill. Which they are the driver
// chooses: the kernel demands a row of them, and others may hold some for themselves.
var cacheWaysSpec = schemataSpec(CacheWays, "schemata.L3", showWays)

// l2WaysSpec is the same of the L2s, of which there is one for each core or few: one knob for all of them (EveryDomain). With one for each,
// 64 cores would be 64 claims, 64 times that the class's schemata are read, written and read back under resctrl's lock, and 64 results in
// each record, to say one thing: a service's threads come and go on any core, so nobody would give batch work more of one L2 than of another.
var l2WaysSpec = schemataSpec(L2Ways, "schemata.L2", showWays)

func showWays(s Setting) string {
	if s.Amount < 0 {
		return fmt.Sprintf("%d other ways", -s.Amount)
	}
	return fmt.Sprintf("%d ways", s.Amount)
}

// memoryBandwidthSpec is the level of one memory bandwidth allocation of a class of service, in the unit of the
// machine: per cent on Intel, where it is a delay between requests and no bandwidth that could be counted on.
var memoryBandwidthSpec = schemataSpec(MemoryBandwidth, "schemata.MB", func(s Setting) string { return fmt.Sprintf("level %d", s.Amount) })

// schemataSpec is a knob of a class of service and a domain that is one number, of which less takes more.
func schemataSpec(kind KnobKind, name string, show func(Setting) string) KnobSpec {
	s := KnobSpec{
		Name: name, Scope: ScopeCLOS, Beside: true,
		Cap:    func(amount float64, _ int64) Setting { return Setting{Knob: kind, Amount: int64(amount)} },
		Within: func(a, b Setting) bool { return a.Amount <= b.Amount },
		Show:   show,
	}
	s.Encode, s.Decode = oneNumber(kind)
	return s
}

// Ways returns the setting of a class that may fill so many ways.
func Ways(n int64) Setting { return Setting{Knob: CacheWays, Amount: n} }

// Level returns the setting of a class's memory bandwidth.
func Level(n int64) Setting { return Setting{Knob: MemoryBandwidth, Amount: n} }
