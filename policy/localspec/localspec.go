// Package localspec learns, on one node, what a signal of a job looks like when
// nothing is wrong (CPI² §3.1, "CPI data aggregation").
//
// Intuition. A job's signal is stable enough on one platform that its mean and
// standard deviation predict the next window. CPI² calculates both over thousands
// of tasks every 24 hours, weighs the previous day by about 0.9 and manages nothing
// with fewer than 5 tasks or 100 samples a task. One node sees few tasks, so the
// numbers are parameters and the `single-node` profile lowers them; the arithmetic is
// CPI²'s.
//
// What is different on one node, and why. In a fleet the windows in which a task
// suffers are a small share of the sample; here they may be most of it. Once a spec
// exists, a sample above the outlier threshold therefore enters at the threshold
// (winsorised): an antagonist that never sleeps moves the spec slowly instead of
// becoming normal at the next calculation, and a job that truly changed is learned
// within a few calculations. Rejected: leaving such samples out, because a job that
// changed would then be an outlier for ever.
//
// The first spec is published as soon as there are samples enough (section 4.1), not after a day;
// few.go says how it is made to stand noise, and how one that did not is found out. A spec of a fleet is of more than this node
// can know, and is left alone as long as it stands (Teach).
package localspec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/commensal-io/commensal/model"
)

// Params are the learner's parameters.
type Params struct {
	RecalculateNsec   int64   `json:"recalculate_nsec"`     // table 2, "Predicted CPI recalculated"
	AgeWeight         float64 `json:"age_weight"`           // section 3.1: about 0.9
	MinTasks          int     `json:"min_tasks"`            // section 3.1: 5
	MinSamplesPerTask int     `json:"min_samples_per_task"` // section 3.1: 100
	// OnDoubling calculates also when the sample has doubled. A first spec from few
	// samples may have caught a busy moment; without this it stands until the next
	// regular calculation.
	OnDoubling bool `json:"on_doubling"`
	// RobustFirst: a first spec is one that few noisy windows do not move, and one that was
	// learned in noise is learned anew (few.go).
	RobustFirst bool `json:"robust_first,omitempty"`
	// Alone: a first spec leaves out what a single best-effort task did to the job all the while (alone.go).
	Alone bool `json:"alone,omitempty"`
	// Stolen: before the first spec a window is passed over in which the hypervisor took this share of the machine's CPU time (stolen.go); 0: none is.
	Stolen float64 `json:"stolen,omitempty"`
	// CoreCycles: CPI is of core cycles here (model.Source.Definition).
	CoreCycles bool `json:"core_cycles,omitempty"`
}

// Moments are a weighted count, means and the sum of squared deviations.
type Moments struct {
	N         float64 `json:"n"`
	Mean      float64 `json:"mean"`
	M2        float64 `json:"m2"`
	UsageMean float64 `json:"usage_mean"`
	RunMean   float64 `json:"run_mean_ms,omitempty"` // between two waits
}

// add takes one sample in (Welford).
func (m *Moments) add(v, usage float64) {
	m.N++
	d := v - m.Mean
	m.Mean += d / m.N
	m.M2 += d * (v - m.Mean)
	m.UsageMean += (usage - m.UsageMean) / m.N
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
	m.UsageMean += (o.UsageMean - m.UsageMean) * n / total
	m.RunMean += (o.RunMean - m.RunMean) * n / total
	m.N = total
}

// Key says what a spec is of. The platform is the node's and the same for all keys.
type Key struct {
	Job    string       `json:"job"`
	Source model.Source `json:"source"`
	// Size is of a fleet's spec of the job's tasks of one size. What is learned here is of all of them: they are few.
	Size string `json:"size,omitempty"`
}

func compareKeys(a, b *Key) int {
	if c := strings.Compare(a.Job, b.Job); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.Source, b.Source), strings.Compare(a.Size, b.Size))
}

// Entry is what is known of one key.
type Entry struct {
	Key     Key             `json:"key"`
	Recent  Moments         `json:"recent"`  // since the last calculation
	History Moments         `json:"history"` // age-weighted, before it
	Tasks   []model.TaskNum `json:"tasks"`   // contributors since the last calculation, ordered
	Samples []int           `json:"samples"` // of each contributor
	// Contributors since then whose tasks have ended, and how many of them with enough samples.
	Ended       int `json:"ended,omitempty"`
	EndedRobust int `json:"ended_robust,omitempty"`
	Clamped     int `json:"clamped"` // samples since the last calculation that were held at the threshold
	// Few are the values since the last calculation, as measured, while the spec is young.
	Few []float64 `json:"few,omitempty"`
	// Beside says of each of Few, before the first spec, which neighbour delayed the job most.
	Beside []Beside `json:"beside,omitempty"`
	// Stolen is how many windows were passed over before the first spec, StolenNsec the latest of them.
	Stolen     int   `json:"stolen,omitempty"`
	StolenNsec int64 `json:"stolen_nsec,omitempty"`
	// Measured is the first spec with its neighbour, while the published one is without; else nil.
	Measured *Moments    `json:"measured,omitempty"`
	Spec     *model.Spec `json:"spec,omitempty"`
}

