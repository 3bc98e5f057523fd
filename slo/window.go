package slo

import (
	"slices"
	"sort"
	"time"
)

// Window holds the latencies of the last few seconds and answers percentiles at any
// moment. It is pure: times come in from outside. It keeps the samples twice, in order
// of time (to forget them) and in order of size (to answer): at the 150 samples of the
// default a sorted insert moves about a kilobyte, and a reading is three look-ups.
// A histogram was rejected because nothing can be taken out of it one by one.
//
// A sample belongs to the moment at which it became known (the answer or the timeout),
// not to the one at which its request was due: a reply that took two seconds would
// otherwise leave a window of three after one.
//
// Window is not safe for concurrent use.
type Window struct {
	length time.Duration
	ring   []sample // in order of time, oldest at head
	head   int
	n      int
	failed int
	sorted []time.Duration // the n latencies, ascending
	asked  float64         // a quantile; 0: none
}

type sample struct {
	at      time.Time
	latency time.Duration
	failed  bool
}

// NewWindow returns a window of the given length that holds at most capacity samples;
// a further one pushes out the oldest. Both must be positive.
func NewWindow(length time.Duration, capacity int) *Window {
	if length <= 0 || capacity <= 0 {
		panic("slo: window needs a positive length and capacity")
	}
	return &Window{
		length: length,
		ring:   make([]sample, capacity),
		sorted: make([]time.Duration, 0, capacity),
	}
}

// Ask says which quantile Fill gives beside the usual ones.
func (w *Window) Ask(q float64) { w.asked = q }

// Add enters a latency that became known at the given time; failed marks a request that
// timed out or was refused. Times must not go back.
func (w *Window) Add(at time.Time, latency time.Duration, failed bool) {
	w.expire(at)
	if w.n == len(w.ring) {
		w.drop()
	}
	w.ring[(w.head+w.n)%len(w.ring)] = sample{at, latency, failed}
	w.n++
	if failed {
		w.failed++
	}
	i, _ := slices.BinarySearch(w.sorted, latency)
	w.sorted = slices.Insert(w.sorted, i, latency)
}

// Fill sets r's figures as of now from the samples of the last w.length. overdue are the
// ages of n requests that are still unanswered, given by age(0) to age(n-1) in falling
// order. An age is only a lower bound of a latency: one counts as soon as it exceeds the
// p99 of the answered ones, because from then on the truth can only be worse; a younger
// one would make the service look better than it is, and is left out. Without this a
// stalled service would look well until its first timeout.
//
// Fill sets Status to StateOK or StateTooFew.
func (w *Window) Fill(r *Reading, now time.Time, n int, age func(i int) time.Duration) {
	w.expire(now)
	known := w.percentile(0.99, nil, 0)
	over := sort.Search(n, func(i int) bool { return age(i) <= known })
	r.Window = w.length
	r.Samples = w.n + over
	r.Errors = w.failed
	r.Overdue = over
	r.Valid = ValidFor(r.Samples, w.asked)
	of := func(bit Percentiles, q float64) time.Duration {
		if !r.Valid.Has(bit) {
			return 0
		}
		return w.percentile(q, age, over)
	}
	r.P50, r.P99, r.P999, r.Asked = of(HasP50, 0.5), of(HasP99, 0.99), of(HasP999, 0.999), of(HasAsked, w.asked)
	r.Status = Status{State: StateTooFew}
	if r.Valid.Has(HasP50 | HasP99) {
		r.Status.State = StateOK
	}
}

// percentile returns the nearest-rank percentile (the smallest value that at least the
// share does not exceed) of the samples together with the n ages. It picks from the
// two ordered lists without merging them.
func (w *Window) percentile(q float64, age func(i int) time.Duration, n int) time.Duration {
	total := w.n + n
	if total == 0 {
		return 0
	}
	rank := max((total*share(q)+million-1)/million, 1)
	// Find how many of the rank smallest come from the samples: the largest i such that
	// sorted[i-1] belongs before the age that would otherwise take its place.
	i := max(0, rank-n) + sort.Search(min(rank, w.n)-max(0, rank-n), func(k int) bool {
		i := max(0, rank-n) + k
		return w.sorted[i] > age(n-(rank-i)) // the (rank-i)th smallest age
	})
	j := rank - i
	switch {
	case j == 0:
		return w.sorted[i-1]
	case i == 0:
		return age(n - j)
	}
	return max(w.sorted[i-1], age(n-j))
}

func (w *Window) expire(now time.Time) {
	for w.n > 0 && now.Sub(w.ring[w.head].at) >= w.length {
		w.drop()
	}
}

// drop forgets the oldest sample.
func (w *Window) drop() {
	s := &w.ring[w.head]
	i, found := slices.BinarySearch(w.sorted, s.latency)
	if !found {
		panic("slo: window lost a sample")
	}
	w.sorted = slices.Delete(w.sorted, i, i+1)
	if s.failed {
		w.failed--
	}
	w.head = (w.head + 1) % len(w.ring)
	w.n--
}
