package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Interference is the file InterferenceFile, and what /v1/interference answers: which job hurt which in the last Days.
type Interference struct {
	Version  int                `json:"version"`
	WallNsec int64              `json:"wall_nsec"` // when it was asked of the store
	Days     int                `json:"days"`
	Pairs    []InterferencePair `json:"pairs"`
}

// InterferencePair is a row of the question interference.
type InterferencePair struct {
	VictimJob     string   `json:"victim_job"`
	AntagonistJob string   `json:"antagonist_job"`
	Platform      string   `json:"platform"`
	Signal        string   `json:"signal"`
	Resource      string   `json:"resource"` // "": the signal does not say
	Incidents     int64    `json:"incidents"`
	Nodes         int64    `json:"nodes"`
	Held          int64    `json:"held"`        // incidents in which Degradation is known
	Degradation   *float64 `json:"degradation"` // the signal before a hold by that in it; nil: not known
	Low           *float64 `json:"low"`         // its interval at 95 %; nil: of fewer than two
	High          *float64 `json:"high"`
	Above         *float64 `json:"above"` // the signal by its threshold; nil: that was 0
	Confidence    float64  `json:"confidence"`
}

// interferenceVersion is of Interference.
const interferenceVersion = 2

// readInterference returns the file as it is, which is older than ten minutes where the store could not be asked since.
func (h *Hub) readInterference() (*Interference, error) {
	b, err := os.ReadFile(InterferenceFile(h.cfg.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: who hurts whom is not known yet: a hub asks its store soon after it began, and every ten minutes, where commensal-sql is installed", errUnknown)
	}
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var f Interference
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("hub: %s: %w", InterferenceFile(h.cfg.Dir), err)
	}
	if f.Version != interferenceVersion {
		return nil, fmt.Errorf("%w: who hurts whom was written by another version (%d), and is not known anew yet", errUnknown, f.Version)
	}
	return &f, nil
}
