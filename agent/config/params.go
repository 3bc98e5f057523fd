package config

import (
	"errors"
	"math"
	"reflect"
	"slices"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/internal/strictyaml"
	"github.com/commensal-io/commensal/model"
)

// Params returns what a checked configuration says to the engine. platform is the CPU
// type of the node. Whatever follows from several keys is worked out here and nowhere else.
func (c *Config) Params(platform string) engine.Params {
	p := c.Policies
	p.Platform = platform
	p.HistoryWindows = max(1, int(math.Ceil(float64(c.Sampling.Correlation)/float64(c.Sampling.Frequency))))
	for src := range model.NumSources {
		p.Sources[src] = slices.Contains(c.Signals, src.String())
	}
	p.Derive(c.Agent.Pulse.Nanoseconds())
	return p
}

// Monitors reports whether each task is counted in a monitoring group of its own, where the machine can.
func (c *Config) Monitors(p *engine.Params) bool {
	return c.Resctrl.Monitor == MonitorOn || c.Resctrl.Monitor == MonitorAuto && p.Needs().Domains
}

// Targets are the jobs that keep a target of their latency.
func (c *Config) Targets() (jobs []string) {
	for i := range c.SLO {
		if c.SLO[i].Target > 0 {
			jobs = append(jobs, c.SLO[i].Job)
		}
	}
	return jobs
}

// Overlaid returns the configuration with an operator's change over it, of which a fleet tells a running agent. Only policies and limits may be
// changed, and nothing that needs a restart: what the machine was opened to read, and the pace of the loop.
func (c *Config) Overlaid(text string) (*Config, error) {
	doc, err := strictyaml.Parse("roll-out", []byte(text))
	if err != nil {
		return nil, err
	}
	n := *c
	if err := n.DecodeAt(doc, ""); err != nil {
		return nil, err
	}
	if err := n.CheckAt(doc, ""); err != nil {
		return nil, err
	}
	before, now := c.Params(""), n.Params("")
	switch {
	case !reflect.DeepEqual(c.others(), n.others()):
		return nil, errors.New("roll-out: only policies and limits can be changed while the agent runs")
	case before.Needs() != now.Needs() || c.Pace() != n.Pace() || !before.Wakes(&now):
		return nil, errors.New("roll-out: this needs other readings of the machine than the running agent takes: change the file and restart it")
	}
	return &n, nil
}

// others is the configuration without its policies.
func (c *Config) others() Config {
	o := *c
	o.Policies = engine.Params{}
	return o
}

// Pace returns how often the agent takes a turn, and of which kind. Only what acts within
// a tenth of a second needs fast readings; with all such policies off there are none.
func (c *Config) Pace() cadence.Pace {
	p := cadence.Pace{Duration: c.Sampling.Duration, Frequency: c.Sampling.Frequency}
	switch c.Policies.Pace() {
	case model.PaceTick:
		p.Pulse = cadence.TickEvery
	case model.PacePulse:
		p.Pulse = c.Agent.Pulse
	}
	return p
}
