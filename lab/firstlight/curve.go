package firstlight

import (
	"fmt"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/report"
)

// Scores are how great a share of the blame could be asked for in a round, in steps, so that the first to be named until somebody was
// held still was the antagonist, and so that it still was an innocent; 0: never. That is the agent's own way of naming with all its
// rules. What single analyses say is less: the first ones, on few windows, score low whom later ones name.
type Scores struct {
	Right float64 `json:"right"`
	Wrong float64 `json:"wrong"`
}

// steps is how many shares are tried, evenly from 0 to 1.
const steps = 20

// scores tries them on the samples of a round; antagonist is who is to be held, "" where nobody is.
func scores(path, antagonist string, event int64) (s Scores, err error) {
	for i := 1; i < steps; i++ {
		share := float64(i) / steps
		named, err := detect(path, func(p *engine.Params) { p.Hardcap.Blame.Share = share }, antagonist, event)
		if err != nil {
			return s, err
		}
		s.note(share, &named)
	}
	return s, nil
}

func (s *Scores) note(share float64, named *Score) {
	if named.Right > 0 {
		s.Right = max(s.Right, share)
	}
	if named.Wrong > 0 {
		s.Wrong = max(s.Wrong, share)
	}
}

// point is one of the receiver operating characteristic of the share that is asked for.
type point struct {
	share        float64
	found, wrong int // positive rounds with the antagonist at the share; rounds with an innocent at it
}

// operating returns the points, how many rounds are positive, and the area under the curve: how
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
			fmt.Sprintf("The greatest share at which it was still the first to be named, from the samples until somebody was held, in steps of 0.05. Area under the curve %.3f. Intervals: Wilson, 95 %%.", area),
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
