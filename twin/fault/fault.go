// Package fault puts faults between the agent's code and what it runs on: a rooted file
// system, a taskstats source, hardware counters, the journal's disk, the clock. A plan
// says what goes wrong; a seed says when. Equal plans, seeds and calls give equal faults.
//
// The wrappers change what a caller sees, or end it; they know nothing of cgroups. What
// happens to the machine by itself (groups that vanish, programs that write limits at
// random times) is done to the simulated kernel directly; Injector.Stranger notes it.
package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// ErrKilled is what every call fails with once its caller was killed. A process that got
// SIGKILL sees nothing at all any more; a runner that meets this error, or asks Killed,
// throws the caller away as it is, without any clean-up.
var ErrKilled = errors.New("killed")

// Op is a set of the calls that a rule is about.
type Op uint16

// The calls.
const (
	Open     Op = 1 << iota // a file or a directory
	Read                    // of a file, once: ReadFile, ReadAll, ReadRecord
	Write                   // of a kernel file
	List                    // a directory's names
	Identify                // inodes and link counts
	Query                   // taskstats
	Count                   // hardware counters: open, read, switch
	Append                  // the journal's disk: write, sync, truncate, rename
	Trace                   // waits for a CPU: open, groups, start, stop, read
	anyOp    = Op(1<<16 - 1)
)

var opNames = [...]string{"open", "read", "write", "list", "identify", "query", "count", "append", "trace"}

// String names the calls, "read|write".
func (o Op) String() string {
	if o == 0 || o == anyOp {
		return "any"
	}
	var names []string
	for i, n := range opNames {
		if o&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, "|")
}

// Kind is what a rule does to a call.
type Kind uint8

// The kinds.
const (
	Fail      Kind = iota // refuse it with Errno; nothing happens
	FailAfter             // let it happen, then say Errno
	Slow                  // Nsec pass before it
	Short                 // a read ends half way; a list lacks half, never twice in a row; an append leaves half and says ENOSPC
	Garble                // a read's digits are letters
	Back                  // counters are half of what they are
	Jump                  // counters are 1e15 more than they are
	Foreign               // after a write another program writes one of Texts
	Vanish                // a file or thread group is not there (ENOENT, ENODEV, ESRCH)
	numKinds
)

