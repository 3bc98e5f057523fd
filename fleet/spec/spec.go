// Package spec learns what is normal of a job on a platform from the samples of all its tasks in a fleet (CPI² §3.1, "CPI
// data aggregation"): count, mean and standard deviation, weighted by age, none below 5 tasks with 100 samples each.
//
// What goes beyond the paper, and why. The sample holds windows in which somebody hurt the task: above the threshold in force they
// count as the threshold (as on one node, package localspec). A node may be broken, or lie: in each period none counts
// more than twice what the median node does, and one whose mean is far off all others' is left out; of many nodes this goes by groups (nodes.go). A spec that jumps is
// held back until an operator has looked, for a fleet that learned nonsense is wrong everywhere at once.
//
// The package is pure: time is data, and equal inputs give equal outputs.
package spec

import (
	"fmt"
	"math"
	"slices"
	"unique"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Params are the learner's parameters.
type Params struct {
	PeriodNsec        int64   // from one calculation to the next; CPI² §3.1: 24 h, its goal 1 h
	AgeWeight         float64 // a day; section 3.1: about 0.9
	MinTasks          int     // section 3.1: 5
	MinSamplesPerTask int     // section 3.1: 100, of two days at most
	Sigmas            float64 // table 2: the outlier threshold is mean + 2 sigma
	Fit               bool    // the threshold is where a fitted distribution (figure 7) has as much above it as a normal one has above Sigmas
	JumpSigmas        float64 // a mean that moved further at once is held back ...
	JumpShare         float64 // ... when that is also more than this share of it
	Sizes             int     // of a job on a platform, at most so many are also learned apart, those that come first; 0: none
}

// Defaults are the paper's values, but for the period.
func Defaults() Params {
	return Params{PeriodNsec: 5 * 60e9, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100, Sigmas: 2, JumpSigmas: 1, JumpShare: 0.1}
}

// Moments are a weighted count, means and the sum of squared deviations.
type Moments struct{ N, Mean, M2, Usage float64 }

func (m *Moments) add(v, usage float64) {
	m.N++
	d := v - m.Mean
	m.Mean += d / m.N
	m.M2 += d * (v - m.Mean)
	m.Usage += (usage - m.Usage) / m.N
}

// merge takes another population in, weighted by w (Chan et al.).
func (m *Moments) merge(o Moments, w float64) {
	n := o.N * w
	if n <= 0 {
		return
	}
	total := m.N + n
	d := o.Mean - m.Mean
	m.M2 += o.M2*w + d*d*m.N*n/total
	m.Mean += d * n / total
	m.Usage += (o.Usage - m.Usage) * n / total
	m.N = total
}

func (m *Moments) stddev() float64 {
	if m.N <= 0 {
		return 0
	}
	return math.Sqrt(m.M2 / m.N)
}

// Signal is what is known of one signal of a job.
type Signal struct {
	Source     model.Source
	Nodes      uint32 // that the last calculation was of
	Definition unique.Handle[string]
	Sketch     Sketch  // of all, weighted by age
	Parts      []Part  // of Job.Since, in its order; the last ones may be missing
	Less       *Less   // nil: all windows of Job had this signal
	History    Moments // before the last calculation
	AtNsec     int64   // of the last calculation; 0: there was none
	Spec       *Figures
	Held       *Held
}

// Figures are what a published spec says of a signal, without what the signal and its job say themselves.
type Figures struct {
	Mean                    float64
	NumSamples              float32
	StdDev, UsageMean, Tail float32
	Tasks, LeftOut          uint32
}

func figuresOf(sp *model.Spec) *Figures {
	return &Figures{NumSamples: float32(sp.NumSamples), Mean: sp.Mean, StdDev: float32(sp.StdDev), UsageMean: float32(sp.UsageMean), Tail: float32(sp.Tail), Tasks: whole(int64(sp.Tasks)), LeftOut: whole(sp.LeftOut)}
}

// whole is a count as far as there is room for it.
func whole(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) } //nolint:gosec // it fits

