package cache

import "github.com/commensal-io/commensal/model"

// Params are the policy's parameters.
type Params struct {
	// Ways is how many ways of each last-level cache BE may fill.
	Ways int `json:"ways"`
	// L2Ways is how many ways of each L2 BE may fill; 0: they are left alone.
	L2Ways int `json:"l2_ways,omitempty"`
	// Share says which ways services may fill: all (Overlapping), or those that BE has not (Exclusive).
	Share string `json:"share"`
	// Parts are the services that have a part of the services' ways for themselves: "kafka=2, web-*=3".
	Parts string `json:"parts,omitempty"`
	// Level is BE's level of memory bandwidth, in the machine's unit; 0: as the machine has it.
	Level int `json:"level"`
	// Windows are so many with LC's signals on either side of a comparison. SettleNsec after the masks are
	// written the cache is still full of what was there before.
	Windows    int   `json:"windows"`
	SettleNsec int64 `json:"settle_nsec"`
	// PatienceNsec is how long the windows before are waited for.
	PatienceNsec int64 `json:"patience_nsec"`
	// Gain is by how much LC's mean signal has to be lower than before; else BE gets everything back, for
	// RestNsec.
	Gain     float64 `json:"gain"`
	RestNsec int64   `json:"rest_nsec"`
	// Counted: misses and occupancy have their say, where they are counted (counted.go). Records that are older than that do not name it.
	Counted bool `json:"counted,omitempty"`
	// HoldNsec is how long a claim stands that is not renewed.
	HoldNsec int64 `json:"hold_nsec"`
}

// What Share may be, in the words of the kernel's masks.
const (
	Overlapping = "overlapping"
	Exclusive   = "exclusive"
)

// Defaults are the mask of ByteDance's paper, and ours where it says nothing.
func Defaults() Params {
	return Params{Ways: 2, Share: Overlapping, Windows: 12, SettleNsec: 30e9, PatienceNsec: 600e9, Gain: 0.02, RestNsec: 3600e9, Counted: true, HoldNsec: 60e9}
}

// Rows describes the parameters that the configuration sets.
func (p *Params) Rows() []model.Param {
	return []model.Param{
		{Key: "ways", At: &p.Ways, Least: 2, Most: 64, Soak: [2]float64{2, 8}, Unit: "ways of each last-level cache", Why: "what BE may fill (ByteDance: two; Intel advises no less)"},
		{Key: "l2_ways", At: &p.L2Ways, Most: 64, Soak: [2]float64{0, 8}, Unit: "ways of each L2, 2 at the least", Why: "what BE may fill of the L2s that the two threads of a core share; 0: all. Nothing was measured"},
		{Key: "share", At: &p.Share, Words: []string{Overlapping, Exclusive}, Why: "overlapping: services keep all ways; exclusive: those that BE has not, in a class of their own (PRM's exclusive-cat)"},
		{Key: "parts", At: &p.Parts, Why: "with share: exclusive, services that have ways of their own out of the services' part, as JOB=WAYS with commas between, four at the most, the most important first; the rest share what is left"},
		{Key: "level", At: &p.Level, Most: 1 << 20, Soak: [2]float64{0, 100}, Unit: "the machine's: per cent on Intel", Why: "of memory bandwidth that BE gets; 0: all of it"},
		{Key: "windows", At: &p.Windows, Least: 4, Most: 1000, Soak: [2]float64{4, 8}, Why: "so many with LC's CPI before, and as many after, are compared"},
		{Key: "settle", At: model.Nsec(&p.SettleNsec), Most: 3600e9, Soak: [2]float64{0, 10e9}, Why: "after the masks are written the first windows say nothing for so long: what lies in the cache stays"},
		{Key: "patience", At: model.Nsec(&p.PatienceNsec), Most: 24 * 3600e9, Soak: [2]float64{0, 20e9}, Why: "the windows before are waited for so long; then it is divided, and nobody looks whether it was good; the time in which policy remedy is at work, or balm has something on trial, does not count"},
		{Key: "gain", At: &p.Gain, Most: 1, Soak: [2]float64{0, 0.1}, Unit: "a share", Why: "LC's CPI has to fall by this much, or BE gets everything back; 0: it may not grow"},
		{Key: "counted", At: &p.Counted, Why: "a fall of LC's CPI with which services miss the cache more, or as often while BE fills as much of it, is not put down to the division, where counters tell; false: the CPI alone counts"},
		{Key: "rest", At: model.Nsec(&p.RestNsec), Least: 1e9, Most: 24 * 3600e9, Soak: [2]float64{5e9, 60e9}, Why: "and nothing is divided for so long"},
	}
}

// Check finds parameters that do not fit each other.
func (p *Params) Check() (key, why string) {
	if p.L2Ways == 1 {
		return "l2_ways", "is 1; expected 0, or 2 to 64 (ways of each L2)"
	}
	if _, err := parseParts(p.Parts); err != nil {
		return "parts", err.Error()
	}
	return "", ""
}
