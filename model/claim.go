package model

// Owner says who made a claim; smaller is stronger (docs/DESIGN.md, decision 5).
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

// The kinds of claim (docs/DESIGN.md, decision 5).
const (
	// ClaimCap holds a target to Cap: the least of all caps, and of what was found, is in force.
	ClaimCap ClaimKind = iota
	// ClaimRaise lets a target have more than was found: the greatest of all raises is in
	// force. A cap on the same knob goes before.
	ClaimRaise
	// ClaimPlace says what a knob is set to. One policy has it; only of classes of service several may ask, and the
	// task's own goes before that of many.
	ClaimPlace
	// ClaimRun asks for an action, once.
	ClaimRun
	NumClaimKinds
)

var claimNames = [...]string{"cap", "raise", "place", "run"}

func (k ClaimKind) String() string { return nameOf(claimNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ClaimKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ClaimKind) UnmarshalText(b []byte) error {
	return parseName(claimNames[:], string(b), "claim", (*uint8)(k))
}

// The names of policies, as they stand in claims, decisions and the configuration.
const (
	PolicyHardcap = "hard_cap"
	PolicyCPUSet  = "cpuset"
	PolicyCPUPool = "cpu_pool"
	PolicyBurst   = "burst"
	PolicyDemote  = "demote"
	PolicyCache   = "cache"

	PolicyBandwidth = "bandwidth"
	PolicyBalm      = "balm"
	PolicyRemedy    = "remedy"
	PolicyPressure  = "pressure"
	PolicyColdPages = "coldpages"
	PolicyHeadroom  = "headroom"
	PolicyIO        = "io"
	PolicyMemory    = "memory"
)

// Claim is a wish for a knob until it expires. Those of a policy are told apart by knob,
// kind and incident.
type Claim struct {
	ID uint64 `json:"id"`
	Target
	Kind   ClaimKind `json:"kind,omitempty"`
	Policy string    `json:"policy,omitempty"` // "": an operator's
	// Value.Knob is the knob. Of ClaimPlace and ClaimRun Value is what is written; of
	// ClaimRaise what the target is to have at the least, 0 where it is as found.
	Value Setting `json:"value"`
	// Over is, of a ClaimRaise, the quota and period that its quota was decided over, if it
	// matters: over others it asks for nothing.
	Over  Setting `json:"over,omitzero"`
	Cap   float64 `json:"cap"` // of ClaimCap: CPU-sec/sec, or the knob's own unit
	Owner Owner   `json:"owner"`
	// Uncounted: the limits on how much may be held do not count it, since an operator said
	// beforehand that it may be held.
	Uncounted bool `json:"uncounted,omitempty"`
	// Follows: a class of one task has no more than the class of BE, whoever holds that, and its own policy asks for no less.
	Follows  bool   `json:"follows,omitempty"`
	Reason   string `json:"reason"`
	Incident string `json:"incident,omitempty"`
	MadeNsec int64  `json:"made_nsec"` // monotonic
	// ExpiresNsec is when it ends, on the monotonic clock. A policy may give HoldNsec in its
	// place: the claim then stands for so long after the last step that wished for it.
	ExpiresNsec  int64   `json:"expires_nsec"`
	HoldNsec     int64   `json:"hold_nsec,omitempty"`
	UsageAtClaim float64 `json:"usage_at_claim"`
	// Least is the tightest cap that was granted to a claim that was renewed.
	Least float64 `json:"least,omitempty"`
	// Wished is the engine's mark of the set of wishes that last had the claim.
	Wished uint64 `json:"-"`
}

// Is reports whether two claims of one policy are the same wish, of which the newer takes
// the older one's place.
func (c *Claim) Is(o *Claim) bool {
	return c.Target == o.Target && c.Value.Knob == o.Value.Knob && c.Kind == o.Kind && c.Incident == o.Incident
}

// ChangeKind says what a change asks of the host.
type ChangeKind uint8

// The kinds.
const (
	Hold    ChangeKind = iota // journal what is found, then write the tighter of that and Value
	Release                   // put back what was found
	Disown                    // forget the knob without writing: a stranger holds it
	Set                       // journal what is found, then write Value
	Run                       // do what Value says, once; nothing stands there afterwards
	Stop                      // end what Run began: its result says how far it came, and Stop itself has none
)

var changeNames = [...]string{"hold", "release", "disown", "set", "run", "stop"}

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
	Seq uint64 `json:"seq"`
	Target
	Kind  ChangeKind `json:"kind"`
	Value Setting    `json:"value"`
	// Base is what a Set assumes to stand there while nothing of ours does: what it raises, or
	// cuts a place out of. nil: nothing is assumed.
	Base *Setting `json:"base,omitempty"`
}

// ResultKind says what became of a change.
type ResultKind uint8

// The kinds of result.
const (
	Applied  ResultKind = iota // written and read back
	Refused                    // the kernel or the journal said no; what remains of ours the host takes back
	Foreign                    // a stranger's value stands there; it was left
	Vanished                   // the task's cgroup is gone
	Stale                      // something else than Base stands there, and nothing of ours did: nothing was written
)

var resultNames = [...]string{"applied", "refused", "foreign", "vanished", "stale"}

func (k ResultKind) String() string { return nameOf(resultNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k ResultKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *ResultKind) UnmarshalText(b []byte) error {
	return parseName(resultNames[:], string(b), "result", (*uint8)(k))
}

// Result is what the host says of a change.
type Result struct {
	Seq uint64 `json:"seq"`
	Target
	Kind  ResultKind `json:"kind"`
	Found Setting    `json:"found"` // what stood there before our first write
	Now   Setting    `json:"now"`   // as read back after it; of an action what it did
	// MonoNsec is when the write was read back.
	MonoNsec int64  `json:"mono_nsec"`
	Error    string `json:"error,omitempty"`
}

// Kind of a Command.
const (
	CommandCap        = "cap"
	CommandDemote     = "demote"
	CommandUncap      = "uncap"
	CommandReclaim    = "reclaim"
	CommandMovePages  = "move-pages"
	CommandProtectOn  = "protect-on"
	CommandProtectOff = "protect-off"
)

// Command is what an operator said (CPI² §5: "hard-cap suspects, and turn CPI
// protection on or off").
type Command struct {
	Kind         string  `json:"kind"`
	Task         TaskNum `json:"task"`
	Job          string  `json:"job,omitempty"`   // of protect; empty: all
	Fleet        bool    `json:"fleet,omitempty"` // of protect: the whole fleet is told, not this node
	Cap          float64 `json:"cap,omitempty"`
	DurationNsec int64   `json:"duration_nsec,omitempty"`
	Bytes        int64   `json:"bytes,omitempty"` // of reclaim
	Node         int     `json:"node,omitempty"`  // of move-pages: that pages are moved off
	Keep         float64 `json:"keep,omitempty"`  // of move-pages: the share of pages that may stay there, 0 to 1
	By           string  `json:"by"`
}
