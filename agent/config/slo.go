package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/histogram"
	"github.com/commensal-io/commensal/slo/memcached"
	"github.com/commensal-io/commensal/slo/probe"
	"github.com/commensal-io/commensal/slo/program"
	"github.com/commensal-io/commensal/slo/redis"
	"github.com/commensal-io/commensal/slo/web"
)

// SLO is a latency source of an LC job, and what is held against it. What is left out has the
// default of its kind.
type SLO struct {
	Job     string        `yaml:"job"`
	Kind    string        `yaml:"kind"`
	Address string        `yaml:"address,omitempty"` // host:port, or unix:/path
	Poll    time.Duration `yaml:"poll,omitempty"`    // from one request to the next
	Window  time.Duration `yaml:"window,omitempty"`
	Timeout time.Duration `yaml:"timeout,omitempty"` // a request that fails counts as this late

	Target   time.Duration `yaml:"target,omitempty"` // 0: none
	Quantile float64       `yaml:"quantile,omitempty"`
	Yellow   float64       `yaml:"yellow,omitempty"` // margins, as shares of the target
	Green    float64       `yaml:"green,omitempty"`

	Keys    []string          `yaml:"keys,omitempty"`
	Command []string          `yaml:"command,omitempty"`
	Path    string            `yaml:"path,omitempty"`
	Method  string            `yaml:"method,omitempty"`
	Host    string            `yaml:"host,omitempty"`
	Status  int               `yaml:"status,omitempty"`
	Metric  string            `yaml:"metric,omitempty"`
	Labels  map[string]string `yaml:"labels,omitempty"`
	Unit    time.Duration     `yaml:"unit,omitempty"` // of the histogram's bounds
}

// sloKinds are the kinds of latency sources.
var sloKinds = []string{"memcached", "redis", "http", "prometheus", "program"}

// Objective is what the job promises.
func (s *SLO) Objective() slo.Objective {
	o := slo.Objective{Target: s.Target, Quantile: s.Quantile, Yellow: s.Yellow, Green: s.Green}
	o.Quantile = cmp.Or(o.Quantile, 0.99)
	o.Yellow = cmp.Or(o.Yellow, slo.DefaultYellow)
	o.Green = cmp.Or(o.Green, slo.DefaultGreen)
	return o
}

// Patience is how long a probe waits for an answer, and what a request that fails counts as.
func (s *SLO) Patience() time.Duration {
	return cmp.Or(s.Timeout, max(probe.DefaultTimeout, 4*s.Target)) // what fails must lie beyond the target
}

// window returns poll, window and timeout as the kind takes them.
func (s *SLO) window() (poll, window, timeout time.Duration) {
	return cmp.Or(s.Poll, slo.DefaultInterval), cmp.Or(s.Window, slo.DefaultWindow), s.Patience()
}

// Source makes the source, which then is still to be started.
func (s *SLO) Source() (slo.Source, error) {
	poll, window, timeout := s.window()
	network, address := "tcp", s.Address
	if path, ok := strings.CutPrefix(s.Address, "unix:"); ok {
		network, address = "unix", path
	}
	q := s.Objective().Quantile
	c := probe.Config{Interval: poll, Window: window, Timeout: timeout, Quantile: q}
	switch s.Kind {
	case "memcached":
		return memcached.New(c, network, address, s.Keys...)
	case "redis":
		return redis.New(c, network, address, s.Command...)
	case "http":
		return web.New(c, web.Request{Address: s.Address, Method: s.Method, Path: s.Path, Host: s.Host, Status: s.Status})
	case "prometheus":
		return histogram.New(histogram.Config{
			Address: s.Address, Host: s.Host, Path: s.Path, Metric: s.Metric, Labels: s.Labels, Unit: s.Unit,
			Interval: s.Poll, Window: s.Window, Quantile: q, Target: s.Target,
		})
	case "program":
		return program.New(program.Config{Command: s.Command, Window: window, Timeout: timeout, Quantile: q})
	}
	return nil, fmt.Errorf("unknown kind %q", s.Kind)
}

