package firstlight

import (
	"fmt"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// Scores are the greatest shares of the blame in a round's analyses until somebody was held: what a threshold decides by.
type Scores struct {
	Right float64 `json:"right"` // of the antagonist, where the round has one that is to be held
	Wrong float64 `json:"wrong"` // of any other BE task
}

// scores reads them off the samples. The threshold is one that somebody always reaches, so that each analysis is kept, and
// whoever was named is sought anew a second later.
func scores(path, antagonist string) (s Scores, err error) {
	err = eachSegment(path, func(p *engine.Params) { p.Hardcap.Blame.Share, p.Hardcap.RetryAfterNsec = 0.01, 1e9 }, func(_ *engine.Engine, _ *record.Tick, out *engine.Output) bool {
		for _, inc := range out.Incidents {
			s.add(inc, antagonist)
		}
		return true
	})
	return s, err
}

func (s *Scores) add(inc *model.Incident, antagonist string) {
	for i := range inc.Rounds {
		r := &inc.Rounds[i]
		for k := range r.Suspects {
			sus := &r.Suspects[k]
			switch {
			case !r.ByBlame || sus.Untouchable():
			case sus.Path == antagonist:
				s.Right = max(s.Right, sus.Score)
			default:
				s.Wrong = max(s.Wrong, sus.Score)
			}
		}
	}
}

// point is one of the receiver operating characteristic of the share that is asked for.
type point struct {
	share        float64
	found, wrong int // positive rounds with the antagonist at the share; rounds with an innocent at it
}

// operating returns the points, of how many positive rounds of how many rounds in all, and the area under the curve: how
// probably the antagonist of one round has a greater score than the innocents of another.
func operating(rounds []Round) (list []point, positives int, area float64) {
	for _, share := range asked {
		p := point{share: share}
		for i := range rounds {
			if rounds[i].Antagonist != "" && rounds[i].Scores.Right >= share {
				p.found++
			}
			if rounds[i].Scores.Wrong >= share {
				p.wrong++
			}
		}
		list = append(list, p)
	}
	for i := range rounds {
		if rounds[i].Antagonist == "" {
			continue
		}
		positives++
		for k := range rounds {
			switch right, wrong := rounds[i].Scores.Right, rounds[k].Scores.Wrong; {
			case right > wrong:
				area++
			case right == wrong:
				area += 0.5
			}
		}
	}
	if n := positives * len(rounds); n > 0 {
		area /= float64(n)
	}
	return list, positives, area
}

func curveTable(rounds []Round) report.Table {
	list, positives, area := operating(rounds)
	t := report.Table{
		Title:   "Scores of the antagonist and of the worst innocent, by the share asked for",
		Columns: report.Heads("asked for", "antagonist reaches it", "share", "an innocent does", "share"),
		Notes: []string{
			fmt.Sprintf("The greatest score in any analysis until somebody was held. Area under the curve %.3f. Intervals: Wilson, 95 %%.", area),
			"Who reaches the share together with another is not held alone: the agent's own rules (DESIGN) come on top.",
		},
	}
	if len(rounds) > 0 && rounds[0].Seed < Reported {
		t.Notes = append(t.Notes, fmt.Sprintf("Seeds below %d: for choosing, and no proof.", Reported))
	}
	for _, p := range list {
		t.Rows = append(t.Rows, report.Cells(fmt.Sprintf("%.2f", p.share), fmt.Sprintf("%d of %d", p.found, positives), proportion(p.found, positives).text(),
			fmt.Sprintf("%d of %d", p.wrong, len(rounds)), proportion(p.wrong, len(rounds)).text()))
	}
	return t
}
