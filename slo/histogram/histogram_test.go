package histogram

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/commensal-io/commensal/slo"
)

func source(t *testing.T, c Config) *Source {
	t.Helper()
	c.Metric, c.Quantile = "rpc", 0.99
	if c.Address == "" {
		c.Address = "127.0.0.1:1"
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// page writes a histogram with buckets 1 ms, 10 ms, 100 ms and beyond.
func page(labels string, counts ...int) string {
	text := "# TYPE rpc histogram\n"
	for i, le := range []string{"0.001", "0.01", "0.1", "+Inf"} {
		text += fmt.Sprintf("rpc_bucket{%sle=%q} %d\n", labels, le, counts[i])
	}
	return text
}

func take(t *testing.T, s *Source, second int, page string) slo.Reading {
	t.Helper()
	got, err := s.parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	got.at = time.Unix(int64(second), 0)
	if err := s.take(got); err != nil {
		t.Fatal(err)
	}
	s.reason = ""
	return s.Read(got.at)
}

// What counts is what came since the window began, by interpolation; a service that was started anew, or a
// series more, begins anew; requests beyond the last bound lie beyond it.
func TestIncrease(t *testing.T) {
	s := source(t, Config{Window: 3 * time.Second})
	if r := take(t, s, 0, page("", 1e6, 1e6, 1e6, 1e6)); r.Samples != 0 || r.Valid != 0 || r.Status.State != slo.StateTooFew {
		t.Errorf("first page: %+v", r)
	}
	r := take(t, s, 1, page("", 1e6+900, 1e6+1000, 1e6+1000, 1e6+1000))
	if want := 9100 * time.Microsecond; r.Samples != 1000 || r.Asked.Round(time.Microsecond) != want || r.P99 != r.Asked || !r.Valid.Has(slo.HasAsked|slo.HasP999) {
		t.Errorf("second page: %+v, want p99 %v", r, want)
	}
	if r.P50.Round(time.Microsecond) != 556*time.Microsecond {
		t.Errorf("p50 %v", r.P50)
	}
	for i := 2; i < 6; i++ { // nothing more comes
		r = take(t, s, i, page("", 1e6+900, 1e6+1000, 1e6+1000, 1e6+1000))
	}
	if r.Samples != 0 || r.Valid != 0 {
		t.Errorf("a window without requests: %+v", r)
	}
	if r = take(t, s, 6, page("", 10, 10, 10, 10)); r.Samples != 0 || len(s.scrapes) != 1 {
		t.Errorf("after a start anew: %+v, %d scrapes", r, len(s.scrapes))
	}
	if r = take(t, s, 7, page("", 10, 10, 10, 510)); r.Asked <= 100*time.Millisecond || r.Asked > 101*time.Millisecond {
		t.Errorf("beyond the last bound: %+v", r)
	}
	two := page(`a="1",`, 10, 10, 10, 510) + strings.TrimPrefix(page(`a="2",`, 5, 5, 5, 5), "# TYPE rpc histogram\n")
	if r = take(t, s, 8, two); r.Samples != 0 {
		t.Errorf("after a series came: %+v", r)
	}
	if r := s.Read(time.Unix(13, 0)); r.Status.State != slo.StateUnavailable || !strings.Contains(r.Status.Reason, "no page since") {
		t.Errorf("after a page of long ago: %+v", r)
	}
}

func TestPagesAreRefused(t *testing.T) {
	s := source(t, Config{Labels: map[string]string{"path": "/"}, Target: 50 * time.Millisecond})
	at := `path="/",`
	for name, c := range map[string]struct{ page, want string }{
		"garbage":      {"\x00rubbish{", "not a page"},
		"nothing":      {"", "no histogram rpc"},
		"a counter":    {"# TYPE rpc counter\nrpc 1\n", "no histogram rpc"},
		"other labels": {page(`path="/x",`, 1, 1, 1, 1), "labels"},
		"falls":        {page(at, 4, 3, 3, 3), "do not add up"},
		"no infinity":  {"# TYPE rpc histogram\nrpc_bucket{path=\"/\",le=\"1\"} 1\n", "le="},
		"last bound":   {"# TYPE rpc histogram\nrpc_bucket{path=\"/\",le=\"0.01\"} 1\nrpc_bucket{path=\"/\",le=\"+Inf\"} 1\n", "under the target"},
		"differ":       {page(at, 1, 1, 1, 1) + "rpc_bucket{path=\"/\",a=\"b\",le=\"1\"} 1\nrpc_bucket{path=\"/\",a=\"b\",le=\"+Inf\"} 1\n", "different buckets"},
		"negative":     {strings.Replace(page(at, 1, 1, 1, 1), " 1\n", " -1\n", 1), "not a page"},
	} {
		if _, err := s.parse(strings.NewReader(c.page)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, c := range []Config{{Address: "x", Metric: "rpc"}, {Address: "127.0.0.1:1"}, {Address: "unix:", Metric: "rpc"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{1, 2, math.Inf(1)}
	for _, c := range []struct {
		q      float64
		counts []float64
		want   float64
	}{
		{0.5, []float64{10, 10, 10}, 0.5},
		{0.5, []float64{0, 10, 10}, 1.5},
		{0.99, []float64{0, 0, 10}, math.Nextafter(2, 3)},
		{1, []float64{10, 10, 10}, 1},
	} {
		if got := quantile(bounds, c.counts, c.q); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%g of %v: %v, want %v", c.q, c.counts, got, c.want)
		}
	}
}

// A page of the library that services use, with other things on it.
func TestRealPage(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rpc", Buckets: []float64{0.001, 0.005, 0.05}, Help: "x"}, []string{"path"})
	reg.MustRegister(h, prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"}))
	var down atomic.Bool
	page := promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		for range 1000 {
			h.WithLabelValues("/").Observe(0.002)
			h.WithLabelValues("/slow").Observe(1)
		}
		page.ServeHTTP(w, r)
	}))
	defer server.Close()
	s := source(t, Config{Address: strings.TrimPrefix(server.URL, "http://"), Labels: map[string]string{"path": "/"}, Interval: 20 * time.Millisecond, Window: 200 * time.Millisecond})
	if r := s.Read(time.Now()); r.Status.String() != "unavailable: not started" {
		t.Error(r.Status)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	await := func(ok func(slo.Reading) bool) {
		t.Helper()
		for began := time.Now(); !ok(s.Read(time.Now())); time.Sleep(5 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("never: %+v", s.Read(time.Now()))
			}
		}
	}
	await(func(r slo.Reading) bool {
		return r.Status.State == slo.StateOK && r.Asked > time.Millisecond && r.Asked <= 5*time.Millisecond
	})
	down.Store(true)
	await(func(r slo.Reading) bool { return r.Status.String() == "unavailable: status 502, expected 200" })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("started after Close")
	}
	if r := s.Read(time.Now()); r.Status.String() != "unavailable: closed" {
		t.Error(r.Status)
	}
}
