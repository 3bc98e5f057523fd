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
}

// Online returns the CPUs that are online.
func (t *Topology) Online() CPUSet {
	var s CPUSet
	for i := range t.CPUs {
		s.Add(t.CPUs[i].ID)
	}
	return s
}
