package remedy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Demotion (cpu.idle, or the least weight): the first rung where what a service waits for is a CPU. Who is demoted loses its CPU to whoever is woken, and
// has all that nobody wants, so that it costs batch work nothing that the service did not ask for.
//
// The scheduler's events tell who had the CPU meanwhile (model.Waiting), so who is to give way is counted: what each task is charged with beyond
// the service's quiet windows. Where nobody tells, the run delay of the service says that it waits, without its own queueing as far as that can be
// reckoned (model.TaskObservation.Discount), and who uses more CPU beside it than in its quiet windows is demoted, or where none does who uses most. Of tasks that are alike one alone shows nothing: the CPUs that it leaves
// the others take. So those that are charged with half as much as the first one are demoted with it, and it is looked at all of them together.
//
// Where the service does not wait for others more than in quiet windows nobody is demoted: a task that gives way fills the cache as before. And where it waits,
// and neither its misses nor its memory say more, cache and bandwidth are not touched: after demotion comes CPU time.

const (
	leastWait   = 1e-3 // seconds a second, of all threads: who waits so little for others is not harmed by it
	leastCharge = 0.1  // of what it waits for others more than usual, for a task to be demoted
	alike       = 0.5  // of what the first one is charged with, to be demoted with it
	leastFall   = 0.25 // of what it waited, by which a service has to wait less with a remedy that is kept for that
	leastTold   = 1e-6 // seconds a second, of a charge that is remembered
)

// Waits are how a service waits for CPUs that others have.
type Waits struct {
	// Other is in CPU-seconds a second, of all threads. Charged is of it by who had the CPU, ordered by task: batch work alone.
	Other   Level     `json:"other,omitzero"`
	Charged []Charged `json:"charged,omitempty"`
	// Told: it is known who had the CPU. Ran is the CPU time a second that the service had, LongestNsec its longest wait in the last window.
	Told        bool    `json:"told,omitempty"`
	Ran         float64 `json:"ran,omitempty"`
	LongestNsec int64   `json:"longest_ns,omitempty"`
	SeenNsec    int64   `json:"seen_nsec,omitempty"`
	// Slow are the logarithms of (ran + other) / ran since the last change.
	Slow Sum `json:"slow,omitzero"`
}

// Charged is what a task is charged with; where nobody tells, its CPU time.
type Charged struct {
	Task model.TaskNum `json:"task"`
	Wait Level         `json:"wait"`
}

// wait takes in what a window says of a service's waiting.
func (x *Victim) wait(v *policy.View, o *model.TaskObservation, stood bool) {
	s, seconds := &x.Waits, float64(v.Window.LengthNsec)/1e9
	if o.CPU.Outcome != model.OK || !(o.CPU.V > 0 && o.CPU.V < policy.Absurd) || !(seconds > 0) {
		return
	}
	other, at := 0.0, slices.IndexFunc(v.Window.Waiting, func(w model.Waiting) bool { return w.Num == x.Task })
	switch slow := o.Signals[model.SourceSlowdown]; {
	case at >= 0 && v.Window.Waiting[at].Judged():
		w := &v.Window.Waiting[at]
		if !s.Told {
			*s = Waits{Told: true}
		}
		s.LongestNsec = w.LongestNsec
		for i := range w.Shares {
			if b := &w.Shares[i]; b.Foreign(x.Task) {
				other += float64(b.Nsec) / 1e9 / seconds
			}
		}
		s.charge(v, x.quiet(), func(yield func(model.TaskNum, float64) bool) {
			for i := range w.Shares {
				if b := &w.Shares[i]; b.Party == model.WaitTask && !yield(b.Task, float64(b.Nsec)/1e9/seconds) {
					return
				}
			}
		})
	case s.Told || slow.Outcome != model.OK || o.Throttled: // not measured in this window, or a quota of its own is what it waits for
		return
	default:
		other = max(0, slow.V-1) * o.CPU.V
		s.charge(v, x.quiet(), func(yield func(model.TaskNum, float64) bool) {
			for i := range v.Window.Observation.Tasks {
				if b := &v.Window.Observation.Tasks[i]; b.CPU.Outcome == model.OK && b.CPU.V < policy.Absurd && !yield(b.Num, b.CPU.V) {
					return
				}
			}
		})
	}
	if !(other < policy.Absurd) {
		return
	}
	s.SeenNsec, s.Ran = v.NowNsec, o.CPU.V
	if s.Other.add(other, x.quiet()); stood {
		s.Slow.add(1 + other/o.CPU.V)
	}
}

// charge takes in who had the CPU meanwhile; where nobody tells, the CPU time of all batch work, in CPU-seconds a second.
func (s *Waits) charge(v *policy.View, quiet bool, list iter.Seq2[model.TaskNum, float64]) {
	for task, had := range list {
		t := v.Task(task)
		if at, ok := s.find(task); !ok && had >= leastTold && t != nil && t.Task.Class == model.BE {
			s.Charged = slices.Insert(s.Charged, at, Charged{Task: task, Wait: Level{N: s.Other.N}}) // it was not there in quiet windows
		}
	}
	for i := range s.Charged {
		c, sum := &s.Charged[i], 0.0
		for task, had := range list {
			if task == c.Task {
				sum += had
			}
		}
		c.Wait.add(sum, quiet)
	}
	s.Charged = slices.DeleteFunc(s.Charged, func(c Charged) bool {
		return v.Task(c.Task) == nil || c.Wait.Now < leastTold && c.Wait.Quiet < leastTold
	})
}

