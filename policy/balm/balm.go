// Package balm takes memory bandwidth from the best-effort task that draws most from the memory of a service that misses
// the target of its latency, and from the next one, until the service is well again; and gives it back step by step
// (BALM, section III).
//
// Intuition. A limit for all BE costs all of it, all day, and mostly one task does the harm. So each task gets a class of
// service of its own when its turn comes, and the lowest level at once, since a missed target is dear; how much less
// would have done is found out afterwards, upwards, while services are well.
//
// Hard cases. Who draws how much from which memory nobody counts: it is estimated (rank.go). Classes are few: who is left
// when they are used up shares the class of all BE. A figure looks back over seconds, so nothing is decided by it until a
// change has stood for so long (act.go). A step back may bring trouble again: it is taken back, and tried later and later.
// And the trouble may be none of memory's: where the figure has not come down with all BE at the lowest level, everything
// is given back, and it is said that this cannot be fixed (CannotFix); whoever can do more goes by that.
//
// The paper's prose takes until services are green, and its algorithm 1 until they are neither red nor yellow. Green is
// the default: between yellow and green the next change of load is a violation, and a step back would be one, too.
//
// Where there is another memory the tasks' pages move there, step by step (pages.go). It looks each second, the paper each
// 20 ms. What the paper takes for granted of services is looked at (policy/home.go): where their pages are not local, or they run on
// several sockets, the memories in trouble are those that their pages lie on; where they fill their memory by themselves no pages
// move, and that is what CannotFix says.
package balm

import (
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// State is what the policy remembers.
type State struct {
	// Of the last reading: the worst state of a job ("": no valid figure), whose it is, its figure beside its target,
	// and all domains of the memories that the services in trouble are at.
	Colour  string        `json:"colour,omitempty"`
	Victim  model.TaskNum `json:"victim,omitempty"`
	Figure  float64       `json:"figure,omitempty"` // s
	Target  float64       `json:"target,omitempty"` // s
	Domains []int32       `json:"domains,omitempty"`

	Rungs []Rung  `json:"rungs,omitempty"` // whom bandwidth is taken from, in the order in which it was
	Start float64 `json:"start,omitempty"` // the figure beside the target when the first was
	// StartNsec is when that was.
	StartNsec int64 `json:"start_nsec,omitempty"`
	Tries     int   `json:"tries,omitempty"` // readings in trouble with nobody left
	// Healing: there was trouble, and it is not over as the parameter has it.
	Healing bool `json:"healing,omitempty"`
	// Trial is the rung, from 1, whose last step back is not known to be harmless; 0: none.
	Trial     int        `json:"trial,omitempty"`
	CannotFix *CannotFix `json:"cannot_fix,omitempty"` // said of the trouble that there is
	Barred    []Barred   `json:"barred,omitempty"`     // who is left alone for a while, ordered by task
	Most      int        `json:"most,omitempty"`       // the level that is no limit, by which levels are counted

	AskedNsec int64 `json:"asked_nsec,omitempty"` // of the last change: when it was wished for
	SetNsec   int64 `json:"set_nsec,omitempty"`   // and since when it stands; 0: not yet
	RestNsec  int64 `json:"rest_nsec,omitempty"`  // until when nothing is taken
	BlindNsec int64 `json:"blind_nsec,omitempty"` // since when there is no valid figure; 0: there is one

	// Remote is the share of what the CPUs near each memory move that goes to others, in the order of View.Memories; below 0: not known.
	Remote []float64 `json:"remote,omitempty"`
	// Loads are what those memories deliver, and to services.
	Loads []policy.Load `json:"loads,omitempty"`
	// Premises is what does not hold of the worst service that the paper takes for granted; "": nothing.
	Premises string `json:"premises,omitempty"`

	alone   int  // tasks that can have a class for themselves
	waits   bool // some who draw are on trial with another policy
	changed bool
	why     string // of what is given back in this step
}

// Rung is one task in a class of its own, or all that share the class of BE.
type Rung struct {
	Class model.TaskNum   `json:"class"`
	Tasks []model.TaskNum `json:"tasks"` // ordered
	Level int             `json:"level"`
	// Domains are the memories that services in trouble were at when it was taken last.
	Domains []int32 `json:"domains,omitempty"`
	// RetryNsec is when the next step back may be tried, after Patience times the parameter's.
	RetryNsec int64 `json:"retry_nsec,omitempty"`
	Patience  int   `json:"patience,omitempty"`
	Pages     Moved `json:"pages,omitzero"`
}

// Barred is a task whose class or level was refused, or is another program's.
type Barred struct {
	Task      model.TaskNum `json:"task"`
	UntilNsec int64         `json:"until_nsec"`
}

// CannotFix says that taking memory bandwidth did not help, for whoever can do more (BALM: CannotFixSLOViolation).
type CannotFix struct {
	Victim  model.TaskNum `json:"victim"`
	Domains []int32       `json:"domains"` // all of the memories that the services in trouble are at
	Tried   int           `json:"tried"`   // BE tasks that had the lowest level
	Helped  bool          `json:"helped"`  // the figure came down, though not enough: what was taken is kept
	Figure  float64       `json:"figure"`  // s, of the last reading
	Target  float64       `json:"target"`  // s
	AtNsec  int64         `json:"at_nsec"` // monotonic
	// Alone is what a memory delivers where services fill it by themselves.
	Alone policy.Load `json:"alone,omitzero"`
}

// Step looks at what services say, and wishes for levels.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	have := v.Levels(w)
	if have == nil {
		return
	}
	s.changed, s.why, s.alone = false, "", v.Alone(have)
	if s.Most != have.MostLevel {
		if s.Most = have.MostLevel; len(s.Rungs) > 0 {
			s.giveBack("levels of memory bandwidth count otherwise: resctrl was mounted anew")
		}
	}
	s.measure(have, v)
	s.Loads = v.Loads(have, s.Loads)
	s.arrive(v)
	s.follow(p, have, v, w)
	if len(v.SLO) > 0 {
		if s.judge(have, v, w) {
			s.act(p, have, v, w)
		}
	}
	if w.AsBefore = !v.Changed && !s.changed; !w.AsBefore {
		w.Why = s.why
		s.wish(p, have, v, w)
	}
}

