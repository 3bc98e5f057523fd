// Package spec learns what is normal of a job on a platform from the samples of all its tasks in a fleet (CPI² §3.1, "CPI
// data aggregation"): count, mean and standard deviation, weighted by age, none below 5 tasks with 100 samples each.
//
// What goes beyond the paper, and why. The sample holds windows in which somebody hurt the task: above the threshold in force they
// count as the threshold (as on one node, package localspec). A node may be broken, or lie: in each period none counts
// more than twice what the median node does, and one whose mean is far off all others' is left out. A spec that jumps is
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
}

// Defaults are the paper's values, but for the period.
func Defaults() Params {
	return Params{PeriodNsec: 5 * 60e9, AgeWeight: 0.9, MinTasks: 5, MinSamplesPerTask: 100, Sigmas: 2, JumpSigmas: 1, JumpShare: 0.1}
}

// Key says of what a spec is.
type Key struct{ Job, Platform string }

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

// From is what one node sent since the last calculation: Moments, in as little room as does it, for each node of a job has one a signal.
type From struct {
	Node, N   uint32 // Node is of State.Nodes
	Mean      float64
	M2, Usage float32
}

func (f *From) add(v, usage float64) {
	m := f.moments()
	m.add(v, usage)
	f.N, f.Mean, f.M2, f.Usage = f.N+1, m.Mean, float32(m.M2), float32(m.Usage)
}

func (f *From) moments() Moments {
	return Moments{N: float64(f.N), Mean: f.Mean, M2: float64(f.M2), Usage: float64(f.Usage)}
}

// Tally is how many samples a task gave in this day and in the one before, each at most MaxSamplesPerTask. Each task of a job has one a
// signal, so it is small: two tasks of a job share a hash, and so count as one, in a pair of 4 billion.
type Tally struct {
	Task       uint32 // hash of node and path
	Day, Night uint16
}