var kindNames = [numKinds]string{"fail", "fail-after", "slow", "short", "garble", "back", "jump", "foreign", "vanish"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Rule is one thing that goes wrong for a while.
type Rule struct {
	Ops      Op     // 0: all
	Path     string // part of the path; "" for every path
	From, To int64  // simulated nanoseconds; To 0: to the end
	Share    float64
	Max      int // times, at most; 0: no bound
	Kind     Kind
	Errno    unix.Errno // of Fail and FailAfter
	Nsec     int64      // of Slow
	Texts    []string   // of Foreign: one is drawn and written
}

// String describes the rule in a line.
func (r *Rule) String() string {
	s := fmt.Sprintf("%s of %q on %.3g of calls %s", r.name(), r.Path, r.Share, r.Ops)
	if r.To > 0 {
		s += fmt.Sprintf(" from %.1f s to %.1f s", float64(r.From)/1e9, float64(r.To)/1e9)
	}
	return s
}

// name is how the rule's faults are counted.
func (r *Rule) name() string {
	switch r.Kind {
	case Fail:
		return unix.ErrnoName(r.Errno)
	case FailAfter:
		return unix.ErrnoName(r.Errno) + "-after"
	}
	return r.Kind.String()
}

// Event is one call, or one deed of a stranger, as it went.
type Event struct {
	Nsec  int64  // simulated
	Who   string // the wrapper's owner, "stranger" or "machine"
	Op    Op
	Path  string
	Data  string // of a write
	Fault string // "" when it went as it should
	Err   error
	// Took: the kernel or the disk has it, whatever the caller was told.
	Took bool
}

// String is the event in a line.
func (e *Event) String() string {
	s := fmt.Sprintf("%9.3f %-8s %-8s %s", float64(e.Nsec)/1e9, e.Who, e.Op, e.Path)
	if e.Data != "" {
		s += fmt.Sprintf(" %q", strings.TrimSpace(e.Data))
	}
	if e.Fault != "" {
		s += " [" + e.Fault + "]"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// World is the simulated machine as far as faults concern it.
type World struct {
	Now    func() int64               // simulated nanoseconds
	Pass   func(nsec int64)           // lets time pass
	Notice func(e *Event)             // sees writes and faults; may be nil
	Write  func(path, s string) error // as another program would
}

// Injector decides which calls go wrong. It is not safe for concurrent use, as the
// agent's loop is not.
type Injector struct {
	world  World
	rules  []Rule
	met    []int // times, by rule
	rng    *rand.Rand
	counts map[string]int
	short  map[string]bool // directories of which the last list was short

	life   uint64 // of the caller; wrappers of an earlier one are dead
	writes uint64 // of this life
	killAt uint64 // the write with which it ends; 0: none
}

// New returns an injector for a plan.
func New(w World, rules []Rule, rng *rand.Rand) *Injector {
	return &Injector{world: w, rules: rules, met: make([]int, len(rules)), rng: rng, counts: map[string]int{}, short: map[string]bool{}}
}

// Counts returns how often each fault happened, by name.
func (i *Injector) Counts() map[string]int { return i.counts }

// Owner is one life of a caller: wrappers made for it fail with ErrKilled once it was
// killed or another one began.
type Owner struct {
	i    *Injector
	name string
	life uint64
	dead bool
	open []hostfs.Folder // that the kernel closes when the life ends, with the locks on them
}

// Begin begins a life, which ends at its killAt-th write of a kernel file or to the disk;
// 0: it is not killed. Every earlier life is over.
func (i *Injector) Begin(name string, killAt uint64) *Owner {
	i.life++
	i.writes, i.killAt = 0, killAt
	return &Owner{i: i, name: name, life: i.life}
}

// Killed reports whether the life is over.
func (o *Owner) Killed() bool { return o.dead || o.life != o.i.life }

// Kill ends the life now.
func (o *Owner) Kill() {
	o.dead = true
	for _, f := range o.open {
		_ = f.Close() // some are closed
	}
	o.open = nil
}

// Writes returns how many writes the life has made.
func (o *Owner) Writes() uint64 { return o.i.writes }

// DieIn ends the life with its n-th write from now on, 1 being the next.
func (o *Owner) DieIn(n uint64) { o.i.killAt = o.i.writes + n }

// Check is a call on something that has no wrapper here, such as the record: it is
// refused where a rule or death says so.
func (o *Owner) Check(op Op, path string) error {
	_, err := o.before(op, "write", path)
	return err
}

// Add adds a rule.
func (i *Injector) Add(r Rule) { i.rules, i.met = append(i.rules, r), append(i.met, 0) }

// Calm ends all faults but those of some calls: no other rule holds any more, and nobody is
// killed.
func (i *Injector) Calm(but Op) {
	i.rules = slices.DeleteFunc(slices.Clone(i.rules), func(r Rule) bool { return r.Ops&^but != 0 || r.Ops == 0 })
	i.met, i.killAt = make([]int, len(i.rules)), 0
}

// Stranger writes a kernel file as another program would.
func (i *Injector) Stranger(path, text string) error {
	err := i.world.Write(path, text)
	i.notice(&Event{Who: "stranger", Op: Write, Path: path, Data: text, Err: err, Took: err == nil})
	if err == nil {
		i.counts["foreign"]++
	}
	return err
}

// Note counts and tells of something that befell the machine.
func (i *Injector) Note(name, path string) {
	i.counts[name]++
	i.notice(&Event{Who: "machine", Path: path, Fault: name})
}

func (i *Injector) notice(e *Event) {
	if i.world.Notice != nil {
		e.Nsec = i.world.Now()
		i.world.Notice(e)
	}
}

// draw returns the rule that befalls a call, nil for none. Rules that slow calls down do
// so here and let others have their turn.
func (i *Injector) draw(op Op, path string) *Rule {
	now := int64(-1)
	for n := range i.rules {
		r := &i.rules[n]
		if r.Ops != 0 && r.Ops&op == 0 || r.Max > 0 && i.met[n] >= r.Max {
			continue
		}
		if now < 0 {
			now = i.world.Now()
		}
		if now < r.From || r.To > 0 && now >= r.To || r.Path != "" && !strings.Contains(path, r.Path) {
			continue
		}
		if r.Share < 1 && i.rng.Float64() >= r.Share {
			continue
		}
		i.met[n]++
		if r.Kind == Slow {
			i.counts[r.name()]++
			i.world.Pass(r.Nsec)
			continue
		}
		return r
	}
	return nil
}

// hit counts a fault that really happened.
func (i *Injector) hit(r *Rule) string {
	i.counts[r.name()]++
	return r.name()
}

// dies reports whether this write is the one with which the life ends.
func (o *Owner) dies() bool {
	o.i.writes++
	if o.i.killAt == 0 || o.i.writes < o.i.killAt {
		return false
	}
	o.Kill()
	o.i.counts["kill"]++
	return true
}

// fails returns the error of a rule, nil when it does not fail the call beforehand.
func fails(r *Rule, op, path string) error {
	if r == nil || r.Kind != Fail && r.Kind != Vanish {
		return nil
	}
	no := r.Errno
	if r.Kind == Vanish {
		no = unix.ENODEV
		if op == "open" || op == "readdir" || op == "stat" || op == "write" {
			no = unix.ENOENT
		}
	}
	return &fs.PathError{Op: op, Path: path, Err: no}
}
