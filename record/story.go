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
	// SLO is how the victim's job stood to its target, where it has one.
	SLO *StorySLO `json:"slo,omitempty"`
}

// StorySLO is what a job's latency source said when an incident was opened, and when it last changed.
type StorySLO struct {
	Opened model.Latency `json:"opened"`
	Last   model.Latency `json:"last"`
}

// Find collects an incident's story from a record, a folder or one segment.
func Find(path, id string) (*Story, error) {
	st := &Story{}
	var err error
	said := map[string]model.Latency{} // last, by job
	st.Reading, err = Read(path, nil, func(t *Tick) bool {
		for _, l := range t.Input.SLO {
			said[l.Job] = l
		}
		for _, inc := range t.Output.Incidents {
			if inc.ID != id {
				continue
			}
			st.Incident = inc
			if l := said[inc.VictimJob]; l.Target > 0 {
				if st.SLO == nil {
					st.SLO = &StorySLO{Opened: l}
				}
				st.SLO.Last = l
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
