package model

// Look is a reading of memory between two windows, which the loop takes while memory is low or falls fast, or when
// programs begin to wait for it.
type Look struct {
	MonoNsec int64 `json:"mono_nsec"`
	// Node has the counters of the machine's memory, and no others.
	Node NodeSample `json:"node"`
	// Tasks are the best-effort tasks that could be read, ordered by Num.
	Tasks []TaskMemory `json:"tasks,omitempty"`
}

// TaskMemory is how much memory a task has, in bytes (CountMemory).
type TaskMemory struct {
	Num   TaskNum `json:"num"`
	Bytes uint64  `json:"bytes"`
}