func (s *Waits) find(task model.TaskNum) (int, bool) {
	return slices.BinarySearchFunc(s.Charged, task, func(c Charged, n model.TaskNum) int { return cmp.Compare(c.Task, n) })
}

// excess is how much more it waits than in quiet windows, CPU-seconds a second; where none is known yet, all that it waits for others who are known.
func (s *Waits) excess(p *Params) float64 {
	if s.Other.N < p.Windows && !s.Told {
		return 0
	}
	return s.Other.Now - s.usual(p, &s.Other)
}

// usual is what a figure is in quiet windows; 0 while too few of them are known for what the service waits.
func (s *Waits) usual(p *Params, l *Level) float64 {
	if s.Other.N < p.Windows {
		return 0
	}
	return l.Quiet
}

// forCPU reports whether what a service is late for is a CPU, and why. By a target it is where it waits for others at least twice as much as in quiet windows,
// and that makes its work take longer by a share, or one wait was half as long as the figure (policy/hardcap, Blame).
func (x *Victim) forCPU(p *Params, nowNsec int64) (text string, ok bool) {
	s := &x.Waits
	excess := s.excess(p)
	known := s.SeenNsec != 0 && nowNsec-s.SeenNsec < p.BlindNsec && excess >= leastWait
	switch {
	case !p.Demote && !p.Pool, !known && !x.Waiting:
		return "", false
	case !known:
		return "what it is judged by is how long it waits for CPUs", true
	}
	text = fmt.Sprintf("it waits %.3g s a second for CPUs that others have, %.3g in quiet windows: a CPU", s.Other.Now, s.Other.Now-excess)
	if x.Waiting {
		return text, true
	}
	late := excess >= p.Rise*s.Ran || float64(s.LongestNsec) >= x.Value*1e6/2
	return text, x.Targeted && 2*excess >= s.Other.Now && late
}

// waited is how much of what a service waits for others a candidate answers for, beyond quiet windows, and of how much in all. Where nobody tells
// who had the CPU it is the CPU time that each uses more than in quiet windows; where none does, who came onto the service's CPUs and uses as much as before, all of it.
func (x *Victim) waited(p *Params, list []candidate) (total float64) {
	cpu := 0.0
	for i := range list {
		c := &list[i]
		if c.waited = 0; !c.apart {
			cpu += c.cpu
		}
		if at, ok := x.Waits.find(c.task.Task.Num); ok {
			wait := &x.Waits.Charged[at].Wait
			c.waited = max(0, wait.Now-x.Waits.usual(p, wait))
		}
		total += c.waited
	}
	switch {
	case x.Waits.Told:
		return max(total, x.Waits.excess(p))
	case total >= leastCharge*cpu:
		return total
	}
	for i := range list {
		if c := &list[i]; !c.apart {
			c.waited = c.cpu
		}
	}
	return cpu
}

// guilty are those of whom a service's waiting is, who has most of it first, and critical ones last. It reorders the list.
func guilty(list []candidate) []candidate {
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(a.critical()-b.critical(), -cmp.Compare(a.waited, b.waited))
	})
	return slices.DeleteFunc(list, func(c candidate) bool { return !(c.waited >= leastCharge*c.waiting) || !(c.waited > 0) })
}

// together are the tasks that are demoted, or moved, with the first of some options: those that are charged with nearly as much.
func together(list []option) (with []option) {
	first := &list[0]
	for _, o := range list[1:] {
		if (first.means == Demotion || first.means == Pool) && o.means == first.means && o.waited >= alike*first.waited && (o.task.Task.Importance != model.Critical || first.task.Task.Importance == model.Critical) {
			with = append(with, o)
		}
	}
	return with
}

// demotable reports whether a task would give way more than it does: nobody has demoted it, and it was not found so.
func (s *State) demotable(p *Params, v *policy.View, t *policy.TaskView) bool {
	k := &t.Knobs[model.CPUWeight]
	return p.Demote && (s.hold(t.Task.Num, Demotion) != nil || !k.Ours && k.Now != model.Weight(model.WeightIdle))
}

// ForCPU reports whether what is looked for, or on trial, is a remedy for who waits for a CPU: nobody else is to pull at who has it.
func (s *State) ForCPU() bool {
	return s.Working() && (s.Short || s.Trial != nil && s.Trial.ForCPU)
}

// OnTrial adds the tasks of a step of which it is not known yet what comes of it, and those that were told to end.
func (s *State) OnTrial(list []policy.OnTrial) []policy.OnTrial {
	for _, num := range s.Ending {
		list = append(list, policy.OnTrial{Task: num, Policy: model.PolicyRemedy})
	}
	if s.Trial == nil {
		return list
	}
	o := policy.OnTrial{Task: s.Trial.Task, Policy: model.PolicyRemedy}
	if h := s.hold(s.Trial.Task, s.Trial.Means); h != nil {
		o.For = h.Victim
	}
	list = append(list, o)
	for _, o.Task = range s.Trial.With {
		list = append(list, o)
	}
	return list
}
