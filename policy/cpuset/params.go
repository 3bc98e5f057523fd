package cpuset

import (
	"fmt"
	"time"

	"github.com/commensal-io/commensal/model"
)

// How BE's cores are laid out over the sockets.
const (
	Spread = "spread" // as many cores of each socket
	Gather = "gather" // one socket first, the one with the fewest exclusive cores
)

// Params are the policy's parameters.
type Params struct {
	// FloorCores and FloorShare are what BE keeps whatever LC needs: the greater of a number of
	// physical cores and a share of those online, 0..1. It is never less than one core, since
	// a cpuset cannot be empty, unless both are 0: then BE may be parked (park.go).
	FloorCores int     `json:"floor_cores"`
	FloorShare float64 `json:"floor_share"`
	// ParkCap is what each BE task may use while BE is parked, CPU-sec/sec.
	ParkCap float64 `json:"park_cap"`
	// Wait is the share of LC's requests that may find all of LC's CPUs busy: LC gets the CPUs
	// with which it is not greater under the mean load, by Erlang's formula.
	Wait float64 `json:"wait"`
	// TargetSiblings is the mean utilisation of LC's logical CPUs up to which its set is large
	// enough, where a physical core has several of them: below it siblings do not disturb
	// each other.
	TargetSiblings float64 `json:"target_siblings"`
	// FullUtilisation of LC's set in one pulse hides what LC would use if it could: LC gets
	// everything down to BE's floor at once.
	FullUtilisation float64 `json:"full_utilisation"`
	// RiseNsec and FallNsec are the time constants of the two means of the load; the greater
	// of the means counts. So the size follows a rise in the first and a fall in the second.
	RiseNsec int64 `json:"rise_nsec"`
	FallNsec int64 `json:"fall_nsec"`
	// GiveEveryNsec: BE is given what LC does not need, this long after the border last moved.
	GiveEveryNsec int64 `json:"give_every_nsec"`
	// ReturnsPerMin is how often a minute LC may take back what was given a short while before;
	// while it does so more often nothing is given.
	ReturnsPerMin int `json:"returns_per_min"`
	// BlindNsec is how long the load of LC may stay unreadable before BE is put on its floor.
	BlindNsec int64 `json:"blind_nsec"`
	// LeastPulseNsec is the shortest time over which a rate is worth something: the kernel
	// accounts a running thread's time at its ticks, 1 to 10 ms apart.
	LeastPulseNsec int64 `json:"least_pulse_nsec"`
	// Sockets is Spread or Gather.
	Sockets string `json:"sockets"`
	// ClaimNsec is how long a claim lasts; it is renewed when half of that has passed.
	ClaimNsec int64 `json:"claim_nsec"`
}

// Defaults returns the parameters argued for in docs/policies/cpuset.md.
func Defaults() Params {
	return Params{
		FloorCores: 1, FloorShare: 0.05, ParkCap: 0.01,
		Wait: 0.015, TargetSiblings: 0.45, FullUtilisation: 0.95,
		RiseNsec: 200e6, FallNsec: 3e9, GiveEveryNsec: 1e9, ReturnsPerMin: 6,
		BlindNsec: 1e9, LeastPulseNsec: 10e6,
		Sockets: Spread, ClaimNsec: 60e9,
	}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "floor_cores", At: &p.FloorCores, Most: 4096, Soak: [2]float64{1, 2}, Unit: "cores", Why: "physical cores that BE keeps whatever LC needs"},
		{Key: "floor_share", At: &p.FloorShare, Most: 0.9, Soak: [2]float64{0, 0.3}, Unit: "of the cores", Why: "the same as a share of those online; the greater holds"},
		{Key: "park_cap", At: &p.ParkCap, Least: 0.001, Most: 1024, Unit: "CPU-sec/sec; the kernel's least is 1 ms in 1 s", Why: "what each BE task may use while BE has no core (CPI² §5: the least hard cap); only with both floors at 0"},
		{Key: "wait", At: &p.Wait, Least: 1e-6, Most: 0.5, Soak: [2]float64{0.001, 0.2}, Unit: "a share of LC's requests", Why: "LC gets the CPUs with which so few of its requests wait (Erlang C)"},
		{Key: "target_siblings", At: &p.TargetSiblings, Least: 0.05, Most: 1, Unit: "a utilisation", Why: "Alibaba §4.1: 45 %, where a core has several threads"},
		{Key: "full_utilisation", At: &p.FullUtilisation, Least: 0.05, Most: 1, Unit: "a utilisation, not below target_siblings", Why: "of LC's CPUs in one pulse; above it LC gets all but the floor at once"},
		{Key: "rise", At: model.Nsec(&p.RiseNsec), Most: 60e9, Soak: [2]float64{50e6, 200e6}, Why: "LC's size follows a rising mean load with this time constant"},
		{Key: "fall", At: model.Nsec(&p.FallNsec), Most: 3600e9, Soak: [2]float64{500e6, 10e9}, Unit: "not below rise", Why: "and a falling one with this"},
		{Key: "give_every", At: model.Nsec(&p.GiveEveryNsec), Least: 10e6, Most: 3600e9, Soak: [2]float64{100e6, 500e6}, Why: "BE gets what LC does not need, so long after the last move"},
		// At most more than there are pulses in a minute.
		{Key: "returns_per_min", At: &p.ReturnsPerMin, Least: 1, Most: 6000, Soak: [2]float64{2, 60}, Why: "LC takes back what was just given so often; beyond that nothing is given"},
		{Key: "blind", At: model.Nsec(&p.BlindNsec), Least: 100e6, Most: 3600e9, Why: "LC's load may be unreadable for so long"},
		{Key: "sockets", At: &p.Sockets, Words: []string{Spread, Gather}, Why: "spread: BE on all sockets alike; gather: one first"},
	}
}

// Check finds parameters that do not fit each other: the first one's key, and why.
func (p *Params) Check() (key, why string) {
	switch {
	case p.FullUtilisation < p.TargetSiblings:
		return "full_utilisation", fmt.Sprintf("is %g; expected %g to 1 (a utilisation, not below target_siblings)", p.FullUtilisation, p.TargetSiblings)
	case p.FallNsec < p.RiseNsec:
		return "fall", fmt.Sprintf("is %s; expected at least rise, %s", time.Duration(p.FallNsec), time.Duration(p.RiseNsec))
	}
	return "", ""
}

// Pace is how often the policy looks at the machine when it enforces: a core has to come
// back within a tenth of a second.
func (p *Params) Pace() model.Pace { return model.PacePulse }
