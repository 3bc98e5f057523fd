package model

// KnobView is what the ledger and the host know of one knob.
type KnobView struct {
	Known bool    // Found was read
	Found Setting // what stands there without us
	Now   Setting // in force: Found, or what we wrote
	Ours  bool    // Now is what we wrote
	// Pending: a change is on its way, and the next step knows what became of it.
	Pending bool
	// Void: a stranger wrote it, and claims are void until an operator says otherwise.
	Void bool
	// Refused: the kernel said no to the last claim, and nothing was written since. Why says
	// what it said.
	Refused bool
	Why     string
}

// TaskView is one task as the policies of the CPU see it.
type TaskView struct {
	Task  Task
	Knobs [NumKnobs]KnobView
	// Exempt: an operator freed the task, and policies leave it alone for a while.
	Exempt bool
}

// CPUView is everything that a policy of the CPU may look at in one step.
type CPUView struct {
	NowNsec, WallNsec int64
	Mode              Mode
	Topology          *Topology // nil: not known (yet)
	Pulse             *Pulse    // nil: this tick has none
	Tasks             []TaskView
	// Changed: Topology, or anything in Tasks, is other than in the step before. It is always
	// set in the first step, so that a policy may keep what it worked out until it is set.
	Changed bool
	// PoolCPUs are the CPUs on which shared LC tasks run now: those that the partition gives
	// them, all online ones without it. Cores of exclusive tasks are not among them.
	PoolCPUs CPUSet
}

// Drop gives a policy's claim back before it expires.
type Drop struct {
	Task   TaskNum
	Kind   ClaimKind
	Reason string
}

// Wishes is what a policy of the CPU wants. It is reused from step to step. A claim of the
// same policy, kind and task as one that stands takes that one's place. The engine fills in
// Claim.ID, Owner, Policy and MadeNsec, and of decisions Policy, Mode and the times.
type Wishes struct {
	Claims    []Claim
	Drops     []Drop
	Decisions []Decision
}

// Reset empties the lists and keeps their room.
func (w *Wishes) Reset() {
	w.Claims, w.Drops, w.Decisions = w.Claims[:0], w.Drops[:0], w.Decisions[:0]
}
