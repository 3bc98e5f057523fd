package firstlight

import (
	"fmt"
	"io"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Summary is one detector over all rounds.
type Summary struct {
	Detector  string     `json:"detector"`
	Right     int        `json:"right"` // names that were the antagonist
	Wrong     int        `json:"wrong"`
	Positives int        `json:"positive_rounds"`
	Found     int        `json:"positive_rounds_found"`
	FalseIn   int        `json:"negative_rounds_with_a_name"`
	Negatives int        `json:"negative_rounds"`
	Precision Proportion `json:"precision"`
	Recall    Proportion `json:"recall"`
	ToName    float64    `json:"median_seconds_to_name"`    // -1: none
	ToRecover float64    `json:"median_seconds_to_recover"` // -1: none, or not measured
	Lost      float64    `json:"innocent_cpu_seconds_lost"`
}

// Proportion is a share with its 95 % interval.
type Proportion struct {
	Share float64 `json:"share"` // NaN is not valid JSON: -1 when there were no trials
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// proportion returns the share that k is of n.
func proportion(k, n int) Proportion {
	s := stat.ShareOf(k, n)
	if n == 0 {
		return Proportion{Share: -1, Low: s.Low, High: s.High}
	}
	return Proportion{Share: s.Value(), Low: s.Low, High: s.High}
}

// text prints a share with its interval.
func (p Proportion) text() string {
	if p.Share < 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", p.Share, p.Low, p.High)
}

// ourName is how our own row is called.
const ourName = "commensal"

// Summarise judges every detector over the rounds. A positive round in which the victim
// did not suffer before the end still counts as missed: the table has no such excuse.
func Summarise(rounds []Round) []Summary {
	list := []Summary{summarise(ourName, rounds, func(r *Round) Score { return r.Ours })}
	for _, name := range []string{baseLargest, basePaper, basePeer} {
		list = append(list, summarise(name, rounds, func(r *Round) Score { return r.Baselines[name] }))
	}
	return list
}

func summarise(name string, rounds []Round, of func(r *Round) Score) Summary {
	s := Summary{Detector: name}
	var toName, toRecover []float64
	for i := range rounds {
		r := &rounds[i]
		sc := of(r)
		s.Right += sc.Right
		s.Wrong += sc.Wrong
		s.Lost += sc.Lost
		if r.Antagonist == "" {
			s.Negatives++
			if len(sc.Named) > 0 {
				s.FalseIn++
			}
			continue
		}
		s.Positives++
		if sc.Right > 0 {
			s.Found++
			toName = append(toName, sc.ToName)
			if sc.ToRecover >= 0 {
				toRecover = append(toRecover, sc.ToRecover)
			}
		}
	}
	s.Precision, s.Recall = proportion(s.Right, s.Right+s.Wrong), proportion(s.Found, s.Positives)
	s.ToName, s.ToRecover = median(toName), median(toRecover)
	return s
}

// median returns the median of times, -1 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return -1
	}
	return stat.Median(v)
}

// WriteText prints the tables: those of rounds on this host, and of simulated machines.
func WriteText(w io.Writer, rounds []Round, twin []TwinRound) error {
	var tables []report.Table
	if len(rounds) > 0 {
		tables = append(tables, roundsTable(rounds), detectorsTable(Summarise(rounds)), askedTable(rounds), curveTable(scoredRounds(rounds), "Scores of the antagonist and of the worst innocent, by the share asked for"))
		if len(rounds[0].Arms) > 0 {
			tables = append(tables, armsTable(rounds))
		}
	}
	if len(twin) > 0 {
		tables = append(tables, scenesTable(twin), curveTable(scoredTwin(twin), "The same on simulated machines, in the scenes of waiting"))
	}
	return report.WriteTables(w, tables...)
}

func seconds(v float64) string {
	if v < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}

func detectorsTable(list []Summary) report.Table {
	t := report.Table{
		Title:   "Detectors",
		Columns: report.Heads("detector", "right", "wrong", "precision", "recall", "false in negatives", "to name|s", "to recover|s", "innocents lost|CPU-s"),
		Notes: []string{
			"Intervals: Wilson, 95 %. Recall is over positive rounds. Times are medians, from the start of the antagonist.",
			"Baselines are run over the same recorded samples up to our first hold and name at most one task a round; they hold nobody, so that recovery and loss are not theirs to have.",
		},
	}
	for _, s := range list {
		lost := "-"
		if s.Detector == ourName {
			lost = fmt.Sprintf("%.2f", s.Lost)
		}
		t.Rows = append(t.Rows, report.Cells(s.Detector, fmt.Sprint(s.Right), fmt.Sprint(s.Wrong), s.Precision.text(), s.Recall.text(),
			fmt.Sprintf("%d of %d", s.FalseIn, s.Negatives), seconds(s.ToName), seconds(s.ToRecover), lost))
	}
	return t
}

// askedTable is what naming by blame would have done at other thresholds: its operating curve.
func askedTable(rounds []Round) report.Table {
	t := report.Table{
		Title:   "Share of the blame asked for",
		Columns: report.Heads("asked for", "positive rounds found", "named wrongly there", "negative rounds with a name", "to name|s"),
		Notes:   []string{"The first name in each round, from the same samples up to our first hold; nobody is held."},
	}
	for i, share := range asked {
		s := summarise("", rounds, func(r *Round) Score {
			if i < len(r.Asked) {
				return r.Asked[i]
			}
			return Score{ToName: -1, ToRecover: -1}
		})
		t.Rows = append(t.Rows, report.Cells(fmt.Sprintf("%.2f", share), fmt.Sprintf("%d of %d", s.Found, s.Positives), fmt.Sprint(s.Wrong-s.FalseIn),
			fmt.Sprintf("%d of %d", s.FalseIn, s.Negatives), seconds(s.ToName)))
	}
	return t
}

func roundsTable(rounds []Round) report.Table {
	t := report.Table{
		Title: "Rounds",
		Columns: []report.Column{report.Figures("seed", ""), {Name: "played"}, {Name: "held"}, report.Figures("to name", "s"), report.Figures("to recover", "s"),
			report.Figures("p99 before", "ms"), report.Figures("p99 until held", "ms"), report.Figures("p99 after", "ms")},
	}
	for i := range rounds {
		r := &rounds[i]
		after := "-"
		if r.P99After > 0 {
			after = fmt.Sprintf("%.1f", r.P99After)
		}
		t.Rows = append(t.Rows, report.Cells(fmt.Sprint(r.Seed), string(r.Kind), heldText(r), seconds(r.Ours.ToName), seconds(r.Ours.ToRecover),
			fmt.Sprintf("%.1f", r.P99Before), fmt.Sprintf("%.1f", r.P99Event), after))
	}
	return t
}

func heldText(r *Round) string {
	var parts []string
	if r.Ours.Right > 0 {
		parts = append(parts, "the antagonist")
	}
	if r.Ours.Wrong > 0 {
		parts = append(parts, fmt.Sprintf("%d innocent", r.Ours.Wrong))
	}
	if len(parts) == 0 {
		if len(r.LeftAlone) > 0 {
			return "nobody; named " + r.LeftAlone[0]
		}
		return "nobody"
	}
	return strings.Join(parts, ", ")
}
