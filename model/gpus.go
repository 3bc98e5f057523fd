package model

// GPUReading is what the machine's GPUs say. It is read rarely, beside the loop, so it has a time of its own.
type GPUReading struct {
	MonoNsec int64 `json:"mono_nsec"` // when it was read
	// Why says why there is no figure, or of which GPUs there is none; "": all are here.
	Why  string `json:"why,omitempty"`
	GPUs []GPU  `json:"gpus,omitempty"` // ordered by UUID
}

// GPU is what one of them says. What its driver does not tell is missing.
type GPU struct {
	UUID  string `json:"uuid"`
	Busy  Value  `json:"busy"`  // share of the time in which something ran on it, whoever that was
	Total Value  `json:"total"` // bytes of its memory
	Free  Value  `json:"free"`  // bytes that nobody has, the driver neither
	MIG   bool   `json:"mig,omitempty"`
	// Tasks have memory on it, ordered by task. What is in use and in none of them is others'.
	Tasks  []GPUTask `json:"tasks,omitempty"`
	Untold int       `json:"untold,omitempty"` // processes whose memory the driver does not tell
}

// GPUTask is what the processes of a task have on a GPU.
type GPUTask struct {
	Num   TaskNum `json:"num"`
	Bytes uint64  `json:"bytes"`
}
