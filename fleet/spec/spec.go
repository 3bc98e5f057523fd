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
	"cmp"
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
	Period     uint8  // as look had it last
	Full       bool   // there was no room for all tasks in this day
	Grouped    bool   // Since is of groups of nodes
	Level      uint8  // of the tasks one in 2 to this power is in Tallies
	Nodes      uint32 // that the last calculation was of
	Definition string
	Since      []From  // the last calculation, ordered by Node, or its groups
	Sketch     Sketch  // of all, weighted by age
	History    Moments // before the last calculation
	Unseen     float64 // samples of History that Sketch does not have: they were adopted
	Tallies    []Tally // ordered by Task
	DayNsec    int64   // when the day of the tallies began
	AtNsec     int64   // of the last calculation; 0: there was none
	Spec       *Figures
	Held       *Held
}

// Figures are what a published spec says of a signal, without what the signal and its job say themselves.
type Figures struct {
	NumSamples                    int64
	Mean, StdDev, UsageMean, Tail float64
	Tasks, LeftOut                uint32
}

func figuresOf(sp *model.Spec) *Figures {
	return &Figures{NumSamples: sp.NumSamples, Mean: sp.Mean, StdDev: sp.StdDev, UsageMean: sp.UsageMean, Tail: sp.Tail, Tasks: whole(int64(sp.Tasks)), LeftOut: whole(sp.LeftOut)}
}

// whole is a count as far as there is room for it.
func whole(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) } //nolint:gosec // it fits

// spec is a signal's figures as nodes are told them.
func (s *Signal) spec(k Key, f *Figures) model.Spec {
	return model.Spec{
		Job: k.Job, Platform: k.Platform, Size: k.Size, Source: s.Source, Definition: s.Definition, NumSamples: f.NumSamples, Tasks: int(f.Tasks),
		UsageMean: f.UsageMean, Mean: f.Mean, StdDev: f.StdDev, Tail: f.Tail, LeftOut: int64(f.LeftOut),
	}
}

// Held is a spec that was not published.
type Held struct {
	Spec model.Spec `json:"spec"`
	Why  string     `json:"why"`
}

// Job is what is known of a key.
type Job struct {
	Key      Key
	Signals  []Signal // ordered by source and definition
	Revision uint64   // of the sheet that was published last
	Pinned   bool     // by an operator, at what is published
	// Only is 1 and the number of the one node that has ever spoken of it; 0: several have, or nobody knows.
	Only uint32
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
	sized := p.Sizes > 0 && slices.ContainsFunc(b.Tasks, func(t wire.Task) bool { return t.Size != "" })
	for k := range b.Samples.Signals {
		col := &b.Samples.Signals[k]
		if col.Source.Row().Targeted {
			continue
		}
		s.column(p, b, node, col, func(t *wire.Task) *Job {
			j := s.jobOf(Key{t.Job, b.Platform, ""}, node)
			if j == nil {
				s.Passed++
			}
			return j
		})
		if sized {
			s.column(p, b, node, col, func(t *wire.Task) *Job { return s.sizeOf(p, t, b.Platform, node) })
		}
	}
}

// column takes the samples of one signal in, each with the job that of returns; nil: with none.
func (s *State) column(p *Params, b *wire.Batch, node uint32, col *wire.Signal, of func(t *wire.Task) *Job) {
	smp := &b.Samples
	into := make([]*Signal, len(b.Tasks)) // found once a task, not once a sample
	from := make([]*From, len(b.Tasks))
	count := make([]uint32, len(b.Tasks))
	for i, v := range col.Values {
		t := smp.Task[i]
		if v != v || !wire.Evidence(smp.Flags[i], col.Source) { // NaN: none
			continue
		}
		if into[t] == nil {
			j := of(&b.Tasks[t])
			if j == nil {
				continue
			}
			into[t] = j.signal(col.Source, col.Definition)
		}
		count[t]++
	}
	for t := range into {
		if into[t] != nil {
			into[t].tally(p, taskHash(b.Node, b.Tasks[t].Path), count[t])
			from[t] = into[t].from(node) // the node's entry is made once a signal, so that the pointer holds
		}
	}
	for i, v := range col.Values {
		t := smp.Task[i]
		if v != v || !wire.Evidence(smp.Flags[i], col.Source) || into[t] == nil {
			continue
		}
		x := min(float64(v), into[t].limit(p))
		from[t].add(x, float64(smp.CPU[i]))
		into[t].Sketch.Add(x, 1)
	}
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
	if sp.Tail > sp.Mean {
		return sp.Tail
	}
	return sp.Mean + p.Sigmas*sp.StdDev
}

func (s *State) job(k Key) *Job {
	j := s.Jobs[k]
	if j == nil {
		j = &Job{Key: k}
		s.Jobs[k] = j
		s.size(k, 1)
	}
	return j
}

func (j *Job) signal(src model.Source, definition string) *Signal {
	i, ok := slices.BinarySearchFunc(j.Signals, Signal{Source: src, Definition: definition}, func(a, b Signal) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Definition, b.Definition))
	})
	if !ok {
		j.Signals = insert(j.Signals, i, Signal{Source: src, Definition: unique.Make(definition).Value()}) // each batch brings its own copy of the text
	}
	return &j.Signals[i]
}

