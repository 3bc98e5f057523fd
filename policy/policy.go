// Package policy is the seam between the engine and the algorithms below this folder. A
// policy sees one View and returns its Wishes: the whole set of what it wants, each time.
// What follows from that is the engine's work, the same for all: it claims what is new,
// renews what stands, gives back what is no longer wanted, waits where the kernel refused,
// lets go of everything when the mode changes, and says each reason once.
//
// A policy is pure: equal views after equal views lead to equal wishes.
package policy

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// KnobView is what the ledger and the host know of one knob.
type KnobView struct {
	Known bool          // Found was read
	Found model.Setting // what stands there without us
	Now   model.Setting // in force: Found, or what we wrote
	Ours  bool          // Now is what we wrote
	// Pending: a change is on its way, and the next step knows what became of it.
	Pending bool
	// Void: a stranger wrote it, and claims are void until an operator says otherwise.
	Void bool
	// Refused: the kernel said no to the last claim, and nothing was written since. Why says
	// what it said. The claim is tried again by itself, later and later.
	Refused bool
	Why     string
}

// TaskView is one task with its knobs.
type TaskView struct {
	Task  model.Task
	Knobs [model.NumKnobs]KnobView
	// Exempt says why policies leave the task alone: an operator freed it, for a while, or
	// something lies inside that is never held back. "" when they do not.
	Exempt string
}

// Closed says why no policy may have the task's knob at present, and a word for the reason,
// by which it is told once. "" means that it may be had.
func (t *TaskView) Closed(kind model.KnobKind) (word, why string) {
	switch k := &t.Knobs[kind]; {
	case t.Exempt != "":
		return "exempt", t.Exempt
	case k.Void:
		return "void", "another program sets it: " + k.Why
	}
	return "", ""
}

// ClassView is one knob of a class of service in one domain.
type ClassView struct {
	Target model.Target
	Kind   model.KnobKind
	KnobView
}

// Victim is one protected task as the last window shows it.
type Victim struct {
	Num        model.TaskNum
	Source     model.Source
	Verdict    outlier.Verdict
	Signal     float64
	Threshold  float64
	Spec       *model.Spec
	Violations int
	Anomalous  bool
	MPKI       model.Value // its LLC misses per thousand instructions
	Protected  bool        // false: an operator turned protection off for its job
}

// Window is the sampling window that closed at this tick, if one did.
type Window struct {
	Closed                bool
	StartNsec, LengthNsec int64
	Victims               []Victim        // ordered by Num
	Beside                []Victim        // as they are by the signals that are judged beside (model.SignalRow.Beside), ordered by Num and Source; none of one that no policy goes by
	Waiting               []model.Waiting // who had the CPU while LC tasks waited; none where nobody can tell
	// Observation is all that the window says of node and tasks; nil without a window. What memory the machine and each task
	// have is missing in it unless a policy's row says that it needs InUse.
	Observation *model.Observation
}

// Memory is what the memory domains did, between readings of its own; none where nobody counts it.
func (w *Window) Memory() []model.MemoryObservation {
	if w.Observation == nil {
		return nil
	}
	return w.Observation.Memory
}

// Look is what a reading of memory between windows says, of the time since memory was last read.
type Look struct {
	Room  model.Room
	Tasks []model.TaskMemory // best-effort ones, ordered by Num
}

// HoldState is where a claim of a policy stands.
type HoldState uint8

// The states of a claim.
const (
	HoldNone    HoldState = iota // no such claim: its time is over, it was dropped, or never made
	HoldAsked                    // not yet answered by the kernel
	HoldInForce                  // written and read back
	HoldFailed                   // refused, a stranger's, or over a limit; Why says which
	HoldGone                     // what the knob belongs to is not there any more
)

// Hold is where one claim stands.
type Hold struct {
	State     HoldState
	SinceNsec int64 // in force since
	Why       string
}

// Ledger is what policies may ask of the ledger beside the knobs in the view.
type Ledger interface {
	// Hold returns where a policy's claim stands: the one with this knob, kind and incident.
	Hold(policy string, c *model.Claim) Hold
	// Held reports whether anybody's cap on its CPU is claimed on a task. Who only gives way to
	// others may be capped yet.
	Held(task model.TaskNum) bool
	// Ours reports whether something of ours stands in a knob of a task.
	Ours(task model.TaskNum, kind model.KnobKind) bool
	// Exempt says why policies leave a task alone (TaskView); "" when they do not.
	Exempt(task model.TaskNum) string
}

