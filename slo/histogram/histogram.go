// Package histogram reads a service's latency from a histogram that the service itself gives to
// Prometheus: how many requests lay under each bound. What counts is the increase over the window.
//
// It sees every request, but only those that ended, at the place where the service measures: before that
// they wait in the kernel. And what it says is as exact as the buckets.
package histogram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/web"
)

// Limits on a page. More is refused rather than held in memory.
const (
	maxPage    = 8 << 20
	maxBuckets = 1000
)

// DefaultInterval is from one scrape to the next: a page costs its service far more than a request.
const DefaultInterval = time.Second

const timeout = 2 * time.Second

// Config says which histogram. Zero durations take the default.
type Config struct {
	Address, Host, Path string            // as of web.Request; no path: /metrics
	Metric              string            // without _bucket
	Labels              map[string]string // that a series must have; all series that have them are added up
	Unit                time.Duration     // of its bounds; 0: seconds
	Interval            time.Duration
	Window              time.Duration // default 3 s, and at least two intervals
	Quantile            float64       // that is asked for beside the usual ones
	Target              time.Duration // that it must be able to tell from more
}

// Source is an slo.Source.
type Source struct {
	config Config
	client *http.Client
	url    string

	mu      sync.Mutex
	reason  string
	scrapes []scrape // of the window, oldest first, and one before
	reading slo.Reading

	life slo.Life
}

var _ slo.Source = (*Source)(nil)

// scrape is what a page said.
type scrape struct {
	at     time.Time
	series int
	bounds []float64 // ascending, the last one infinite
	counts []float64 // of requests at or under a bound
}

// New returns a source that has not yet begun.
func New(c Config) (*Source, error) {
	c.Unit = cmp.Or(c.Unit, time.Second)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	if c.Window == 0 {
		c.Window = max(slo.DefaultWindow, 2*c.Interval)
	}
	c.Path = cmp.Or(c.Path, "/metrics")
	if c.Metric == "" {
		return nil, errors.New("which metric? expected the name of a histogram")
	}
	client, base, err := web.Client(c.Address, c.Host, 1)
	if err != nil {
		return nil, err
	}
	s := &Source{config: c, client: client, url: base + "/" + strings.TrimPrefix(c.Path, "/"), reason: "not started"}
	return s, nil
}

// Start begins to scrape. See slo.Source.
func (s *Source) Start(ctx context.Context) error { return s.life.Start(ctx, s.loop) }

// Close ends it. See slo.Source.
func (s *Source) Close() error { return s.life.Close() }

// Read returns the figures of the last scrape, as long as it is not old. See slo.Source.
func (s *Source) Read(now time.Time) slo.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" || len(s.scrapes) == 0 {
		return slo.Reading{Window: s.config.Window}.Unavailable(s.reason)
	}
	if last := s.scrapes[len(s.scrapes)-1].at; now.Sub(last) > s.config.Interval+s.config.Window {
		return s.reading.Unavailable(fmt.Sprintf("no page since %v", now.Sub(last).Round(time.Second)))
	}
	return s.reading
}

func (s *Source) setReason(reason string) {
	s.mu.Lock()
	s.reason = reason
	s.mu.Unlock()
}

func (s *Source) loop(ctx context.Context) {
	s.setReason("connecting")
	defer s.client.CloseIdleConnections()
	tick := time.NewTicker(s.config.Interval)
	defer tick.Stop()
	for {
		got, err := s.scrape(ctx)
		s.mu.Lock()
		if ctx.Err() != nil {
			err = errors.New("closed")
		}
		if err == nil {
			err = s.take(got)
		}
		if s.reason = ""; err != nil {
			s.reason, s.scrapes = err.Error(), s.scrapes[:0] // what is in between is not known
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			s.setReason("closed")
			return
		case <-tick.C:
		}
	}
}

// scrape reads the page.
func (s *Source) scrape(ctx context.Context) (*scrape, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Host = s.config.Host
	request.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d, expected 200", answer.StatusCode)
	}
	page := &io.LimitedReader{R: answer.Body, N: maxPage + 1}
	got, err := s.parse(page)
	if page.N <= 0 {
		return nil, fmt.Errorf("a page of more than %d bytes", maxPage)
	}
	if got != nil {
		got.at = time.Now()
	}
	return got, err
}

