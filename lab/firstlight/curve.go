package firstlight

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
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

// scored is a round as the operating characteristic has it.
type scored struct {
	seed     uint64
	positive bool // somebody is to be held in it
	Scores
}

func scoredRounds(rounds []Round) (list []scored) {
	for i := range rounds {
		list = append(list, scored{rounds[i].Seed, rounds[i].Antagonist != "", rounds[i].Scores})
	}
	return list
}

func scoredTwin(rounds []TwinRound) (list []scored) {
	for i := range rounds {
		list = append(list, scored{rounds[i].Seed, len(rounds[i].Guilty) > 0, rounds[i].Scores})
	}
	return list
}

// point is one of the receiver operating characteristic of the share that is asked for.
type point struct {
	share        float64
	found, wrong int // positive rounds with the antagonist at the share; rounds with an innocent at it
}

// at counts who is named at a share.
func at(list []scored, share float64) point {
	p := point{share: share}
	for i := range list {
		if list[i].positive && list[i].Right >= share {
			p.found++
		}
		if list[i].Wrong >= share {
			p.wrong++
		}
	}
	return p
}

func positives(list []scored) (n int) {
	for i := range list {
		if list[i].positive {
			n++
		}
	}
	return n
}

// areaUnder is the area under the curve: how probably the antagonist of one round has a greater score than the innocents of
// another. NaN without rounds of either kind.
func areaUnder(list []scored) float64 {
	sum := 0.0
	for i := range list {
		if !list[i].positive {
			continue
		}
		for k := range list {
			switch right, wrong := list[i].Right, list[k].Wrong; {
			case right > wrong:
				sum++
			case right == wrong:
				sum += 0.5
			}
		}
	}
	return sum / float64(positives(list)*len(list))
}

// Area is the area under the curve, and between what it lies in 95 of 100 draws of as many seeds from those there are: rounds of
// one seed are not independent.
type Area struct {
	Area stat.Number `json:"area"`
	Low  stat.Number `json:"low"`
	High stat.Number `json:"high"`
}

// draws is how often seeds are drawn anew.
const draws = 1000

func areaOf(list []scored) Area {
	a := Area{stat.Number(areaUnder(list)), stat.Absent(), stat.Absent()}
	groups := map[uint64][]scored{}
	for _, r := range list {
		groups[r.seed] = append(groups[r.seed], r)
	}
	seeds := slices.Sorted(maps.Keys(groups))
	if len(seeds) < 2 || !a.Area.Known() {
		return a
	}
	rng := rand.New(rand.NewPCG(seeds[0], uint64(len(seeds))))
	var areas []float64
	for range draws {
		var drawn []scored
		for range seeds {
			drawn = append(drawn, groups[seeds[rng.IntN(len(seeds))]]...)
		}
		if v := areaUnder(drawn); !math.IsNaN(v) { // else nobody was to be held in any of them
			areas = append(areas, v)
		}
	}
	a.Low, a.High = stat.Number(stat.Quantile(0.025, areas)), stat.Number(stat.Quantile(0.975, areas))
	return a
}

// Areas are those of rounds on this host and of simulated machines.
func Areas(rounds []Round, twin []TwinRound) (host, simulated Area) {
	return areaOf(scoredRounds(rounds)), areaOf(scoredTwin(twin))
}

func (a Area) text() string {
	return fmt.Sprintf("%s [%s, %s]", a.Area.Text(3), a.Low.Text(3), a.High.Text(3))
}

func curveTable(list []scored, title string) report.Table {
	n := positives(list)
	t := report.Table{
		Title:   title,
		Columns: report.Heads("asked for", "antagonist reaches it", "share", "an innocent does", "share"),
		Notes: []string{
			fmt.Sprintf("The greatest share at which it was still the first to be named, from the samples until somebody was held, in steps of 0.05; area under the curve %s: 95 %% of %d draws of the seeds. Other intervals: Wilson, 95 %%.", areaOf(list).text(), draws),
		},
	}
	if len(list) > 0 && list[0].seed < Reported {
		t.Notes = append(t.Notes, fmt.Sprintf("Seeds below %d: for choosing, and no proof.", Reported))
	}
	for _, share := range asked {
		p := at(list, share)
		t.Rows = append(t.Rows, report.Cells(fmt.Sprintf("%.2f", p.share), fmt.Sprintf("%d of %d", p.found, n), proportion(p.found, n).text(),
			fmt.Sprintf("%d of %d", p.wrong, len(list)), proportion(p.wrong, len(list)).text()))
	}
	return t
}

// curve is the receiver operating characteristic as a line, from nobody named to all: shares of rounds.
func curve(name string, role report.Role, list []scored) report.Series {
	s := report.Series{Name: name, Role: role, X: []float64{0}, Y: []float64{0}}
	n := float64(positives(list))
	for i := steps - 1; i > 0; i-- {
		p := at(list, float64(i)/steps)
		s.X, s.Y = append(s.X, float64(p.wrong)/float64(len(list))), append(s.Y, float64(p.found)/n)
	}
	return s
}

// Chart is the operating characteristic of the share of the blame that is asked for; nothing without rounds in which somebody
// is to be held.
func Chart(rounds []Round, twin []TwinRound) (report.Chart, bool) {
	c := report.Chart{
		Title: "Naming by blame, at every share that could be asked for", XLabel: "share of rounds in which an innocent is named first",
		YLabel: "share of rounds with an antagonist in which it is named first", Height: 420, Width: 640,
	}
	add := func(name string, role report.Role, list []scored) {
		if positives(list) == 0 {
			return
		}
		c.Series = append(c.Series, curve(name, role, list))
		if c.Subtitle != "" {
			c.Subtitle += "; "
		}
		c.Subtitle += fmt.Sprintf("%s: %d rounds, area under the curve %s", name, len(list), areaOf(list).text())
	}
	add("on this host", report.Antagonist, scoredRounds(rounds))
	add("simulated", report.Victim, scoredTwin(twin))
	return c, len(c.Series) > 0
}

// profileAsks is the share that the profile single-node asks for.
var profileAsks = func() float64 {
	c, _ := config.Defaults(config.ProfileSingleNode)
	return c.Policies.Hardcap.Blame.Share
}()

// TwinGoals holds the simulated rounds, at the share that the profile asks for, to what is asked of rounds on a host. The area has no goal.
func TwinGoals(rounds []TwinRound) []report.Goal {
	list := scoredTwin(rounds)
	p, n := at(list, profileAsks), positives(list)
	goal := func(what, want string, k, n int, met bool) report.Goal {
		return report.Goal{Where: "twin", What: what, Want: want, Got: proportion(k, n).text(), Met: met}
	}
	return []report.Goal{
		goal("antagonists named first", "at least 0.95", p.found, n, float64(p.found) >= 0.95*float64(n)),
		goal("rounds with an innocent named first", "at most 0.02", p.wrong, len(list), float64(p.wrong) <= 0.02*float64(len(list))),
		{Where: "twin", What: "area under the curve", Got: areaOf(list).text(), Met: true},
	}
}
