package headroom

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/model"
)

// Params are the policy's parameters.
type Params struct {
	// Percentile of a job's usage in an hour of the day is what its tasks are taken to need in that hour.
	Percentile float64 `json:"percentile"`
	// Margin is added to each forecast, as a share of it.
	Margin float64 `json:"margin"`
	// Reserve is the share of the machine that BE is never offered.
	Reserve float64 `json:"reserve"`
	// HalfLifeDays is the age in days at which an observation weighs half of a new one.
	HalfLifeDays float64 `json:"half_life_days"`
	// RecentNsec is how long the highest usage of a task counts as it was.
	RecentNsec int64 `json:"recent_nsec"`
	// MaxLevel is by how much a profile is raised at most where a task uses more than its profile says.
	MaxLevel float64 `json:"max_level"`
	// ColdStartNsec is how long a job must be known before its profile counts.
	ColdStartNsec int64 `json:"cold_start_nsec"`
	// FillNsec is how much of an hour of the day must have been seen before it counts.
	FillNsec int64 `json:"fill_nsec"`
	// HorizonNsec is the longest horizon; the others are now, an hour and a quarter of it.
	HorizonNsec int64 `json:"horizon_nsec"`
}

// Defaults are ours; percentile, margin and cold start are those of Koordinator, which has no profile by the hour.
func Defaults() Params {
	return Params{
		Percentile: 0.95, Margin: 0.1, Reserve: 0.05, HalfLifeDays: 7, RecentNsec: 30 * minute, MaxLevel: 2,
		ColdStartNsec: 24 * hour, FillNsec: 30 * minute, HorizonNsec: 24 * hour,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "percentile", At: &p.Percentile, Least: 0.5, Most: 1, Unit: "a share of the time", Why: "of a job's usage in an hour of the day: what its tasks are taken to need then (docs/HEADROOM.md); Koordinator: 0.95 of all hours together"},
		{Key: "margin", At: &p.Margin, Most: 10, Soak: [2]float64{0, 0.5}, Unit: "a share of the forecast", Why: "added to each forecast; Koordinator: 0.1"},
		{Key: "reserve", At: &p.Reserve, Most: 1, Unit: "a share of the machine", Why: "never offered to BE"},
		{Key: "half_life", At: &p.HalfLifeDays, Least: 0.1, Most: 365, Unit: "days", Why: "at this age an observation weighs half of a new one"},
		{Key: "recent", At: model.Nsec(&p.RecentNsec), Most: numSlots * float64(slotNsec), Why: "a task is taken to need what it needed at most in so long"},
		{Key: "max_level", At: &p.MaxLevel, Least: 1, Most: 100, Soak: [2]float64{1, 4}, Unit: "times the profile", Why: "a task that uses more than its profile says has that raised, up to so much; 1: never"},
		{Key: "cold_start", At: model.Nsec(&p.ColdStartNsec), Most: 365 * 24 * float64(hour), Soak: [2]float64{0, 60e9}, Why: "a job that is not known for so long is taken to need all that it may have; Koordinator: 24 h"},
		{Key: "fill", At: model.Nsec(&p.FillNsec), Most: float64(hour), Soak: [2]float64{0, 60e9}, Why: "as is one in an hour of the day of which less was seen"},
		{Key: "horizon", At: model.Nsec(&p.HorizonNsec), Least: float64(8 * hour), Most: float64(24 * hour), Why: "how far the forecast goes; the others are now, an hour, and a quarter of it"},
	}
}

// Check finds parameters that do not fit each other: the first one's key, and why.
func (p *Params) Check() (key, why string) {
	if p.HorizonNsec%(4*minute) != 0 {
		return "horizon", fmt.Sprintf("is %s; expected whole minutes, also in a quarter of it", time.Duration(p.HorizonNsec))
	}
	return "", ""
}
