package hardcap

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/antagonist"
)

// The policies that go beyond CPI². Each is off unless its switch says otherwise,
// and what is off leaves CPI²'s behaviour as it is to the byte.

// Groups are the parameters of antagonists that hurt a victim together (section 4.2 names
// them as what CPI² cannot find). How a group is told from chance is argued in
// policy/antagonist, group.go.
type Groups struct {
	Enabled    bool `json:"enabled"`
	MaxMembers int  `json:"max_members"` // tasks in one group
	// Explained is the least share of the victim's variance that the group must explain.
	Explained float64 `json:"explained"`
	// Gain is the least share of the variance that each member must add.
	Gain float64 `json:"gain"`
	// Chance is how probable it may be that the luckiest of all innocents looks as guilty
	// as a member.
	Chance float64 `json:"chance"`
	// Threshold is the correlation asked for of the group's pressure; 0: that of a single
	// suspect.
	Threshold float64 `json:"threshold"`
	// HelpShare is the part of the victim's distress that a cap must take away to be kept,
	// although the victim did not recover, while the next suspect is added to it.
	HelpShare float64 `json:"help_share"`
	// ProbeWindows is for how many windows a member is released on trial, once the victim is
	// well, before it is taken for innocent.
	ProbeWindows int `json:"probe_windows"`
	// ByJob: all tasks of a suspect's job that could have done it are held, or nudged, with it, whether they move as it does or not.
	ByJob bool `json:"by_job,omitempty"`
	// Witnesses: a release on trial is judged by all protected tasks together (witness.go).
	Witnesses bool `json:"witnesses,omitempty"`
}

// Feedback are the parameters of caps that follow the victim (section 9).
type Feedback struct {
	Enabled bool `json:"enabled"`
	// AllowedSigmas is the degradation that the victim may suffer, in standard deviations
	// above its spec's mean; 0: its outlier threshold.
	AllowedSigmas float64 `json:"allowed_sigmas"`
	// Step is by how much a cap is loosened at once, as a share of what was taken away.
	Step float64 `json:"step"`
	// LoosenAfter and TightenAfter are the windows in a row in which the victim must be well,
	// or not, before the cap is changed.
	LoosenAfter  int `json:"loosen_after"`
	TightenAfter int `json:"tighten_after"`
	// RetryWindows is how long a level that was too loose is not tried again; each further
	// failure doubles it.
	RetryWindows int `json:"retry_windows"`
	// MildExcess: up to this excess of the victim's signal over its threshold, as a share of
	// the threshold, the first cap takes only half of the suspect's usage. 0: never.
	MildExcess float64 `json:"mild_excess"`
	// MaxDurationNsec bounds the whole hold, renewals included.
	MaxDurationNsec int64 `json:"max_duration_nsec"`
	// ThroughPauses: a hold is renewed also while its task pauses, if it pressed against its cap since the last renewal.
	ThroughPauses bool `json:"through_pauses,omitempty"`
	// Witnesses: a cap is not loosened to where any of those whom it helped would suffer.
	Witnesses bool `json:"witnesses,omitempty"`
}

// Confirm are the parameters of active confirmation (section 4.2 leaves it open).
type Confirm struct {
	Enabled bool `json:"enabled"`
	// Margin: the evidence is split when the runner-up scores within it of the prime
	// suspect; a prime suspect that misses the threshold by no more than it is tried too.
	Margin float64 `json:"margin"`
	// Share: a suspect is tried that scores so much of the way from one that used the same CPU all the time
	// to one that ran in the bad windows alone. How bad these are bounds every score, so that no
	// threshold finds who hurts a mild victim. It must also beat the steady one by Params.Steady of the antagonist, or its job take half of what all
	// best-effort tasks take (confirm.go). 0: by margin alone.
	Share float64 `json:"share,omitempty"`
	// Witnesses: the effect of a nudge is judged by all protected tasks together (witness.go).
	Witnesses bool `json:"witnesses,omitempty"`
	// ByLack: who is tried first is who takes most of what the victim lacks by its own counters, where resctrl counts tasks (lack.go).
	ByLack bool `json:"by_lack,omitempty"`
	// Windows is for how many judged windows a suspect is nudged.
	Windows int `json:"windows"`
	// UsageShare is the share of its usage that a nudged suspect keeps; 0: CPI²'s quota.
	UsageShare float64 `json:"usage_share"`
	// Drop is the share of the victim's excess that must go away, and Sigmas the least size of
	// that in standard errors of its spec.
	Drop   float64 `json:"drop"`
	Sigmas float64 `json:"sigmas"`
	// MaxPerIncident and MaxPerHour bound the nudges.
	MaxPerIncident int `json:"max_per_incident"`
	MaxPerHour     int `json:"max_per_hour"`
}

