package thrash

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed   uint64     `json:"seed"`
	Quick  bool       `json:"quick"`
	Rounds []Round    `json:"rounds"`
	Counts int        `json:"counts"` // rounds in which the antagonist hurts, and something can be taken from it
	Mild   int        `json:"mild"`   // in which it hurts a little, and something can be taken
	Again  int        `json:"again"`  // in which it hurts a service that is started again, and something can be taken
	Scenes []SceneSum `json:"scenes"`
	report.Judged
}

// The rows of sums, by who takes the memory. What is anonymous cannot be taken back where there is no swap.
const (
	rowNothing = iota
	rowPolicy
	rowMild  // under the policy, where the service waits a little
	rowFixed // under the policy, where nothing can be taken from the antagonist
	rowOther
	rowItself
	rowAgainNothing
	rowAgain // under the policy, where the service is started again
	numRows
)

var rowScenes = [numRows]Scene{Nothing, Policy, Policy, Policy, Other, Itself, AgainNothing, Again}

// SceneSum is one scene over the rounds that count, where nobody is to blame over all; intervals are over rounds.
type SceneSum struct {
	Scene  string        `json:"scene"`
	Named  stat.Share    `json:"named"`  // rounds in which the antagonist was asked for memory, or held
	Others stat.Share    `json:"others"` // in which somebody else was, of all
	Waits  stat.Interval `json:"waits"`
	Of     stat.Interval `json:"of"`    // what the service waits, of what it waits with nothing done
	Keeps  stat.Interval `json:"keeps"` // the antagonist's memory, of that with nothing done
	After  float64       `json:"after_sec"`
}

const (
	waitsLeast, waitsTimes = 0.15, 3.0 // a round counts
	mildLeast, mildMost    = 0.08, 0.3 // as one of little harm
	leastNamed             = 0.95
	mostOthers             = 0.02
	mostOf                 = 0.25
	mildNamed, mildOf      = 0.8, 0.5
	leastKept              = 0.25
	mostAfter              = 60.0 // seconds, where the service is started again
)

// counts reports whether the antagonist hurts in a round.
func (r *Round) counts(s Scene) bool { return r.hurts(s, waitsLeast, math.Inf(1)) }

// mild reports whether it hurts a little.
func (r *Round) mild() bool { return r.hurts(Nothing, mildLeast, mildMost) }

// hurts reports whether the service waits so much with nothing done, and clearly more than before.
func (r *Round) hurts(s Scene, least, below float64) bool {
	f := &r.Scenes[s.unheld()]
	return f.Waits >= least && f.Waits < below && f.Waits >= waitsTimes*f.Alone
}

// in reports whether a round is one of a row's, in which somebody is to blame.
func (r *Round) in(row int) bool {
	switch row {
	case rowPolicy, rowAgain:
		return r.counts(rowScenes[row]) && !r.fixed()
	case rowMild:
		return r.mild() && !r.fixed()
	case rowFixed:
		return r.counts(Nothing) && r.fixed()
	}
	return r.counts(rowScenes[row])
}

// fixed: nothing can be taken from the antagonist.
func (r *Round) fixed() bool { return !r.Swap && !r.File }

// accused reports whether somebody was who did nothing.
func (r *Round) accused(s Scene) bool {
	f := &r.Scenes[s]
	return len(f.Others) > 0 || s.blameless() && f.AfterSec >= 0
}

// sum sums the rounds up and judges them.
func (r *Result) sum() {
	behind := 0
	for row, s := range rowScenes {
		named, others, of := 0, 0, 0
		var waits, share, keeps, after []float64
		for i := range r.Rounds {
			f, none := &r.Rounds[i].Scenes[s], &r.Rounds[i].Scenes[s.unheld()]
			if !f.Restored && row != rowFixed && row != rowMild {
				behind++
			}
			if r.Rounds[i].accused(s) {
				others++
			}
			if s.blameless() {
				waits = append(waits, f.Waits)
			}
			if s.blameless() || !r.Rounds[i].in(row) {
				continue
			}
			of++
			if f.AfterSec >= 0 {
				named, after = named+1, append(after, f.AfterSec)
			}
			waits, share, keeps = append(waits, f.Waits), append(share, f.Waits/none.Waits), append(keeps, stat.Ratio(f.GiB, none.GiB))
		}
		sum := SceneSum{Scene: s.String(), Named: stat.ShareOf(named, of), Others: stat.ShareOf(others, len(r.Rounds)), After: -1}
		sum.Waits, sum.Of, sum.Keeps = stat.IntervalOf(waits), stat.IntervalOf(share), stat.IntervalOf(keeps)
		if len(after) > 0 {
			sum.After = stat.Median(after)
		}
		switch row {
		case rowPolicy:
			r.Counts = of
		case rowAgain:
			r.Again = of
		case rowMild:
			sum.Scene += ", little harm"
			r.Mild = of
		case rowFixed:
			sum.Scene += ", nothing to take"
		}
		r.Scenes = append(r.Scenes, sum)
	}
	r.judge(behind)
}

