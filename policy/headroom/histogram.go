package headroom

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Buckets of a histogram: bucket 0 is up to first CPUs, and each following one ends 5 % higher, as those
// of Kubernetes' vertical autoscaler and of Koordinator do; the last one ends at 2,500 CPUs.
const (
	numBuckets = 256
	first      = 0.01
	growth     = 1.05
)

// edges are the upper ends of the buckets, CPU-sec/sec.
var edges = func() (e [numBuckets]float64) {
	e[0] = first
	for i := 1; i < numBuckets; i++ {
		e[i] = e[i-1] * growth
	}
	return e
}()

// unit is what weights count: tenths of a second of a task. Whole numbers are the same on every machine, are
// short in a checkpoint, and what has decayed below one is gone, so that an hour is bounded by what it lately saw.
const unit = int64(100e6)

// Hour is what was seen of a job in one hour of the day (UTC): a decaying histogram of its tasks' usage.
type Hour struct {
	weights [numBuckets]uint32
	total   uint64 // of weights
	seen    uint32 // time for which the job was watched in this hour, in units; decays alike
	day     int32  // days since 1970, to which the weights have decayed

	// What follows from the weights, worked out when somebody asks and the weights changed since.
	fresh     bool
	share     float64
	high, mid float64
}

// age lets the weights decay to a day.
func (h *Hour) age(day int32, halfLifeDays float64) {
	if day <= h.day {
		return // also a clock that was set back
	}
	keep := math.Exp2(-float64(day-h.day) / halfLifeDays)
	h.day, h.fresh = day, false
	if h.total == 0 && h.seen == 0 {
		return
	}
	h.total = 0
	for i, w := range h.weights {
		if w > 0 {
			h.weights[i] = uint32(float64(w) * keep)
			h.total += uint64(h.weights[i])
		}
	}
	h.seen = uint32(float64(h.seen) * keep)
}

// add takes in that a task used so many CPUs for so long.
func (h *Hour) add(cpu float64, weight uint32) {
	i, _ := slices.BinarySearch(edges[:], cpu)
	i = min(i, numBuckets-1)
	if room := math.MaxUint32 - h.weights[i]; weight > room {
		weight = room
	}
	h.weights[i] += weight
	h.total += uint64(weight)
	h.fresh = false
}

// read returns the usage that was not passed for a share of the time, and the median; 0 where nothing was seen.
func (h *Hour) read(share float64) (high, mid float64) {
	if !h.fresh || h.share != share {
		h.high, h.mid, h.share, h.fresh = h.quantile(share), h.quantile(0.5), share, true
	}
	return h.high, h.mid
}

// quantile is the upper end of the bucket in which the share is reached: never less than what was seen.
func (h *Hour) quantile(share float64) float64 {
	if h.total == 0 {
		return 0
	}
	need := uint64(math.Ceil(share * float64(h.total)))
	sum := uint64(0)
	for i, w := range h.weights {
		if sum += uint64(w); sum >= need && w > 0 {
			return edges[i]
		}
	}
	return edges[numBuckets-1]
}

// text is an hour in a checkpoint: "20000 36000 40:3,0,7", the day, what was seen, and the weights from the first bucket
// that has any.
func (h *Hour) text() string {
	b := append(strconv.AppendInt(nil, int64(h.day), 10), ' ')
	b = append(strconv.AppendUint(b, uint64(h.seen), 10), ' ')
	from := slices.IndexFunc(h.weights[:], func(w uint32) bool { return w > 0 })
	if from < 0 {
		return string(b)
	}
	to := numBuckets
	for h.weights[to-1] == 0 {
		to--
	}
	b = strconv.AppendInt(b, int64(from), 10)
	sep := byte(':')
	for _, w := range h.weights[from:to] {
		b = strconv.AppendUint(append(b, sep), uint64(w), 10)
		sep = ','
	}
	return string(b)
}

// parse takes such a text in.
func (h *Hour) parse(text string) error {
	bad := fmt.Errorf("hour %.40q: expected a day, what was seen, and weights", text)
	var at int
	list := ""
	n, _ := fmt.Sscanf(text, "%d %d %d:%s", &h.day, &h.seen, &at, &list)
	switch {
	case n == 2:
		return nil
	case n != 4 || at < 0:
		return bad
	}
	for text := range strings.SplitSeq(list, ",") {
		w, err := strconv.ParseUint(text, 10, 32)
		if err != nil || at >= numBuckets {
			return bad
		}
		h.weights[at], h.total, at = uint32(w), h.total+w, at+1
	}
	return nil
}

// Hours are those of the day, UTC. In a checkpoint stand those of which something was seen.
type Hours [24]Hour

// MarshalJSON writes a text for each of them.
func (l *Hours) MarshalJSON() ([]byte, error) {
	texts := map[int]string{}
	for i := range l {
		if h := &l[i]; h.total > 0 || h.seen > 0 {
			texts[i] = h.text()
		}
	}
	return json.Marshal(texts)
}

// UnmarshalJSON reads them.
func (l *Hours) UnmarshalJSON(b []byte) error {
	texts := map[int]string{}
	if err := json.Unmarshal(b, &texts); err != nil {
		return err
	}
	*l = Hours{}
	for i, text := range texts {
		if i < 0 || i >= len(l) {
			return fmt.Errorf("hour %d; expected 0 to 23", i)
		}
		if err := l[i].parse(text); err != nil {
			return err
		}
	}
	return nil
}
