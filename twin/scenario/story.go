package scenario

import (
	"cmp"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

const (
	// maxDecisions and maxIncidents bound what a run keeps to tell.
	maxDecisions = 2000
	maxIncidents = 500
	maxEvents    = 500
)

// StoryEvent is something that happened and was no decision.
type StoryEvent struct {
	AtSec float64 `json:"at_sec"`
	What  string  `json:"what"`
}

// story is what happened, as it is told.
type story struct {
	decisions []model.Decision
	left      int
	incidents []*model.Incident
	events    []StoryEvent
	refused   int
}

// note takes in what a turn of the agent led to.
func (s *story) note(_ *runner, out *engine.Output) {
	for i := range out.Decisions {
		if len(s.decisions) >= maxDecisions {
			s.left++
			continue
		}
		s.decisions = append(s.decisions, out.Decisions[i])
	}
	for _, inc := range out.Incidents {
		i := slices.IndexFunc(s.incidents, func(o *model.Incident) bool { return o.ID == inc.ID })
		if i < 0 && len(s.incidents) < maxIncidents {
			s.incidents = append(s.incidents, inc)
		} else if i >= 0 {
			s.incidents[i] = inc
		}
	}
}

// wrote notes a write that the kernel refused.
func (s *story) wrote(res *model.Result) {
	if res.Kind == model.Refused {
		s.refused++
	}
}

// say notes something that happened.
func (s *story) say(r *runner, what string) {
	if len(s.events) < maxEvents {
		s.events = append(s.events, StoryEvent{float64(r.m.NowNsec()) / 1e9, what})
	}
}

func sortNamings(list []Naming) {
	slices.SortStableFunc(list, func(a, b Naming) int { return cmp.Compare(a.AtSec, b.AtSec) })
}
