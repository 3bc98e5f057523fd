// Package remedy goes up one ladder of remedies for a service in trouble. Where it waits for CPUs who has them gives way (waits.go), and goes elsewhere if that is not enough, as who uses its cores' other threads does (pool.go); of the best-effort task that takes
// most of what is contended else first ways of the cache, then memory bandwidth, then the same of the next one, then pages on another memory; and CPU time at last. Each step
// is verified on the service, and taken back where it did not help (PRM's contention controllers; DESIGN.md, decision 12). Beyond that, and off unless the
// configuration gives tasks up, one is ended (evict.go).
//
// Intuition. A limit for all best-effort work costs all of it, and mostly one task does the harm, through one thing that is shared.
// Two ways of the cache cost a task that reads memory through hardly anything, so they come first; a cap on CPU time costs
// what it says, so it comes last. Where the service misses the cache more often than in its quiet windows it is the cache;
// where its misses are as many and memory moves more, it is memory (PRM: CPI above its fence, then MPKI: the cache, then bandwidth).
//
// Hard cases. Latency at the 99th percentile is noisy: whether a step helped is told by the service's CPI where there are counters, and by
// its figure elsewhere, and it has to be lower by more than the standard error. Fewer ways can be worse, as who lived in
// the cache reads memory instead: that step is taken back, and the next one comes. A step back costs the service what the step had brought,
// so it waits until there is room for that, or for long (back.go). Classes of service are few: without one, or
// without resctrl, there are weights, pages and CPU time. Who helped this job before is tried first (pairs of jobs). With nobody left it cannot be fixed, and the hard cap may act.
//
// One at a time: while the hard cap looks what came of a hold nothing begins here, and the other way round (View.Holding,
// View.Remedying); who is held by it is left alone. For a service that waits for a CPU the hard cap begins nothing while there is a step for that here, and nobody
// pulls at a task whose step is looked at (View.ForCPU, View.OnTrial). While this policy enforces, balm only observes: its rung is one of these.
//
// Who takes most is counted where resctrl counts each task (model.DomainObservation): lines of the victim's caches for ways, what is moved to and from
// memory for the others. Who fills the cache and lives in it misses it hardly ever. Elsewhere it is estimated by LLC misses, and by CPU time without counters.
// Tasks that are not counted where others are (RMIDs are few, and the largest have them) stand behind those in the order of the estimate.
//
// On which CPUs a task may run is a rung too (pool.go): where demotion is not enough for who waits, and first where the core itself is contended.
//
// What it does not know: who runs on another socket and reads this one's memory is found only where resctrl counts each task (reaches).
package remedy