// spec is a signal's figures as nodes are told them.
func (s *Signal) spec(k Key, f *Figures) model.Spec {
	return model.Spec{
		Job: k.Job, Platform: k.Platform, Size: k.Size, Source: s.Source, Definition: s.Definition.Value(), NumSamples: int64(f.NumSamples), Tasks: int(f.Tasks),
		UsageMean: float64(f.UsageMean), Mean: f.Mean, StdDev: float64(f.StdDev), Tail: float64(f.Tail), LeftOut: int64(f.LeftOut),
	}
}

// Held is a spec that was not published.
type Held struct {
	Spec model.Spec `json:"spec"`
	Why  string     `json:"why"`
}

// Job is what is known of a key.
type Job struct {
	Signals  []Signal // ordered by source and definition
	Since    []Who    // since the last calculation
	Tallies  []Tally  // ordered by Task
	Revision uint64   // of the sheet that was published last
	DayNsec  int64    // when the day of the tallies began
	// Only is 1 and the number of the one node that has ever spoken of it; 0: several have, or nobody knows.
	Only    uint32
	Pinned  bool  // by an operator, at what is published
	Grouped bool  // Since is of groups of nodes
	Full    bool  // there was no room for all tasks in this day
	Level   uint8 // of the tasks one in 2 to this power is in Tallies
	Period  uint8 // as look had it last
}

// State is the learner.
type State struct {
	Nodes map[string]uint32
	Jobs  map[Key]*Job
	// Passed are samples that were not learned from, since their node is the only one to speak of too many jobs.
	Passed uint64
	alone  map[uint32]int // jobs by Job.Only; nil: not counted yet
	sizes  map[Key]int    // sizes of a job on a platform, the key without one; counted with alone
}

// New returns a learner that knows nothing.
func New() *State { return &State{Nodes: map[string]uint32{}, Jobs: map[Key]*Job{}} }

// MaxSizes bounds Params.Sizes: each is as much memory as a job.
const MaxSizes = 64

// Add takes a batch in. Samples that are no evidence of what is normal are passed over, and signals of which nothing is learned.
func (s *State) Add(p *Params, b *wire.Batch) {
	node, ok := s.Nodes[b.Node]
	if !ok {
		node = uint32(len(s.Nodes)) //nolint:gosec // nodes are enrolled one by one
		s.Nodes[b.Node] = node
	}
	s.learn(p, b, node, func(t *wire.Task) *Job { return s.jobOf(Key{t.Job, b.Platform, ""}, node) }, true)
	if p.Sizes > 0 && slices.ContainsFunc(b.Tasks, func(t wire.Task) bool { return t.Size != "" }) {
		s.learn(p, b, node, func(t *wire.Task) *Job { return s.sizeOf(p, t, b.Platform, node) }, false)
	}
}

// given is what a batch has of one of its tasks.
type given struct {
	job     *Job
	windows uint32 // in which some signal has a value
	usage   float64
	of      []share // by column
	quota   *quota
}

// quota is how many samples of a node go into the sketches of a job's signals.
type quota struct {
	windows uint32    // that the batch has of the job
	room    float64   // of each sketch
	taken   []float64 // by column
}

// share is what it has of one signal.
type share struct {
	n     uint32
	limit float64
	into  *Signal // until another signal or job comes
	m     Moments
}

// learn takes the samples in, those of each task for the job that of returns; nil: for none, which is counted where it is to be.
func (s *State) learn(p *Params, b *wire.Batch, node uint32, of func(t *wire.Task) *Job, passed bool) {
	smp := &b.Samples
	tasks := gather(b)
	for t := range tasks {
		g := &tasks[t]
		if g.windows == 0 {
			continue
		}
		g.job = of(&b.Tasks[t])
		for c := range g.of {
			switch {
			case g.job != nil && g.of[c].n > 0:
				g.job.signal(smp.Signals[c].Source, smp.Signals[c].Definition)
			case g.job == nil && passed:
				s.Passed += uint64(g.of[c].n)
			}
		}
	}
	for t := range tasks { // now all signals are there, so that pointers hold
		g := &tasks[t]
		for c := range g.of {
			if x := &g.of[c]; g.job != nil && x.n > 0 {
				x.into = g.job.signal(smp.Signals[c].Source, smp.Signals[c].Definition)
				x.limit = x.into.limit(p)
			}
		}
	}
	allot(tasks, node, len(smp.Signals))
	for c := range smp.Signals {
		col := &smp.Signals[c]
		for i, v := range col.Values {
			g := &tasks[smp.Task[i]]
			x := &g.of[c]
			if v != v || x.into == nil || !wire.Evidence(smp.Flags[i], col.Source) {
				continue
			}
			at := min(float64(v), x.limit)
			x.m.add(at, 0)
			if g.quota.taken[c]++; g.quota.taken[c] <= g.quota.room {
				x.into.Sketch.Add(at, 1)
			}
		}
	}
	for t := range tasks {
		if g := &tasks[t]; g.job != nil {
			g.job.take(p, node, taskHash(b.Node, b.Tasks[t].Path), g)
		}
	}
}

