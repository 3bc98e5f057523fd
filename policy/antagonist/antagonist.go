// Package antagonist finds out who makes a victim suffer (CPI² §4.2).
//
// Intuition. The usage of a true antagonist is high when the victim's signal is bad and
// low when it is good; that of a bystander does not care. Nobody is disturbed to find
// out. For a victim's samples c_i and a suspect's usage u_i, normalised to sum 1 over
// the windows that count,
//
//	score = sum over c_i > c_threshold of u_i * (1 - c_threshold / c_i)
//	      + sum over c_i < c_threshold of u_i * (c_i / c_threshold - 1)
//
// lies in [-1, 1]; at 0.35 or more the suspect is called an antagonist. For CPI this is
// done exactly so.
//
// Run-delay slowdown needs four changes. The formula ignores a suspect's size and was
// calibrated on a signal that rarely passes twice its threshold; slowdown runs from 1
// to 50.
//
//   - Offset 1: slowdown starts at 1, and that 1 carries no news. With it, the second
//     sum can hardly go below -0.2, and a steady innocent keeps nearly all it gains in
//     bad windows: at 60 % antagonist duty, a signal of 7 against 1.1 and a threshold of
//     1.3, it scores 0.43. Correlating on slowdown - 1, delay per CPU-second, gives the
//     second sum its full range back; the same innocent then scores 0.30.
//   - A bounded ratio: c_i counts at most Bound times the threshold. What a window
//     accuses with then stays in proportion to what another acquits with: the same
//     innocent scores 0.03 at a bound of 2, and a perfect antagonist 0.5. Rejected: the
//     logarithm of the ratio, which leaves CPI²'s formula for no better ranking.
//   - A least usage, MinSuspectCPU, in the bad windows: who did not run did not do it.
//     A shell that wakes up when the machine is busy correlates perfectly.
//   - A margin over the median suspect: when everybody correlates, the signal follows
//     the node's load and not a suspect, and nothing is known. With fewer than
//     minForMedian suspects there is no crowd to stand out from.
//
// Threshold, margin and bound for slowdown were calibrated on the rounds of
// `commensal-lab run first-light`; docs/FIRST-LIGHT.md has the table.
//
// What it cannot do: tell apart two suspects with the same rhythm, or find a group whose
// members take turns. Verification by capping is the answer to the first (and, where it is
// turned on, confirmation); group.go is one to the second.
//
// A margin over a steady suspect (Steady; 0 in CPI²) answers a weakness of the bare
// threshold: once the victim has suffered for most of the window, a task that uses the same
// CPU all the time scores nearly as much as the culprit, and is held when that one cannot be.
package antagonist

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// minForMedian is the least number of suspects for which "above the median" means
// anything: with two, the median is the mean of both.
const minForMedian = 3

// Params are the parameters for one signal source.
type Params struct {
	Threshold     float64 `json:"threshold"`       // table 2: 0.35
	Offset        float64 `json:"offset"`          // subtracted from signal and threshold
	Bound         float64 `json:"bound"`           // on signal / threshold; 0: none
	MinSuspectCPU float64 `json:"min_suspect_cpu"` // CPU-sec/sec in bad windows; 0: none
	Margin        float64 `json:"margin"`          // over the median score; 0: none
	Steady        float64 `json:"steady"`          // over what a steady suspect scores; 0: none
}

// History keeps the windows of the correlation window: signals of victims and usages
// of suspects, aligned in time. Rows are reused; nothing is allocated per window.
type History struct {
	Cap    int     `json:"cap"`     // windows kept
	Next   int     `json:"next"`    // where the next window goes
	Filled int     `json:"filled"`  // windows present, up to Cap
	AtNsec []int64 `json:"at_nsec"` // when each window ended
	Rows   []Row   `json:"rows"`    // one a task, ordered by Num; then unmanaged and steal

	lists     [2][]weighted // scratch of one analysis
	bad, good []weighted    // in it
}

// weighted is one window with what one unit of usage earns in it.
type weighted struct {
	window int
	weight float64
}

// Row is one task's part of the history.
type Row struct {
	Num   model.TaskNum `json:"num"`
	Usage []float64     `json:"usage"` // CPU-sec/sec; 0 where unknown, which adds to neither sum
	// Signal is the victim's signal; NoEvidence where the window says nothing.
	Signal []float64 `json:"signal"`
	// Misses are LLC misses a second, 0 where unknown; none where no window had any.
	Misses []float64 `json:"misses,omitempty"`
	// MPKI are a victim's own LLC misses per thousand instructions, and Parts what a task has of the domains of resctrl: NoEvidence where unknown;
	// none where nobody counted (lack.go).
	MPKI  []float64 `json:"mpki,omitempty"`
	Parts []Part    `json:"parts,omitempty"`
}

// NoEvidence stands in Row.Signal for a window that may not be used. Signals are
// positive, and records cannot hold NaN.
const NoEvidence = -1

