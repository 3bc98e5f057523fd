// Package node is the typed seam between the agent and the machine it runs on. The
// kernel stands behind it in node/linux, a simulated server in twin.
package node

import (
	"errors"

	"github.com/commensal-io/commensal/model"
)

// Host is a machine that can be observed and acted on. It is not safe for concurrent
// use: the agent's loop is its only caller.
type Host interface {
	// Observe fills snap with one reading of everything. The slices of snap are reused.
	// An error means that nothing could be read at all; what is merely missing is an
	// outcome in the snapshot.
	Observe(mark model.WindowMark, snap *model.Snapshot) error
	// Pulse fills p with the fast reading: of the LC tasks together, with detail also one by
	// one. It knows the tasks that the last Observe knew. The slices of p are reused.
	Pulse(detail bool, p *model.Pulse)
	// LCBound returns a number of nanoseconds that grows by no less than the CPU time that all LC tasks
	// together use, to the microsecond, of those that have no CPUs of their own; they run on the CPUs given. What it grew by
	// is not known where it is less than before, or Unavailable: where no bound can be had with a few
	// reads.
	LCBound(cpus model.CPUSet) model.Counter
	// Knobs appends what the held knobs say now.
	Knobs(dst []model.KnobReading) []model.KnobReading
	// Apply hands changes in, in their order. Before a value is written that found and that
	// intended are on disk. What the kernel may take long for is done beside, and no call waits
	// for it.
	Apply(changes []model.Change)
	// Results appends what became of changes, one result for each but Disown and Stop, once it is
	// known: of most with the next call, of slow ones some calls later.
	Results(dst []model.Result) []model.Result
	// Restore puts back everything that is still ours.
	Restore() (Report, error)
	// Close ends the observation and leaves what is held as it is.
	Close() error
}

// ErrEnded is what the result of an action says that Stop ended.
var ErrEnded = errors.New("it was ended before it was done")

// Metering is a host that reads some things only when it is told to.
type Metering interface {
	Meter(r Readings)
}

// Readings are what a host reads beside what it reads of every machine.
type Readings struct {
	Moved   bool            // what is moved to and from memory
	InUse   bool            // how much memory is in use
	IO      bool            // what is done on block devices
	Domains bool            // what each task has of the last-level caches and moves to and from memory
	Homes   bool            // on which memory nodes the pages of LC tasks lie
	Ages    model.AskedAges // of pages: how often they are read follows from those that are asked for
}

// Looking is a host that reads memory between windows, and says when programs begin to wait for it.
type Looking interface {
	// Look fills l. What cannot be read is missing in it. The slices of l are reused.
	Look(l *model.Look)
	// Watch has Stalls say when tasks (some) or all tasks at once (full) wait for memory for such a share of a second. An
	// error says why this machine does not tell.
	Watch(some, full float64) error
	// Stalls returns what is ready to be received from when they did; the same each time. nil: nobody tells.
	Stalls() <-chan struct{}
}

// Do applies changes and returns what is known of them at once.
func Do(h Host, changes ...model.Change) []model.Result {
	h.Apply(changes)
	return h.Results(nil)
}

// Restoration is what became of one cgroup's knob.
type Restoration struct {
	Path  string        `json:"path"`
	Kind  RestoreKind   `json:"kind"`
	Found model.Setting `json:"found"` // what was there before us
	Now   model.Setting `json:"now"`   // what is there now
	Error string        `json:"error,omitempty"`
}

// RestoreKind says what became of it.
type RestoreKind string

// The kinds.
const (
	Restored    RestoreKind = "restored"     // written back and read back
	AsFound     RestoreKind = "as found"     // it already was as we had found it
	LeftForeign RestoreKind = "left foreign" // a stranger's value stands there; it was left
	LeftGone    RestoreKind = "gone"         // the cgroup is gone, or a new one has its path
	NotRestored RestoreKind = "not restored" // the kernel refused
)

// Report is what a restore did.
type Report struct {
	Items []Restoration `json:"items"`
	// Unreadable says which parts of the journal could not be used, "" when all could.
	Unreadable string `json:"unreadable,omitempty"`
	// Rebooted: the journal is of an earlier boot; the kernel forgot everything by itself.
	Rebooted bool `json:"rebooted,omitempty"`
}

// Complete reports whether nothing of ours can be left behind.
func (r *Report) Complete() bool {
	return r.Unreadable == "" && r.Count(NotRestored) == 0
}

// Count returns how many items are of a kind.
func (r *Report) Count(k RestoreKind) int {
	n := 0
	for i := range r.Items {
		if r.Items[i].Kind == k {
			n++
		}
	}
	return n
}