// Taking reports whether something is taken for services that miss their target, or may be: not where that was said to be in vain.
func (s *State) Taking() bool { return (s.Healing || len(s.Rungs) > 0) && s.CannotFix == nil }

// OnTrial adds the tasks of which it is not known yet what comes of less memory bandwidth, or of a step back.
func (s *State) OnTrial(list []policy.OnTrial) []policy.OnTrial {
	for i := range s.Rungs {
		if !s.Taking() || !s.Healing && s.Trial != i+1 {
			continue
		}
		for _, num := range s.Rungs[i].Tasks {
			list = append(list, policy.OnTrial{Task: num, Policy: model.PolicyBalm, For: s.Victim, Domains: s.Rungs[i].Domains})
		}
	}
	return list
}

// wish claims for each rung its class, and its level in all memories: a task alone has it wherever it runs. Of what the
// class of BE has, a task that is out of it has no more.
func (s *State) wish(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	const reason = "a service misses its target, and who draws from its memory has less of it"
	for i := range s.Rungs {
		r := &s.Rungs[i]
		if r.Pages.Moving {
			w.MovePages(r.Tasks[0], r.Pages.Off, int64(r.Pages.Left), reason, p.HoldNsec)
		}
		if r.Class != model.ClassBE {
			w.Alone(v, r.Tasks[0], 0, r.Level, reason, p.HoldNsec)
			continue
		}
		for _, num := range r.Tasks {
			w.Claims = append(w.Claims, model.Claim{Target: model.OfTask(num), Kind: model.ClaimPlace, Value: model.InClass(r.Class), Reason: reason, HoldNsec: p.HoldNsec})
		}
		for _, domain := range have.Memory {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfClass(r.Class, domain), Kind: model.ClaimCap, Value: model.Ask(model.MemoryBandwidth), Cap: float64(r.Level), Uncounted: true, Reason: reason, HoldNsec: p.HoldNsec,
			})
		}
	}
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	text := "no job has told how it stands to its target"
	if s.Target > 0 {
		text = fmt.Sprintf("%s: %.3g of the target", s.Colour, s.Figure/s.Target)
	}
	if s.Premises != "" {
		text += ", and " + s.Premises
	}
	held, alone := 0, 0
	for i := range s.Rungs {
		held += len(s.Rungs[i].Tasks)
		alone += policy.One(s.Rungs[i].Class != model.ClassBE)
	}
	switch {
	case s.CannotFix != nil && held == 0 && s.CannotFix.Alone.All > 0:
		return text + "; services fill their memory by themselves: nothing is taken for now"
	case s.CannotFix != nil && held == 0:
		return text + "; memory bandwidth did not help: nothing is taken for now"
	case now == model.ModeEnforce:
		return fmt.Sprintf("%s; %d BE tasks have less memory bandwidth, %d of %d classes of one task are taken", text, held, alone, max(alone, s.alone))
	}
	return text
}
