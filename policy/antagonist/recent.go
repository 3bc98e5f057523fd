package antagonist

import (
	"slices"

	"github.com/commensal-io/commensal/model"
)

// What the last windows say of one task: for policies that judge an effect.

// back returns the slot of the window that is j windows old.
func (h *History) back(j int) int { return (h.Next - 1 - j + 2*h.Cap) % h.Cap }

// Row is what is kept of a task; nil: nothing.
func (h *History) Row(num model.TaskNum) *Row {
	i, ok := h.find(num)
	if !ok {
		return nil
	}
	return &h.Rows[i]
}

// EndedNsec is when the window ended that is j windows old.
func (h *History) EndedNsec(j int) int64 { return h.AtNsec[h.back(j)] }

// RecentSignal is the mean of a victim's last n signals above floor, and how many there
// were.
func (h *History) RecentSignal(num model.TaskNum, n int, floor float64) (mean float64, got int) {
	i, ok := h.find(num)
	if !ok {
		return 0, 0
	}
	for j := 0; j < h.Filled && got < n; j++ {
		if x := h.Rows[i].Signal[h.back(j)]; x != NoEvidence && x > floor {
			mean += x
			got++
		}
	}
	if got == 0 {
		return 0, 0
	}
	return mean / float64(got), got
}

// MeanSignal is the mean of a victim's signals in n windows, those before the last skip ones, and how many of
// these say something.
func (h *History) MeanSignal(num model.TaskNum, skip, n int) (mean float64, got int) {
	i, ok := h.find(num)
	if !ok {
		return 0, 0
	}
	for j := skip; j < min(h.Filled, skip+n); j++ {
		if x := h.Rows[i].Signal[h.back(j)]; x != NoEvidence {
			mean += x
			got++
		}
	}
	return mean / float64(max(1, got)), got
}

// SinceOnset is the mean of a victim's signal from the oldest bad one on among its last n,
// good and bad ones: what it suffered lately, pauses included.
func (h *History) SinceOnset(num model.TaskNum, n int, threshold float64) float64 {
	i, ok := h.find(num)
	if !ok {
		return 0
	}
	sum, mean, seen := 0.0, 0.0, 0
	for j := 0; j < h.Filled && seen < n; j++ {
		x := h.Rows[i].Signal[h.back(j)]
		if x == NoEvidence {
			continue
		}
		sum += x
		seen++
		if x > threshold {
			mean = sum / float64(seen)
		}
	}
	return mean
}

// RecentUsage is a suspect's mean CPU-sec/sec over the last n windows, whatever the victim
// did in them.
func (h *History) RecentUsage(num model.TaskNum, n int) float64 {
	usage, _ := h.Took(num, 0, n)
	return usage
}

// Took is what a suspect used and how often it missed the LLC, a second, in the mean of n windows, those before the last
// skip ones.
func (h *History) Took(num model.TaskNum, skip, n int) (usage, misses float64) {
	i, ok := h.find(num)
	n = min(h.Filled, skip+n) - skip
	if !ok || n < 1 {
		return 0, 0
	}
	r := &h.Rows[i]
	for j := skip; j < skip+n; j++ {
		usage += r.Usage[h.back(j)]
		if len(r.Misses) > 0 {
			misses += r.Misses[h.back(j)]
		}
	}
	return usage / float64(n), misses / float64(n)
}

// Slots are where the windows that ended at these times stand; those that are kept no more are left out.
func (h *History) Slots(atNsec []int64) []int {
	slots := make([]int, 0, len(atNsec))
	for j := 0; j < h.Filled && len(slots) < len(atNsec); j++ {
		if k := h.back(j); slices.Contains(atNsec, h.AtNsec[k]) {
			slots = append(slots, k)
		}
	}
	return slots
}

// Mean is the mean CPU-sec/sec over some slots.
func (r *Row) Mean(slots []int) float64 {
	sum := 0.0
	for _, k := range slots {
		sum += r.Usage[k]
	}
	return sum / float64(max(1, len(slots)))
}

// MeanUsage is a task's mean CPU-sec/sec in the windows that ended at these times, 0 where none is kept.
func (h *History) MeanUsage(num model.TaskNum, atNsec []int64) float64 {
	i, ok := h.find(num)
	if !ok {
		return 0
	}
	return h.Rows[i].Mean(h.Slots(atNsec))
}

// UsageAt is a task's CPU-sec/sec in the window that ended at a time; not ok where it is not kept.
func (h *History) UsageAt(num model.TaskNum, atNsec int64) (usage float64, ok bool) {
	i, ok := h.find(num)
	if !ok {
		return 0, false
	}
	for j := range h.Filled {
		if k := h.back(j); h.AtNsec[k] == atNsec {
			return h.Rows[i].Usage[k], true
		}
	}
	return 0, false
}

// PeriodNsec is the time from one window's end to the next one's, 0 while there is but one.
func (h *History) PeriodNsec() int64 {
	if h.Filled < 2 {
		return 0
	}
	return max(0, h.AtNsec[h.back(0)]-h.AtNsec[h.back(1)])
}

// RecentPeak is a suspect's greatest CPU-sec/sec in the last n windows.
func (h *History) RecentPeak(num model.TaskNum, n int) (peak float64) {
	i, ok := h.find(num)
	if !ok {
		return 0
	}
	for j := range min(h.Filled, n) {
		peak = max(peak, h.Rows[i].Usage[h.back(j)])
	}
	return peak
}

// PeakUsage is a suspect's greatest CPU-sec/sec in the history: a cap above it holds nothing
// back.
func (h *History) PeakUsage(num model.TaskNum) float64 {
	i, ok := h.find(num)
	if !ok {
		return 0
	}
	peak := 0.0
	for j := range h.Filled {
		peak = max(peak, h.Rows[i].Usage[h.back(j)])
	}
	return peak
}
