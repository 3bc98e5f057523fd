package antagonist

import (
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Who takes what the victim lacks, where resctrl counts each task by a number of its own (model.DomainObservation). LLC misses as perf counts them are a
// stand-in for both: they leave out what prefetchers fetch, so that a task that streams looks harmless, and count who runs through the
// cache and leaves nothing in it as one that fills it.
//
// A window's figures are those of the reading before: the host reads beside the loop. So a task that has just come has none in its first
// window, and windows without any are left out of a mean of bad ones; in good ones it was not there, and took nothing.

// Part is what a task has of one domain, a window each; NoEvidence where unknown.
type Part struct {
	Domain int32     `json:"domain"`
	Lines  []float64 `json:"lines"` // bytes of its last-level cache
	Moved  []float64 `json:"moved"` // bytes a second to and from memory
}

// beginCounted clears the slot of a new window.
func (r *Row) beginCounted(k int) {
	if len(r.MPKI) > 0 {
		r.MPKI[k] = NoEvidence
	}
	for i := range r.Parts {
		r.Parts[i].Lines[k], r.Parts[i].Moved[k] = NoEvidence, NoEvidence
	}
}

// counted reports whether what was counted is as long as the history.
func (r *Row) counted(windows int) bool {
	return (len(r.MPKI) == 0 || len(r.MPKI) == windows) && !slices.ContainsFunc(r.Parts, func(p Part) bool {
		return len(p.Lines) != windows || len(p.Moved) != windows
	})
}

// figure is a value that can be, or NoEvidence.
func figure(v model.Value) float64 {
	if v.Outcome == model.OK && v.V >= 0 && v.V <= maxFigure {
		return v.V
	}
	return NoEvidence
}

// unknown is a row of which nothing is known yet.
func unknown(windows int) []float64 { return slices.Repeat([]float64{NoEvidence}, windows) }

// PutMPKI notes a victim's LLC misses per thousand instructions in the open window; i is its row's index.
func (h *History) PutMPKI(i int, mpki model.Value) {
	r, x := &h.Rows[i], figure(mpki)
	if x != NoEvidence && len(r.MPKI) == 0 {
		r.MPKI = unknown(h.Cap)
	}
	if len(r.MPKI) > 0 {
		r.MPKI[h.Next] = x
	}
}

// PutParts notes what a task has of each domain in the open window; i is its row's index.
func (h *History) PutParts(i int, list []model.DomainObservation) {
	r := &h.Rows[i]
	for j := range list {
		d := &list[j]
		lines, moved := figure(d.Occupancy), figure(d.Total)
		k := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Domain == d.Domain })
		if k < 0 {
			if lines <= 0 && moved <= 0 {
				continue // most tasks never run in most domains
			}
			k = len(r.Parts)
			r.Parts = append(r.Parts, Part{d.Domain, unknown(h.Cap), unknown(h.Cap)})
		}
		r.Parts[k].Lines[h.Next], r.Parts[k].Moved[h.Next] = lines, moved
	}
}

// leastKnown is how many windows of either kind have to say something of a victim's misses.
const leastKnown = 2

// MPKI returns the means of a victim's LLC misses per thousand instructions in the bad and in the good windows of the last Correlate; not ok where too
// few are known.
func (h *History) MPKI(victim model.TaskNum) (bad, good float64, ok bool) {
	i, found := h.find(victim)
	if !found || len(h.Rows[i].MPKI) == 0 {
		return 0, 0, false
	}
	mean := func(list []weighted) (mean float64, n int) {
		for _, w := range list {
			if x := h.Rows[i].MPKI[w.window]; x != NoEvidence {
				mean, n = mean+x, n+1
			}
		}
		return mean / float64(max(1, n)), n
	}
	bad, n := mean(h.bad)
	good, m := mean(h.good)
	return bad, good, n >= leastKnown && m >= leastKnown
}

// at is what a row has in a window of what is lacked, in the domains that are near; NoEvidence where nobody counted.
func (r *Row) at(window int, of model.Lack, near func(domain int32) bool) float64 {
	sum := float64(NoEvidence)
	for i := range r.Parts {
		p := &r.Parts[i]
		x := p.Moved[window]
		if of == model.LackCache {
			x = p.Lines[window]
		}
		if x != NoEvidence && near(p.Domain) {
			sum = max(0, sum) + x
		}
	}
	return sum
}

// TakenOf is what a task took of what is lacked in the bad windows of the last Correlate, and in the good ones: bytes of cache, or bytes a second of memory,
// in the domains that are near. Not ok where nobody counted it in a bad one.
func (h *History) TakenOf(num model.TaskNum, of model.Lack, near func(domain int32) bool) (bad, good float64, ok bool) {
	if of == model.LackUnknown {
		return 0, 0, false
	}
	i, found := h.find(num)
	if !found {
		return 0, 0, false
	}
	return h.takenBy(&h.Rows[i], of, near)
}

// takenBy is TakenOf of a row.
func (h *History) takenBy(r *Row, of model.Lack, near func(domain int32) bool) (bad, good float64, ok bool) {
	if len(r.Parts) == 0 {
		return 0, 0, false
	}
	sum := func(list []weighted) (sum float64, n int) {
		for _, w := range list {
			if x := r.at(w.window, of, near); x != NoEvidence {
				sum, n = sum+x, n+1
			}
		}
		return sum, n
	}
	bad, n := sum(h.bad)
	good, _ = sum(h.good)
	return bad / float64(max(1, n)), good / float64(max(1, len(h.good))), n > 0
}

// AllTake is TakenOf of all tasks together.
func (h *History) AllTake(of model.Lack, near func(domain int32) bool) (bad, good float64) {
	for i := range h.Rows {
		b, g, _ := h.takenBy(&h.Rows[i], of, near)
		bad, good = bad+b, good+g
	}
	return bad, good
}

// TookOf is what a task took of what is lacked in the mean of n windows, those before the last skip ones, as TakenOf; not ok where nobody counted it.
func (h *History) TookOf(num model.TaskNum, of model.Lack, near func(domain int32) bool, skip, n int) (mean float64, ok bool) {
	if of == model.LackUnknown {
		return 0, false
	}
	i, found := h.find(num)
	if !found {
		return 0, false
	}
	known := 0
	for j := skip; j < min(h.Filled, skip+n); j++ {
		if x := h.Rows[i].at(h.back(j), of, near); x != NoEvidence {
			mean, known = mean+x, known+1
		}
	}
	return mean / float64(max(1, known)), known > 0
}
