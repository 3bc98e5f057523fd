package agent

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// What comes from what nobody may hold is told of each service's latest incident while it suffers, with its share.
func TestHarmThatNobodyMayHold(t *testing.T) {
	round := func(score float64) model.Round {
		return model.Round{ByBlame: true, Suspects: []model.Suspect{
			{Path: "/be/hog", Class: model.BE, Score: 0.9 - score}, {Path: "unmanaged CPU", Kind: model.SuspectUnmanaged, Score: score},
			{Path: "/lc/other", Class: model.LC, Score: 0.06}, {Path: "steal", Kind: model.SuspectSteal, Score: 0.001},
		}}
	}
	inc := func(victim model.TaskNum, state model.IncidentState, rounds ...model.Round) *model.Incident {
		return &model.Incident{Victim: victim, VictimPath: "/lc/a", State: state, Rounds: rounds}
	}
	correlated := round(0.8)
	correlated.ByBlame = false
	for _, c := range []struct {
		name string
		list []*model.Incident
		want string
	}{
		{"it suffers", []*model.Incident{inc(1, model.Verifying, round(0.3))}, "/lc/a: 36 % of what it waits for others more than usual comes from what nobody may hold (unmanaged CPU 30 %, /lc/other 6 %)"},
		{"it could not be helped", []*model.Incident{inc(1, model.CannotFix, round(0.8), round(0.5), correlated)}, "/lc/a: 56 %"},
		{"it is well", []*model.Incident{inc(1, model.CannotFix, round(0.8)), inc(1, model.Recovered, round(0.5))}, ""},
		{"little", []*model.Incident{inc(1, model.Searching, round(0.02))}, ""},
		{"by correlation", []*model.Incident{inc(1, model.Searching, correlated)}, ""},
		{"nothing yet", []*model.Incident{inc(1, model.Searching)}, ""},
	} {
		got := strings.Join(Untouchable(c.list), "\n")
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
