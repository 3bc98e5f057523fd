package remedy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

const (
	recent  = 3 // windows that a task's misses are the mean of, where the last has no more
	fewest  = 0.02
	overlap = 3 // readings of a latency source that look back over the same seconds (BALM §IV-A: 3 s, read each second)
)

// act does what a reading asks for.
func (s *State) act(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	if len(s.Victims) == 0 {
		if s.Victim, s.Short, s.StuckNsec = 0, false, 0; len(s.Holds) > 0 && s.settled(p, v) {
			s.giveBack(v, "no service tells how it is")
		}
		return
	}
	if !v.Enforced() {
		s.would(p, have, v, w)
		return
	}
	x := s.inTrouble(p, 0)
	s.serve(p, v, x)
	if s.void(p, v, w) || !s.settled(p, v) || s.Trial != nil && s.conclude(p, have, v, w) {
		return
	}
	switch {
	case x == nil:
		s.CannotFix = false
	case s.Trial == nil && !v.Holding:
		s.heal(p, have, v, w, x)
	}
	if x == nil || p.Apart && s.CannotFix && s.Trial == nil && !s.changed {
		s.relax(p, have, v, w)
	}
}

// inTrouble returns who is worst off of those in trouble that feel what a task has, 0: of all; nil: nobody is.
func (s *State) inTrouble(p *Params, task model.TaskNum) *Victim {
	var worst *Victim
	for i := range s.Victims {
		if x := &s.Victims[i]; x.Trouble && !x.blip(p) && s.feels(x, task) && (worst == nil || compare(x, worst) > 0) {
			worst = x
		}
	}
	return worst
}

// option is a step that could be taken.
type option struct {
	task   *policy.TaskView
	means  Means
	amount float64 // that it leaves
	was    float64
	full   float64
	draw   model.Fact
	off    model.CPUSet // memory nodes
	waited float64      // what it answers for of what the victim waits
	known  float64      // by which it helped this pair before
	// place is the CPUs that it leaves by Pool, used what it used, by whose it is, and core: for the core's sake.
	place model.CPUSet
	used  float64
	by    candidate
	core  bool
}

// soonest is how many windows of a wait before a demotion are enough to look by them what it brought: it takes nothing that nobody else wants, and its effect is large.
const soonest = 3

// heal takes the next step.
func (s *State) heal(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, x *Victim) {
	order, text, told := x.contended(p, v)
	n, soon := float64(p.Windows), order[0] == Demotion && x.Waits.Slow.N >= soonest
	if x.CPI.N < n && x.Figure.N < n && !soon {
		return // nothing to compare with yet
	}
	list := s.options(p, have, v, w, x, order)
	if wait := s.undecided && (order[0] == Pool || order[0] == CPU) && (len(list) == 0 || list[0].means != order[0]); wait || len(list) == 0 && x.Targeted && x.Figure.N < blips {
		return // whether it misses its target often is not known yet
	}
	if num := s.elsewhere; len(list) == 0 && num != 0 {
		w.Once("elsewhere", model.Decision{
			Kind: model.DecideLeftAlone, Task: num, Path: v.Table.Name(num),
			Reason: "on trial elsewhere: " + v.LeaveAlone(num, model.PolicyRemedy) + ", and nobody else is left who could have less for the sake of " + v.Table.Name(x.Task) + ": what comes of that first",
		})
		return
	}
	if len(list) == 0 {
		s.cannotFix(v, w, x, text)
		if told {
			s.end(p, have, v, w, x, order[0])
		}
		return
	}
	s.CannotFix = false
	s.take(v, w, x, list[0], together(list), text)
	s.Trial.ForCPU = list[0].means == Demotion || (list[0].means == CPU || list[0].means == Pool) && order[0] == Demotion
}

// serve notes for whom it is to be helped: nobody, where x is nil.
func (s *State) serve(p *Params, v *policy.View, x *Victim) {
	was := s.Victim
	s.Lull = s.TroubleNsec != 0 && v.NowNsec-s.TroubleNsec < p.QuietNsec
	if s.Victim, s.Short = 0, false; x == nil {
		if v.NowNsec-s.TroubleNsec >= p.QuietNsec {
			s.StuckNsec, s.Parting = 0, Sum{}
		}
		return
	}
	if was != 0 && was != x.Task {
		s.StuckNsec, s.Parting = 0, Sum{}
	}
	s.Victim, s.TroubleNsec = x.Task, v.NowNsec
	_, s.Short = x.forCPU(p, v.NowNsec)
	s.interrupt(v, x)
}

// contended says what is contended by how the victim waits, and by its counters: which means come first, and why, and whether anything tells.
func (x *Victim) contended(p *Params, v *policy.View) (order []Means, text string, told bool) {
	waits, forCPU := x.forCPU(p, v.NowNsec)
	first := []Means{Demotion}
	if p.Pool {
		first = append(first, Pool)
	}
	order, text, told = x.memory(p)
	switch {
	case x.Waiting, forCPU && !told: // of caches nothing is known, or that they are as ever
		return first, waits, forCPU
	case forCPU:
		return append(first, order...), waits + "; and " + text, true
	}
	if !told {
		if why, power := x.forPower(p); power {
			return append([]Means{CPU}, order...), why, true
		}
	}
	if why, core := x.forCore(p, v); core {
		return append([]Means{Pool}, order...), why, true
	}
	return order, text, told
}