// maxClamped is the share of outliers up to which a doubled sample is taken: the 2 sigma
// point leaves about 5 % above it when nothing is wrong (section 4.1). With more, the
// victim suffered meanwhile, and the spec waits for its regular time. A robust first spec fits
// the bulk: of a skewed signal it leaves up to twice as many above.
const (
	maxClamped       = 0.05
	maxClampedRobust = 0.1
)

// due reports whether a spec is to be calculated anew.
func (e *Entry) due(p Params, monoNsec int64) bool {
	if e.Spec == nil || monoNsec-e.Spec.MonoNsec >= p.RecalculateNsec {
		return true
	}
	most := maxClamped
	if p.RobustFirst {
		most = maxClampedRobust
	}
	return p.OnDoubling && e.Recent.N >= float64(e.Spec.NumSamples) && float64(e.Clamped) <= most*e.Recent.N
}

// State is the learner: it grows with the jobs and the living tasks on the node and with
// nothing else.
type State struct {
	Platform string  `json:"platform"`
	Entries  []Entry `json:"entries"` // ordered by key
}

// Of returns the spec that a task is judged by: that of its size, while the fleet has one, else its job's.
func (s *State) Of(task *model.Task, src model.Source) *model.Spec {
	if task.Size != "" {
		if i, ok := s.find(Key{task.Job, src, task.Size}); ok {
			return s.Entries[i].Spec
		}
	}
	return s.Lookup(task.Job, src)
}

// Lookup returns the published spec of a job, nil when there is none yet.
func (s *State) Lookup(job string, src model.Source) *model.Spec {
	i, ok := s.find(Key{Job: job, Source: src})
	if !ok {
		return nil
	}
	return s.Entries[i].Spec
}

// find goes by index: slices.BinarySearchFunc would copy an entry at each step, which was half
// of what a window of many tasks cost.
func (s *State) find(k Key) (int, bool) {
	i := sort.Search(len(s.Entries), func(i int) bool { return compareKeys(&s.Entries[i].Key, &k) >= 0 })
	return i, i < len(s.Entries) && s.Entries[i].Key == k
}

// Add takes one window of one task in. threshold is the outlier threshold under the
// present spec, at which larger values are held; pass +Inf when there is none.
func (s *State) Add(p Params, task *model.Task, src model.Source, v, usage, threshold float64) {
	e := s.entry(task.Job, src)
	e.Recent.add(min(v, threshold), usage)
	if v > threshold {
		e.Clamped++
	}
	if p.RobustFirst {
		e.keepFew(v)
	}
	j, ok := slices.BinarySearch(e.Tasks, task.Num)
	if !ok {
		if len(e.Tasks) >= maxContributors {
			return
		}
		e.Tasks = slices.Insert(e.Tasks, j, task.Num)
		e.Samples = slices.Insert(e.Samples, j, 0)
	}
	e.Samples[j]++
}

// entry is what is known of a job's signal, from now on.
func (s *State) entry(job string, src model.Source) *Entry {
	k := Key{Job: job, Source: src}
	i, ok := s.find(k)
	if !ok {
		s.Entries = slices.Insert(s.Entries, i, Entry{Key: k})
	}
	return &s.Entries[i]
}

// Turn takes in how long a task ran between two waits in the window that was added last, in ms.
func (s *State) Turn(job string, src model.Source, msec float64) {
	if i, ok := s.find(Key{Job: job, Source: src}); ok {
		m := &s.Entries[i].Recent
		m.RunMean += (msec - m.RunMean) / m.N
	}
}

// maxContributors bounds the tasks of an entry that are told apart: as many as a host
// watches. Samples of more count, and the tasks do not.
const maxContributors = 10_000

// Forget folds a task that has ended away: what counts of it from then on is whether its
// samples were enough. A job of short-lived tasks may not have a spec for months.
func (s *State) Forget(p Params, task *model.Task) {
	i, _ := s.find(Key{Job: task.Job})
	for ; i < len(s.Entries) && s.Entries[i].Key.Job == task.Job; i++ {
		e := &s.Entries[i]
		j, ok := slices.BinarySearch(e.Tasks, task.Num)
		if !ok {
			continue
		}
		e.Ended++
		if e.Samples[j] >= p.MinSamplesPerTask {
			e.EndedRobust++
		}
		e.Tasks, e.Samples = slices.Delete(e.Tasks, j, j+1), slices.Delete(e.Samples, j, j+1)
	}
}

