// Package tally sums up the services' CPI over windows, and holds one sum against another: each service beside itself,
// so that what a spec has learned meanwhile changes nothing.
package tally

import (
	"cmp"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// Tally is such a sum.
type Tally struct {
	Windows int    `json:"windows,omitempty"` // in which anything was known
	Tasks   []Task `json:"tasks,omitempty"`   // ordered by number
}

// Task is one service in a tally.
type Task struct {
	Num        model.TaskNum `json:"task"`
	N          float64       `json:"n"`
	Sum        float64       `json:"sum"`
	SumSquares float64       `json:"sum_squares"`
}

// most is a CPI above any that a processor has.
const most = 1e6

// Add adds a window that closed.
func (t *Tally) Add(win *policy.Window) {
	known := false
	for i := range win.Victims {
		x := &win.Victims[i]
		if !win.Closed || x.Source != model.SourceCPI || !x.Verdict.Evidence() || !(x.Signal > 0 && x.Signal < most) {
			continue
		}
		known = true
		t.Put(x.Num, x.Signal)
	}
	if known {
		t.Windows++
	}
}

// Put adds one task's figure, which need not be a CPI, in a window.
func (t *Tally) Put(num model.TaskNum, x float64) {
	if !(x >= 0 && x < policy.Absurd) {
		return
	}
	at, ok := slices.BinarySearchFunc(t.Tasks, num, func(k Task, n model.TaskNum) int { return cmp.Compare(k.Num, n) })
	if !ok {
		t.Tasks = slices.Insert(t.Tasks, at, Task{Num: num})
	}
	k := &t.Tasks[at]
	k.N, k.Sum, k.SumSquares = k.N+1, k.Sum+x, k.SumSquares+x*x
}

// Of is the part of a tally that is of some services.
func (t *Tally) Of(which func(num model.TaskNum) bool) Tally {
	return Tally{Windows: t.Windows, Tasks: slices.DeleteFunc(slices.Clone(t.Tasks), func(k Task) bool { return !which(k.Num) })}
}

// Beside is the mean over services of their CPI in a tally beside that in an earlier one, with its standard error;
// without any that is in both it is 1.
func (t *Tally) Beside(earlier *Tally) (ratio, sem float64) {
	n := 0.0
	t.each(earlier, func(a, da, b, db float64) {
		r := a / b
		ratio, sem, n = ratio+r, sem+r*r*(da*da/(a*a)+db*db/(b*b)), n+1
	})
	if n == 0 {
		return 1, 0
	}
	return ratio / n, math.Sqrt(sem) / n
}

// All is the sum over tasks of a figure that adds up in a tally beside that in an earlier one, with its standard error, and whether it is known of any: one
// that has hardly any of it says hardly anything, whatever its own is times what it was.
func (t *Tally) All(earlier *Tally) (ratio, sem float64, known bool) {
	var now, was, vn, vw float64
	t.each(earlier, func(a, da, b, db float64) { now, was, vn, vw = now+a, was+b, vn+da*da, vw+db*db })
	if was <= 0 {
		return 1, 0, false
	}
	ratio = now / was
	return ratio, math.Sqrt(vn+ratio*ratio*vw) / was, true
}

// each goes over the means, with their standard errors, of those that were seen at least twice here and in an earlier tally: a now, b then. One that was
// seen less says nothing.
func (t *Tally) each(earlier *Tally, f func(a, da, b, db float64)) {
	for i := range t.Tasks {
		now := &t.Tasks[i]
		at, ok := slices.BinarySearchFunc(earlier.Tasks, now.Num, func(k Task, n model.TaskNum) int { return cmp.Compare(k.Num, n) })
		if !ok || now.N < 2 || earlier.Tasks[at].N < 2 {
			continue
		}
		a, da := now.mean()
		b, db := earlier.Tasks[at].mean()
		f(a, da, b, db)
	}
}

// mean is a service's mean CPI with its standard error.
func (k *Task) mean() (mean, sem float64) {
	mean = k.Sum / k.N
	return mean, math.Sqrt(max(0, k.SumSquares/k.N-mean*mean) / (k.N - 1))
}