// parse adds up the series of the histogram on a page.
func (s *Source) parse(page io.Reader) (*scrape, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		return nil, fmt.Errorf("not a page of metrics: %w", err)
	}
	family := families[s.config.Metric]
	if family == nil || family.GetType() != dto.MetricType_HISTOGRAM {
		return nil, fmt.Errorf("there is no histogram %s on the page", s.config.Metric)
	}
	sum := &scrape{}
	for _, m := range family.GetMetric() {
		if !s.wanted(m) {
			continue
		}
		if err := sum.add(m.GetHistogram()); err != nil {
			return nil, fmt.Errorf("histogram %s: %w", s.config.Metric, err)
		}
	}
	if sum.series == 0 {
		return nil, fmt.Errorf("no series of histogram %s has the labels asked for", s.config.Metric)
	}
	if last := sum.bounds[len(sum.bounds)-2]; last*float64(s.config.Unit) < float64(s.config.Target) {
		return nil, fmt.Errorf("the last bound of histogram %s is %g, under the target %v: it cannot tell", s.config.Metric, last, s.config.Target)
	}
	return sum, nil
}

func (s *Source) wanted(m *dto.Metric) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, ok := s.config.Labels[l.GetName()]; ok && want == l.GetValue() {
			found++
		}
	}
	return found == len(s.config.Labels)
}

// add takes one series in.
func (s *scrape) add(h *dto.Histogram) error {
	var bounds, counts []float64
	for _, b := range h.GetBucket() {
		bounds, counts = append(bounds, b.GetUpperBound()), append(counts, float64(b.GetCumulativeCount()))
	}
	if n := len(bounds); n < 2 || n > maxBuckets || !math.IsInf(bounds[n-1], 1) || !(bounds[0] >= 0) {
		return fmt.Errorf("expected 2 to %d buckets, the last one le=\"+Inf\"", maxBuckets)
	}
	for i := 1; i < len(bounds); i++ {
		if !(bounds[i] > bounds[i-1]) || counts[i] < counts[i-1] {
			return errors.New("its buckets are not in order, or do not add up")
		}
	}
	if s.series++; s.series == 1 {
		s.bounds, s.counts = bounds, counts
		return nil
	}
	if !slices.Equal(bounds, s.bounds) {
		return errors.New("its series have different buckets: ask for one by its labels")
	}
	for i := range counts {
		s.counts[i] += counts[i]
	}
	return nil
}

// take enters a scrape and works out the figures. Where a count went back, the service was started
// anew, or a series came or went: nothing before it can be compared.
func (s *Source) take(now *scrape) error {
	if n := len(s.scrapes); n > 0 {
		last := &s.scrapes[n-1]
		anew := last.series != now.series || !slices.Equal(last.bounds, now.bounds)
		for i := 0; i < len(now.counts) && !anew; i++ {
			anew = now.counts[i] < last.counts[i]
		}
		if anew {
			s.scrapes = s.scrapes[:0]
		}
	}
	s.scrapes = append(s.scrapes, *now)
	for len(s.scrapes) > 2 && now.at.Sub(s.scrapes[1].at) >= s.config.Window {
		s.scrapes = slices.Delete(s.scrapes, 0, 1)
	}
	first := &s.scrapes[0]
	grown := make([]float64, len(now.counts))
	for i := range grown {
		grown[i] = now.counts[i] - first.counts[i]
		if i > 0 && grown[i] < grown[i-1] {
			s.scrapes = s.scrapes[len(s.scrapes)-1:]
			return errors.New("its buckets grew in a way that does not add up")
		}
	}
	n := int(min(grown[len(grown)-1], 1e9))
	r := slo.Reading{Samples: n, Window: now.at.Sub(first.at), Valid: slo.ValidFor(n, s.config.Quantile), Status: slo.Status{State: slo.StateTooFew}}
	of := func(bit slo.Percentiles, q float64) time.Duration {
		if !r.Valid.Has(bit) {
			return 0
		}
		return s.config.duration(quantile(now.bounds, grown, q))
	}
	r.P50, r.P99, r.P999, r.Asked = of(slo.HasP50, 0.5), of(slo.HasP99, 0.99), of(slo.HasP999, 0.999), of(slo.HasAsked, s.config.Quantile)
	if r.Valid.Has(slo.HasP50 | slo.HasP99) {
		r.Status.State = slo.StateOK
	}
	s.reading = r
	return nil
}

// quantile is Prometheus' histogram_quantile: as if the requests of a bucket lay evenly in it. Of those
// beyond the last bound it is only known that they are beyond it: the least number that is.
func quantile(bounds, counts []float64, q float64) float64 {
	rank := q * counts[len(counts)-1]
	i, _ := slices.BinarySearch(counts, rank)
	if i >= len(bounds)-1 {
		return math.Nextafter(bounds[len(bounds)-2], math.Inf(1))
	}
	lo, below := 0.0, 0.0
	if i > 0 {
		lo, below = bounds[i-1], counts[i-1]
	}
	if counts[i] <= below {
		return bounds[i]
	}
	return lo + (bounds[i]-lo)*(rank-below)/(counts[i]-below)
}

// duration rounds up, so that what is beyond a bound stays beyond it.
func (c *Config) duration(v float64) time.Duration {
	return time.Duration(min(math.Ceil(v*float64(c.Unit)), float64(math.MaxInt64/2)))
}