// memory says what is contended of caches and memories (PRM's detection), and whether anything is.
func (x *Victim) memory(p *Params) (order []Means, text string, told bool) {
	cache, known := x.MPKI.above(p.Rise, p.Windows)
	memory, also := x.moves(p)
	switch {
	case known && cache:
		return []Means{Ways, Bandwidth, Pages}, fmt.Sprintf("it misses the cache %.3g times in 1000 instructions, %.3g in quiet windows: the cache", x.MPKI.Now, x.MPKI.Quiet), true
	case also && memory && (!known || x.MPKI.Now >= policy.FewMisses):
		return []Means{Bandwidth, Ways, Pages}, fmt.Sprintf("its memory moves %.3g GB/s, %.3g in quiet windows: memory", x.Traffic.Now/1e9, x.Traffic.Quiet/1e9), true
	}
	return []Means{Ways, Bandwidth, Pages}, "nothing says what is contended: the mildest first", false
}

// options are the steps that could be taken, in the order in which they are tried: what helped this pair before, then the means of the order of
// one task after the other, then CPU time.
func (s *State) options(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, x *Victim, order []Means) []option {
	s.undecided = false
	tasks := s.candidates(p, have, v, x)
	alone := map[model.TaskNum]bool{}
	for i := range s.Holds {
		if s.Holds[i].Means.knob() == model.ServiceClass {
			alone[s.Holds[i].Task] = true
		}
	}
	var list []option
	rungs := slices.Clone(order)
	if order[0] != CPU {
		rungs = append(rungs, CPU)
	}
	for _, m := range rungs {
		about := m
		if m == CPU || m == Pool {
			about = order[0] // of whoever takes most of what is contended
		}
		for _, c := range ranked(tasks, about) {
			o, ok := option{}, false
			if m == Pool {
				o, ok = s.poolOption(p, v, w, x, c, about == Pool, len(list) == 0)
			} else {
				o, ok = s.option(p, have, v, w, x, c, m)
				s.undecided = s.undecided || about == CPU && o.full > 0 && x.Targeted && x.Figure.N < blips && !x.often()
			}
			o.waited = c.share(about)
			if ok && m.knob() == model.ServiceClass && !alone[c.task.Task.Num] && len(alone) >= v.Alone(have) {
				w.Once("no class", model.Decision{
					Kind: model.DecideLeftAlone, Task: c.task.Task.Num, Path: c.task.Task.Path,
					Reason: fmt.Sprintf("no class of service is left for one task: %d of %d are taken, the next rungs are pages and CPU time", len(alone), v.Alone(have)),
				})
			} else if ok {
				list = append(list, o)
			}
		}
	}
	named := func(o *option) int { return policy.One(o.means == order[0] && (o.means == Pool || o.means == CPU)) } // what is contended is told, and nothing else is for that
	slices.SortStableFunc(list, func(a, b option) int { return cmp.Or(named(&b)-named(&a), -cmp.Compare(a.known, b.known)) })
	return list
}

// option is a step against one task, if there is one left: to the least at once, and CPU time by halves.
func (s *State) option(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes, x *Victim, c candidate, m Means) (o option, ok bool) {
	t := c.task
	o = option{task: t, means: m, draw: c.fact}
	switch {
	case m == Demotion && x.Waits.Told:
		o.draw = model.FactBlame.Is(c.waited / c.waiting)
	case m == Demotion:
		o.draw = model.FactUsage.Is(c.cpu)
	case c.counted && m == Ways:
		o.draw = model.FactOccupancy.Is(c.lines)
	case c.counted && m != CPU:
		o.draw = model.FactMoved.Is(c.moved)
	}
	switch m {
	case Demotion:
		o.amount, o.full = 0, 1
		ok = s.demotable(p, v, t)
	case Ways:
		o.amount, o.full = float64(max(p.Ways, have.Least)), m.full(have)
		ok = len(have.Caches) > 0
	case Bandwidth:
		o.amount, o.full = float64(have.Lowest(policy.Peak(s.Loads))), m.full(have)
		ok = len(have.Memory) > 0 && !w.NoPeak(have, s.Loads)
	case Pages:
		o.off = s.off(p, have, v, x.Task)
		o.full = s.stay(t.Task.Num, o.off)
		o.amount = pagesKept * o.full
		ok = o.full >= leastStay && !o.off.Empty()
	case CPU:
		o.full = c.cpu
		if h := s.hold(t.Task.Num, CPU); h != nil {
			o.full = h.Full
			o.amount = max(p.CPULeast*o.full, h.Amount/2)
		} else {
			o.amount = max(p.CPULeast, 0.5) * o.full
		}
		ok = o.full > 0 && x.often()
	}
	if _, why := t.Closed(m.knob()); why != "" {
		return o, false
	}
	return o, ok && s.untried(v, x, &o)
}

