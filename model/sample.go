package model

// TaskSample is one raw reading of one task: counters as the kernel gave them, by
// TaskCounter. Samples are what is recorded; rates are derived (and derived again in a
// replay).
type TaskSample struct {
	Num TaskNum
	C   [NumTaskCounters]Counter
}

// NodeSample is one raw reading of the whole node, by NodeCounter.
type NodeSample struct {
	CPUs int // logical CPUs online
	C    [NumNodeCounters]Counter
}

// WindowMark says where in the sampling window a snapshot stands (CPI² §3.1:
// a 10 second period once a minute).
type WindowMark uint8

// The marks; a snapshot may close one window and open the next.
const (
	WindowStart WindowMark = 1 << iota
	WindowEnd
)

// Snapshot is one reading of everything, at one time.
type Snapshot struct {
	MonoNsec int64      `json:"mono_nsec"`
	WallNsec int64      `json:"wall_nsec"`
	Mark     WindowMark `json:"mark"`
	Node     NodeSample `json:"node"`
	Added    []Task     `json:"added,omitempty"`   // tasks seen for the first time
	Removed  []TaskNum  `json:"removed,omitempty"` // tasks that are gone
	// Topology is there in the first snapshot, and again when it changed.
	Topology *Topology `json:"topology,omitempty"`
	// Settings are the knobs that we do not hold and policies ask about, where they say
	// something else than when they were last listed: bandwidth of LC tasks, CPUs of LC and BE
	// tasks. What the list says of a knob holds until it lists it again.
	Settings []KnobReading `json:"settings,omitempty"`
	// Shields are BE tasks of which it changed whether something lies inside them that is never
	// to be held back.
	Shields []Shield     `json:"shields,omitempty"`
	Tasks   []TaskSample `json:"tasks"` // ordered by Num
	// Waiting is of the LC tasks whose threads waited since the snapshot before, ordered by Num,
	// where the machine can tell.
	Waiting []Waiting `json:"waiting,omitempty"`
	// Memory is what the domains move to and from memory, ordered by domain, where the machine counts it and somebody
	// asks. It was begun to be read at the window's edge before this one.
	Memory []MemorySample `json:"memory,omitempty"`
	// Ages are of the tasks whose page ages were read since the snapshot before that closed a window, while somebody asks.
	Ages []PageAges `json:"ages,omitempty"`
	// Homes is where the pages of LC tasks lie, ordered by task, in a snapshot that closes a window, where the machine has several
	// memory nodes and somebody asks.
	Homes []PageHomes `json:"homes,omitempty"`
	// Domains is what tasks have of the last-level caches and move to and from memory, ordered by task and domain, where the machine counts it
	// and somebody asks. It was begun to be read at the window's edge before this one.
	Domains []DomainSample `json:"domains,omitempty"`
	// IO is what tasks have done on block devices, ordered by task and device, while a policy asks.
	IO []IOSample `json:"io,omitempty"`
	// GPUs is what they said since the snapshot before that closed a window, while somebody asks; nil: nothing new.
	GPUs *GPUReading `json:"gpus,omitempty"`
}

// Shield says why a BE task cannot be held: to hold it would be to hold what lies inside it.
type Shield struct {
	Task TaskNum `json:"task"`
	Why  string  `json:"why,omitempty"` // "": it can be held again
}

// TaskObservation is what one window says of one task.
type TaskObservation struct {
	Num TaskNum
	// CPU is the usage in CPU-sec/sec.
	CPU Value
	// Throttled: a quota on the task's own path throttled it in this window, so that its
	// delay is no evidence against anyone. Known only with ThrottledKnown.
	Throttled, ThrottledKnown bool
	// ThrottledRate is how many CFS periods a second quotas throttled, on the task's own path
	// and below it: for people, who see how bad it is.
	ThrottledRate Value
	// Raw are the signals as they were measured; in Signals the task's own queueing is
	// discounted (Discount).
	Raw, Signals Measures
	// Foreign is the share of the task's waiting in which another had the CPU.
	Foreign Value
	// CoreCPI is core cycles per instruction. Where CPI rises and this does not, the core's clock
	// fell.
	CoreCPI Value
	// MPKI is LLC misses per thousand instructions: evidence, not a detector.
	MPKI Value
	// Misses are LLC misses a second: what it takes of cache and memory from others.
	Misses Value
	// InUse is the memory that it has at the window's end, and of that Anon and File, bytes; Refaults are the
	// pages a second that came back after they were reclaimed. Missing while no policy asks.
	InUse, Anon, File, Refaults Value
	// Inactive is the page cache that the kernel takes back first, and Limit what the task may have, bytes.
	Inactive, Limit Value
	// Spent is the CPU time of its cgroup since that was made, CPU-seconds.
	Spent Value
	// Stalled is the share of the window in which a thread of it waited for memory (PSI, cgroup v2), while a policy asks.
	Stalled Value
}

// Observation is what one window says of the node.
type Observation struct {
	MonoNsec    int64 // at the window's end
	WallNsec    int64
	ElapsedNsec int64
	CPUs        int
	Busy        Value // CPU-sec/sec of the whole node
	Managed     Value // of all tasks together
	Unmanaged   Value // Busy - Managed, not below 0
	Steal       Value // CPU-sec/sec
	Tasks       []TaskObservation
	Waiting     []Waiting // the closing snapshot's own
	Memory      []MemoryObservation
	Ages        []PageAges          // the closing snapshot's own
	IO          []IOObservation     // ordered by task and device
	Domains     []DomainObservation // ordered by task and domain
	Room        Room
	GPUs        *GPUReading // the closing snapshot's own; nil: nothing new

	none TaskSample // what a task that is new was before
}
