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
}

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