// View is everything that a policy may look at in one step.
type View struct {
	NowNsec, WallNsec int64
	Mode              model.Mode
	Topology          *model.Topology // nil: not known (yet)
	Pulse             *model.Pulse    // nil: this tick has none
	// SLO is what latency sources say at this tick of jobs that have a target and are protected; none: nothing new.
	SLO    []model.Latency
	Window Window
	Look   *Look      // nil: memory was not read at this tick, or a window tells of it
	Tasks  []TaskView // ordered by number
	// Homes is where the pages of LC tasks lay when the last window closed, ordered by task; none where nobody tells.
	Homes []model.PageHomes
	// Classes are the knobs of classes of service that somebody claims or that say something of ours, ordered by target.
	Classes []ClassView
	Table   *model.TaskTable
	History *antagonist.History
	Ledger  Ledger
	// Changed: Mode, Topology, or anything in Tasks or Classes is other than in the step before. It is
	// always set in the first step, so that a policy may keep what it worked out until it is
	// set; then it must wish anew.
	Changed bool
	// Taking: policy balm takes memory bandwidth for services that miss their target, or looks what came of it. Judging: the
	// hard cap looks what came of a hold of who had the CPU. One remedy at a time: with two nobody could tell which one helped.
	Taking, Judging bool
	// Remedying: policy remedy looks for a remedy, or what came of one. Holding: the hard cap looks what came of a hold of anybody.
	Remedying, Holding bool
	// ForCPU: what policy remedy looks for, or has on trial, is for a service that waits for a CPU. OnTrial are the tasks of policies' last steps, of which
	// it is not known yet what comes of them: no other policy begins anything with them. One that goes on lets them go all the same.
	ForCPU  bool
	OnTrial []OnTrial
	// TriedBefore are those of them as the turn began.
	TriedBefore []OnTrial
	// Touched is who changed something of tasks, of late.
	Touched []Touch
	// Results are what came of changes since the step before, of all policies and operators.
	Results []model.Result
	// Placing: policy cpuset enforces, and who runs where is its word.
	Placing bool
	// EndsRuns: an action that is not wished for any more is ended, and says how far it came.
	EndsRuns bool
	// Comparing: a policy sums up how LC fares, to compare it. Another one that changed something for LC meanwhile would
	// spoil that, and its own.
	Comparing bool
	// PoolCPUs are the CPUs on which shared LC tasks run now: those that the partition gives
	// them, all online ones without it. Cores of exclusive tasks are not among them.
	PoolCPUs model.CPUSet
	// PoolShared: everybody may run on them, since no partition keeps others away.
	PoolShared bool
	// TakeBackNsec is how soon BE gives CPU back once LC wants it, by the fastest policy that enforces that, which is
	// TakeBackBy; 0: none does.
	TakeBackNsec int64
	TakeBackBy   string
	// MemoryBackNsec and MemoryBackBy are the same of memory.
	MemoryBackNsec int64
	MemoryBackBy   string

	memories memories
}

// OnTrial is a task with which a policy did something, and looks what comes of it.
type OnTrial struct {
	Task   model.TaskNum
	Policy string
	// For is the service in which it is to show.
	For model.TaskNum
	// Domains are the memories of the services in which it is to show, where the policy goes by memories; ordered.
	Domains []int32
}

// TriedByOther returns the policy other than the one that asks which looks what comes of a step on a task; "": none does.
func (v *View) TriedByOther(task model.TaskNum, me string) string {
	for i := range v.OnTrial {
		if o := &v.OnTrial[i]; o.Task == task && o.Policy != me {
			return o.Policy
		}
	}
	return ""
}

// Judged reports whether somebody looks what comes of a step on a task, or how a service fares by one. Whoever does something to either that could wait would
// make that say nothing (Disturbed): what comes again and again, as memory that is taken back, would keep everybody from ever knowing.
func (v *View) Judged(task model.TaskNum) bool {
	return slices.ContainsFunc(v.OnTrial, func(o OnTrial) bool { return o.Task == task || o.For == task })
}

// LeaveAlone says why a policy begins nothing with a task just now; "": it may.
func (v *View) LeaveAlone(num model.TaskNum, me string) string {
	if v.Frozen(num) {
		return "it is frozen: what would come of it cannot be told"
	}
	if other := v.TriedByOther(num, me); other != "" {
		return "policy " + other + " looks what came of a step on it"
	}
	return ""
}

// TriedIn reports whether a policy looks what comes of a step for services of a memory, by one of its domains. Who divides that memory among all rests meanwhile: what it changes would pass for
// an effect of the step, and the other way round. That is less than Taking, which lasts for as long as anything is taken.
func (v *View) TriedIn(domain int32) bool {
	return slices.ContainsFunc(v.OnTrial, func(o OnTrial) bool { return slices.Contains(o.Domains, domain) })
}

