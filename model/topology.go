package model

import "math"

// CPU is one logical CPU that is online.
type CPU struct {
	ID     int `json:"id"`
	Core   int `json:"core"`           // physical core, unique on the machine
	Socket int `json:"socket"`         // physical package
	LLC    int `json:"llc"`            // last-level cache that it uses, unique on the machine
	Node   int `json:"node,omitempty"` // of memory that is near
}

// Topology is what a machine's CPUs share. It changes when CPUs go offline or come back.
type Topology struct {
	CPUs []CPU `json:"cpus"` // online, ordered by ID
	// Possible are all CPUs that could ever be there, the offline ones included.
	Possible CPUSet `json:"possible"`
	// Classes is what the machine has of classes of service; nil: none, or nobody asked yet.
	Classes *Classes `json:"classes,omitempty"`
}

// Classes is what a class of service can be given on a machine (resctrl's info).
type Classes struct {
	Caches []int32 `json:"caches,omitempty"` // domains of the last-level caches; none: ways cannot be divided
	Ways   int     `json:"ways,omitempty"`   // that each of them has
	Least  int     `json:"least,omitempty"`  // ways that a class has at the least

	L2Ways  int `json:"l2_ways,omitempty"`  // that each L2 has; 0: they cannot be divided
	L2Least int `json:"l2_least,omitempty"` // of them, that a class has at the least

	Memory     []int32 `json:"memory,omitempty"` // domains of memory bandwidth; none: it cannot be divided
	LeastLevel int     `json:"least_level,omitempty"`
	MostLevel  int     `json:"most_level,omitempty"` // which is no limit
	// LevelStep is what levels are rounded up to a multiple of; 0: not known. LevelUnit is what they count in.
	LevelStep int    `json:"level_step,omitempty"`
	LevelUnit string `json:"level_unit,omitempty"`

	// IDs is how many classes the machine can have, the one in which everybody begins included; Taken are those of them
	// that are not the agent's. IDs 0: not known. Where monitoring has fewer numbers than there are classes, they count.
	IDs   int `json:"ids,omitempty"`
	Taken int `json:"taken,omitempty"`

	// Domains are the CPUs of the domains of caches and memory, as far as the kernel tells; of those CPUs that were
	// online when it was asked.
	Domains []Domain `json:"domains,omitempty"`
}

// The units of levels of memory bandwidth.
const (
	LevelPercent = "%"        // of what a core could ask for: a delay between its requests (Intel)
	LevelEighth  = "1/8 GB/s" // of all that the class moves in the domain (AMD)
	LevelMiB     = "MiB/s"    // likewise; the kernel moves delays until it fits (mounted with mba_MBps)
)

// Domain is the CPUs that share a last-level cache and the way to memory behind it, by the kernel's number.
type Domain struct {
	ID   int32  `json:"id"`
	CPUs CPUSet `json:"cpus"`
}

// reserved are the classes that are left free: one for BE together, one for whoever needs one in an emergency.
const reserved = 2

// Alone returns how many tasks can have a class for themselves.
func (c *Classes) Alone() int { return max(0, c.IDs-c.Taken-reserved) }

// Lowest is the level that takes most: the machine's own where levels are per cent of what a core could ask for. Where they
// count bytes, of which the machine would take next to none, it is a tenth of the peak, the most that a memory was seen to move
// a second; MostLevel, with which nothing can be taken, while that is not known (0). What they could count to says nothing of it.
func (c *Classes) Lowest(peak float64) int {
	switch unit := c.LevelBytes(); {
	case unit == 0:
		return c.LeastLevel
	case peak > 0:
		return max(c.LeastLevel, c.level(peak/10/unit))
	}
	return c.MostLevel
}

// Top is the level from which on none limits: where they count bytes, that of the peak.
func (c *Classes) Top(peak float64) int {
	if unit := c.LevelBytes(); unit > 0 && peak > 0 {
		return c.level(peak / unit)
	}
	return c.MostLevel
}

// Raise is how far a level goes up at once: about nine steps to the top (BALM: 10 % each).
func (c *Classes) Raise(peak float64) int {
	n := max(1, c.LevelStep)
	return max(n, (c.Top(peak)-c.Lowest(peak))/9/n*n)
}

// level rounds up to a level.
func (c *Classes) level(x float64) int {
	n := float64(max(1, c.LevelStep))
	return int(min(math.Ceil(x/n)*n, float64(c.MostLevel)))
}

// LevelBytes is what one unit of a level lets a class move, in bytes a second; 0 where a level says nothing of bytes.
func (c *Classes) LevelBytes() float64 {
	switch c.LevelUnit {
	case LevelEighth:
		return 125e6
	case LevelMiB:
		return 1 << 20
	}
	return 0
}

// Online returns the CPUs that are online.
func (t *Topology) Online() CPUSet {
	var s CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}