// allot says how much of a node's batch goes into sketches; tasks of one job share that.
func allot(tasks []given, node uint32, columns int) {
	quotas := map[*Job]*quota{}
	for t := range tasks {
		g := &tasks[t]
		if g.job == nil {
			continue
		}
		if g.quota = quotas[g.job]; g.quota == nil {
			g.quota = &quota{taken: make([]float64, columns)}
			quotas[g.job] = g.quota
		}
		g.quota.windows += g.windows
	}
	for j, q := range quotas {
		q.room = j.room(node, q.windows)
	}
}

// gather counts what a batch has of each of its tasks.
func gather(b *wire.Batch) []given {
	smp := &b.Samples
	tasks, some := make([]given, len(b.Tasks)), make([]bool, smp.Len())
	shares := make([]share, len(b.Tasks)*len(smp.Signals))
	for t := range tasks {
		tasks[t].of, shares = shares[:len(smp.Signals)], shares[len(smp.Signals):]
	}
	for c := range smp.Signals {
		col := &smp.Signals[c]
		if col.Source.Row().Targeted {
			continue
		}
		for i, v := range col.Values {
			if v == v && wire.Evidence(smp.Flags[i], col.Source) { // NaN: none
				tasks[smp.Task[i]].of[c].n++
				some[i] = true
			}
		}
	}
	for i, is := range some {
		if is {
			g := &tasks[smp.Task[i]]
			g.windows++
			g.usage += (float64(smp.CPU[i]) - g.usage) / float64(g.windows)
		}
	}
	return tasks
}

// take takes in what a task of a node gave.
func (j *Job) take(p *Params, node, task uint32, g *given) {
	had := make([]*Moments, len(j.Signals))
	for k := range j.Signals {
		for c := range g.of {
			if g.of[c].into == &j.Signals[k] {
				had[k] = &g.of[c].m
			}
		}
	}
	j.tally(p, task, g.windows, func(k int) uint32 {
		if had[k] == nil {
			return 0
		}
		return uint32(had[k].N)
	})
	j.give(j.who(node), g.windows, g.usage, func(k int) (m Moments) {
		if had[k] != nil {
			m = *had[k]
		}
		return m
	})
}

// limit is the value above which samples count as it.
func (s *Signal) limit(p *Params) float64 {
	if s.Spec == nil {
		return math.Inf(1)
	}
	return p.Threshold(s.Spec)
}

// Threshold is the value above which a window is an outlier under a spec; a node's own may lie higher (a least rise).
func (p *Params) Threshold(sp *Figures) float64 {
	if tail := float64(sp.Tail); tail > sp.Mean {
		return tail
	}
	return sp.Mean + p.Sigmas*float64(sp.StdDev)
}

func (s *State) job(k Key) *Job {
	j := s.Jobs[k]
	if j == nil {
		j = &Job{}
		s.Jobs[k] = j
		s.size(k, 1)
	}
	return j
}

// place is where a signal lies, or would.
func (j *Job) place(src model.Source, definition string) (i int, ok bool) {
	for i = range j.Signals {
		if s := &j.Signals[i]; s.Source >= src {
			if is := s.Definition.Value(); s.Source > src || is >= definition {
				return i, s.Source == src && is == definition
			}
		}
	}
	return len(j.Signals), false
}