// Task returns the task of a number; nil where the view has none.
func (v *View) Task(num model.TaskNum) *TaskView {
	i, ok := slices.BinarySearchFunc(v.Tasks, num, func(t TaskView, n model.TaskNum) int { return cmp.Compare(t.Task.Num, n) })
	if !ok {
		return nil
	}
	return &v.Tasks[i]
}

// Pending reports whether something is on its way to be done to a task.
func (v *View) Pending(num model.TaskNum, of model.KnobKind) bool {
	t := v.Task(num)
	return t != nil && t.Knobs[of].Pending
}

// Class returns a knob of a class of service in a domain; what nobody claims, and where nothing of ours stands, is empty.
func (v *View) Class(class model.TaskNum, domain int32, kind model.KnobKind) KnobView {
	for i := range v.Classes {
		if k := &v.Classes[i]; k.Kind == kind && k.Target == model.OfClass(class, domain) {
			return k.KnobView
		}
	}
	return KnobView{}
}

// Levels returns what the machine has of classes of service. It is nil while the machine is not known, and where it has no
// levels of memory bandwidth, which is said once.
func (v *View) Levels(w *Wishes) *model.Classes {
	if v.Topology == nil {
		return nil
	}
	have := v.Topology.Classes
	if have == nil || len(have.Memory) == 0 {
		w.Once("nothing", model.Decision{Kind: model.DecideLeftAlone, Reason: "this machine has no levels of memory bandwidth, or resctrl is not mounted"})
		return nil
	}
	return have
}

// Enforced reports whether what is wished for will be done.
func (v *View) Enforced() bool { return v.Mode == model.ModeEnforce }

// End says why a claim is no longer wished for.
type End struct {
	Claim  model.Claim // Target, Value.Knob, Kind and Incident say which
	Reason string
}

// Note is a decision that is said once, and again only when it was not noted for a while.
type Note struct {
	Word     string // what tells the reasons of one policy for one task apart
	Decision model.Decision
}

// Forgiven is a victim by a signal that is judged beside.
type Forgiven struct {
	Num    model.TaskNum
	Source model.Source
}

// Wishes is what a policy wants. It is reused from step to step.
type Wishes struct {
	// Claims is the whole set, unless AsBefore is set: then what stands goes on standing. The
	// engine fills in ID, Owner, Policy and MadeNsec.
	Claims   []model.Claim
	AsBefore bool
	// Ends are reasons for claims of the last set that are not in this one, and Why is the
	// reason for those that have none of their own.
	Ends []End
	Why  string
	// Decisions are said as they are, Notes once. The engine fills in policy, mode and times.
	Decisions []model.Decision
	Notes     []Note
	// Incidents are new or changed. Forgiven are victims whose violations count afresh, ForgivenBeside those of signals that are judged beside.
	Incidents      []*model.Incident
	Forgiven       []model.TaskNum
	ForgivenBeside []Forgiven
}

// Reset empties the lists and keeps their room.
func (w *Wishes) Reset() {
	*w = Wishes{
		Claims: w.Claims[:0], Ends: w.Ends[:0], Decisions: w.Decisions[:0], Notes: w.Notes[:0],
		Incidents: w.Incidents[:0], Forgiven: w.Forgiven[:0], ForgivenBeside: w.ForgivenBeside[:0],
	}
}

// Decide adds a decision.
func (w *Wishes) Decide(d model.Decision) { w.Decisions = append(w.Decisions, d) }

// Once adds a decision that is said once.
func (w *Wishes) Once(word string, d model.Decision) {
	w.Notes = append(w.Notes, Note{word, d})
}

// End says why a claim is no longer wished for.
func (w *Wishes) End(c model.Claim, reason string) { w.Ends = append(w.Ends, End{c, reason}) }

// Match brings a policy's memory of tasks in line with those in the view: one entry for
// each task that of keeps, ordered by task, with the memory that it had. list must be ordered
// by num; spare is room for the next list, and is returned as list's old room.
func Match[T any](v *View, list, spare []T, num func(*T) model.TaskNum, of func(task *TaskView, had *T, at int) (T, bool)) (matched, old []T) {
	matched = spare[:0]
	j := 0
	for i := range v.Tasks {
		t := &v.Tasks[i]
		for j < len(list) && num(&list[j]) < t.Task.Num {
			j++
		}
		var had *T
		if j < len(list) && num(&list[j]) == t.Task.Num {
			had = &list[j]
		}
		if entry, keep := of(t, had, i); keep {
			matched = append(matched, entry)
		}
	}
	return matched, list
}

// One is 1 of what is true, and 0 of what is not: for counting, and for ordering.
func One(b bool) int {
	if b {
		return 1
	}
	return 0
}
