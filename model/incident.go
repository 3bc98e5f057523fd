package model

import "slices"

// SuspectKind tells a task from the two suspects that nobody can hold.
type SuspectKind uint8

// The kinds of suspect.
const (
	SuspectTask SuspectKind = iota
	SuspectUnmanaged
	SuspectSteal
)

var suspectNames = [...]string{"task", "unmanaged CPU", "steal"}

func (k SuspectKind) String() string { return nameOf(suspectNames[:], uint8(k)) }

// MarshalText writes the kind's name.
func (k SuspectKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a kind's name.
func (k *SuspectKind) UnmarshalText(b []byte) error {
	return parseName(suspectNames[:], string(b), "suspect kind", (*uint8)(k))
}

// Suspect is one candidate of an analysis with its evidence.
type Suspect struct {
	Task  TaskNum     `json:"task"`
	Kind  SuspectKind `json:"kind"`
	Path  string      `json:"path"`
	Job   string      `json:"job,omitempty"`
	Class Class       `json:"class"`
	// Score is the antagonist correlation of CPI² §4.2, in [-1, 1]; in a round by blame the share
	// of the victim's waiting that it is charged with.
	Score float64 `json:"score"`
	// Ran and Room are what such a share is made of: for what share it had the CPU, and its share of what
	// all used more than usual while all CPUs were in use.
	Ran  float64 `json:"ran,omitempty"`
	Room float64 `json:"room,omitempty"`
	// Low and High are the least and the greatest share that it has when any one of the bad windows is left out. That is
	// how much a single window weighs, and no confidence interval: the windows are few, and one follows the other.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Correlation stands beside a Score that is a share of the victim's waiting.
	Correlation float64 `json:"correlation,omitempty"`
	// Usage is its mean CPU-sec/sec over the windows in which the victim suffered.
	Usage float64 `json:"usage"`
	// Takes is what it took more of what the victim lacks (Round.Lack) than while that was well: bytes of its last-level caches, or bytes a second
	// to and from memory.
	Takes float64 `json:"takes,omitempty"`
	// State says why it was chosen or passed over, Verdict the same for people.
	State   SuspectState `json:"state,omitzero"`
	Verdict string       `json:"verdict"`
}

// Untouchable reports whether nobody may hold it.
func (s *Suspect) Untouchable() bool { return s.Kind != SuspectTask || s.Class != BE }

// Round is one attempt: an analysis, a cap and what followed.
type Round struct {
	MonoNsec      int64     `json:"mono_nsec"`
	Suspects      []Suspect `json:"suspects"`   // best first, bounded
	Considered    int       `json:"considered"` // how many there were
	Threshold     float64   `json:"threshold"`  // the correlation asked for
	Median        float64   `json:"median"`     // of all suspects' scores
	Margin        float64   `json:"margin"`     // asked for above the median; 0: none
	Chosen        *TaskNum  `json:"chosen,omitempty"`
	ChosenPath    string    `json:"chosen_path,omitempty"`
	Cap           float64   `json:"cap"`
	AppliedNsec   int64     `json:"applied_nsec"` // 0: not (yet) written
	SignalBefore  float64   `json:"signal_before"`
	SignalAfter   float64   `json:"signal_after"` // mean over the windows judged; 0: none yet
	WindowsJudged int       `json:"windows_judged"`
	// State says what became of it, Verdict the same for people.
	State   RoundState `json:"state,omitzero"`
	Verdict string     `json:"verdict"`

	// What follows is there only where a policy beyond CPI² is on.

	// ByBlame: scores are shares of what the victim waited for others more than usual, by who had
	// the CPU meanwhile; else they are correlations.
	ByBlame bool `json:"by_blame,omitempty"`
	// WaitedNsec and UsualNsec are for how long the victim's threads waited for others, in a
	// second of bad windows and of good ones; with ByBlame.
	WaitedNsec float64 `json:"waited_ns,omitempty"`
	UsualNsec  float64 `json:"usual_ns,omitempty"`
	// Lost is the largest share of the waiting that one of these windows lost, LeftOut how many windows lost so much
	// that they do not count; with ByBlame.
	Lost    float64 `json:"lost,omitempty"`
	LeftOut int     `json:"left_out,omitempty"`
	// RiseErrors is by how many standard errors the victim waited longer than in good windows, as those scatter; 0 where they do not tell.
	// ByChance: so few that nobody answers for it. With ByBlame.
	RiseErrors float64 `json:"rise_errors,omitempty"`
	ByChance   bool    `json:"by_chance,omitempty"`
	// Steady is what a suspect scores that used the same CPU all the time.
	Steady float64 `json:"steady,omitempty"`
	// Demoted: who was chosen gives way to everybody (cpu.idle). Uncapped: that is all so far,
	// or again.
	Demoted  bool `json:"demoted,omitempty"`
	Uncapped bool `json:"uncapped,omitempty"`
	// Lack is what the victim lacks by its own counters, where suspects are ordered by what they take of it; MPKI and UsualMPKI are its LLC misses
	// per thousand instructions in bad windows and in good ones.
	Lack      Lack    `json:"lack,omitzero"`
	MPKI      float64 `json:"mpki,omitempty"`
	UsualMPKI float64 `json:"usual_mpki,omitempty"`
	// Members are the tasks of a group, the weightiest first; Chosen is one of them.
	Members []Member `json:"members,omitempty"`
	// GroupScore is the correlation of the group's pressure, Explained the share of the
	// victim's variance that the group explains.
	GroupScore float64 `json:"group_score,omitempty"`
	Explained  float64 `json:"explained,omitempty"`
	// Nudge: the suspect was held for a moment only, to see whether the victim recovers.
	// Confirmed: it did, and the hold became a cap.
	Nudge     bool `json:"nudge,omitempty"`
	Confirmed bool `json:"confirmed,omitempty"`
	// HeldNsec and LostCPUSec are what a nudge took: time held, and CPU-seconds that the task
	// would have used.
	HeldNsec   int64   `json:"held_nsec,omitempty"`
	LostCPUSec float64 `json:"lost_cpu_sec,omitempty"`
	// MeanBefore is the victim's mean signal over the last windows before the hold, good and
	// bad ones; Kept: the cap helped, though not enough, and was kept.
	MeanBefore float64 `json:"mean_before,omitempty"`
	Kept       bool    `json:"kept,omitempty"`
	// Level is how far the caps are loosened: 0 is the cap above, 1 the greatest usage.
	Peak  float64 `json:"peak,omitempty"` // greatest CPU-sec/sec of Chosen in the history
	Level float64 `json:"level,omitempty"`
	Steps int     `json:"steps,omitempty"` // changes of Level
}

// Member is one task of a group that is held together.
type Member struct {
	Task  TaskNum `json:"task"`
	Path  string  `json:"path"`
	Score float64 `json:"score"` // its own correlation
	Usage float64 `json:"usage"` // mean CPU-sec/sec over the windows in which the victim suffered
	Gain  float64 `json:"gain"`  // share of the victim's variance that is lost without it
	Cap   float64 `json:"cap"`   // CPU-sec/sec
	Peak  float64 `json:"peak"`  // greatest CPU-sec/sec in the history
	// Alike: it moves as another member does and cannot be told from it.
	Alike bool `json:"alike,omitempty"`
	// Needed: the victim suffered while it was released on trial. Released: it did not, and
	// the task was given back.
	Needed   bool        `json:"needed,omitempty"`
	Released bool        `json:"released,omitempty"`
	State    MemberState `json:"state,omitzero"` // what became of it; Verdict is the same for people
	Verdict  string      `json:"verdict,omitempty"`
}

// IncidentState is where an incident stands.
type IncidentState uint8

// The states. Observed, Recovered, CannotFix, VictimGone and Dropped are final.
const (
	Searching  IncidentState = iota // the victim suffers, no suspect stands out yet
	Holding                         // a cap was asked for, not yet confirmed by the kernel
	Verifying                       // the cap is in force, the victim is watched
	Recovered                       // under its outlier threshold for two windows in a row
	CannotFix                       // no eligible antagonist, or no recovery
	Observed                        // policy in observe mode: recorded as it would be done
	VictimGone                      // the victim's cgroup went away
	Dropped                         // an operator, the kill switch or a limit ended it
)

var stateNames = [...]string{"searching", "holding", "verifying", "recovered", "cannot-fix", "observed", "victim-gone", "dropped"}

func (s IncidentState) String() string { return nameOf(stateNames[:], uint8(s)) }

// MarshalText writes the state's name.
func (s IncidentState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *IncidentState) UnmarshalText(b []byte) error {
	return parseName(stateNames[:], string(b), "incident state", (*uint8)(s))
}

// Open reports whether something is still to be done.
func (s IncidentState) Open() bool { return s <= Verifying }

// Incident is one victim's trouble from the anomaly to its end.
type Incident struct {
	ID         string        `json:"id"`
	Victim     TaskNum       `json:"victim"`
	VictimPath string        `json:"victim_path"`
	VictimJob  string        `json:"victim_job"`
	Source     Source        `json:"source"`
	Signal     float64       `json:"signal"`    // when it was declared
	Threshold  float64       `json:"threshold"` // of the signal
	Spec       Spec          `json:"spec"`
	Violations int           `json:"violations"` // in the anomaly window
	OpenedNsec int64         `json:"opened_nsec"`
	OpenedWall int64         `json:"opened_wall_nsec"`
	ClosedNsec int64         `json:"closed_nsec,omitempty"`
	State      IncidentState `json:"state"`
	Rounds     []Round       `json:"rounds"`
	// Tried and Evidence are filled in for CannotFix.
	Tried    []string `json:"tried,omitempty"`
	Evidence string   `json:"evidence,omitempty"`
}

// Cite adds to a decision of the incident by which sheet of the fleet it was made, if by one.
func (i *Incident) Cite(d *Decision) {
	if i.Spec.Sheet != 0 {
		d.Facts = append(slices.Clip(d.Facts), FactSheet.Is(float64(i.Spec.Sheet)))
	}
}

// Decision is one thing that was decided, also when that was to do nothing. Its
// fields are the evidence; Reason is the sentence for people.
type Decision struct {
	MonoNsec int64        `json:"mono_nsec"`
	WallNsec int64        `json:"wall_nsec"`
	Kind     DecisionKind `json:"kind"`
	Policy   string       `json:"policy,omitempty"` // absent: the engine, or an operator
	Mode     string       `json:"mode,omitempty"`
	Task     TaskNum      `json:"task"`
	Path     string       `json:"path,omitempty"`
	Incident string       `json:"incident,omitempty"`
	Reason   string       `json:"reason"`
	Facts    []Fact       `json:"facts,omitempty"`
}