// signal returns what is known of one. What it returned before may not be used afterwards where there was none of it.
func (j *Job) signal(src model.Source, definition string) *Signal {
	i, ok := j.place(src, definition)
	if !ok {
		j.Signals = insert(j.Signals, i, Signal{Source: src, Definition: unique.Make(definition)}, math.MaxInt)
		for at := range j.Tallies {
			if n := j.Tallies[at].samples(); n > 0 {
				j.lack(i)[at] = uint16(n) //nolint:gosec // two of 15 bits
			}
		}
	}
	return &j.Signals[i]
}

// insert is slices.Insert for lists that stay, and get so long: of those that doubled, a third of all memory was room that nobody used.
func insert[T any](list []T, i int, v T, most int) []T {
	if n := len(list); n == cap(list) {
		list = append(make([]T, 0, max(n+1, min(n+n/8+1, most))), list...)
	}
	return slices.Insert(list, i, v)
}

// Calculate calculates what is due, and returns the sheets that changed and what was held back, in the order of their
// keys.
func (s *State) Calculate(p *Params, wallNsec int64) (sheets []wire.SpecSheet, held []Held) {
	changed, held := s.Changed(p, wallNsec)
	for _, k := range changed {
		sheets = append(sheets, s.Jobs[k].Sheet(k, wallNsec))
	}
	return sheets, held
}

// Changed is Calculate with the keys in place of the sheets, each of which takes more memory than what is known of its job.
func (s *State) Changed(p *Params, wallNsec int64) (changed []Key, held []Held) {
	for _, k := range s.due(p, wallNsec) {
		j := s.Jobs[k]
		published := false
		if j.due(p, wallNsec) {
			var back []Held
			published, back = j.calculate(p, k, wallNsec)
			held = append(held, back...)
		}
		if j.idle() {
			s.lose(k)
		}
		if published && !j.Pinned {
			j.Revision++
			changed = append(changed, k)
		}
	}
	return changed, held
}

// at is when the last calculation was; 0: there was none.
func (j *Job) at() (nsec int64) {
	for i := range j.Signals {
		nsec = max(nsec, j.Signals[i].AtNsec)
	}
	return nsec
}

// due reports whether a job is to be calculated.
func (j *Job) due(p *Params, wallNsec int64) bool {
	at := j.at()
	return len(j.Signals) > 0 && (at == 0 || wallNsec-at >= p.PeriodNsec)
}