// untried reports whether a step takes something, and was not in vain of late; and notes what it has, and by how much it helped this pair before.
func (s *State) untried(v *policy.View, x *Victim, o *option) bool {
	num := o.task.Task.Num
	if o.was = o.full; s.hold(num, o.means) != nil {
		o.was = s.hold(num, o.means).Amount
	}
	if o.amount >= o.was || slices.ContainsFunc(s.Tried, func(f Tried) bool {
		return f.Task == num && f.Means == o.means && (f.Victim == 0 || f.Victim == x.Task)
	}) {
		return false
	}
	if victim := v.Task(x.Task); victim != nil {
		if k := s.known(victim.Task.Job, o.task.Task.Job, o.means); k != nil {
			o.known = k.Effect
		}
	}
	return true
}

// take takes a step, of several tasks together where there are others with it, and looks what comes of it.
func (s *State) take(v *policy.View, w *policy.Wishes, x *Victim, o option, with []option, text string) {
	num := o.task.Task.Num
	s.Trial = &Trial{Task: num, Means: o.means, CPI: x.CPI, Figure: x.Figure, Slow: x.Waits.Slow, Own: s.batch(num).CPI, SinceNsec: v.NowNsec}
	if o.means == Pool {
		s.Trial.Cycles = x.Cycles.Now
	}
	s.begin(v, w, x, o, text)
	for _, o := range with {
		if o.means == Pool { // beside those that are there by now
			if cpus, enough := s.left(v, x, &o.by, o.core); enough {
				o.place, o.amount = cpus, float64(cpus.Len())
			} else {
				continue
			}
		}
		s.Trial.With = append(s.Trial.With, o.task.Task.Num)
		s.begin(v, w, x, o, text)
	}
	s.resetOf(s.Trial)
}

// begin has one task have less.
func (s *State) begin(v *policy.View, w *policy.Wishes, x *Victim, o option, text string) {
	num := o.task.Task.Num
	h := s.hold(num, o.means)
	if h == nil {
		s.Holds = append(s.Holds, Hold{Task: num, Victim: x.Task, Means: o.means, Amount: o.full, Full: o.full, Off: o.off, Used: o.used})
		h = &s.Holds[len(s.Holds)-1]
	}
	h.Victim, h.Before = x.Task, o.place
	s.move(v, h, o.amount)
	more := ""
	switch o.draw.Name {
	case model.FactOccupancy.String():
		more = fmt.Sprintf("; it has %.3g MB of the cache", o.draw.Value/1e6)
	case model.FactMoved.String():
		more = fmt.Sprintf("; it moves %.3g GB/s", o.draw.Value/1e9)
	case model.FactBlame.String():
		more = fmt.Sprintf("; it had the CPU for %.0f %% of what is waited more than usual", 100*o.draw.Value)
	}
	if o.known > 0 {
		more += fmt.Sprintf("; it helped these jobs before, by %.0f %%", 100*(1-math.Exp(-o.known)))
	}
	d := h.tell(v, x)
	if h.Means != CPU || o.draw.Name != model.FactUsage.String() { // what it used before it was held is told already
		d.Facts = append(d.Facts, o.draw)
	}
	d.Reason = fmt.Sprintf("%s; %s; %s%s", x.text(v), text, h.text(), more)
	w.Decide(d)
}

// move changes what a task has.
func (s *State) move(v *policy.View, h *Hold, amount float64) {
	h.Was, h.Amount, h.FreshNsec = h.Amount, amount, v.NowNsec
	h.Place, h.Before = h.Before, h.Place
	s.changed, s.moved, s.AskedNsec, s.SetNsec = true, true, v.NowNsec, 0
	for i := range s.Victims {
		if x := &s.Victims[i]; s.feels(x, h.Task) {
			x.SetNsec = 0
		}
	}
}

// reset begins anew to sum up for services that feel what a task has, 0: for all: something is other than before.
func (s *State) reset(task model.TaskNum) {
	for i := range s.Victims {
		if x := &s.Victims[i]; s.feels(x, task) {
			x.CPI, x.Figure, x.Waits.Slow = Sum{}, Sum{}, Sum{}
		}
	}
	for i := range s.Batch {
		s.Batch[i].CPI = Sum{}
	}
}

// resetOf begins anew to sum up for who feels what a trial's tasks have.
func (s *State) resetOf(t *Trial) {
	s.reset(t.Task)
	for _, task := range t.With {
		s.reset(task)
	}
}

// would says once what it would begin with: what would come then nobody knows.
func (s *State) would(p *Params, have *model.Classes, v *policy.View, w *policy.Wishes) {
	x := s.inTrouble(p, 0)
	if x == nil {
		return
	}
	order, text, _ := x.contended(p, v)
	if list := s.options(p, have, v, w, x, order); len(list) > 0 {
		h := Hold{Task: list[0].task.Task.Num, Victim: x.Task, Means: list[0].means, Amount: list[0].amount, Was: list[0].was, Full: list[0].full, Place: list[0].place}
		d := h.tell(v, x)
		d.Reason = fmt.Sprintf("%s; %s; %s", x.text(v), text, h.text())
		w.Once("would", d)
	}
}