// insert is slices.Insert for lists that stay: of those that doubled, a third of all memory was room that nobody used.
func insert[T any](list []T, i int, v T) []T {
	if len(list) == cap(list) {
		list = append(make([]T, 0, len(list)+len(list)/8+1), list...)
	}
	return slices.Insert(list, i, v)
}

// Calculate calculates what is due, and returns the sheets that changed and what was held back, in the order of their
// keys.
func (s *State) Calculate(p *Params, wallNsec int64) (sheets []wire.SpecSheet, held []Held) {
	for _, k := range s.due(p, wallNsec) {
		j := s.Jobs[k]
		changed := false
		for i := range j.Signals {
			sig := &j.Signals[i]
			if !sig.due(p, wallNsec) {
				continue
			}
			published, back := sig.calculate(p, j, wallNsec)
			changed = changed || published
			if back != nil {
				held = append(held, *back)
			}
		}
		if j.idle() {
			s.lose(k)
		}
		if changed && !j.Pinned {
			j.Revision++
			sheets = append(sheets, j.Sheet(wallNsec))
		}
	}
	return sheets, held
}

// due reports whether a signal is to be calculated.
func (s *Signal) due(p *Params, wallNsec int64) bool {
	return s.AtNsec == 0 || wallNsec-s.AtNsec >= p.PeriodNsec
}

// due returns the keys of which something is to be calculated, or nothing is worth keeping, in their order.
func (s *State) due(p *Params, wallNsec int64) (keys []Key) {
	for k, j := range s.Jobs {
		due := j.idle()
		for i := range j.Signals {
			due = due || j.Signals[i].due(p, wallNsec)
		}
		if due {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// Sheet is what is published of a job.
func (j *Job) Sheet(wallNsec int64) wire.SpecSheet {
	sh := wire.SpecSheet{Version: 1, Job: j.Key.Job, Platform: j.Key.Platform, Size: j.Key.Size, Revision: j.Revision, WallNsec: wallNsec, Pinned: j.Pinned}
	if sh.Size != "" {
		sh.Version = 2
	}
	for i := range j.Signals {
		if sp := j.Signals[i].Spec; sp != nil {
			sh.Specs, sh.Nodes = append(sh.Specs, j.Signals[i].spec(j.Key, sp)), max(sh.Nodes, int(j.Signals[i].Nodes))
		}
	}
	return sh
}

// age is what the last calculation weighs at a moment.
func (s *Signal) age(p *Params, wallNsec int64) float64 {
	if s.AtNsec == 0 {
		return 1
	}
	return math.Pow(p.AgeWeight, float64(max(0, wallNsec-s.AtNsec))/(24*3600e9))
}

// calculate works a signal's spec out, and says whether it is published.
func (s *Signal) calculate(p *Params, j *Job, wallNsec int64) (published bool, held *Held) {
	s.turn(p, wallNsec)
	s.look(p, wallNsec)
	tasks, about := s.haveEnough(p)
	if len(s.Since) == 0 || tasks < p.MinTasks {
		return false, nil
	}
	recent, nodes, leftOut := s.fair()
	age := s.age(p, wallNsec)
	s.Sketch.Age(age)
	s.Unseen *= age
	all := recent
	all.merge(s.History, age)
	s.History, s.Since, s.Grouped, s.AtNsec, s.Nodes = all, nil, false, wallNsec, whole(int64(max(nodes, 1)))
	sp := s.spec(j.Key, &Figures{NumSamples: int64(math.Round(all.N)), Tasks: whole(int64(about)), UsageMean: all.Usage, Mean: all.Mean, StdDev: all.stddev(), LeftOut: whole(int64(leftOut))})
	if !(sp.StdDev >= 0 && sp.NumSamples > 0) || math.IsInf(sp.Mean, 0) {
		return false, nil
	}
	if j.Pinned {
		return false, nil
	}
	if p.Fit {
		if g, ok := FitGEV(&s.Sketch); ok && s.Sketch.Count() >= s.Unseen {
			sp.Tail = g.Quantile(beyond(p.Sigmas))
		} else if s.Spec != nil {
			sp.Tail = s.Spec.Tail
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

// jump says why a spec is held back; "" where it is not.
func (s *Signal) jump(p *Params, sp *model.Spec) string {
	old := s.Spec
	if old == nil {
		return ""
	}
	moved := math.Abs(sp.Mean - old.Mean)
	if moved <= p.JumpSigmas*old.StdDev || moved <= p.JumpShare*math.Abs(old.Mean) {
		return ""
	}
	return fmt.Sprintf("%s of %s moved from %.4g to %.4g, more than %.3g standard deviations (%.3g) and %.0f %%",
		s.Source, Key{sp.Job, sp.Platform, sp.Size}, old.Mean, sp.Mean, p.JumpSigmas, old.StdDev, 100*p.JumpShare)
}
