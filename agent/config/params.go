package config

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/agent/cadence"
	"github.com/commensal-io/commensal/engine"
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