// due returns the keys of which something is to be calculated, or nothing is worth keeping, in their order.
func (s *State) due(p *Params, wallNsec int64) (keys []Key) {
	for k, j := range s.Jobs {
		if j.idle() || j.due(p, wallNsec) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Sheet is what is published of a job, which is of that key.
func (j *Job) Sheet(k Key, wallNsec int64) wire.SpecSheet {
	sh := wire.SpecSheet{Version: 1, Job: k.Job, Platform: k.Platform, Size: k.Size, Revision: j.Revision, WallNsec: wallNsec, Pinned: j.Pinned}
	if sh.Size != "" {
		sh.Version = 2
	}
	for i := range j.Signals {
		if sp := j.Signals[i].Spec; sp != nil {
			sh.Specs, sh.Nodes = append(sh.Specs, j.Signals[i].spec(k, sp)), max(sh.Nodes, int(j.Signals[i].Nodes))
			j.Signals[i].quantiles(&sh.Specs[len(sh.Specs)-1])
		}
	}
	return sh
}

// quantiles fills in those that the sketch has now: nothing of them is kept. One that has fewer samples than were adopted says nothing yet.
func (s *Signal) quantiles(sp *model.Spec) {
	if n := s.Sketch.Count(); n > 0 && n >= float64(s.Sketch.Unseen) {
		sp.P50, sp.P90, sp.P99 = s.Sketch.Quantile(0.5), s.Sketch.Quantile(0.9), s.Sketch.Quantile(0.99)
	}
}

// age is what the last calculation weighs at a moment.
func (s *Signal) age(p *Params, wallNsec int64) float64 {
	if s.AtNsec == 0 {
		return 1
	}
	return math.Pow(p.AgeWeight, float64(max(0, wallNsec-s.AtNsec))/(24*3600e9))
}

// calculate works the specs of a job out once a signal has tasks enough, and says whether one is published. Of signals that have too few what came is kept in their history.
func (j *Job) calculate(p *Params, key Key, wallNsec int64) (published bool, held []Held) {
	j.turn(p, wallNsec)
	j.look(p, wallNsec)
	enough := func(s *Signal) bool {
		n, _ := j.haveEnough(p, s)
		return n >= p.MinTasks
	}
	if !slices.ContainsFunc(j.Signals, func(s Signal) bool { return len(s.Parts) > 0 && enough(&s) }) {
		return false, nil
	}
	for k := range j.Signals {
		s := &j.Signals[k]
		if len(s.Parts) == 0 {
			continue
		}
		is, back := s.calculate(p, j, key, wallNsec, enough(s))
		if published = published || is; back != nil {
			held = append(held, *back)
		}
	}
	j.since(nil, false)
	return published, held
}

// calculate works a signal's spec out, and says whether it is published.
func (s *Signal) calculate(p *Params, j *Job, k Key, wallNsec int64, enough bool) (published bool, held *Held) {
	_, about := j.haveEnough(p, s)
	recent, nodes, leftOut := j.fair(s)
	age := s.age(p, wallNsec)
	s.Sketch.Age(age)
	all := recent
	all.merge(s.History, age)
	s.History, s.AtNsec, s.Nodes = all, wallNsec, whole(int64(max(nodes, 1)))
	if !enough {
		return false, nil
	}
	sp := s.spec(k, &Figures{NumSamples: float32(math.Round(all.N)), Tasks: whole(int64(about)), UsageMean: float32(all.Usage), Mean: all.Mean, StdDev: float32(all.stddev()), LeftOut: whole(int64(leftOut))})
	if !(sp.StdDev >= 0 && sp.NumSamples > 0) || math.IsInf(sp.Mean, 0) {
		return false, nil
	}
	if j.Pinned {
		return false, nil
	}
	if p.Fit {
		if g, ok := FitGEV(&s.Sketch); ok && s.Sketch.Count() >= float64(s.Sketch.Unseen) {
			if tail := g.Quantile(beyond(p.Sigmas)); tail >= sp.Mean+leastTail*float64(sp.StdDev) && tail <= sp.Mean+mostTail*float64(sp.StdDev) {
				sp.Tail = tail
			}
		} else if s.Spec != nil {
			sp.Tail = float64(s.Spec.Tail)
		}
	}
	if why := s.jump(p, &sp); why != "" {
		first := s.Held == nil
		s.Held = &Held{Spec: sp, Why: why}
		if first {
			return false, s.Held
		}
		return false, nil
	}
	s.Spec, s.Held = figuresOf(&sp), nil
	return true, nil
}

const (
	// So many standard deviations above the mean is a fitted threshold, or it is none: mean and deviation do without nodes that are far off, and the sketch
	// of all samples cannot. At 2 sigmas a right-skewed distribution's 97.7th percentile lies between 1.5 and 2.5 (CPI², figure 7).
	leastTail, mostTail = 1, 4
	// jumpTimes is by how much the distance of the threshold from the mean may change at once.
	jumpTimes = 3
)

// jump says why a spec is held back; "" where it is not.
func (s *Signal) jump(p *Params, sp *model.Spec) string {
	old := s.Spec
	if old == nil {
		return ""
	}
	moved := math.Abs(sp.Mean - old.Mean)
	if moved > p.JumpSigmas*float64(old.StdDev) && moved > p.JumpShare*math.Abs(old.Mean) {
		return fmt.Sprintf("%s of %s moved from %.4g to %.4g, more than %.3g standard deviations (%.3g) and %.0f %%",
			s.Source, Key{sp.Job, sp.Platform, sp.Size}, old.Mean, sp.Mean, p.JumpSigmas, old.StdDev, 100*p.JumpShare)
	}
	was, is := p.Threshold(old)-old.Mean, p.Threshold(figuresOf(sp))-sp.Mean
	if was > 0 && (is > jumpTimes*was || jumpTimes*is < was) {
		return fmt.Sprintf("the threshold of %s of %s is %.4g above the mean, and was %.4g", s.Source, Key{sp.Job, sp.Platform, sp.Size}, is, was)
	}
	return ""
}
