package config

import (
	"math"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/hardcap"
	"github.com/commensal-io/commensal/policy/localspec"
	"github.com/commensal-io/commensal/policy/outlier"
)

// Params returns what a checked configuration says to the engine. platform is the CPU
// type of the node.
func (c *Config) Params(platform string) engine.Params {
	p := &c.CPI2
	windows := int(math.Ceil(float64(p.CorrelationWindow) / float64(p.SamplingFrequency)))
	e := engine.Params{
		Platform: platform, HistoryWindows: max(1, windows), CapPeriodNsec: p.HardCappingPeriod.Nanoseconds(),
		Outlier: outlier.Params{
			RequiredCPUUsage: p.RequiredCPUUsage, Sigmas: p.OutlierThreshold1,
			Violations: p.OutlierThreshold2.Violations, WindowNsec: p.OutlierThreshold2.Window.Nanoseconds(),
		},
		Spec: localspec.Params{
			RecalculateNsec: p.PredictedCPIRecalculated.Nanoseconds(), AgeWeight: p.AgeWeight,
			MinTasks: p.MinTasks, MinSamplesPerTask: p.MinSamplesPerTask, OnDoubling: p.RecalculateOnDoubling,
		},
		Hardcap: hardcap.Params{
			Quota: p.HardCappingQuota, QuotaBestEffort: p.HardCappingQuotaBestEffort,
			DurationNsec: p.HardCappingDuration.Nanoseconds(), RecoveredWindows: p.RecoveredWindows,
			VerifyWindows: p.VerifyWindows, SearchWindows: p.SearchWindows, MaxRounds: p.MaxRounds,
			RetryAfterNsec: p.RetryAfter.Nanoseconds(), AnalysisEveryNsec: p.AnalysisEvery.Nanoseconds(),
		},
		Limits: engine.Limits{MaxHeldTasks: c.Limits.MaxHeldTasks, MaxBETaken: c.Limits.MaxBECPUTaken},
	}
	e.Outlier.MinRise[model.SourceSlowdown] = c.Slowdown.MinRise
	e.Hardcap.Antagonist[model.SourceCPI] = antagonist.Params{
		Threshold: p.AntagonistCorrelationThreshold, Margin: p.MarginOverMedian, Steady: p.MarginOverSteady,
	}
	e.Hardcap.Antagonist[model.SourceSlowdown] = antagonist.Params{
		Threshold: c.Slowdown.AntagonistCorrelationThreshold, Offset: 1, Bound: c.Slowdown.RatioBound,
		MinSuspectCPU: c.Slowdown.MinSuspectCPU, Margin: c.Slowdown.MarginOverMedian, Steady: c.Slowdown.MarginOverSteady,
	}
	c.beyond(&e.Hardcap)
	e.CPU = c.cpuParams()
	for src := range model.NumSources {
		e.Sources[src] = slices.Contains(c.Signals, src.String())
	}
	_ = e.Mode.UnmarshalText([]byte(c.Mode)) // checked by Validate
	return e
}

// beyond fills in the policies that go beyond the seed, whether they are on or not.
func (c *Config) beyond(h *hardcap.Params) {
	g, f, n := &c.Groups, &c.Feedback, &c.Confirm
	h.Groups = hardcap.Groups{
		Enabled: g.Enabled, MaxMembers: g.MaxMembers, Explained: g.Explained, Gain: g.Gain, Chance: g.Chance,
		Threshold: g.CorrelationThreshold, HelpShare: g.HelpShare, ProbeWindows: g.ProbeWindows,
	}
	h.Feedback = hardcap.Feedback{
		Enabled: f.Enabled, AllowedSigmas: f.AllowedSigmas, Step: f.Step, LoosenAfter: f.LoosenAfter, TightenAfter: f.TightenAfter,
		RetryWindows: f.RetryWindows, MildExcess: f.MildExcess, MaxDurationNsec: f.MaxDuration.Nanoseconds(),
	}
	h.Confirm = hardcap.Confirm{
		Enabled: n.Enabled, Margin: n.Margin, Windows: n.Windows, UsageShare: n.UsageShare, Drop: n.Drop, Sigmas: n.Sigmas,
		MaxPerIncident: n.MaxPerIncident, MaxPerHour: n.MaxPerHour,
	}
}