// Defaults are the paper's values, and ours where it gives none.
func Defaults() Params {
	p := Params{
		Quota: 0.1, QuotaBestEffort: 0.01, DurationNsec: 300e9, RecoveredWindows: 2, VerifyWindows: 4, SearchWindows: 5,
		MaxRounds: 3, RetryAfterNsec: 300e9, AnalysisEveryNsec: 1e9,
		Groups:   Groups{MaxMembers: 4, Explained: 0.5, Gain: 0.05, Chance: 0.02, Threshold: 0.2, HelpShare: 0.3, ProbeWindows: 2},
		Feedback: Feedback{Step: 0.125, LoosenAfter: 2, TightenAfter: 2, RetryWindows: 10, MildExcess: 0.2, MaxDurationNsec: 1800e9},
		Confirm:  Confirm{Margin: 0.1, Windows: 1, Drop: 0.5, Sigmas: 2, MaxPerIncident: 3, MaxPerHour: 12},
		Blame:    Blame{Share: 0.2, Windows: 120, Bad: 3, Lasting: true, Sigmas: 3, EachWait: true},
		Repeat:   Repeat{HalfLifeNsec: 24 * hourNsec, Doubt: 0.02, AtOnce: true, Prior: 0.5},
		First:    First{Grave: 1.5, UsageShare: 0.5},
		Coded:    CodedNudges{After: 1, Share: 0.25, MinVictims: 2, MaxSuspects: 7, Doubt: 0.05, MaxLostNsec: 60e9, MaxLostDayNsec: 600e9},
		Demote:   Demote{Windows: 2, CapShare: 0.5, DurationNsec: 1800e9},
	}
	for src := range p.Antagonist {
		p.Antagonist[src] = antagonist.Defaults(model.Source(src))
	}
	return p
}

// Rows describes the parameters that the configuration sets in its section cpi2.
func (p *Params) Rows() []model.Param {
	const quota = "CPU-sec/sec; the kernel's least is 1 ms in 1 s"
	return []model.Param{
		{Key: "hard_capping_quota", At: &p.Quota, Least: 0.001, Most: 1024, Unit: quota, Why: "CPI² table 2: 0.1 CPU-sec/sec; for batch and critical"},
		{Key: "hard_capping_quota_best_effort", At: &p.QuotaBestEffort, Least: 0.001, Most: 1024, Unit: quota, Why: "CPI² §5: 0.01 CPU-sec/sec for best-effort"},
		{Key: "hard_capping_duration", At: model.Nsec(&p.DurationNsec), Most: model.Unbounded, Soak: [2]float64{5e9, 60e9}, Unit: "not below recovered_windows", Why: "CPI² table 2: 5 mins"},
		{Key: "analysis_every", At: model.Nsec(&p.AnalysisEveryNsec), Most: model.Unbounded, Soak: [2]float64{0, 2e9}, Why: "CPI² §4.2: at most one attempt each second"},
		{Key: "recovered_windows", At: &p.RecoveredWindows, Least: 1, Most: model.Unbounded, Soak: [2]float64{1, 3}, Unit: "windows", Why: "windows in a row under the threshold that mean recovered"},
		{Key: "verify_windows", At: &p.VerifyWindows, Least: 1, Most: model.Unbounded, Soak: [2]float64{2, 8}, Unit: "windows, not below recovered_windows", Why: "windows judged before a cap that does not help is taken back"},
		{Key: "search_windows", At: &p.SearchWindows, Least: 1, Most: model.Unbounded, Soak: [2]float64{2, 10}, Unit: "analyses", Why: "analyses before a search for the antagonist gives up"},
		{Key: "max_rounds", At: &p.MaxRounds, Least: 1, Most: model.Unbounded, Soak: [2]float64{1, 4}, Unit: "suspects", Why: "suspects held one after the other in one incident"},
		{Key: "retry_after", At: model.Nsec(&p.RetryAfterNsec), Most: model.Unbounded, Soak: [2]float64{5e9, 30e9}, Why: "peace for a victim that could not be helped"},
	}
}

// Rows describes the parameters that the configuration sets.
func (g *Groups) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &g.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI² (section 4.2's limit): several tasks that hurt together"},
		{Key: "max_members", At: &g.MaxMembers, Least: 2, Most: 16, Unit: "tasks", Why: "tasks in one group"},
		{Key: "explained", At: &g.Explained, Most: 1, Unit: "a share", Why: "least share of the victim's variance that a group explains"},
		{Key: "gain", At: &g.Gain, Least: 0.001, Most: 1, Unit: "a share", Why: "least share of it that each member adds"},
		{Key: "chance", At: &g.Chance, Least: 1e-6, Most: 0.5, Unit: "a probability", Why: "that the luckiest innocent of all looks as guilty as a member"},
		{Key: "correlation_threshold", At: &g.Threshold, Most: 1, Unit: "a correlation", Why: "of the group's pressure; 0: that of a single suspect"},
		{Key: "help_share", At: &g.HelpShare, Least: 0.01, Most: 1, Unit: "a share", Why: "share of the distress that a cap must take away to be kept and added to"},
		{Key: "probe_windows", At: &g.ProbeWindows, Least: 1, Most: 1000, Soak: [2]float64{1, 10}, Unit: "windows", Why: "windows for which a member is released on trial once the victim is well"},
		{Key: "by_job", At: &g.ByJob, Soak: [2]float64{0.6, 0.4}, Why: "hold, or nudge, all tasks of a suspect's job with it, not those alone that move as it does"},
		{Key: "witnesses", At: &g.Witnesses, Soak: [2]float64{0.6, 0.4}, Why: "judge a release on trial by all protected tasks together"},
	}
}