// Signal is what is known of one signal of a job.
type Signal struct {
	Source     model.Source
	Definition string
	Since      []From  // the last calculation, ordered by Node
	Sketch     Sketch  // of all, weighted by age
	History    Moments // before the last calculation
	Unseen     float64 // samples of History that Sketch does not have: they were adopted
	Tallies    []Tally // ordered by Task
	DayNsec    int64   // when the day of the tallies began
	AtNsec     int64   // of the last calculation; 0: there was none
	Spec       *model.Spec
	Held       *Held
	Nodes      int // that the last calculation was of
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

// State is the learner. Everything in it is exported so that it can be kept.
type State struct {
	Nodes map[string]uint32
	Jobs  map[Key]*Job
	// Passed are samples that were not learned from, since their node is the only one to speak of too many jobs.
	Passed uint64
	alone  map[uint32]int // jobs by Job.Only; nil: not counted yet
}

// New returns a learner that knows nothing.
func New() *State { return &State{Nodes: map[string]uint32{}, Jobs: map[Key]*Job{}} }

// MaxSamplesPerTask bounds Params.MinSamplesPerTask: a task's samples of a day are not counted any further.
const MaxSamplesPerTask = math.MaxUint16

// maxTallies bounds the tasks of a signal that are told apart.
const maxTallies = 100_000

// Add takes a batch in. Samples that are no evidence of what is normal are passed over, and signals of which nothing is learned.
func (s *State) Add(p *Params, b *wire.Batch) {
	node, ok := s.Nodes[b.Node]
	if !ok {
		node = uint32(len(s.Nodes)) //nolint:gosec // nodes are enrolled one by one
		s.Nodes[b.Node] = node
	}
	smp := &b.Samples
	for k := range smp.Signals {
		col := &smp.Signals[k]
		if col.Source.Row().Targeted {
			continue
		}
		into := make([]*Signal, len(b.Tasks)) // found once a task, not once a sample
		from := make([]*From, len(b.Tasks))
		count := make([]uint32, len(b.Tasks))
		for i, v := range col.Values {
			t := smp.Task[i]
			if v != v || !wire.Evidence(smp.Flags[i], col.Source) { // NaN: none
				continue
			}
			if into[t] == nil {
				j := s.jobOf(Key{b.Tasks[t].Job, b.Platform}, node)
				if j == nil {
					s.Passed++
					continue
				}
				into[t] = j.signal(col.Source, col.Definition)
			}
			count[t]++
		}
		for t := range into {
			if into[t] != nil {
				into[t].tally(taskHash(b.Node, b.Tasks[t].Path), count[t])
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
}

// limit is the value above which samples count as it.
func (s *Signal) limit(p *Params) float64 {
	if s.Spec == nil {
		return math.Inf(1)
	}
	return p.Threshold(s.Spec)
}

// Threshold is the value above which a window is an outlier under a spec; a node's own may lie higher (a least rise).
func (p *Params) Threshold(sp *model.Spec) float64 {
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

func (s *Signal) from(node uint32) *From {
	i, ok := slices.BinarySearchFunc(s.Since, node, func(f From, node uint32) int { return cmp.Compare(f.Node, node) })
	if !ok {
		s.Since = insert(s.Since, i, From{Node: node})
	}
	return &s.Since[i]
}

func (s *Signal) tally(task, n uint32) {
	i, ok := slices.BinarySearchFunc(s.Tallies, task, func(t Tally, task uint32) int { return cmp.Compare(t.Task, task) })
	if !ok {
		if len(s.Tallies) >= maxTallies {
			return
		}
		s.Tallies = insert(s.Tallies, i, Tally{Task: task})
	}
	s.Tallies[i].Day = uint16(min(uint32(s.Tallies[i].Day)+min(n, MaxSamplesPerTask), MaxSamplesPerTask)) //nolint:gosec // it fits
}

// taskHash is FNV-1a of a node and a path, folded.
func taskHash(node, path string) uint32 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{node, "\x00", path} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	return uint32(h ^ h>>32) //nolint:gosec // which folds it
}

// Calculate calculates what is due, and returns the sheets that changed and what was held back, in the order of their
// keys.
func (s *State) Calculate(p *Params, wallNsec int64) (sheets []wire.SpecSheet, held []Held) {
	for _, k := range s.keys() {
		j := s.Jobs[k]
		changed := false
		for i := range j.Signals {
			sig := &j.Signals[i]
			if sig.AtNsec != 0 && wallNsec-sig.AtNsec < p.PeriodNsec {
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

func (s *State) keys() []Key {
	keys := make([]Key, 0, len(s.Jobs))
	for k := range s.Jobs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Platform, b.Platform)) })
	return keys
}

// Sheet is what is published of a job.
func (j *Job) Sheet(wallNsec int64) wire.SpecSheet {
	sh := wire.SpecSheet{Version: wire.SheetVersion, Job: j.Key.Job, Platform: j.Key.Platform, Revision: j.Revision, WallNsec: wallNsec, Pinned: j.Pinned}
	for i := range j.Signals {
		if sp := j.Signals[i].Spec; sp != nil {
			sh.Specs, sh.Nodes = append(sh.Specs, *sp), max(sh.Nodes, j.Signals[i].Nodes)
		}
	}
	return sh
}

// calculate works a signal's spec out, and says whether it is published.
func (s *Signal) calculate(p *Params, j *Job, wallNsec int64) (published bool, held *Held) {
	s.turn(wallNsec)
	tasks := s.enough(p)
	if len(s.Since) == 0 || tasks < p.MinTasks {
		return false, nil
	}
	recent, nodes, leftOut := s.fair()
	age := 1.0
	if s.AtNsec != 0 {
		age = math.Pow(p.AgeWeight, float64(max(0, wallNsec-s.AtNsec))/(24*3600e9))
	}
	s.Sketch.Age(age)
	s.Unseen *= age
	all := recent
	all.merge(s.History, age)
	s.History, s.Since, s.AtNsec, s.Nodes = all, nil, wallNsec, max(nodes, 1)
	sp := model.Spec{
		Job: j.Key.Job, Platform: j.Key.Platform, Source: s.Source, Definition: s.Definition, NumSamples: int64(math.Round(all.N)), Tasks: tasks,
		UsageMean: all.Usage, Mean: all.Mean, StdDev: all.stddev(), LeftOut: int64(leftOut),
	}
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
	s.Spec, s.Held = &sp, nil
	return true, nil
}

// turn begins a new day of the tallies.
func (s *Signal) turn(wallNsec int64) {
	switch {
	case s.DayNsec == 0:
		s.DayNsec = wallNsec
	case wallNsec-s.DayNsec >= 24*3600e9:
		s.DayNsec = wallNsec
		for i := range s.Tallies {
			s.Tallies[i] = Tally{Task: s.Tallies[i].Task, Night: s.Tallies[i].Day}
		}
		s.Tallies = slices.DeleteFunc(s.Tallies, func(t Tally) bool { return t.Night == 0 })
	}
}

// enough counts the tasks with samples enough.
func (s *Signal) enough(p *Params) (n int) {
	for _, t := range s.Tallies {
		if int(t.Day)+int(t.Night) >= p.MinSamplesPerTask {
			n++
		}
	}
	return n
}

const (
	// A node counts at most this many times what the median one does.
	heaviest = 2
	// From so many nodes on one is left out whose mean is so many median deviations off the median of all (Hampel's X84:
	// 3.5 sigmas), and by more than a tenth.
	judgedFrom  = 5
	farSigmas   = 3.5
	medianSigma = 1.4826
	farShare    = 0.1
)

// fair puts together what the nodes sent, so that none of them can decide.
func (s *Signal) fair() (all Moments, nodes, leftOut int) {
	counts, means := make([]float64, len(s.Since)), make([]float64, len(s.Since))
	for i := range s.Since {
		counts[i], means[i] = float64(s.Since[i].N), s.Since[i].Mean
	}
	typical, centre := median(counts), median(means)
	off := make([]float64, len(means))
	for i := range means {
		off[i] = math.Abs(means[i] - centre)
	}
	far := max(farSigmas*medianSigma*median(off), farShare*centre)
	for i := range s.Since {
		m := s.Since[i].moments()
		if len(means) >= judgedFrom && off[i] > far {
			leftOut += int(m.N)
			continue
		}
		w := 1.0
		if len(counts) >= 3 && m.N > heaviest*typical {
			w = heaviest * typical / m.N
		}
		all.merge(m, w)
		nodes++
	}
	return all, nodes, leftOut
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	n := len(v)
	if n%2 == 1 {
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
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
	return fmt.Sprintf("%s of %s on %s moved from %.4g to %.4g, more than %.3g standard deviations (%.3g) and %.0f %%",
		s.Source, sp.Job, sp.Platform, old.Mean, sp.Mean, p.JumpSigmas, old.StdDev, 100*p.JumpShare)
}

// Accept publishes what is held back of a job. ok is false where nothing is.
func (s *State) Accept(k Key, wallNsec int64) (sh wire.SpecSheet, ok bool) {
	j := s.Jobs[k]
	if j == nil {
		return sh, false
	}
	for i := range j.Signals {
		if h := j.Signals[i].Held; h != nil {
			sp := h.Spec
			j.Signals[i].Spec, j.Signals[i].Held, ok = &sp, nil, true
		}
	}
	if !ok {
		return sh, false
	}
	j.Pinned = false
	j.Revision++
	return j.Sheet(wallNsec), true
}

// Pin publishes an earlier sheet again and keeps it until Unpin: what is learned meanwhile is not published. What was learned
// since is forgotten, for it is what the operator does not believe.
func (s *State) Pin(k Key, old wire.SpecSheet, wallNsec int64) (wire.SpecSheet, error) {
	j := s.Jobs[k]
	switch {
	case j == nil:
		return old, fmt.Errorf("nothing is known of job %q on %q", k.Job, k.Platform)
	case old.Job != k.Job || old.Platform != k.Platform:
		return old, fmt.Errorf("the sheet is of job %q on %q", old.Job, old.Platform)
	}
	j.begin(&old)
	j.Pinned = true
	j.Revision++
	sh := j.Sheet(wallNsec)
	sh.Nodes = old.Nodes
	return sh, nil
}

// Unpin lets a job be published again as it is learned.
func (s *State) Unpin(k Key) bool {
	j := s.Jobs[k]
	if j == nil || !j.Pinned {
		return false
	}
	j.Pinned = false
	return true
}
