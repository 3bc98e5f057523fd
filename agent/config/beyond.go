package config

import (
	"fmt"
)

// The sections of the policies beyond the seed. Their values are checked whether they are
// on or not: a switch must not turn a good file into a bad one.

func (c *Config) checkGroups() []check {
	g := &c.Groups
	return []check{
		{"groups.max_members", g.MaxMembers >= 2 && g.MaxMembers <= 16, fmt.Sprintf("is %d; expected 2 to 16", g.MaxMembers)},
		between("groups.explained", g.Explained, 0, 1, "a share"),
		between("groups.gain", g.Gain, 0.001, 1, "a share"),
		between("groups.chance", g.Chance, 1e-6, 0.5, "a probability"),
		between("groups.correlation_threshold", g.CorrelationThreshold, 0, 1, "a correlation"),
		between("groups.help_share", g.HelpShare, 0.01, 1, "a share"),
		{"groups.probe_windows", g.ProbeWindows >= 1 && g.ProbeWindows <= 1000, "expected 1 to 1000"},
	}
}

func (c *Config) checkFeedback() []check {
	f := &c.Feedback
	return []check{
		between("feedback.allowed_sigmas", f.AllowedSigmas, 0, 100, "standard deviations"),
		between("feedback.step", f.Step, 0.01, 1, "a share"),
		{"feedback.loosen_after", f.LoosenAfter >= 1 && f.LoosenAfter <= 1000, "expected 1 to 1000"},
		{"feedback.tighten_after", f.TightenAfter >= 1 && f.TightenAfter <= 1000, "expected 1 to 1000"},
		{"feedback.retry_windows", f.RetryWindows >= 1 && f.RetryWindows <= 1000, "expected 1 to 1000"},
		between("feedback.mild_excess", f.MildExcess, 0, 100, "a share"),
		atLeast("feedback.max_duration", f.MaxDuration, c.CPI2.HardCappingDuration),
	}
}

func (c *Config) checkConfirm() []check {
	n := &c.Confirm
	return []check{
		between("confirm.margin", n.Margin, 0, 1, "a correlation"),
		{"confirm.windows", n.Windows >= 1 && n.Windows <= 10, "expected 1 to 10: a nudge is short"},
		between("confirm.usage_share", n.UsageShare, 0, 0.9, "a share"),
		between("confirm.drop", n.Drop, 0.05, 1, "a share"),
		between("confirm.sigmas", n.Sigmas, 0, 100, "standard errors"),
		{"confirm.max_per_incident", n.MaxPerIncident >= 1 && n.MaxPerIncident <= 10, "expected 1 to 10"},
		{"confirm.max_per_hour", n.MaxPerHour >= 1 && n.MaxPerHour <= 100, "expected 1 to 100"},
	}
}
