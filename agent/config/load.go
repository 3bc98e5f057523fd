package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/guard"
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
	profile := DefaultProfile
	if text, ok := doc.Value("profile"); ok {
		profile = text
	}
	c, ok := Defaults(profile)
	if !ok {
		return nil, doc.Errorf("profile", "unknown profile %q; expected one of %s", profile, strings.Join(Profiles(), ", "))
	}
	if err := c.DecodeAt(doc, ""); err != nil {
		return nil, err
	}
	if err := c.CheckAt(doc, ""); err != nil {
		return nil, err
	}
	return &c, nil
}

// check is one rule on one key.
type check struct {
	key  string
	ok   bool
	want string
}

// Validate finds the first impossible value; why is empty when there is none. Values are
// checked whether their policy is on or not: a switch must not turn a good file into a bad
// one.
func (c *Config) Validate() (key, why string) {
	sections := c.Policies.Sections()
	for _, row := range c.rowsWith(sections) {
		if why := row.Check(); why != "" {
			return row.Key, why
		}
	}
	for _, s := range sections {
		if key, why := s.Check(); why != "" {
			return s.Name + "." + key, why
		}
	}
	for _, group := range [][]check{c.checkSignals(), c.checkWindows(), c.checkAgent(), c.checkFleet(), c.checkTasks(), c.checkSLO()} {
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

func (c *Config) checkSignals() []check {
	checks := []check{{"signals", len(c.Signals) > 0, "is empty; expected at least one of " + strings.Join(model.SourceNames(), ", ")}}
	for i, s := range c.Signals {
		var src model.Source
		checks = append(checks, check{fmt.Sprintf("signals[%d]", i), src.UnmarshalText([]byte(s)) == nil, fmt.Sprintf("is %q; expected one of %s", s, strings.Join(model.SourceNames(), ", "))})
	}
	return checks
}

// checkWindows checks that what is told in time fits the windows in which it is measured.
func (c *Config) checkWindows() []check {
	s, o, h := &c.Sampling, &c.Policies.Outlier, &c.Policies.Hardcap
	k := func(name string) string { return hardCap + "cpi2." + name }
	window := time.Duration(o.WindowNsec)
	return []check{
		atLeast(k("sampling_frequency"), s.Frequency, s.Duration),
		atLeast(k("predicted_cpi_recalculated"), time.Duration(c.Policies.Spec.RecalculateNsec), s.Frequency),
		{
			k("outlier_threshold_2.window"), window/time.Duration(o.Violations) >= s.Frequency,
			fmt.Sprintf("is %s, in which %d windows of %s do not fit", window, o.Violations, s.Frequency),
		},
		{
			k("hard_capping_duration"), time.Duration(h.DurationNsec)/time.Duration(h.RecoveredWindows) >= s.Frequency,
			fmt.Sprintf("is %s, in which recovered_windows, %d windows of %s, do not fit", time.Duration(h.DurationNsec), h.RecoveredWindows, s.Frequency),
		},
		atLeast(k("correlation_window"), s.Correlation, s.Frequency),
		{
			k("correlation_window"), s.Correlation.Seconds() <= maxHistoryWindows*s.Frequency.Seconds(),
			fmt.Sprintf("is %s; expected at most %d windows of %s", s.Correlation, maxHistoryWindows, s.Frequency),
		},
	}
}

func (c *Config) checkAgent() []check {
	a := &c.Agent
	var checks []check
	for _, p := range []struct{ key, path string }{
		{"agent.state_dir", a.StateDir}, {"agent.run_dir", a.RunDir}, {"agent.socket", a.Socket}, {"agent.kill_switch", a.KillSwitch},
	} {
		checks = append(checks, check{p.key, filepath.IsAbs(p.path), fmt.Sprintf("is %q; expected an absolute path", p.path)})
	}
	u, err := url.Parse(a.HookURL)
	checks = append(checks, check{"agent.nvidia_smi", filepath.IsAbs(a.NvidiaSMI), fmt.Sprintf("is %q; expected an absolute path", a.NvidiaSMI)},
		check{"agent.gpu_every", a.GPUEvery == 0 || a.GPUEvery >= 10*time.Second, fmt.Sprintf("is %s; expected 0s, or at least 10s: each time runs a program", a.GPUEvery)},
		check{"agent.hook_program", a.HookProgram == "" || filepath.IsAbs(a.HookProgram), fmt.Sprintf("is %q; expected an absolute path", a.HookProgram)},
		check{"agent.hook_url", a.HookURL == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", fmt.Sprintf("is %q; expected http://… or https://…", a.HookURL)})
	// The kernel's sockaddr_un holds 107 characters.
	return append(checks, check{"agent.socket", len(a.Socket) <= 107, "is longer than the 107 characters that a Unix socket's path may have"})
}

// checkFleet checks what a node of a fleet needs.
func (c *Config) checkFleet() []check {
	f := &c.Fleet
	if f.Hub == "" {
		return nil
	}
	var checks []check
	for _, text := range strings.Split(f.Hub, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		checks = append(checks, check{"fleet.hub", err == nil && (u.Scheme == "nats" || u.Scheme == "tls") && u.Host != "", fmt.Sprintf("is %q; expected nats://host:port or tls://host:port", text)})
	}
	name, guarded := wire.NodeName(f.Node), guard.NATS(f.Hub, f.CAFile != "", f.SeedFile+f.CredsFile != "")
	return append(checks,
		check{"fleet.node", name == nil, fmt.Sprint(name)},
		check{"fleet.seed_file", f.SeedFile == "" || filepath.IsAbs(f.SeedFile), fmt.Sprintf("is %q; expected an absolute path", f.SeedFile)},
		check{"fleet.creds_file", f.CredsFile == "" || filepath.IsAbs(f.CredsFile), fmt.Sprintf("is %q; expected an absolute path", f.CredsFile)},
		check{"fleet.ca_file", f.CAFile == "" || filepath.IsAbs(f.CAFile), fmt.Sprintf("is %q; expected an absolute path", f.CAFile)},
		check{"fleet.seed_file", f.SeedFile == "" || f.CredsFile == "", "is there beside creds_file; expected one of them"},
		check{"fleet.hub", f.Unguarded || guarded == nil, fmt.Sprintf("%v, or unguarded: true", guarded)},
	)
}

func atLeast(key string, v, lo time.Duration) check {
	return check{key, v >= lo, fmt.Sprintf("is %s; expected at least %s", v, lo)}
}
