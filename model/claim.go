package model

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

// ClaimKind says how a claim settles with others on its knob.
type ClaimKind uint8

// The kinds of claim (DESIGN.md, decision 5).
const (
	// ClaimCap holds a task to Cap: the least of all caps, and of what was found, is in force.
	ClaimCap ClaimKind = iota
	// ClaimRaise lets a task have more than was found: the greatest QuotaUsec and the
	// greatest BurstUsec of all raises are in force. A cap on the same task goes before.
	ClaimRaise
	// ClaimPlace says where a task runs. One policy has it.
	ClaimPlace
)

var claimNames = [...]string{"cap", "raise", "place"}

func (k ClaimKind) String() string { return nameOf(claimNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ClaimKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ClaimKind) UnmarshalText(b []byte) error {
	return parseName(claimNames[:], string(b), "claim", (*uint8)(k))
}

// Knob returns the kind of knob that such a claim is on.
func (k ClaimKind) Knob() KnobKind {
	if k == ClaimPlace {
		return CPUPlace
	}
	return CPUBandwidth
}

// The names of policies, as they stand in claims, decisions and the configuration. The
// hard-cap policy of CPI2 is "", which is older than the others.
const (
	PolicyHardcap = ""
	PolicyCPUSet  = "cpuset"
	PolicyCPUPool = "cpu_pool"
	PolicyBurst   = "burst"
)

// Claim is a wish for a knob until it expires.
type Claim struct {
	ID     uint64    `json:"id"`
	Task   TaskNum   `json:"task"`
	Kind   ClaimKind `json:"kind,omitempty"`
	Policy string    `json:"policy,omitempty"`
	Cap    float64   `json:"cap"` // CPU-sec/sec, of ClaimCap
	// QuotaUsec is what the task may use in one period of what was found, and BurstUsec what
	// it may save up, of ClaimRaise. 0: as found.
	QuotaUsec    int64   `json:"quota_usec,omitempty"`
	BurstUsec    int64   `json:"burst_usec,omitempty"`
	CPUs         CPUSet  `json:"cpus,omitzero"` // of ClaimPlace
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
	Hold    ChangeKind = iota // journal what is found, then write the tighter of that and Value
	Release                   // put back what was found
	Disown                    // forget the knob without writing: a stranger holds it
	Set                       // journal what is found, then write Value
)

var changeNames = [...]string{"hold", "release", "disown", "set"}

func (k ChangeKind) String() string { return nameOf(changeNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ChangeKind) UnmarshalText(b []byte) error {
	return parseName(changeNames[:], string(b), "change", (*uint8)(k))
}

// Change is one write that the ledger asks of the host. Value.Knob is the kind of knob also
// where nothing else of Value counts.
type Change struct {
	Seq   uint64     `json:"seq"`
	Task  TaskNum    `json:"task"`
	Kind  ChangeKind `json:"kind"`
	Value Setting    `json:"value"`
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
	Found Setting    `json:"found"` // what stood there before our first write
	Now   Setting    `json:"now"`   // as read back after it
	// MonoNsec is when the write was read back.
	MonoNsec int64  `json:"mono_nsec"`
	Error    string `json:"error,omitempty"`
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