import (
	"fmt"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Means is what a step takes.
type Means string

// The means, the mildest first.
const (
	Demotion  Means = "demotion"
	Pool      Means = "pool"
	Ways      Means = "ways"
	Bandwidth Means = "bandwidth"
	Pages     Means = "pages"
	CPU       Means = "cpu"
)

var allMeans = []Means{Demotion, Pool, Ways, Bandwidth, Pages, CPU}

// knob is the knob that a means turns.
func (m Means) knob() model.KnobKind {
	switch m {
	case Demotion:
		return model.CPUWeight
	case Pool:
		return model.CPUPlace
	case Pages:
		return model.MemoryPages
	case CPU:
		return model.CPUBandwidth
	}
	return model.ServiceClass
}

// classed reports whether a means limits what a task has of caches and memory: ways, levels, pages.
func (m Means) classed() bool { return m != Demotion && m != Pool && m != CPU }

// State is what the policy remembers.
type State struct {
	Victims []Victim      `json:"victims,omitempty"` // services that tell how they are, ordered by task
	Batch   []Batch       `json:"batch,omitempty"`   // best-effort tasks that have counters, ordered by task
	Victim  model.TaskNum `json:"victim,omitempty"`  // in trouble, for whom steps are taken; 0: nobody
	Holds   []Hold        `json:"holds,omitempty"`   // in the order in which they were taken
	Trial   *Trial        `json:"trial,omitempty"`   // of the last change, until it is known what came of it
	Tried   []Tried       `json:"tried,omitempty"`
	Known   []Known       `json:"known,omitempty"`
	// CannotFix: nobody is left to take from, and that was said.
	CannotFix bool `json:"cannot_fix,omitempty"`
	// Loads are what the memories deliver, in the machine's order, and to services.
	Loads []policy.Load `json:"loads,omitempty"`
	// Short: what the victim is late for is a CPU, and there is a step for that yet.
	Short bool `json:"short,omitempty"`
	// Lull: a service was in trouble a moment ago, and nothing says that it is over.
	Lull bool `json:"lull,omitempty"`
	// StuckNsec is since when nothing was left to try for the victim, TroubleNsec when a service was last in trouble; 0: not.
	StuckNsec   int64 `json:"stuck_nsec,omitempty"`
	TroubleNsec int64 `json:"trouble_nsec,omitempty"`
	policy.Ender
	Parting Sum `json:"parting,omitzero"` // the victim's figures (Victim.Figure) before the last end

	AskedNsec int64 `json:"asked_nsec,omitempty"` // of the last change: when it was wished for
	SetNsec   int64 `json:"set_nsec,omitempty"`   // and since when it stands; 0: not yet
	// OthersNsec is when somebody else last changed what tasks have.
	OthersNsec int64 `json:"others_nsec,omitempty"`

	changed   bool
	moved     bool          // and of a task's change alone (move)
	undecided bool          // a task may have to go off its CPUs, once it is known whether the target is missed often
	elsewhere model.TaskNum // one that takes, of which another policy looks what came of a step; 0: there is none
	why       string        // of what is given back in this step

	without *model.Classes  // what a machine has that divides neither caches nor memory bandwidth
	of      *model.Topology // the machine
	at      scene           // of this step
}

// Hold is what one task is held to.
type Hold struct {
	Task   model.TaskNum `json:"task"`
	Victim model.TaskNum `json:"victim"` // for whose sake
	Means  Means         `json:"means"`
	// Amount is what it has: ways, the level in the machine's unit, the share of its pages that is left on the service's memory,
	// CPU-sec/sec, how many CPUs, or of its weight 1, as it was found, or 0, the least. Was is what it had before the last change, Full what it has without us.
	Amount float64 `json:"amount"`
	Was    float64 `json:"was"`
	Full   float64 `json:"full"`
	// Effect is the logarithm by which the victim's signal came down.
	Effect float64 `json:"effect,omitempty"`
	// Price is the logarithm by which the task's own CPI went up, or its CPU time came down.
	Price     float64 `json:"price,omitempty"`
	RetryNsec int64   `json:"retry_nsec,omitempty"` // when it may be given back though there is no room
	Patience  int     `json:"patience,omitempty"`
	FreshNsec int64   `json:"fresh_nsec,omitempty"` // of the last change
	// Off is the memory nodes that pages are taken off, Moved what became of that: "" while they are on their way.
	Off   model.CPUSet `json:"off,omitzero"`
	Moved string       `json:"moved,omitempty"`
	// Ending: those on their way are not wanted any more, and what is there by now stays.
	Ending bool `json:"ending,omitempty"`
	// Home: its pages go back, so that Off is all other memory.
	Home bool `json:"home,omitempty"`
	// Place is the CPUs that it has by Pool, none: all of its own. Before is what it had before the last change, Used the CPU-sec/sec that it used before the first.
	Place  model.CPUSet `json:"place,omitzero"`
	Before model.CPUSet `json:"before,omitzero"`
	Used   float64      `json:"used,omitempty"`
}

// Trial is a change that is looked at.
type Trial struct {
	Task  model.TaskNum `json:"task"`
	Means Means         `json:"means"`
	// With are the other tasks of it: those that are alike are demoted together. ForCPU: it is for a service that waits for a CPU.
	With   []model.TaskNum `json:"with,omitempty"`
	ForCPU bool            `json:"for_cpu,omitempty"`
	Back   bool            `json:"back,omitempty"` // it gives back
	Well   bool            `json:"well,omitempty"` // pages move while services are well, to make room
	// CPI, Figure and Slow (Waits.Slow) are the victim's, and Own the task's own CPI, under what stood before.
	CPI    Sum `json:"cpi,omitzero"`
	Slow   Sum `json:"slow,omitzero"`
	Figure Sum `json:"figure,omitzero"`
	Own    Sum `json:"own,omitzero"`
	// Cycles is the victim's CPI of the last windows before, of Pool.
	Cycles float64 `json:"cycles,omitempty"`
	Waited int     `json:"waited,omitempty"` // windows, since it stands
	// SinceNsec is from when on whatever others do disturbs it.
	SinceNsec int64 `json:"since_nsec,omitempty"`
}

// Tried is a step that did not help, or was refused.
type Tried struct {
	Victim    model.TaskNum `json:"victim,omitempty"` // 0: any
	Task      model.TaskNum `json:"task"`
	Means     Means         `json:"means"`
	UntilNsec int64         `json:"until_nsec"`
}

// Known is a remedy that helped a pair of jobs.
type Known struct {
	Victim string  `json:"victim"`
	Job    string  `json:"job"`
	Means  Means   `json:"means"`
	Effect float64 `json:"effect"` // by which the victim's signal came down, the logarithm
}

// mostKnown bounds what is remembered of pairs; the oldest goes.
const mostKnown = 64

// Step looks at what is new of services, and wishes for what is to be held.
func (s *State) Step(p *Params, v *policy.View, w *policy.Wishes) {
	if v.Mode == model.ModeOff {
		*s = State{}
		return
	}
	if v.Topology == nil {
		return
	}
	have := v.Topology.Classes
	if have == nil || len(have.Caches)+len(have.Memory) == 0 {
		const none = "this machine has neither ways nor levels of memory bandwidth to divide, or resctrl is not mounted"
		have = s.machine(v.Topology)
		if p.CPULeast >= 1 && !p.Demote && !p.Pool && !several(v.Topology) && len(s.Holds) == 0 {
			w.Once("nothing", model.Decision{Kind: model.DecideLeftAlone, Reason: none})
			return
		}
		w.Once("nothing", model.Decision{Kind: model.DecideLeftAlone, Reason: none + ": weights, pages and CPU time are what is left"})
	}
	s.changed, s.moved, s.why, s.Loads = false, false, "", v.Loads(have, s.Loads)
	s.at = scene{p.Apart && len(v.Memories(have)) > 1, have, v}
	s.others(v)
	s.look(p, have, v)
	if t := v.Task(s.Victim); t != nil {
		w.Premises(v, t)
	}
	s.arrive(v)
	s.follow(p, have, v, w)
	s.outlived(p, v)
	if len(v.SLO) > 0 || v.Window.Closed {
		s.act(p, have, v, w)
	}
	if w.AsBefore = !v.Changed && !s.changed; !w.AsBefore {
		w.Why = s.why
		s.wish(p, v, w)
	}
}

// machine is what a machine has that divides neither caches nor memory bandwidth: CPUs that share a last-level cache are beside each
// other all the same, and on a memory.
func (s *State) machine(t *model.Topology) *model.Classes {
	if s.of == t {
		return s.without
	}
	s.of, s.without = t, &model.Classes{}
	for i := range t.CPUs {
		c := &t.CPUs[i]
		at := slices.IndexFunc(s.without.Domains, func(d model.Domain) bool { return d.ID == int32(c.LLC) })
		if at < 0 {
			at = len(s.without.Domains)
			s.without.Domains = append(s.without.Domains, model.Domain{ID: int32(c.LLC)})
		}
		s.without.Domains[at].CPUs.Add(c.ID)
	}
	return s.without
}

// several reports whether a machine has several memories.
func several(t *model.Topology) bool {
	return slices.ContainsFunc(t.CPUs, func(c model.CPU) bool { return c.Node != t.CPUs[0].Node })
}

// Working reports whether somebody is in trouble for whom there may be a remedy, or was a moment ago, or a change is looked at.
func (s *State) Working() bool { return (s.Victim != 0 || s.Lull) && !s.CannotFix || s.Trial != nil }

// wish claims what holds are of: a class of service for each task, and caps on CPU time.
func (s *State) wish(p *Params, v *policy.View, w *policy.Wishes) {
	var done []model.TaskNum
	for i := range s.Holds {
		h := &s.Holds[i]
		if h.over() {
			continue
		}
		reason := "for the sake of " + v.Table.Name(h.Victim)
		if h.Means == Pages {
			if h.Moved == "" && !h.Ending {
				w.MovePages(h.Task, h.Off, int64(1000*h.kept()), reason, p.HoldNsec)
			}
			continue
		}
		if h.Means == Demotion {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfTask(h.Task), Kind: model.ClaimCap, Value: model.Ask(model.CPUWeight), Cap: model.WeightIdle, Uncounted: true, Reason: reason, HoldNsec: p.HoldNsec,
			})
			continue
		}
		if h.Means == Pool {
			w.Claims = append(w.Claims, model.Claim{Target: model.OfTask(h.Task), Kind: model.ClaimPlace, Value: model.Place(h.Place), Reason: reason, HoldNsec: p.HoldNsec})
			continue
		}
		if h.Means == CPU {
			w.Claims = append(w.Claims, model.Claim{
				Target: model.OfTask(h.Task), Kind: model.ClaimCap, Value: model.Ask(model.CPUBandwidth), Cap: h.Amount, UsageAtClaim: h.Full, Reason: reason, HoldNsec: p.HoldNsec,
			})
			continue
		}
		if slices.Contains(done, h.Task) {
			continue
		}
		done = append(done, h.Task)
		amount := func(m Means) int {
			if o := s.hold(h.Task, m); o != nil && !o.over() {
				return int(o.Amount)
			}
			return 0
		}
		w.Alone(v, h.Task, amount(Ways), amount(Bandwidth), reason, p.HoldNsec)
	}
	s.WishEnds(v, w, "nothing else has helped", p.HoldNsec)
}

// hold returns what a task is held to by some means, nil: it is not.
func (s *State) hold(task model.TaskNum, m Means) *Hold {
	i := slices.IndexFunc(s.Holds, func(h Hold) bool { return h.Task == task && h.Means == m })
	if i < 0 {
		return nil
	}
	return &s.Holds[i]
}

// Note is where the policy stands, in a few words.
func (s *State) Note(now model.Mode) string {
	if len(s.Victims) == 0 {
		return "no service has told how it is"
	}
	worst := slices.MaxFunc(s.Victims, func(a, b Victim) int { return compare(&a, &b) })
	text := fmt.Sprintf("the worst service is at %.3g of its bound", worst.Ratio)
	if s.CannotFix {
		text += "; nobody is left to take from"
	}
	if now == model.ModeEnforce {
		text += fmt.Sprintf("; %d holds on BE tasks", len(s.Holds))
	}
	return text
}
