// Package soak tests the agent by simulation: a seed draws a machine, its tasks, a
// configuration and what goes wrong, and the agent's own code runs on it, through a
// simulated kernel's files, for some simulated minutes, while checkers watch.
//
// What runs is production code: agent.Core turns, agent.Recover starts, linux.Restoring
// restores, linux.Host drives the kernel's files, journal and record are written. What is
// imitated is the process around it: the loop's timer, the guardian's pipe and the
// service manager that starts the agent again.
//
// A run depends on its seed and its length and on nothing else: a failure names both.
package soak

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/commensal-io/commensal/twin/fault"
)

// DefaultMinutes is how long a run is, in simulated minutes.
const DefaultMinutes = 5.0

// Options are what a run has beside its seed.
type Options struct {
	Minutes float64 // simulated; 0: DefaultMinutes
	// Calm leaves all faults out: kills, strangers and operators stay.
	Calm bool
	// Dir is where records are written while a run lasts; "": the system's temporary one.
	Dir string

	mutate mutations     // of tests: a checker must be able to fail
	only   func(p *plan) // of rounds: what is played of a plan
	roomy  bool          // nobody runs out of memory, and a socket has one cache
}

// Failure is the first thing that a checker found.
type Failure struct {
	Check  string   `json:"check"`
	What   string   `json:"what"`
	AtNsec int64    `json:"at_nsec"` // simulated
	Log    []string `json:"log"`     // the last events before it
}

// Result is what became of one run.
type Result struct {
	Seed      uint64         `json:"seed"`
	Minutes   float64        `json:"minutes"`
	Calm      bool           `json:"calm,omitempty"`
	Setting   string         `json:"setting"` // machine, tasks and configuration in a line
	Faults    map[string]int `json:"faults"`
	Turns     int            `json:"turns"`
	Lives     int            `json:"lives"` // starts of the agent
	Kills     int            `json:"kills"`
	Restores  int            `json:"restores"` // by guardians, starts and clean ends
	Restored  int            `json:"restored"` // limits that these put back
	Incidents int            `json:"incidents"`
	Late      int            `json:"late"`   // incidents of jobs that missed their target
	Caps      int            `json:"caps"`   // changes to a tighter limit that the kernel has
	Raises    int            `json:"raises"` // changes of LC limits that may be wider than found
	Places    int            `json:"places"` // changes of where tasks run
	Writes    int            `json:"writes"`
	Aged      int            `json:"aged"`        // writes that moved ages of pages on, or took old ones back
	Reclaims  int            `json:"reclaims"`    // writes that took memory back, as an operator or policy pressure had asked
	Freezes   int            `json:"freezes"`     // tasks that were to be frozen
	DiskCaps  int            `json:"disk_caps"`   // limits on the disk that were to be written
	MemCaps   int            `json:"memory_caps"` // limits on memory that were to be written
	Ends      int            `json:"ends"`        // times that a process was told to end, or on v2 all of a task at once
	Moves     int            `json:"moves"`       // calls that moved pages, as an operator had asked or policy balm or remedy wanted
	Homeward  int            `json:"homeward"`    // those of them that brought pages home for remedy
	Ended     int            `json:"ended"`       // moves that were to end before they were done
	Classes   int            `json:"classes"`     // turns after which BE had a class of service
	L2s       int            `json:"l2s"`         // turns after which that had a part of the L2s
	Counted   int            `json:"counted"`     // writes to groups that count tasks
	Apart     int            `json:"apart"`       // turns after which services had one
	Parted    int            `json:"parted"`      // turns after which a part of them had one
	Alone     int            `json:"alone"`       // turns after which a BE task had one for itself
	Renewals  int            `json:"renewals"`    // of the journal's file, while an agent ran
	Pulls     int            `json:"pulls"`       // times that a policy that tries remedies began to hold something, or gave a step back
	Voids     int            `json:"voids"`       // trials that were disturbed
	Moved     int            `json:"moved"`       // turns in which remedy has a task off its CPUs, a task each
	Checks    int            `json:"checks"`      // looks that checkers took
	Failure   *Failure       `json:"failure,omitempty"`
}

// Replay is the command that plays a run again.
func (r *Result) Replay() string {
	calm := ""
	if r.Calm {
		calm = " --calm"
	}
	return fmt.Sprintf("commensal-lab twin soak --seeds %d..%d --minutes %g%s", r.Seed, r.Seed, r.Minutes, calm)
}

// Run plays one seed. The error says that it could not be played; what a checker found is
// in the result.
func Run(seed uint64, o Options) (res *Result, err error) {
	if o.Minutes == 0 {
		o.Minutes = DefaultMinutes
	}
	if !(o.Minutes > 0 && o.Minutes <= maxMinutes) {
		return nil, fmt.Errorf("soak: %v minutes: expected more than 0, at most %d", o.Minutes, maxMinutes)
	}
	dir, err := os.MkdirTemp(o.Dir, "commensal-soak-")
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	w, err := newWorld(seed, dir, o)
	if err != nil {
		return nil, fmt.Errorf("soak: seed %d: %w", seed, err)
	}
	w.guarded(w.play)
	return w.result(), nil
}

// maxMinutes bounds a run: a day.
const maxMinutes = 24 * 60

// guarded plays, and takes a panic for what a checker found.
func (w *world) guarded(play func()) {
	defer func() {
		if p := recover(); p != nil {
			w.fail(checkPanic, fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	play()
}

// play plays the run to its end or to the first failure.
func (w *world) play() {
	for w.failure == nil && w.now() < w.end {
		w.next()
	}
	if w.failure == nil {
		w.finish()
	}
}

// result sums the run up.
func (w *world) result() *Result {
	r := &w.res
	r.Faults = w.inj.Counts()
	r.Kills = r.Faults[killName]
	r.Failure = w.failure
	return r
}

// fail notes what a checker found; the first counts.
func (w *world) fail(check, what string) {
	if w.failure == nil {
		w.failure = &Failure{Check: check, What: what, AtNsec: w.now(), Log: w.log.lines()}
	}
}

// killName is how package fault counts kills.
const killName = "kill"

// trail is the last events of a run.
type trail struct {
	list [trailLength]string
	n    int
}

// trailLength is enough for the last hold and release of a task with its children.
const trailLength = 60

func (t *trail) add(line string) {
	t.list[t.n%trailLength] = line
	t.n++
}

func (t *trail) lines() []string {
	var out []string
	for i := max(0, t.n-trailLength); i < t.n; i++ {
		out = append(out, t.list[i%trailLength])
	}
	return out
}

// notice is told of every write, fault and stranger.
func (w *world) notice(e *fault.Event) {
	w.log.add(e.String())
	if e.Op == fault.Write && strings.HasPrefix(e.Path, resctrlRoot) {
		w.wroteClass(e)
	} else if e.Op == fault.Write {
		w.witness.wrote(w, e)
	}
	w.class.disturbed(w.now(), e)
	w.witness.disturbed(w, e)
}
