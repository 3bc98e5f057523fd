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

// Signal is what is known of one signal of a job. What few signals have is in Job.Apart.
type Signal struct {
	Sketch  Sketch  // of all, weighted by age
	History Moments // before the last calculation
	Kind    unique.Handle[Kind]
	Tasks   uint32 // the spec in force is what History says, of so many tasks; 0: it is not
	Nodes   uint16 // that the last calculation was of: groups tell 1,024 apart
	Row     uint16 // in Job.Parts, from 1 on; 0: it had nothing since the last calculation
}

// Kind is what a signal is.
type Kind struct {
	Source     model.Source
	Definition string
}

// whole16 is a count as far as there is room for it.
func whole16(n int) uint16 { return uint16(max(0, min(n, math.MaxUint16))) } //nolint:gosec // it fits

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
	kind := s.Kind.Value()
	return model.Spec{
		Job: k.Job, Platform: k.Platform, Size: k.Size, Source: kind.Source, Definition: kind.Definition, NumSamples: int64(f.NumSamples), Tasks: int(f.Tasks),
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
	Apart    []Apart  // by signal; nil: of none there is anything
	Since    []Who    // since the last calculation
	Parts    []Part   // of each of Since those of the signals that had something, by Signal.Row
	Tallies  []Tally  // ordered by Task
	Less     *Less    // nil: all windows had all signals
	Revision uint64   // of the sheet that was published last
	AtNsec   int64    // of the last calculation; 0: there was none
	DayNsec  int64    // when the day of the tallies began
	// Only is 1 and the number of the one node that has ever spoken of it; 0: several have, or nobody knows.
	Only    uint32
	Pinned  bool  // by an operator, at what is published
	Waits   bool  // its sheet is to be sent: it is calculated again once that went
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
	into  *Signal // until another signal or job comes; nil: nothing is learned of it
	at    int     // its place in the job's Signals
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
				k := g.job.signal(smp.Signals[c].Source, smp.Signals[c].Definition)
				x.into, x.at, x.limit = &g.job.Signals[k], k, g.job.limit(p, k)
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
	for c := range g.of {
		if x := &g.of[c]; x.into != nil {
			had[x.at] = &x.m
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

// limit is the value above which samples of a signal count as it.
func (j *Job) limit(p *Params, k int) float64 {
	f, ok := j.Spec(k)
	if !ok {
		return math.Inf(1)
	}
	return p.Threshold(&f)
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
		if is := j.Signals[i].Kind.Value(); is.Source > src || is.Source == src && is.Definition >= definition {
			return i, is == Kind{src, definition}
		}
	}
	return len(j.Signals), false
}

// signal returns the place of one in Signals, which it makes where there is none: others may have another place then.
func (j *Job) signal(src model.Source, definition string) (i int) {
	i, ok := j.place(src, definition)
	if !ok {
		j.Signals = insert(j.Signals, i, Signal{Kind: unique.Make(Kind{src, definition})}, math.MaxInt)
		if j.Apart != nil {
			j.Apart = slices.Insert(j.Apart, i, Apart{})
		}
		if j.Less != nil {
			j.Less.Tasks.insertRow(i)
		}
		for at := range j.Tallies {
			j.setLack(i, at, uint32(j.Tallies[at].samples())) //nolint:gosec // two of 15 bits
		}
	}
	return i
}

// insert is slices.Insert for lists that stay, and get so long: of those that doubled, a third of all memory was room that nobody used.
func insert[T any](list []T, i int, v T, most int) []T {
	if n := len(list); n == cap(list) {
		list = append(make([]T, 0, max(n+1, min(n+n/8+1, most))), list...)
	}
	return slices.Insert(list, i, v)
}
