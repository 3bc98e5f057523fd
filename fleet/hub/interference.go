package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"time"
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

// interferenceOf makes the document of what the store answered. Each column must be a field of InterferencePair and each field a column.
func interferenceOf(res *Result, now time.Time) (*Interference, error) {
	rows := make([]map[string]any, 0, len(res.Rows))
	for _, row := range res.Rows {
		p := map[string]any{}
		for i, name := range res.Columns {
			p[name] = row[i]
		}
		rows = append(rows, p)
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	f := &Interference{Version: interferenceVersion, WallNsec: now.UnixNano(), Days: interferenceDays}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f.Pairs); err != nil {
		return nil, fmt.Errorf("hub: question %s: %w", interference, err)
	}
	if n := reflect.TypeFor[InterferencePair]().NumField(); len(res.Columns) != n {
		return nil, fmt.Errorf("hub: question %s has %d columns; a pair has %d", interference, len(res.Columns), n)
	}
	return f, nil
}

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
