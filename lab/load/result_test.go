package load

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// testResult returns a run of windows of one second with known latencies, and all of them.
func testResult(windows, perWindow int) (*Result, [][]time.Duration) {
	rng := rand.New(rand.NewPCG(1, 1))
	r := &Result{Seed: 1}
	all := make([][]time.Duration, windows)
	for i := range windows {
		w := Window{Start: Span{time.Duration(i) * time.Second}, Summary: Summary{Length: Span{time.Second}}}
		for range perWindow {
			v := time.Duration(float64(time.Millisecond) * (1 + float64(i)) * rng.ExpFloat64())
			all[i] = append(all[i], v)
			w.Latencies.record(v)
			w.Latenesses.record(v / 10)
		}
		w.Sent, w.Done = int64(perWindow), int64(perWindow)
		w.fill(&w.Latencies, &w.Latenesses)
		r.Windows = append(r.Windows, w)
	}
	r.Summary = r.Over(func(*Window) bool { return true })
	return r, all
}

// near allows the histogram's three digits, and half a microsecond at the low end.
func near(got, want time.Duration) bool {
	d := got - want
	return max(d, -d) <= want/500+time.Microsecond
}

func TestBetweenMergesLatencies(t *testing.T) {
	r, all := testResult(6, 5000)
	for _, c := range []struct {
		from, to time.Duration
		windows  []int
	}{
		{0, 6 * time.Second, []int{0, 1, 2, 3, 4, 5}},
		{2 * time.Second, 4 * time.Second, []int{2, 3}},
		{1500 * time.Millisecond, 3500 * time.Millisecond, []int{2}}, // cut windows are left out
		{0, time.Hour, []int{0, 1, 2, 3, 4, 5}},
		{4 * time.Second, 4 * time.Second, nil},
	} {
		var want []time.Duration
		for _, i := range c.windows {
			want = append(want, all[i]...)
		}
		slices.Sort(want)
		s := r.Between(c.from, c.to)
		if int(s.Sent) != len(want) || s.Length.Duration != time.Duration(len(c.windows))*time.Second {
			t.Errorf("[%v, %v): %d requests in %v, want %d", c.from, c.to, s.Sent, s.Length, len(want))
		}
		if len(want) == 0 {
			if s != (Summary{}) {
				t.Errorf("nothing gave %+v", s)
			}
			continue
		}
		p99 := want[len(want)*99/100-1]
		p50 := want[len(want)/2-1]
		if !near(s.P99.Duration, p99) || !near(s.P50.Duration, p50) || s.Max.Duration != want[len(want)-1] {
			t.Errorf("[%v, %v): p50 %v p99 %v max %v, want %v %v %v", c.from, c.to, s.P50, s.P99, s.Max, p50, p99, want[len(want)-1])
		}
	}
	odd := r.Over(func(w *Window) bool { return w.Start.Duration/time.Second%2 == 1 })
	if odd.Sent != 15000 {
		t.Errorf("odd windows hold %d", odd.Sent)
	}
}

func TestDistEdges(t *testing.T) {
	var d dist
	if p50, _, p999 := d.percentiles(); p50.Duration != 0 || p999.Duration != 0 || d.mean() != 0 {
		t.Error("empty")
	}
	for _, v := range []time.Duration{0, -time.Second, time.Nanosecond, time.Hour, 1<<63 - 1} {
		d.record(v)
	}
	if d.count != 5 || d.max != 1<<63-1 {
		t.Errorf("%+v", d)
	}
	if p50, _, _ := d.percentiles(); p50.Duration > 2*time.Microsecond {
		t.Errorf("p50 %v", p50)
	}
}

func TestWindowSize(t *testing.T) {
	r, _ := testResult(1, 4000)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Windows[0].Latencies.hist.GetMemorySize(); n > 32<<10 || len(b) > 32<<10 {
		t.Errorf("a window takes %d bytes, %d on the wire", n, len(b))
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	good, err := json.Marshal(func() *Result { r, _ := testResult(1, 3); return r }())
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{
		"not JSON":       `{`,
		"no histogram":   `{"windows":[{"latency_distribution":{"count":3}}]}`,
		"bad histogram":  `{"windows":[{"latency_distribution":{"count":3,"histogram":"SElTVAAA"}}]}`,
		"count differs":  strings.Replace(string(good), `"latency_distribution":{"count":3`, `"latency_distribution":{"count":4`, 1),
		"negative count": strings.Replace(string(good), `"latency_distribution":{"count":3`, `"latency_distribution":{"count":-3`, 1),
	} {
		var r Result
		if err := json.Unmarshal([]byte(s), &r); err == nil {
			t.Errorf("%s was taken: %s", name, s)
		}
	}
}

// FuzzResultJSON checks that whatever is taken can be merged and written again.
func FuzzResultJSON(f *testing.F) {
	r, _ := testResult(2, 50)
	b, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"windows":[{"latency_distribution":{"count":0}}]}`))
	f.Add([]byte(`{"p99_seconds":1e300,"windows":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Result
		if err := json.Unmarshal(b, &r); err != nil {
			return
		}
		s := r.Over(func(*Window) bool { return true })
		if s.P50.Duration > s.P99.Duration || s.P99.Duration > s.P999.Duration {
			t.Errorf("figures out of order: %+v", s)
		}
		if _, err := json.Marshal(&r); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
