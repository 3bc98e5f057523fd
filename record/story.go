package record

import (
	"errors"
	"fmt"

	"github.com/commensal-io/commensal/model"
)

// ErrNoIncident: the record does not hold the incident.
var ErrNoIncident = errors.New("no such incident")

// Story is all that a record says of one incident.
type Story struct {
	Incident  *model.Incident  `json:"incident"` // as it stood last
	Decisions []model.Decision `json:"decisions"`
}

// Find collects an incident's story from a record, a folder or one segment.
func Find(path, id string) (*Story, error) {
	st := &Story{}
	err := Walk(path, func(t *Tick) {
		for _, inc := range t.Output.Incidents {
			if inc.ID == id {
				st.Incident = inc
			}
		}
		for i := range t.Output.Decisions {
			if t.Output.Decisions[i].Incident == id {
				st.Decisions = append(st.Decisions, t.Output.Decisions[i])
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if st.Incident == nil {
		return nil, fmt.Errorf("%w: %q is not in %s; `commensal status` lists the latest", ErrNoIncident, id, path)
	}
	return st, nil
}

// Walk reads every tick of a record in order. A segment whose last frame was cut off is
// read up to there.
func Walk(path string, visit func(t *Tick)) error {
	files, err := Segments(path)
	if err != nil {
		return err
	}
	for _, f := range files {
		_, err := ReadSegment(f, func(*Reader) error { return nil }, func(t *Tick) bool {
			visit(t)
			return true
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}
