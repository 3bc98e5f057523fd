package model

// WaitParty is who had the CPU, or why nobody did, while a task's threads waited for it.
type WaitParty uint8

// The parties.
const (
	WaitTask      WaitParty = iota // a task; the waiting one itself among them
	WaitUnmanaged                  // a cgroup that no task contains
	WaitKernel                     // kernel threads
	WaitSoftIRQ                    // soft interrupts
	WaitSteal                      // the hypervisor ran another guest
	WaitThrottled                  // nobody may: a quota on the task's own path was used up
	WaitIdle                       // nobody: the wake-up was on its way
	WaitUnknown                    // no longer known
)

var waitPartyNames = [...]string{"task", "unmanaged", "kernel", "softirq", "steal", "throttled", "idle", "unknown"}

func (p WaitParty) String() string { return nameOf(waitPartyNames[:], uint8(p)) }

// MarshalText writes the party's name.
func (p WaitParty) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a party's name.
func (p *WaitParty) UnmarshalText(b []byte) error {
	return parseName(waitPartyNames[:], string(b), "party", (*uint8)(p))
}

// WaitShare is for how much of a task's waiting one party is charged.
type WaitShare struct {
	Party WaitParty `json:"party"`
	Task  TaskNum   `json:"task,omitempty"` // of WaitTask
	// Process is what ran longest there in one wait, of unmanaged cgroups and the kernel: for people.
	Process string `json:"process,omitempty"`
	Nsec    int64  `json:"ns"`
}

// Waiting is how the threads of one task waited for a CPU since the snapshot before, as the
// scheduler's own events tell it (docs/WAITS.md).
type Waiting struct {
	Num TaskNum `json:"num"`
	// P99Nsec is of waits after a wake-up: 99 of 100 were shorter. LongestNsec is of all waits.
	P99Nsec     int64 `json:"p99_ns"`
	LongestNsec int64 `json:"longest_ns"`
	Waits       int64 `json:"waits"`
	Nsec        int64 `json:"ns"` // in all, over all threads
	// Shares add up to Nsec but for the smallest, which are left out; largest first.
	Shares []WaitShare `json:"shares"`
	Lost   WaitLoss    `json:"lost,omitzero"`
}

// WaitLoss is what could not be measured of how a task waited as it should. Zero: nothing; records from before it was told
// read so, too.
type WaitLoss struct {
	// NotTaken is the share of the task's waits that found no room among the threads that are followed; in records from
	// before it was known whose they were, of all services' waits.
	NotTaken float64 `json:"not_taken,omitempty"`
	// Events is the share of the scheduler's events that were not heard of, whose they were nobody knows, and of the task's
	// waits that ended on another CPU than was known.
	Events float64 `json:"events,omitempty"`
	// UnknownNsec is for how long, of what this task waited, nobody knows who ran: there was no room for another party, or
	// the wait was longer than a CPU remembers.
	UnknownNsec int64 `json:"unknown_ns,omitempty"`
	// Skipped is how many windows before this one were not measured, which would have cost too much. This one says what it
	// says all the same.
	Skipped int `json:"skipped,omitempty"`
}

// MaxWaitLost is the share of a window's waiting that may be lost. With more of it lost than known, what is known may be the
// lesser part of the truth, and whoever comes first in it somebody else's shadow: such a window is neither bad nor good, as
// if it had not been measured. Less would cost those windows that matter most: a CPU remembers 1,024 stretches, which is 50 to 200 ms of a
// busy one, so that of a wait of a third of a second half is unknown, while who ran in the other half mostly ran in
// this one, too. What little a single window may distort, windows together do not: blame is a mean of several, and leaves out
// a suspect's worst.
const MaxWaitLost = 0.5

// LostShare returns how much of what a window says of a task's waiting may be lost, 0 to 1.
func (w *Waiting) LostShare() float64 {
	lost := w.Lost.NotTaken + w.Lost.Events
	if w.Nsec > 0 {
		lost += float64(w.Lost.UnknownNsec) / float64(w.Nsec)
	}
	return min(1, lost)
}

// Judged reports whether enough is known to go by.
func (w *Waiting) Judged() bool { return w.LostShare() <= MaxWaitLost }

// Foreign returns for how long another than the task itself had the CPU, or something else
// took it: tasks, unmanaged cgroups, the kernel, interrupts and the hypervisor.
func (w *Waiting) Foreign() (nsec int64) {
	for i := range w.Shares {
		if w.Shares[i].Foreign(w.Num) {
			nsec += w.Shares[i].Nsec
		}
	}
	return nsec
}

// Own returns for how long the task's own threads had the CPU.
func (w *Waiting) Own() (nsec int64) {
	for i := range w.Shares {
		if x := &w.Shares[i]; x.Party == WaitTask && x.Task == w.Num {
			nsec += x.Nsec
		}
	}
	return nsec
}

// Foreign reports whether a share of a task's waiting is another's doing.
func (s *WaitShare) Foreign(of TaskNum) bool {
	switch s.Party {
	case WaitTask:
		return s.Task != of
	case WaitThrottled, WaitIdle, WaitUnknown:
		return false
	}
	return true
}

// Suspect returns the number under which a party stands among suspects, and whether it is one.
func (s *WaitShare) Suspect() (TaskNum, bool) {
	switch s.Party {
	case WaitTask:
		return s.Task, true
	case WaitUnmanaged, WaitKernel, WaitSoftIRQ:
		return NumUnmanaged, true
	case WaitSteal:
		return NumSteal, true
	}
	return 0, false
}

// CloneWaiting copies what was measured into a slice of the caller's own.
func CloneWaiting(dst, src []Waiting) []Waiting {
	dst = append(dst[:0], src...)
	for i := range dst {
		dst[i].Shares = append([]WaitShare(nil), src[i].Shares...)
	}
	return dst
}
