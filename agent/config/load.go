package config

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/node/match"
)

// maxFileBytes bounds the file: a thousand rules fit in a fraction of it.
const maxFileBytes = 1 << 20

// maxHistoryWindows bounds the correlation window: an hour of one-second windows.
const maxHistoryWindows = 3600

// Load reads and checks a file. Every error is one line that begins with the file's
// name and, where there is one, the line.
func Load(path string) (*Config, error) {
	b, err := strictyaml.ReadFile(path, maxFileBytes)
	if err != nil {
		return nil, err
	}
	return Parse(path, b)
}

// Parse checks a file's content; name stands in the errors.
func Parse(name string, b []byte) (*Config, error) {
	doc, err := strictyaml.Parse(name, b)
	if err != nil {
		return nil, err
	}
	if err := doc.Version(Version); err != nil {
		return nil, err
	}
	profile := ProfileCPI2
	if text, ok := doc.Value("profile"); ok {
		profile = text
	}
	c, ok := Defaults(profile)
	if !ok {
		return nil, doc.Errorf("profile", "unknown profile %q; expected one of %s", profile, strings.Join(Profiles(), ", "))
	}
	if err := doc.Decode(&c); err != nil {
		return nil, err
	}
	if key, why := c.Validate(); why != "" {
		return nil, doc.Errorf(key, "%s", why)
	}
	return &c, nil
}

// check is one rule on one key.
type check struct {
	key  string
	ok   bool
	want string
}

// Validate finds the first impossible value; why is empty when there is none.
func (c *Config) Validate() (key, why string) {
	for _, group := range [][]check{c.checkTop(), c.checkCPI2(), c.checkSlowdown(), c.checkGroups(), c.checkFeedback(), c.checkConfirm(), c.checkCPU(), c.checkAgent(), c.checkTasks(), c.checkSLO()} {
		for _, ch := range group {
			if !ch.ok {
				return ch.key, ch.want
			}
		}
	}
	if _, err := match.Compile(c.Rules()); err != nil {
		return ruleOf(err), err.Error()
	}
	return "", ""
}

func (c *Config) checkTop() []check {
	var mode model.Mode
	checks := []check{
		{"version", c.Version == Version, fmt.Sprintf("is %d; expected %d", c.Version, Version)},
		{"mode", mode.UnmarshalText([]byte(c.Mode)) == nil, fmt.Sprintf("is %q; expected off, observe or enforce", c.Mode)},
		{"signals", len(c.Signals) > 0, "is empty; expected cpi, slowdown or both"},
		{"limits.max_held_tasks", c.Limits.MaxHeldTasks >= 1, "expected at least 1 (mode: observe holds nobody)"},
		between("limits.max_be_cpu_taken", c.Limits.MaxBECPUTaken, 0, 1, "a share"),
		{"record.max_bytes", c.Record.MaxBytes >= 1<<20, "expected at least 1 MiB (enabled: false records nothing)"},
	}
	for i, s := range c.Signals {
		var src model.Source
		checks = append(checks, check{fmt.Sprintf("signals[%d]", i), src.UnmarshalText([]byte(s)) == nil, fmt.Sprintf("is %q; expected cpi or slowdown", s)})
	}
	return checks
}

func (c *Config) checkCPI2() []check {
	p := &c.CPI2
	k := func(name string) string { return "cpi2." + name }
	return []check{
		{k("collection_granularity"), p.CollectionGranularity == "task", fmt.Sprintf("is %q; only task is built", p.CollectionGranularity)},
		{k("aggregation_granularity"), p.AggregationGranularity == "job x CPU type", fmt.Sprintf("is %q; only \"job x CPU type\" is built", p.AggregationGranularity)},
		atLeast(k("sampling_duration"), p.SamplingDuration, 100*time.Millisecond),
		atLeast(k("sampling_frequency"), p.SamplingFrequency, p.SamplingDuration),
		atLeast(k("predicted_cpi_recalculated"), p.PredictedCPIRecalculated, p.SamplingFrequency),
		between(k("required_cpu_usage"), p.RequiredCPUUsage, 0, 1024, "CPU-sec/sec"),
		between(k("outlier_threshold_1"), p.OutlierThreshold1, 0, 100, "standard deviations"),
		{k("outlier_threshold_2.violations"), p.OutlierThreshold2.Violations >= 1 && p.OutlierThreshold2.Violations <= 1000, "expected 1 to 1000"},
		{
			k("outlier_threshold_2.window"), p.OutlierThreshold2.Window >= time.Duration(p.OutlierThreshold2.Violations)*p.SamplingFrequency,
			fmt.Sprintf("is %s, in which %d windows of %s do not fit", p.OutlierThreshold2.Window, p.OutlierThreshold2.Violations, p.SamplingFrequency),
		},
		between(k("antagonist_correlation_threshold"), p.AntagonistCorrelationThreshold, 0, 1, "a correlation"),
		between(k("hard_capping_quota"), p.HardCappingQuota, 0.001, 1024, "CPU-sec/sec; the kernel's least is 1 ms in 1 s"),
		between(k("hard_capping_quota_best_effort"), p.HardCappingQuotaBestEffort, 0.001, 1024, "CPU-sec/sec; the kernel's least is 1 ms in 1 s"),
		{k("hard_capping_period"), p.HardCappingPeriod >= time.Millisecond && p.HardCappingPeriod <= time.Second, "expected 1ms to 1s, the kernel's bounds"},
		atLeast(k("hard_capping_duration"), p.HardCappingDuration, time.Duration(p.RecoveredWindows)*p.SamplingFrequency),
		atLeast(k("correlation_window"), p.CorrelationWindow, p.SamplingFrequency),
		{
			k("correlation_window"), p.CorrelationWindow.Seconds() <= maxHistoryWindows*p.SamplingFrequency.Seconds(),
			fmt.Sprintf("is %s; expected at most %d windows of %s", p.CorrelationWindow, maxHistoryWindows, p.SamplingFrequency),
		},
		atLeast(k("analysis_every"), p.AnalysisEvery, 0),
		between(k("age_weight"), p.AgeWeight, 0, 0.999, "a weight below 1"),
		{k("min_tasks"), p.MinTasks >= 1, "expected at least 1"},
		{k("min_samples_per_task"), p.MinSamplesPerTask >= 2, "expected at least 2: one sample has no deviation"},
		{k("recovered_windows"), p.RecoveredWindows >= 1, "expected at least 1"},
		{k("verify_windows"), p.VerifyWindows >= p.RecoveredWindows, "expected at least recovered_windows"},
		{k("search_windows"), p.SearchWindows >= 1, "expected at least 1"},
		{k("max_rounds"), p.MaxRounds >= 1, "expected at least 1"},
		atLeast(k("retry_after"), p.RetryAfter, 0),
		between(k("margin_over_median"), p.MarginOverMedian, 0, 1, "a correlation"),
		between(k("margin_over_steady"), p.MarginOverSteady, 0, 1, "a correlation"),
	}
}