// maxFigure is far above what a 64-bit counter can grow by in a window, and so far below
// the greatest float that no sum overflows.
const maxFigure = 1e30

// NewHistory returns a history of n windows.
func NewHistory(n int) *History {
	h := &History{Cap: n, AtNsec: make([]int64, n)}
	h.Ensure(model.NumUnmanaged)
	h.Ensure(model.NumSteal)
	return h
}

func (h *History) find(num model.TaskNum) (int, bool) {
	return slices.BinarySearchFunc(h.Rows, num, func(r Row, n model.TaskNum) int {
		switch {
		case r.Num < n:
			return -1
		case r.Num > n:
			return 1
		}
		return 0
	})
}

// Ensure makes a row for a task that is new.
func (h *History) Ensure(num model.TaskNum) {
	i, ok := h.find(num)
	if ok {
		return
	}
	r := Row{Num: num, Usage: make([]float64, h.Cap), Signal: make([]float64, h.Cap)}
	for k := range r.Signal {
		r.Signal[k] = NoEvidence
	}
	h.Rows = slices.Insert(h.Rows, i, r)
}

// Forget drops the row of a task that is gone.
func (h *History) Forget(num model.TaskNum) {
	if i, ok := h.find(num); ok {
		h.Rows = slices.Delete(h.Rows, i, i+1)
	}
}

// Disregard leaves a task's signal so far out of what is to come; i is its row's index.
func (h *History) Disregard(i int) {
	for k := range h.Rows[i].Signal {
		h.Rows[i].Signal[k] = NoEvidence
	}
}

// Begin opens the slot of a new window and clears it for every row.
func (h *History) Begin(monoNsec int64) {
	k := h.Next
	h.AtNsec[k] = monoNsec
	for i := range h.Rows {
		h.Rows[i].Usage[k] = 0
		h.Rows[i].Signal[k] = NoEvidence
		if len(h.Rows[i].Misses) > 0 {
			h.Rows[i].Misses[k] = 0
		}
		h.Rows[i].beginCounted(k)
	}
}

// Put notes one task in the open window.
func (h *History) Put(num model.TaskNum, usage, signal float64) {
	if i, ok := h.find(num); ok {
		h.PutAt(i, usage, signal)
	}
}

// PutAt is Put for callers that walk rows in order; i is the row's index. A figure that
// cannot be is as good as none: it would spoil every sum that it enters.
func (h *History) PutAt(i int, usage, signal float64) {
	if !(usage >= 0 && usage <= maxFigure) {
		usage = 0
	}
	if !(signal >= 0 && signal <= maxFigure) {
		signal = NoEvidence
	}
	h.Rows[i].Usage[h.Next] = usage
	h.Rows[i].Signal[h.Next] = signal
}

// End closes the open window.
func (h *History) End() {
	h.Next = (h.Next + 1) % h.Cap
	h.Filled = min(h.Filled+1, h.Cap)
}

// Score is one suspect's result.
type Score struct {
	Num   model.TaskNum
	Value float64 // [-1, 1]
	Usage float64 // mean CPU-sec/sec in the bad windows
}

// Analysis is the outcome of one correlation, best suspect first.
type Analysis struct {
	Scores  []Score
	Median  float64 // of the scores of the suspects that ran at all
	Steady  float64 // what a suspect scores that used the same CPU in every window
	Perfect float64 // what one scores that ran in the bad windows alone, in all of them alike
	Windows int     // that counted
	Bad     int     // of them above the threshold
}

// Correlate scores every row but the victim's against the victim's signal. out is
// reused. Suspects that used no CPU in the windows that count are left out: they are
// no suspects.
func (h *History) Correlate(p *Params, victim model.TaskNum, threshold float64, out *Analysis) {
	*out = Analysis{Scores: out.Scores[:0]}
	vi, ok := h.find(victim)
	if !ok {
		return
	}
	h.weights(p, h.Rows[vi].Signal[:h.Filled], threshold, out)
	if out.Windows == 0 {
		return
	}
	for i := 0; i < len(h.Rows); {
		i = h.score(i, vi, out)
	}
	slices.SortFunc(out.Scores, func(a, b Score) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		}
		return cmp.Compare(a.Num, b.Num)
	})
	out.Median = median(out.Scores)
}