func (c *Config) checkSLO() []check {
	var checks []check
	for i := range c.SLO {
		s := &c.SLO[i]
		k := func(name string) string { return fmt.Sprintf("slo[%d].%s", i, name) }
		known := slices.ContainsFunc(c.Tasks, func(t Task) bool { return t.Job == s.Job })
		again := slices.ContainsFunc(c.SLO[:i], func(o SLO) bool { return o.Job == s.Job })
		checks = append(checks,
			check{k("job"), known, fmt.Sprintf("is %q, which no rule under tasks names", s.Job)},
			check{k("job"), !again, fmt.Sprintf("is %q again; a job has one source", s.Job)},
			check{k("kind"), slices.Contains(sloKinds, s.Kind), fmt.Sprintf("is %q; expected one of %s", s.Kind, strings.Join(sloKinds, ", "))},
		)
		checks = append(checks, s.checkKeys(k)...)
		o := s.Objective()
		poll, window, timeout := s.window()
		inSteps := slices.Contains([]string{"memcached", "redis", "http"}, s.Kind)
		checks = append(checks,
			check{k("poll"), s.Poll == 0 || s.Poll >= time.Millisecond, "expected at least 1ms, or nothing for 20ms"},
			check{k("poll"), s.Kind != "prometheus" || s.Poll == 0 || s.Poll >= 100*time.Millisecond, "expected at least 100ms between two pages, or nothing for 1s"},
			check{k("window"), s.Window == 0 || s.Window >= 100*time.Millisecond, "expected at least 100ms, or nothing for 3s"},
			check{k("window"), s.Kind != "prometheus" || s.Window == 0 || s.Window >= 2*max(s.Poll, 100*time.Millisecond), "expected at least two times poll: what counts is the increase between pages"},
			check{k("window"), s.Window <= time.Minute, fmt.Sprintf("is %s; expected at most 1m", s.Window)},
			check{k("target"), s.Target >= 0 && s.Target <= time.Minute, fmt.Sprintf("is %s; expected up to 1m", s.Target)},
			check{k("target"), s.Target < timeout, fmt.Sprintf("is %s; expected less than timeout, %s", s.Target, timeout)},
			check{k("quantile"), o.Quantile >= 0.5 && o.Quantile <= 0.9999, fmt.Sprintf("is %g; expected 0.5 to 0.9999, such as 0.99", o.Quantile)},
			check{k("yellow"), o.Yellow >= 0 && o.Yellow <= o.Green, fmt.Sprintf("is %g; expected a share of the target, at most green (%g)", o.Yellow, o.Green)},
			check{k("green"), o.Green < 1, fmt.Sprintf("is %g; expected a share of the target, less than 1", o.Green)},
		)
		if need := slo.MinSamples(o.Quantile); inSteps && poll > 0 {
			n := int(window / poll)
			checks = append(checks, check{k("quantile"), n >= need, fmt.Sprintf("is %g, which takes %d requests a window; %s with one each %s are %d", o.Quantile, need, window, poll, n)})
		}
		if slices.Contains(sloKinds, s.Kind) && !slices.ContainsFunc(checks, func(c check) bool { return !c.ok }) {
			_, err := s.Source()
			checks = append(checks, check{fmt.Sprintf("slo[%d]", i), err == nil, fmt.Sprint(err)})
		}
	}
	return checks
}

// checkKeys finds keys that are missing, or that the kind does not know.
func (s *SLO) checkKeys(k func(string) string) (checks []check) {
	for _, of := range []struct {
		key   string
		set   bool
		kinds []string
		must  string // which of them cannot do without
		what  string
	}{
		{"address", s.Address != "", sloKinds[:4], "memcached redis http prometheus", "host:port or unix:/path"},
		{"timeout", s.Timeout != 0, []string{"memcached", "redis", "http", "program"}, "", ""},
		{"keys", s.Keys != nil, sloKinds[:1], "", ""},
		{"command", s.Command != nil, []string{"redis", "program"}, "program", "the program and its arguments"},
		{"path", s.Path != "", []string{"http", "prometheus"}, "", ""},
		{"host", s.Host != "", []string{"http", "prometheus"}, "", ""},
		{"method", s.Method != "", []string{"http"}, "", ""},
		{"status", s.Status != 0, []string{"http"}, "", ""},
		{"metric", s.Metric != "", []string{"prometheus"}, "prometheus", "the name of a histogram"},
		{"labels", s.Labels != nil, []string{"prometheus"}, "", ""},
		{"unit", s.Unit != 0, []string{"prometheus"}, "", ""},
	} {
		checks = append(checks,
			check{k(of.key), !of.set || slices.Contains(of.kinds, s.Kind), fmt.Sprintf("is of kind %s; %s has none", strings.Join(of.kinds, " and "), s.Kind)},
			check{k(of.key), of.set || !slices.Contains(strings.Fields(of.must), s.Kind), fmt.Sprintf("is missing; expected %s", of.what)},
		)
	}
	return append(checks,
		check{k("method"), slices.Contains([]string{"", "GET", "HEAD"}, s.Method), fmt.Sprintf("is %q; expected GET or HEAD", s.Method)},
		check{k("status"), s.Status == 0 || s.Status >= 200 && s.Status <= 599, fmt.Sprintf("is %d; expected 200 to 599", s.Status)},
		check{k("timeout"), s.Timeout >= 0 && s.Timeout <= time.Minute, fmt.Sprintf("is %s; expected up to 1m", s.Timeout)},
		check{k("unit"), s.Unit >= 0, fmt.Sprintf("is %s; expected 1s, 1ms or 1us", s.Unit)},
	)
}