// Rows describes the parameters that the configuration sets.
func (f *Feedback) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &f.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI² (section 9): caps no tighter than the victim needs"},
		{Key: "allowed_sigmas", At: &f.AllowedSigmas, Most: 100, Unit: "standard deviations", Why: "degradation that the victim may suffer; 0: its outlier threshold"},
		{Key: "step", At: &f.Step, Least: 0.01, Most: 1, Unit: "a share", Why: "by how much a cap is loosened at once, of what it took away"},
		{Key: "loosen_after", At: &f.LoosenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "good windows in a row before a cap is loosened"},
		{Key: "tighten_after", At: &f.TightenAfter, Least: 1, Most: 1000, Soak: [2]float64{1, 5}, Unit: "windows", Why: "bad windows in a row before it is tightened"},
		{Key: "retry_windows", At: &f.RetryWindows, Least: 1, Most: 1000, Soak: [2]float64{1, 20}, Unit: "windows", Why: "good windows before a failed level is tried again, doubled each time"},
		{Key: "mild_excess", At: &f.MildExcess, Most: 100, Unit: "a share", Why: "up to this share above its threshold the first cap takes half; 0: never"},
		{Key: "max_duration", At: model.Nsec(&f.MaxDurationNsec), Most: model.Unbounded, Soak: [2]float64{60e9, 600e9}, Unit: "not below hard_capping_duration", Why: "of a hold with all its renewals"},
		{Key: "through_pauses", At: &f.ThroughPauses, Soak: [2]float64{0.6, 0.4}, Why: "renew a hold also while its task pauses"},
		{Key: "witnesses", At: &f.Witnesses, Soak: [2]float64{0.6, 0.4}, Why: "loosen a cap by what all whom it helped would suffer"},
	}
}

// Rows describes the parameters that the configuration sets.
func (c *Confirm) Rows() []model.Param {
	return []model.Param{
		{Key: "enabled", At: &c.Enabled, Soak: [2]float64{0.6, 0.4}, Why: "beyond CPI² (section 4.2): a short nudge where the evidence is split"},
		{Key: "margin", At: &c.Margin, Most: 1, Unit: "a correlation", Why: "of correlation, within which the evidence is split"},
		{Key: "share", At: &c.Share, Most: 1, Unit: "a share", Why: "of the way from what a steady suspect scores to what the perfect one does, from where on one is tried that beats a steady one by cpi2.margin_over_steady, or whose job takes half of what BE takes; 0: by margin alone"},
		{Key: "witnesses", At: &c.Witnesses, Soak: [2]float64{0.6, 0.4}, Why: "judge a nudge by all protected tasks together"},
		{Key: "by_lack", At: &c.ByLack, Soak: [2]float64{0.6, 0.4}, Why: "try first who takes most of what the victim lacks by its own counters (cache or memory), where resctrl counts each task; else who misses most"},
		{Key: "windows", At: &c.Windows, Least: 1, Most: 10, Unit: "windows: a nudge is short", Why: "windows for which a suspect is nudged"},
		{Key: "usage_share", At: &c.UsageShare, Most: 0.9, Unit: "a share", Why: "share of its CPU that it keeps; 0: the quota of a cap"},
		{Key: "drop", At: &c.Drop, Least: 0.05, Most: 1, Unit: "a share", Why: "share of the victim's excess that must go away"},
		{Key: "sigmas", At: &c.Sigmas, Most: 100, Unit: "standard errors", Why: "least size of that, in standard errors"},
		{Key: "max_per_incident", At: &c.MaxPerIncident, Least: 1, Most: 10, Unit: "nudges", Why: "nudges in one incident"},
		{Key: "max_per_hour", At: &c.MaxPerHour, Least: 1, Most: 100, Unit: "nudges", Why: "nudges on the node in an hour"},
	}
}

// Check finds parameters that do not fit each other: the first one's key, and why.
func (p *Params) Check() (key, why string) {
	switch {
	case p.VerifyWindows < p.RecoveredWindows:
		return "cpi2.verify_windows", fmt.Sprintf("is %d; expected at least recovered_windows, %d", p.VerifyWindows, p.RecoveredWindows)
	case p.Blame.Bad > p.Blame.Windows:
		return "blame.bad_windows", fmt.Sprintf("is %d; expected at most %d, the windows that are remembered", p.Blame.Bad, p.Blame.Windows)
	case p.Demote.DurationNsec < p.DurationNsec:
		return "demote.duration", fmt.Sprintf("is %s; expected at least %s, the cpi2.hard_capping_duration", time.Duration(p.Demote.DurationNsec), time.Duration(p.DurationNsec))
	case p.Feedback.MaxDurationNsec < p.DurationNsec:
		return "feedback.max_duration", fmt.Sprintf("is %s; expected at least %s, the cpi2.hard_capping_duration", time.Duration(p.Feedback.MaxDurationNsec), time.Duration(p.DurationNsec))
	}
	return "", ""
}
