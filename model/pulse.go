package model

// Pulse is the fast reading between snapshots: what the policies need that answer a rise
// in load within a tenth of a second. It is kept small, because it is taken, and recorded,
// twenty times a second.
type Pulse struct {
	MonoNsec int64 `json:"mono_nsec"`
	// LCUsage is the CPU time of all LC tasks that have no CPUs of their own (Task.Exclusive),
	// in nanoseconds since the agent began: it only grows, since a task that is gone keeps its
	// part.
	LCUsage Counter `json:"lc_usage"`
	// NodeUsage is the CPU time that everything on the machine has used, ns, also what is no task.
	// It is read with Tasks only, else Unavailable.
	NodeUsage Counter `json:"node_usage"`
	// Tasks are the LC tasks one by one, without the exclusive ones, ordered by Num; nil
	// where the pulse was not asked for detail.
	Tasks []TaskPulse `json:"tasks,omitempty"`
	// Passed are the times since the pulse before at which pulses were passed over, because nothing
	// could have come of them, oldest first; nil: none was.
	Passed []Passed `json:"passed,omitempty"`
}

// Passed is what LCUsage was taken to be when a pulse was passed over. What LC used at most was known
// then. After the last of them it is taken to have used just that, as far as it used so much since the
// pulse before; what remains is spread over the time before as that bound grew.
type Passed struct {
	MonoNsec int64  `json:"mono_nsec"`
	LCUsage  uint64 `json:"lc_usage"`
}

// TaskPulse is the fast reading of one task.
type TaskPulse struct {
	Num   TaskNum `json:"num"`
	Usage Counter `json:"usage"` // CPU time, nanoseconds
	// Periods and Throttled count the CFS periods of the task's own group that began with
	// work, and those in which its quota ran out (nr_periods and nr_throttled of cpu.stat).
	Periods   Counter `json:"periods"`
	Throttled Counter `json:"throttled"`
}

// Find returns the reading of a task, nil when the pulse has none. j is where the search for
// a task before it ended: for tasks in order all searches together go through the list once.
func (p *Pulse) Find(num TaskNum, j *int) *TaskPulse {
	for *j < len(p.Tasks) && p.Tasks[*j].Num < num {
		*j++
	}
	if *j < len(p.Tasks) && p.Tasks[*j].Num == num {
		return &p.Tasks[*j]
	}
	return nil
}
