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
	Reading
	Incident  *model.Incident  `json:"incident"` // as it stood last
	Decisions []model.Decision `json:"decisions"`
}

// Find collects an incident's story from a record, a folder or one segment.
func Find(path, id string) (*Story, error) {
	st := &Story{}
	var err error
	st.Reading, err = Read(path, nil, func(t *Tick) bool {
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
		return true
	})
	if err != nil {
		return nil, err
	}
	if st.Incident == nil {
		return nil, fmt.Errorf("%w: %q is not in %s; `commensal status` lists the latest%s", ErrNoIncident, id, path, st.lacks())
	}
	return st, nil
}
