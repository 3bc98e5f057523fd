package model

// CPU is one logical CPU that is online.
type CPU struct {
	ID     int `json:"id"`
	Core   int `json:"core"`   // physical core, unique on the machine
	Socket int `json:"socket"` // physical package
	LLC    int `json:"llc"`    // last-level cache that it uses, unique on the machine
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

	Memory     []int32 `json:"memory,omitempty"` // domains of memory bandwidth; none: it cannot be divided
	LeastLevel int     `json:"least_level,omitempty"`
	MostLevel  int     `json:"most_level,omitempty"` // which is no limit
}

// Online returns the CPUs that are online.
func (t *Topology) Online() CPUSet {
	var s CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}
