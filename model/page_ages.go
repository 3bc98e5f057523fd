package model

// AgeEdges are the ages, in nanoseconds, at which the histograms of page ages are cut. The thresholds of Alibaba §3.2 (1.5 h and 6 h) and the ages that its
// text names (3 h and 48 h) are among them.
var AgeEdges = [...]int64{10e9, 60e9, 300e9, 900e9, 1800e9, 3600e9, 5400e9, 3 * 3600e9, 6 * 3600e9, 12 * 3600e9, 24 * 3600e9, 48 * 3600e9}

// NumAgeEdges is how many ages there are.
const NumAgeEdges = len(AgeEdges)

// AgeEdge returns the first edge that is no younger than an age; NumAgeEdges where there is none.
func AgeEdge(nsec int64) int {
	for i, edge := range AgeEdges {
		if edge >= nsec {
			return i
		}
	}
	return NumAgeEdges
}

// AskedAges are the shortest and the longest age of pages that somebody asks for, in nanoseconds; 0: nobody does. How often ages are read goes by them.
type AskedAges struct{ ShortestNsec, LongestNsec int64 }

// PageAges is how long a task's memory has lain idle (Alibaba §3.2). It is read rarely, beside the loop, so it has a time of its own.
type PageAges struct {
	Num      TaskNum `json:"num"`
	MonoNsec int64   `json:"mono_nsec"` // when it was read
	Source   string  `json:"source"`    // "mglru"; "twin" of a simulated machine
	// Anon are the bytes that certainly were not used for as long as each of AgeEdges, or longer; File those that the kernel takes for it.
	Anon [NumAgeEdges]uint64 `json:"anon"`
	File [NumAgeEdges]uint64 `json:"file"`
	// Guest: the task is a virtual machine, and its guest said so, bounded by what the host charges to the task. AnonRoom bytes of anonymous memory fit into the guest's own swap.
	Guest    bool   `json:"guest,omitempty"`
	Limited  bool   `json:"limited,omitempty"` // it is no guest, and AnonRoom is what limits on its path leave it of swap (memory.swap.max)
	AnonRoom uint64 `json:"anon_room,omitempty"`
}

// Of returns the histogram of anonymous or of file memory.
func (a *PageAges) Of(p PageKind) *[NumAgeEdges]uint64 {
	if p == FilePages {
		return &a.File
	}
	return &a.Anon
}
