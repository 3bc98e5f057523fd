package remedy

import (
	"cmp"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Victim is one service that tells how it is.
type Victim struct {
	Task     model.TaskNum `json:"task"`
	Targeted bool          `json:"targeted,omitempty"`
	Waiting  bool          `json:"waiting,omitempty"` // it has no target, and is judged by how it waits for CPUs
	// Ratio is its figure beside its target, or its CPI, or how it waits, beside the threshold of outliers; Value is the figure, in ms, or that signal.
	Ratio    float64 `json:"ratio"`
	Value    float64 `json:"value"`
	Bound    float64 `json:"bound"`
	Trouble  bool    `json:"trouble,omitempty"`
	SeenNsec int64   `json:"seen_nsec"`
	// Figure and CPI are the logarithms of Ratio and of the CPI since the last change.
	Figure Sum `json:"figure,omitzero"`
	CPI    Sum `json:"cpi,omitzero"`
	// MPKI and Traffic, bytes a second of its memories, are of the last windows; their quiet ones of those in which it was well.
	MPKI    Level `json:"mpki,omitzero"`
	Traffic Level `json:"traffic,omitzero"`
	Waits   Waits `json:"waits,omitzero"`
	// Cycles is its CPI likewise, where Params.Pool or Power go by it.
	Cycles Level `json:"cycles,omitzero"`
	// SetNsec is since when everything stands that it feels, with Params.Apart; 0: not yet.
	SetNsec int64 `json:"set_nsec,omitempty"`
	// Clock is the clock of its cores beside the reference clock, where Params.Power goes by it.
	Clock Level `json:"clock,omitzero"`
}

// Batch is a best-effort task: the logarithm of its CPI since the last change, and how much of its pages is left on the memory nodes off
// which they were last moved, a share.
type Batch struct {
	Task model.TaskNum `json:"task"`
	CPI  Sum           `json:"cpi,omitzero"`
	Off  model.CPUSet  `json:"off,omitzero"`
	Left float64       `json:"left,omitempty"`
	// Dear: the last move off them cost the task more than what it is held to does, so that no more of them make room.
	Dear bool `json:"dear,omitempty"`
	Home
	// Took is what it was last counted to take, by domain; none where nobody counts it. Unseen is how many windows ago that was.
	Took   []Took `json:"took,omitempty"`
	Unseen int    `json:"unseen,omitempty"`
}

// Took is what a task has of a domain's last-level cache, in bytes, and what its threads there move to and from memory, in bytes a second;
// Away is the part of that which goes to other memories than the domain's, where it is told.
type Took struct {
	Domain int32   `json:"domain"`
	Lines  float64 `json:"lines"`
	Moved  float64 `json:"moved"`
	Away   float64 `json:"away,omitempty"`
}

// take takes in what a window says of a task's domains. What is new has a third of the weight, unless it is more: who has just begun takes no less.
func (b *Batch) take(list []model.DomainObservation) {
	if b.Unseen++; b.Unseen > patience {
		b.Took = nil
	}
	for i := range list {
		d := &list[i]
		if d.Occupancy.Outcome != model.OK && d.Total.Outcome != model.OK {
			continue
		}
		b.Unseen = 0
		at := slices.IndexFunc(b.Took, func(t Took) bool { return t.Domain == d.Domain })
		if at < 0 {
			at = len(b.Took)
			b.Took = append(b.Took, Took{Domain: d.Domain})
		}
		follow := func(x *float64, v model.Value) {
			if v.Outcome == model.OK && v.V >= 0 && v.V < policy.Absurd {
				*x = max(v.V, *x+(v.V-*x)/3)
			}
		}
		follow(&b.Took[at].Lines, d.Occupancy)
		follow(&b.Took[at].Moved, d.Total)
		if d.Total.Outcome == model.OK && d.Local.Outcome == model.OK {
			follow(&b.Took[at].Away, model.Known(max(0, d.Total.V-d.Local.V)))
		}
	}
}

// Level is a figure now and in quiet windows.
type Level struct {
	Now   float64 `json:"now,omitempty"`
	Quiet float64 `json:"quiet,omitempty"`
	N     int     `json:"n,omitempty"` // quiet windows
}

// add takes a window in; what is new has a third of the weight, of what is quiet a tenth.
func (l *Level) add(x float64, quiet bool) {
	if !(x >= 0 && x < policy.Absurd) {
		return
	}
	if l.Now == 0 {
		l.Now = x
	}
	if l.Now += (x - l.Now) / 3; quiet {
		l.N = min(l.N+1, 1000)
		l.Quiet += (x - l.Quiet) / float64(min(l.N, 10))
	}
}

// above reports whether it is above what is quiet by a share, and whether that is known.
func (l *Level) above(share float64, windows int) (above, known bool) {
	return l.Now > (1+share)*l.Quiet, l.N >= windows
}

// Sum is a sum of logarithms. What is long past fades.
type Sum struct {
	N       float64 `json:"n,omitempty"`
	Sum     float64 `json:"sum,omitempty"`
	Squares float64 `json:"squares,omitempty"`
}

const mostSum = 60

func (s *Sum) add(x float64) {
	if !(x > 1/policy.Absurd && x < policy.Absurd) {
		return
	}
	if s.N >= mostSum {
		s.N, s.Sum, s.Squares = s.N/2, s.Sum/2, s.Squares/2
	}
	l := math.Log(x)
	s.N, s.Sum, s.Squares = s.N+1, s.Sum+l, s.Squares+l*l
}

// jumps reports whether a reading is far above what was summed up.
func (s *Sum) jumps(x float64) bool {
	mean, sd := s.mean()
	return s.N >= 4 && math.Log(x) > mean+3*max(sd, leastSpread)
}

// leastSpread is a spread that any signal has.
const leastSpread = 0.03

// mean is the mean and the standard deviation.
func (s *Sum) mean() (mean, sd float64) {
	if s.N < 2 {
		return s.Sum / max(1, s.N), 0
	}
	mean = s.Sum / s.N
	return mean, math.Sqrt(max(0, s.Squares/s.N-mean*mean) * s.N / (s.N - 1))
}

// below is by how much a sum is below an earlier one, and the standard error of that. each is how many of them are one independent reading.
func (s *Sum) below(earlier *Sum, each float64) (diff, sem float64) {
	a, da := earlier.mean()
	b, db := s.mean()
	return a - b, math.Sqrt(each * (da*da/max(1, earlier.N) + db*db/max(1, s.N)))
}

// blip reports whether trouble is one reading of many that were well: so many figures are above their target now and then whatever is done.
func (x *Victim) blip(p *Params) bool {
	mean, sd := x.Figure.mean()
	return x.Targeted && x.Figure.N >= blips && mean+p.Margin*sd < 0
}

// often reports whether a service misses its target in a good part of the time (a sixth of what is normally distributed is above a
// standard deviation): for less no CPU time is taken, and for who has no target the hard cap is the one to take it.
func (x *Victim) often() bool {
	mean, sd := x.Figure.mean()
	return x.Targeted && (x.Figure.N >= blips && mean+sd > 0 || x.Figure.N >= surely && mean-2*sd > 0)
}

// surely is how many readings say so where it is missed in nearly all of them.
const surely = 2 * overlap

// quiet reports whether it is well: the first readings above its bound, which are not trouble yet, are no measure of what is usual.
func (x *Victim) quiet() bool { return !x.Trouble && x.Ratio <= 1 }

// blips is how many readings make one of them a blip.
const blips = 15

// compare orders by who is worse off: who is in trouble, then by ratio.
func compare(a, b *Victim) int {
	if a.Trouble != b.Trouble {
		if a.Trouble {
			return 1
		}
		return -1
	}
	return cmp.Compare(a.Ratio, b.Ratio)
}

// look takes in what services say.
func (s *State) look(p *Params, have *model.Classes, v *policy.View) {
	for i := range v.SLO {
		l := &v.SLO[i]
		valid := l.Figure.Outcome == model.OK && l.Figure.V > 0 && l.Figure.V < policy.Absurd && l.Target > 1/policy.Absurd && l.Target < policy.Absurd
		for j := range v.Tasks {
			if t := &v.Tasks[j]; valid && t.Task.Job == l.Job && t.Task.Protected() {
				trouble := l.State == model.LatencyRed || l.State == model.LatencyYellow
				s.tell(p, v, Victim{Task: t.Task.Num, Targeted: true, Ratio: l.Figure.V / l.Target, Value: 1e3 * l.Figure.V, Bound: 1e3 * l.Target, Trouble: trouble})
			}
		}
	}
	if v.Window.Closed {
		for i := range v.Window.Victims {
			x := &v.Window.Victims[i]
			waits := (p.Demote || p.Pool) && x.Source.Row().Waits
			if (x.Source == model.SourceCPI || waits) && x.Protected && x.Verdict.Evidence() && x.Signal > 0 && x.Signal < policy.Absurd && x.Threshold > 0 && x.Threshold < policy.Absurd {
				trouble := x.Verdict == outlier.Outlier && (x.Anomalous || waits && x.Violations >= before)
				s.tell(p, v, Victim{Task: x.Num, Waiting: waits, Ratio: x.Signal / x.Threshold, Value: x.Signal, Bound: x.Threshold, Trouble: trouble})
			}
		}
		s.count(p, have, v)
	}
	s.Batch = slices.DeleteFunc(s.Batch, func(b Batch) bool { return v.Task(b.Task) == nil })
	s.Victims = slices.DeleteFunc(s.Victims, func(x Victim) bool { return v.NowNsec-x.SeenNsec >= p.BlindNsec || v.Task(x.Task) == nil })
}

// before is how many violations of a service that waits for CPUs are trouble: one before the third, with which the hard cap begins, so that the milder one
// is first.
const before = 2

// tell takes a reading in.
func (s *State) tell(p *Params, v *policy.View, x Victim) {
	at, ok := slices.BinarySearchFunc(s.Victims, x.Task, func(o Victim, n model.TaskNum) int { return cmp.Compare(o.Task, n) })
	if !ok {
		s.Victims = slices.Insert(s.Victims, at, Victim{Task: x.Task})
	}
	o := &s.Victims[at]
	if o.Targeted != x.Targeted || o.Waiting != x.Waiting {
		o.Figure = Sum{}
	}
	o.Targeted, o.Waiting, o.Ratio, o.Value, o.Bound, o.Trouble, o.SeenNsec = x.Targeted, x.Waiting, x.Ratio, x.Value, x.Bound, x.Trouble, v.NowNsec
	if s.clear(v.NowNsec - p.SettleNsec) {
		if o.Figure.jumps(x.Ratio) { // something else is new for it: what was before is no measure of what helps
			o.Figure, o.CPI, o.Waits.Slow = Sum{}, Sum{}, Sum{}
		}
		o.Figure.add(x.Ratio)
	}
}

// count takes in what counters say of a window.
func (s *State) count(p *Params, have *model.Classes, v *policy.View) {
	if v.Window.Observation == nil {
		return
	}
	for i := range v.Window.Observation.Tasks {
		o := &v.Window.Observation.Tasks[i]
		x, cpi, t := s.victim(o.Num), o.Raw[model.SourceCPI], v.Task(o.Num)
		known := cpi.Outcome == model.OK && s.clear(v.Window.StartNsec)
		if t != nil && t.Task.Class == model.BE {
			if list := v.Window.Observation.In(o.Num); len(list) > 0 || s.counted(o.Num) {
				s.batch(o.Num).take(list)
			}
			if known {
				s.batch(o.Num).CPI.add(cpi.V)
			}
		}
		if x == nil {
			continue
		}
		x.wait(v, o, s.clear(v.Window.StartNsec))
		if known {
			if x.CPI.jumps(cpi.V) { // what is new for it may be told by its CPI long before its figure, of which few are above the others
				x.CPI = Sum{}
			}
			x.CPI.add(cpi.V)
		}
		if (p.Pool || p.Power) && cpi.Outcome == model.OK {
			x.Cycles.wary(cpi.V, x.quiet(), false)
		}
		if p.Power && cpi.Outcome == model.OK && o.CoreCPI.Outcome == model.OK {
			x.clock(o.CoreCPI.V, cpi.V)
		}
		if o.MPKI.Outcome == model.OK {
			x.MPKI.add(o.MPKI.V, x.quiet())
		}
		if t != nil {
			traffic, known := 0.0, false
			for i, o := range v.MemoryUse(have) {
				if o.Node.Outcome == model.OK && t.NearMemory(have, &v.Memories(have)[i]) {
					traffic, known = traffic+o.Node.V, true
				}
			}
			if known {
				x.Traffic.add(traffic, x.quiet())
			}
		}
	}
}

// others begins anew to sum up where somebody else changed what tasks have: how services did before is no measure of the next step. A trial of
// such a task is void (void.go); others' changes of other tasks are taken in after it.
func (s *State) others(v *policy.View) {
	last := s.OthersNsec
	for i := range v.Touched {
		switch t := &v.Touched[i]; t.Knob {
		case model.MemoryReclaim, model.IOMaxKnob, model.MemoryHigh: // these take no CPU time, and nothing of caches and memories' bandwidth
		default:
			if t.By != model.PolicyRemedy {
				last = max(last, t.AtNsec)
			}
		}
	}
	if last > s.OthersNsec && s.Trial == nil {
		s.OthersNsec = last
		s.reset(0)
	}
}

// stood reports whether what is wished for stands since a time.
func (s *State) stood(sinceNsec int64) bool {
	return s.AskedNsec == 0 || s.SetNsec != 0 && sinceNsec >= s.SetNsec
}

// clear reports whether nobody has changed anything since a time.
func (s *State) clear(sinceNsec int64) bool {
	return s.stood(sinceNsec) && (s.OthersNsec == 0 || sinceNsec >= s.OthersNsec)
}

// settled reports whether what services say is of what stands.
func (s *State) settled(p *Params, v *policy.View) bool { return s.stood(v.NowNsec - p.SettleNsec) }

// batch returns a best-effort task's figures.
func (s *State) batch(task model.TaskNum) *Batch {
	at, ok := slices.BinarySearchFunc(s.Batch, task, func(o Batch, n model.TaskNum) int { return cmp.Compare(o.Task, n) })
	if !ok {
		s.Batch = slices.Insert(s.Batch, at, Batch{Task: task})
	}
	return &s.Batch[at]
}

// counted reports whether it is known what a best-effort task takes.
func (s *State) counted(task model.TaskNum) bool {
	at, ok := slices.BinarySearchFunc(s.Batch, task, func(o Batch, n model.TaskNum) int { return cmp.Compare(o.Task, n) })
	return ok && len(s.Batch[at].Took) > 0
}

func (s *State) victim(task model.TaskNum) *Victim {
	at, ok := slices.BinarySearchFunc(s.Victims, task, func(o Victim, n model.TaskNum) int { return cmp.Compare(o.Task, n) })
	if !ok {
		return nil
	}
	return &s.Victims[at]
}