func (c *Config) checkSlowdown() []check {
	s := &c.Slowdown
	return []check{
		between("slowdown.min_rise", s.MinRise, 0, 1000, "in units of slowdown"),
		between("slowdown.antagonist_correlation_threshold", s.AntagonistCorrelationThreshold, 0, 1, "a correlation"),
		{"slowdown.ratio_bound", s.RatioBound == 0 || (s.RatioBound > 1 && s.RatioBound <= 1e6), "expected more than 1, or 0 for none"},
		between("slowdown.min_suspect_cpu", s.MinSuspectCPU, 0, 1024, "CPU-sec/sec"),
		between("slowdown.margin_over_median", s.MarginOverMedian, 0, 1, "a correlation"),
		between("slowdown.margin_over_steady", s.MarginOverSteady, 0, 1, "a correlation"),
		{
			"slowdown.antagonist_correlation_threshold", s.RatioBound == 0 || s.AntagonistCorrelationThreshold < 1-1/s.RatioBound,
			fmt.Sprintf("is %g, which no suspect can reach: ratio_bound %g bounds scores at %.3g", s.AntagonistCorrelationThreshold, s.RatioBound, 1-1/s.RatioBound),
		},
	}
}

func (c *Config) checkAgent() []check {
	a := &c.Agent
	checks := []check{
		atLeast("agent.discover_every", a.DiscoverEvery, 100*time.Millisecond),
		{"agent.pulse", a.Pulse >= 10*time.Millisecond && a.Pulse <= time.Second, fmt.Sprintf("is %s; expected 10ms to 1s", a.Pulse)},
	}
	for _, p := range []struct{ key, path string }{
		{"agent.state_dir", a.StateDir}, {"agent.socket", a.Socket}, {"agent.kill_switch", a.KillSwitch},
	} {
		checks = append(checks, check{p.key, filepath.IsAbs(p.path), fmt.Sprintf("is %q; expected an absolute path", p.path)})
	}
	// The kernel's sockaddr_un holds 107 characters.
	return append(checks, check{"agent.socket", len(a.Socket) <= 107, "is longer than the 107 characters that a Unix socket's path may have"})
}

func (c *Config) checkSLO() []check {
	var checks []check
	for i := range c.SLO {
		s := &c.SLO[i]
		k := func(name string) string { return fmt.Sprintf("slo[%d].%s", i, name) }
		known := slices.ContainsFunc(c.Tasks, func(t Task) bool { return t.Job == s.Job })
		checks = append(checks,
			check{k("job"), known, fmt.Sprintf("is %q, which no rule under tasks names", s.Job)},
			check{k("kind"), s.Kind == "memcached", fmt.Sprintf("is %q; expected memcached", s.Kind)},
			check{k("address"), s.Address != "", "is missing; expected host:port or unix:/path"},
			check{k("poll"), s.Poll == 0 || s.Poll >= time.Millisecond, "expected at least 1ms, or nothing for 20ms"},
			check{k("window"), s.Window == 0 || s.Window >= 100*time.Millisecond, "expected at least 100ms, or nothing for 3s"},
		)
	}
	return checks
}

func between(key string, v, lo, hi float64, what string) check {
	ok := !math.IsNaN(v) && v >= lo && v <= hi
	return check{key, ok, fmt.Sprintf("is %g; expected %g to %g (%s)", v, lo, hi, what)}
}

func atLeast(key string, v, lo time.Duration) check {
	return check{key, v >= lo, fmt.Sprintf("is %s; expected at least %s", v, lo)}
}
