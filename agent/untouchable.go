package agent

import (
	"fmt"
	"strings"

	"github.com/commensal-io/commensal/model"
)

// leastUntouchable is from which share on it is told that harm comes from what nobody may hold: a fifth is what is asked of a
// suspect that is held, and half of it is worth knowing.
const leastUntouchable = 0.1

// Untouchable says of each service that suffers, or could not be helped, how much of the harm comes from what nobody may
// hold, as its latest incident found. Incidents are in the order in which they were opened.
func Untouchable(incidents []*model.Incident) (warnings []string) {
	latest := map[model.TaskNum]*model.Incident{}
	for _, inc := range incidents {
		latest[inc.Victim] = inc
	}
	for _, inc := range incidents {
		if latest[inc.Victim] != inc || !inc.State.Open() && inc.State != model.CannotFix {
			continue
		}
		for i := len(inc.Rounds) - 1; i >= 0; i-- {
			if r := &inc.Rounds[i]; r.ByBlame {
				if text := restOf(r); text != "" {
					warnings = append(warnings, inc.VictimPath+": "+text)
				}
				break
			}
		}
	}
	return warnings
}

// restOf says what of a round's blame is nobody's who may be held, "" where it is little.
func restOf(r *model.Round) string {
	var parts []string
	sum := 0.0
	for i := range r.Suspects {
		if s := &r.Suspects[i]; s.Untouchable() && s.Score >= 0.01 {
			sum += s.Score
			parts = append(parts, fmt.Sprintf("%s %.0f %%", s.Path, 100*s.Score))
		}
	}
	if sum < leastUntouchable {
		return ""
	}
	return fmt.Sprintf("%.0f %% of what it waits for others more than usual comes from what nobody may hold (%s)", 100*sum, strings.Join(parts, ", "))
}
