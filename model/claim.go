package model

import "math"

// CPUMax is a CFS bandwidth limit as the kernel holds it: cpu.cfs_quota_us,
// cpu.cfs_period_us and cpu.cfs_burst_us of cgroup v1, or cpu.max and cpu.max.burst of
// v2. The three are one knob: their bounds depend on each other.
type CPUMax struct {
	QuotaUsec  int64 `json:"quota_usec"` // -1: no limit
	PeriodUsec int64 `json:"period_usec"`
	BurstUsec  int64 `json:"burst_usec"`
}

// Ratio returns the limit in CPU-sec/sec, +Inf when there is none.
func (m CPUMax) Ratio() float64 {
	if m.QuotaUsec < 0 || m.PeriodUsec <= 0 {
		return math.Inf(1)
	}
	return float64(m.QuotaUsec) / float64(m.PeriodUsec)
}

// Owner says who made a claim; smaller is stronger (DESIGN.md, decision 5).
type Owner uint8

// The owners.
const (
	OwnerOperator Owner = iota
	OwnerPolicy
)

var ownerNames = [...]string{"operator", "policy"}

func (o Owner) String() string { return nameOf(ownerNames[:], uint8(o)) }

// MarshalText writes the owner's name.
func (o Owner) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads an owner's name.
func (o *Owner) UnmarshalText(b []byte) error {
	return parseName(ownerNames[:], string(b), "owner", (*uint8)(o))
}

// Claim is a wish for a knob: hold this task to Cap CPU-sec/sec until it expires.
type Claim struct {
	ID           uint64  `json:"id"`
	Task         TaskNum `json:"task"`
	Cap          float64 `json:"cap"` // CPU-sec/sec
	Owner        Owner   `json:"owner"`
	Reason       string  `json:"reason"`
	Incident     string  `json:"incident,omitempty"`
	MadeNsec     int64   `json:"made_nsec"`    // monotonic
	ExpiresNsec  int64   `json:"expires_nsec"` // monotonic
	UsageAtClaim float64 `json:"usage_at_claim"`
	// Least is the tightest cap that was granted to a claim that was renewed.
	Least float64 `json:"least,omitempty"`
}

// ChangeKind says what a change asks of the host.
type ChangeKind uint8

// The kinds.
const (
	Hold    ChangeKind = iota // journal what is found, then write Value
	Release                   // put back what was found
	Disown                    // forget the knob without writing: a stranger holds it
)

var changeNames = [...]string{"hold", "release", "disown"}

func (k ChangeKind) String() string { return nameOf(changeNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ChangeKind) UnmarshalText(b []byte) error {
	return parseName(changeNames[:], string(b), "change", (*uint8)(k))
}

// Change is one write that the ledger asks of the host.
type Change struct {
	Seq   uint64     `json:"seq"`
	Task  TaskNum    `json:"task"`
	Kind  ChangeKind `json:"kind"`
	Value CPUMax     `json:"value"`
}

// ResultKind says what became of a change.
type ResultKind uint8

// The kinds of result.
const (
	Applied  ResultKind = iota // written and read back
	Refused                    // the kernel or the journal said no; what remains of ours the host takes back
	Foreign                    // a stranger's value stands there; it was left
	Vanished                   // the task's cgroup is gone
)

var resultNames = [...]string{"applied", "refused", "foreign", "vanished"}

func (k ResultKind) String() string { return nameOf(resultNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ResultKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ResultKind) UnmarshalText(b []byte) error {
	return parseName(resultNames[:], string(b), "result", (*uint8)(k))
}

// Result is what the host says of a change.
type Result struct {
	Seq   uint64     `json:"seq"`
	Task  TaskNum    `json:"task"`
	Kind  ResultKind `json:"kind"`
	Found CPUMax     `json:"found"` // what stood there before our first write
	Now   CPUMax     `json:"now"`   // as read back after it
	// MonoNsec is when the write was read back.
	MonoNsec int64  `json:"mono_nsec"`
	Error    string `json:"error,omitempty"`
}

// KnobReading is what a held knob says now; it differs from what we wrote when a
// stranger wrote it.
type KnobReading struct {
	Task    TaskNum `json:"task"`
	Value   CPUMax  `json:"value"`
	Outcome Outcome `json:"outcome"`
}

// Kind of a Command.
const (
	CommandCap        = "cap"
	CommandUncap      = "uncap"
	CommandProtectOn  = "protect-on"
	CommandProtectOff = "protect-off"
)

// Command is what an operator said (CPI2 section 5: "hard-cap suspects, and turn CPI
// protection on or off").
type Command struct {
	Kind         string  `json:"kind"`
	Task         TaskNum `json:"task"`
	Job          string  `json:"job,omitempty"` // of protect; empty: all
	Cap          float64 `json:"cap,omitempty"`
	DurationNsec int64   `json:"duration_nsec,omitempty"`
	By           string  `json:"by"`
}