// Teach takes a spec in that was learned elsewhere. One that a fleet's sheet has stands until maxKept after it was taught last
// (standing), any other one until the next calculation, which weighs what was sampled here since against all of its samples.
// One of another platform, or of a signal that is calculated otherwise, says nothing here.
func (s *State) Teach(p Params, spec *model.Spec, monoNsec int64) error {
	definition := spec.Source.Definition(p.CoreCycles)
	switch {
	case spec.Definition != "" && spec.Definition != definition:
		return fmt.Errorf("it is of %s, and here it is %s", spec.Definition, definition)
	case spec.Platform != "" && spec.Platform != s.Platform:
		return fmt.Errorf("it is of platform %s, and this is %s", spec.Platform, s.Platform)
	case spec.Size != "" && spec.Sheet == 0:
		return fmt.Errorf("it is of size %s and of no sheet of the fleet", spec.Size)
	}
	if err := cmp.Or(spec.CheckMoments(), spec.CheckQuantiles()); err != nil {
		return err
	}
	k := Key{spec.Job, spec.Source, spec.Size}
	i, ok := s.find(k)
	if !ok {
		s.Entries = slices.Insert(s.Entries, i, Entry{Key: k})
	}
	taught, n := *spec, float64(spec.NumSamples)
	taught.Platform, taught.Definition, taught.MonoNsec = s.Platform, definition, monoNsec
	e := &s.Entries[i]
	e.Spec, e.History = &taught, Moments{N: n, Mean: spec.Mean, M2: spec.StdDev * spec.StdDev * n, UsageMean: spec.UsageMean, RunMean: spec.RunMean}
	e.begin()
	e.Measured = nil // of the spec before: to doubt this one must not bring it back
	return nil
}

// begin begins a sample: what came before is in the spec.
func (e *Entry) begin() {
	e.Recent, e.Beside, e.Clamped, e.Ended, e.EndedRobust, e.Stolen, e.StolenNsec = Moments{}, nil, 0, 0, 0, 0, 0
	e.Tasks, e.Samples, e.Few = e.Tasks[:0], e.Samples[:0], e.Few[:0]
}

// standing reports whether the spec is of a sheet that the fleet has spoken of within maxKept. What is learned here takes the
// place of none of these: it is of one node, and would undo what an operator pinned.
func (e *Entry) standing(monoNsec int64) bool {
	return e.Spec != nil && e.Spec.Sheet != 0 && monoNsec-e.Spec.MonoNsec < int64(maxKept)
}

// Recalculate publishes what is due and returns the specs that are new or changed, in
// key order; nil, without allocating, when nothing is.
func (s *State) Recalculate(p Params, monoNsec int64) []*model.Spec {
	s.lapse(monoNsec)
	var changed []*model.Spec
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.standing(monoNsec) || !e.robust(p) {
			continue
		}
		all, leftOut, was, without := e.Recent, 0, 0.0, ""
		few, out, refuted := e.anew()
		switch {
		case refuted:
			few.UsageMean, few.RunMean = e.Recent.UsageMean, e.Recent.RunMean
			all, leftOut, was = few, out, e.Spec.Mean
		case !e.due(p, monoNsec):
			continue
		case e.Spec == nil && len(e.Few) >= min(maxFew, int(e.Recent.N)):
			all, leftOut, without = e.first(p)
			all.UsageMean, all.RunMean = e.Recent.UsageMean, e.Recent.RunMean
		default:
			all.merge(e.History, p.AgeWeight)
		}
		e.Spec = &model.Spec{
			Job: e.Key.Job, Platform: s.Platform, Source: e.Key.Source, Definition: e.Key.Source.Definition(p.CoreCycles),
			NumSamples: int64(math.Round(all.N)), Tasks: len(e.Tasks) + e.Ended, UsageMean: all.UsageMean,
			Mean: all.Mean, StdDev: math.Sqrt(all.M2 / all.N), MonoNsec: monoNsec, RunMean: all.RunMean, LeftOut: int64(leftOut), Refuted: was, Without: without, Stolen: int64(min(e.Stolen, p.mostStolen())),
		}
		e.History = all
		e.begin()
		if without == "" {
			e.Measured = nil
		}
		changed = append(changed, e.Spec)
	}
	return changed
}

// lapse forgets specs of a size of which the fleet has not spoken for too long: nothing that is learned here takes their place.
func (s *State) lapse(monoNsec int64) {
	for i := len(s.Entries) - 1; i >= 0; i-- {
		if e := &s.Entries[i]; e.Key.Size != "" && !e.standing(monoNsec) {
			s.Entries = slices.Delete(s.Entries, i, i+1)
		}
	}
}

// robust asks for enough tasks with enough samples each. A task with few samples does
// not count and does no harm.
func (e *Entry) robust(p Params) bool {
	enough := e.EndedRobust
	for _, n := range e.Samples {
		if n >= p.MinSamplesPerTask {
			enough++
		}
	}
	return enough >= max(1, p.MinTasks)
}