func (r *Result) judge(behind int) {
	ours := &r.Scenes[rowPolicy]
	goal := func(what, want, got string, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: what, Want: want, Got: got, Met: met && r.Counts > 0})
	}
	goal("rounds in which the antagonist is asked for memory, or held", fmt.Sprintf("at least %.0f %%", 100*leastNamed), ours.Named.Text(), ours.Named.Value() >= leastNamed)
	for _, x := range []struct {
		row  int
		what string
	}{{rowPolicy, "rounds in which somebody else is"}, {rowOther, "rounds of another service in which anybody is"}, {rowItself, "rounds of the service itself in which anybody is"}} {
		others := r.Scenes[x.row].Others
		goal(x.what, fmt.Sprintf("at most %.0f %%", 100*mostOthers), others.Text(), others.Value() <= mostOthers)
	}
	goal("what the service waits, of that with nothing done, in the mean", fmt.Sprintf("at most %.0f %%", 100*mostOf), ours.Of.Text(100, 0), ours.Of.Mean <= mostOf)
	goal("what the antagonist has, of that with nothing done, in the mean", fmt.Sprintf("at least %.0f %%", 100*leastKept), ours.Keeps.Text(100, 0), ours.Keeps.Mean >= leastKept)
	if again := &r.Scenes[rowAgain]; r.Again > 0 {
		goal("rounds of a restart in which the antagonist is asked, or held", fmt.Sprintf("at least %.0f %%", 100*leastNamed), again.Named.Text(), again.Named.Value() >= leastNamed)
		goal("the antagonist is named after a restart, in the median", fmt.Sprintf("at most %.0f s", mostAfter), fmt.Sprintf("%.0f s", again.After), again.After >= 0 && again.After <= mostAfter)
		goal("rounds of a restart in which somebody else is", fmt.Sprintf("at most %.0f %%", 100*mostOthers), again.Others.Text(), again.Others.Value() <= mostOthers)
		goal("what the service waits after a restart, of that with nothing done, in the mean", fmt.Sprintf("at most %.0f %%", 100*mostOf), again.Of.Text(100, 0), again.Of.Mean <= mostOf)
	}
	goal("plays that left a limit behind", "none", fmt.Sprint(behind), behind == 0)
	if mild := &r.Scenes[rowMild]; r.Mild > 0 {
		goal("rounds of little harm in which the antagonist is asked, or held", fmt.Sprintf("at least %.0f %%", 100*mildNamed), mild.Named.Text(), mild.Named.Value() >= mildNamed)
		goal("what the service waits in them, of that with nothing done, in the mean", fmt.Sprintf("at most %.0f %%", 100*mildOf), mild.Of.Text(100, 0), mild.Of.Mean <= mildOf)
	}
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	scenes := report.Table{Columns: report.Heads("who takes the memory", "named|of rounds", "after|s, median", "somebody blameless|of all rounds", "service waits|% of the time", "service waits|% of unheld", "antagonist has|% of unheld")}
	for i := range r.Scenes {
		s := &r.Scenes[i]
		after, named, of, keeps := "", "", "", ""
		if s.After >= 0 {
			after = fmt.Sprintf("%.0f", s.After)
		}
		if !rowScenes[i].blameless() {
			named, of, keeps = s.Named.Text(), s.Of.Text(100, 0), s.Keeps.Text(100, 0)
		}
		scenes.Rows = append(scenes.Rows, report.Cells(s.Scene, named, after, s.Others.Text(), s.Waits.Text(100, 0), of, keeps))
	}
	scenes.Notes = []string{fmt.Sprintf("Of an antagonist over the rounds in which the service waits for memory at least %.0f %% of the time with nothing done, and %.0f times as much as before, in %d of them where something can be taken from it (there is swap, or what it has is page cache); of little harm over the %d in which it waits %.0f to %.0f %% of the time; of a restart over %d, after it; means but for medians, with their 95 %% intervals.", 100*waitsLeast, waitsTimes, r.Counts, r.Mild, 100*mildLeast, 100*mildMost, r.Again)}
	return report.Report{
		Title:   "Who makes a service wait for memory",
		Summary: []string{fmt.Sprintf("%d drawn rounds of eleven minutes on simulated machines.", len(r.Rounds))},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Scenes", Tables: []report.Table{scenes}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", report.Heads("what", "goal", "here", ""), r.Goals)}},
			{Title: "Rounds that went wrong", Tables: []report.Table{r.wrong()}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// wrong are the first plays in which somebody blameless was named, or the antagonist was not, or the service went on waiting.
func (r *Result) wrong() report.Table {
	t := report.Table{Columns: report.Heads("round", "scene", "swap", "antagonist's memory", "named after|s", "service waits|%", "unheld|%", "others named")}
	for s := Policy; s < NumScenes; s++ {
		for i := range r.Rounds {
			o := &r.Rounds[i]
			f, none := &o.Scenes[s], &o.Scenes[s.unheld()]
			missed := (s == Policy || s == Again) && o.counts(s) && !o.fixed() && (f.AfterSec < 0 || f.Waits > mostOf*none.Waits)
			if (missed || o.accused(s)) && len(t.Rows) < 40 {
				t.Rows = append(t.Rows, report.Cells(fmt.Sprint(o.Index), s.String(), map[bool]string{true: "yes", false: "none"}[o.Swap], map[bool]string{true: "page cache", false: "anonymous"}[o.File],
					fmt.Sprintf("%.0f", f.AfterSec), fmt.Sprintf("%.0f", 100*f.Waits), fmt.Sprintf("%.0f", 100*none.Waits), strings.Join(f.Others, ", ")))
			}
		}
	}
	return t
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
