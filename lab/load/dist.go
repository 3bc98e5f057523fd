package load

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of the histograms, in nanoseconds: 1 µs to 60 s, 3 digits. What is
// faster or slower is entered at the edge; the maximum and the sum are kept exactly.
const (
	histLowest  = int64(time.Microsecond)
	histHighest = int64(60 * time.Second)
	histDigits  = 3
)

// dist is a distribution of durations. The packed histogram takes some kilobytes where the
// plain one takes 147 KiB, so that each window can keep its own. The zero value is empty.
type dist struct {
	hist  *hdrhistogram.PackedHistogram // nil while empty
	count int64
	sum   time.Duration
	max   time.Duration
}

func newHist() *hdrhistogram.PackedHistogram {
	return hdrhistogram.NewPacked(histLowest, histHighest, histDigits)
}

func (d *dist) record(v time.Duration) {
	if d.hist == nil {
		d.hist = newHist()
	}
	if err := d.hist.RecordValue(min(max(int64(v), histLowest), histHighest)); err != nil {
		panic(fmt.Sprintf("load: a value within the histogram's range: %v", err)) // our own invariant
	}
	d.count++
	d.sum += v
	d.max = max(d.max, v)
}

func (d *dist) merge(o *dist) {
	if o.count == 0 {
		return
	}
	if d.hist == nil {
		d.hist = newHist()
	}
	d.hist.Merge(o.hist)
	d.count += o.count
	d.sum += o.sum
	d.max = max(d.max, o.max)
}

func (d *dist) clone() dist {
	c := *d
	if d.hist != nil {
		c.hist = d.hist.Clone()
	}
	return c
}

func (d *dist) mean() time.Duration {
	if d.count == 0 {
		return 0
	}
	return d.sum / time.Duration(d.count)
}

// percentiles returns p50, p99 and p99.9, each at most the exact maximum (a histogram
// answers with the upper edge of a bucket); zeros when empty.
func (d *dist) percentiles() (p50, p99, p999 Span) {
	if d.count == 0 {
		return
	}
	v := d.hist.ValueAtPercentilesSlice([]float64{50, 99, 99.9})
	of := func(i int) Span { return Span{min(time.Duration(v[i]), d.max)} }
	return of(0), of(1), of(2)
}

// distJSON is a dist on the wire. Histogram is HdrHistogram's V2 compressed form in base64,
// which its other implementations read too; its unit is the nanosecond.
type distJSON struct {
	Count     int64  `json:"count"`
	Sum       Span   `json:"sum_seconds"`
	Max       Span   `json:"max_seconds"`
	Histogram string `json:"histogram,omitempty"`
}

// MarshalJSON writes the distribution with its histogram.
func (d dist) MarshalJSON() ([]byte, error) {
	j := distJSON{Count: d.count, Sum: Span{d.sum}, Max: Span{d.max}}
	if d.count > 0 {
		b, err := d.hist.Encode()
		if err != nil {
			return nil, fmt.Errorf("load: encode histogram: %w", err)
		}
		j.Histogram = string(b)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *dist) UnmarshalJSON(b []byte) error {
	var j distJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*d = dist{count: j.Count, sum: j.Sum.Duration, max: j.Max.Duration}
	if j.Count == 0 {
		return nil
	}
	h, err := hdrhistogram.DecodePacked([]byte(j.Histogram))
	if err != nil {
		return fmt.Errorf("load: decode histogram: %w", err)
	}
	if h.TotalCount() != j.Count {
		return fmt.Errorf("load: histogram holds %d values, expected %d", h.TotalCount(), j.Count)
	}
	d.hist = h
	return nil
}
