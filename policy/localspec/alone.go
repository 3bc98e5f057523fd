package localspec

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// An agent that starts beside the antagonist learns the distress as what is normal: a hog that ran
// from the first window on was never found, for it had made a threshold of 1.07 one of 2. Where the scheduler tells who
// had the CPU while the job waited (docs/WAITS.md), the first spec can be what the job would have
// had without one neighbour: when a single best-effort task had at least half of all the waiting for others,
// its part is taken out of each window, and what is left is far below what was measured.
//
// It is what blame says, put into the spec: from then on the job is an outlier beside that task, blame
// names it, and verification decides. Where holding it does not help the job, nor anybody else, the
// spec was wrong: Doubt puts the measured one in its place, once.
//
// Two that share the blame are not taken out: with several neighbours alike nobody can say from
// inside what is normal, and a spec without all of them would make everything an outlier. Without
// BPF nothing is taken out.

// Beside is the best-effort task that had the CPU for most of what a job waited for others in one window.
type Beside struct {
	Path  string  `json:"path"`
	Share float64 `json:"share"` // of the waiting for others
}

// mostOf is the share of all waiting from which on one neighbour is taken out.
const mostOf = 0.5

// Charge says which neighbour delayed the job most in the window that Add took in last.
func (s *State) Charge(p Params, task *model.Task, src model.Source, by Beside) {
	i, ok := s.find(Key{Job: task.Job, Source: src})
	if !ok || !p.Alone {
		return
	}
	e := &s.Entries[i]
	if e.Spec != nil || len(e.Few) == 0 || len(e.Few) == len(e.Beside) {
		return
	}
	for len(e.Beside) < len(e.Few)-1 {
		e.Beside = append(e.Beside, Beside{}) // windows of which nobody could tell
	}
	e.Beside = append(e.Beside, by)
}

// first is the first spec: without the one neighbour that had most of the blame, if there is one.
func (e *Entry) first(p Params) (m Moments, leftOut int, without string) {
	measured, leftOut := ofFew(e.Few)
	rest := e.Key.Source.Row().Rest
	if without = e.neighbour(rest); !p.Alone || without == "" {
		return measured, leftOut, ""
	}
	values := slices.Clone(e.Few)
	for i, b := range e.Beside {
		if b.Path == without {
			values[i] = rest + (values[i]-rest)*(1-b.Share)
		}
	}
	alone, out := ofFew(values)
	if !alone.farBelow(measured.Mean, math.Sqrt(measured.M2/measured.N)) {
		return measured, leftOut, ""
	}
	e.Measured = &measured
	return alone, out, without
}

// neighbour is who had at least half of all the waiting in the windows so far; "" when nobody had.
func (e *Entry) neighbour(rest float64) string {
	total, by := 0.0, map[string]float64{}
	for i, v := range e.Few {
		total += max(0, v-rest)
		if i < len(e.Beside) {
			by[e.Beside[i].Path] += max(0, v-rest) * e.Beside[i].Share
		}
	}
	for path, v := range by {
		if path != "" && total > 0 && v > mostOf*total {
			return path // there is no second one
		}
	}
	return ""
}

// Doubt takes back that a neighbour was left out of a job's first spec: holding it did not help. It
// returns the spec that takes its place, nil when there is nothing to take back.
func (s *State) Doubt(job string, src model.Source, monoNsec int64) *model.Spec {
	i, ok := s.find(Key{Job: job, Source: src})
	if !ok || s.Entries[i].Measured == nil {
		return nil
	}
	e := &s.Entries[i]
	sp, m := *e.Spec, *e.Measured
	sp.Mean, sp.StdDev, sp.NumSamples, sp.MonoNsec, sp.Without, sp.LeftOut = m.Mean, math.Sqrt(m.M2/m.N), int64(m.N), monoNsec, "", 0
	m.UsageMean, m.RunMean = sp.UsageMean, sp.RunMean
	e.Spec, e.History, e.Recent, e.Measured, e.Few, e.Clamped = &sp, m, Moments{}, nil, e.Few[:0], 0
	return e.Spec
}