// weights turns the victim's signal into what one unit of usage earns in each window: the
// windows that count, the bad ones first.
func (h *History) weights(p *Params, signal []float64, threshold float64, out *Analysis) {
	if len(h.lists[0]) <= h.Cap {
		h.lists = [2][]weighted{make([]weighted, h.Cap+1), make([]weighted, h.Cap+1)}
	}
	t := threshold - p.Offset
	if !(t > 0) {
		t = 0 // a threshold below the offset: everything above the offset is bad
	}
	// Whether a window is bad is anybody's guess, the CPU's too: a branch on it would cost
	// more than the rest. Both lists get the window, and one of them grows.
	bad, good := h.lists[0], h.lists[1]
	nBad, nGood := 0, 0
	for i, c := range signal {
		if c == NoEvidence {
			continue
		}
		x := max(0, c-p.Offset)
		if p.Bound > 0 {
			x = min(x, p.Bound*t)
		}
		share := 1.0
		if x > 0 || t > 0 {
			share = min(x, t) / max(x, t)
		}
		bad[nBad], good[nGood] = weighted{i, 1 - share}, weighted{i, share - 1}
		is := 0
		if x > t {
			is = 1
		}
		nBad += is
		nGood += 1 - is
	}
	h.bad, h.good = bad[:nBad], good[:nGood]
	out.Bad, out.Windows = len(h.bad), len(h.bad)+len(h.good)
	sum := 0.0
	for _, w := range h.bad {
		sum += w.weight
	}
	if out.Bad > 0 {
		out.Perfect = sum / float64(out.Bad)
	}
	for _, w := range h.good {
		sum += w.weight
	}
	if out.Windows > 0 {
		out.Steady = sum / float64(out.Windows) // the longer the victim has suffered, the more
	}
}

// score scores the rows from first on, as many as there are lanes, without the victim's. It
// returns the row to go on with.
func (h *History) score(first, victim int, out *Analysis) (next int) {
	var usage [lanes][]float64
	var nums [lanes]model.TaskNum
	n := 0
	for next = first; next < len(h.Rows) && n < lanes; next++ {
		if next != victim {
			usage[n], nums[n] = h.Rows[next].Usage[:h.Filled], h.Rows[next].Num
			n++
		}
	}
	if n == 0 {
		return next
	}
	for k := n; k < lanes; k++ {
		usage[k] = usage[0] // its result is not looked at
	}
	var bad, good earnings
	earn(h.bad, &usage, &bad)
	earn(h.good, &usage, &good)
	for k, num := range nums[:n] {
		sum := bad.used[k] + good.used[k]
		if sum <= 0 {
			continue
		}
		s := Score{Num: num, Value: min(1, max(-1, (bad.earned[k]+good.earned[k])/sum))}
		if len(h.bad) > 0 {
			s.Usage = bad.used[k] / float64(len(h.bad))
		}
		out.Scores = append(out.Scores, s)
	}
	return next
}

// median expects the scores in order.
func median(s []Score) float64 {
	n := len(s)
	if n == 0 {
		return 0
	}
	if n%2 == 1 {
		return s[n/2].Value
	}
	return (s[n/2-1].Value + s[n/2].Value) / 2
}

// Needed returns the score that a suspect must reach in this analysis, and whether the
// margin over the median decided it.
func (p *Params) Needed(a *Analysis) (needed float64, byMargin bool) {
	needed = p.Threshold
	if p.Steady > 0 && a.Windows > 0 {
		needed = min(1, max(needed, a.Steady+p.Steady))
	}
	if p.Margin > 0 && len(a.Scores) >= minForMedian {
		if m := a.Median + p.Margin; m > needed {
			return math.Min(m, 1), true
		}
	}
	return needed, false
}

const (
	// leastClear is by how much a suspect that ran in the bad windows alone must be able to clear what is asked for, else too much is asked for.
	leastClear = 0.1
	// leastApart is by how much it must score above the others, where scores are to tell anything.
	leastApart = 0.05
)

// Reachable returns the score to ask for where nobody can clear needed: that which lies such a share of the way from what a steady suspect has here, or
// the median of several, to what one has that ran in the bad windows alone, and at least 0. A victim little above its threshold cannot give anybody
// a higher score than 1 - threshold / signal. Else it is needed.
func (a *Analysis) Reachable(needed, share float64) float64 {
	from := a.Steady
	if len(a.Scores) >= minForMedian {
		from = max(from, a.Median)
	}
	if a.Perfect >= needed+leastClear || a.Perfect < from+leastApart || share <= 0 {
		return needed
	}
	return min(needed, max(0, from+share*(a.Perfect-from)))
}

// Check reports whether a history that was read from a record is whole.
func (h *History) Check() error {
	if h.Cap < 1 || h.Next < 0 || h.Next >= h.Cap || h.Filled < 0 || h.Filled > h.Cap || len(h.AtNsec) != h.Cap {
		return fmt.Errorf("history: capacity %d, next %d, filled %d, %d times", h.Cap, h.Next, h.Filled, len(h.AtNsec))
	}
	for i := range h.Rows {
		if r := &h.Rows[i]; len(r.Usage) != h.Cap || len(r.Signal) != h.Cap || len(r.Misses) != 0 && len(r.Misses) != h.Cap || !r.counted(h.Cap) {
			return fmt.Errorf("history: row of task %d has %d usages and %d signals, not %d", r.Num, len(r.Usage), len(r.Signal), h.Cap)
		}
		if i > 0 && h.Rows[i].Num <= h.Rows[i-1].Num {
			return fmt.Errorf("history: rows are not in order")
		}
	}
	return nil
}
