package disk

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed   uint64     `json:"seed"`
	Quick  bool       `json:"quick"`
	Rounds []Round    `json:"rounds"`
	Counts [2]int     `json:"counts"` // rounds in which the antagonist hurts; of databases that use little
	Slight stat.Share `json:"slight"` // rounds of databases that use little and wait little, and each operation long, in which the antagonist is held
	Longer float64    `json:"longer"` // in these: an operation of the database, of that before, median
	Scenes []SceneSum `json:"scenes"`
	report.Judged
}

// SceneSum is one scene over the rounds that count, on a slow disk over all; intervals are over rounds.
type SceneSum struct {
	Scene  string        `json:"scene"`
	Held   stat.Share    `json:"held"`   // rounds in which the antagonist was
	Others stat.Share    `json:"others"` // in which somebody else was, of all
	Times  stat.Interval `json:"times"`  // an operation of the database, of that before
	Median float64       `json:"times_median"`
	Waits  stat.Interval `json:"waits"`
	Left   stat.Interval `json:"left"` // the antagonist's bytes, of those with nothing done
	After  float64       `json:"after_sec"`
}

const (
	hurts     = 2.0 // times as long: a round counts
	leastHeld = 0.95
	mostTimes = 2.0
	leastLeft = 0.1

	// Of databases that use little.
	lightWaits     = 0.1 // of the time: a round counts
	slightWaits    = 0.02
	slightTimes    = 5.0 // ... or less of it, down to this, and an operation so many times as long: a round of those that wait little
	leastHeldLight = 0.9
	mostOthers     = 0.02
)

// counts reports whether the antagonist hurts in a round, and the database shows it.
func (r *Result) counts(i int, s Scene) bool {
	f := &r.Rounds[i].Scenes[s.unheld()]
	return f.Ms >= hurts*f.AloneMs && (!s.light() || f.Waits > lightWaits)
}

// slight sums the rounds up in which a database waits little and its operations take long.
func (r *Result) slight() {
	held, of := 0, 0
	var times []float64
	for i := range r.Rounds {
		f, ours := &r.Rounds[i].Scenes[LightNothing], &r.Rounds[i].Scenes[LightPolicy]
		if f.Ms < slightTimes*f.AloneMs || f.Waits > lightWaits || f.Waits < slightWaits {
			continue
		}
		if of++; ours.AfterSec >= 0 {
			held++
		}
		times = append(times, ours.Ms/ours.AloneMs)
	}
	if r.Slight = stat.ShareOf(held, of); of > 0 {
		r.Longer = stat.Median(times)
	}
}

// sum sums the rounds up and judges them.
func (r *Result) sum() {
	behind := 0
	for s := range NumScenes {
		sum := SceneSum{Scene: s.String()}
		held, others, of := 0, 0, 0
		var times, waits, left, after []float64
		for i := range r.Rounds {
			f := &r.Rounds[i].Scenes[s]
			if !f.Restored {
				behind++
			}
			if len(f.Others) > 0 {
				others++
			}
			if !s.is(Slow) && !r.counts(i, s) {
				continue
			}
			of++
			if times, waits = append(times, f.Ms/f.AloneMs), append(waits, f.Waits); f.AfterSec >= 0 {
				held, after = held+1, append(after, f.AfterSec)
			}
			if !s.is(Slow) {
				left = append(left, stat.Ratio(f.MBPerSec, r.Rounds[i].Scenes[s.unheld()].MBPerSec))
			}
		}
		sum.Held, sum.Others = stat.ShareOf(held, of), stat.ShareOf(others, len(r.Rounds))
		sum.Times, sum.Median, sum.Waits, sum.Left, sum.After = stat.IntervalOf(times), stat.Median(times), stat.IntervalOf(waits), stat.IntervalOf(left), -1
		if len(after) > 0 {
			sum.After = stat.Median(after)
		}
		if s.is(Policy) {
			r.Counts[s/LightNothing] = of
		}
		r.Scenes = append(r.Scenes, sum)
	}
	r.slight()
	r.judge(behind)
}

func (r *Result) judge(behind int) {
	ours, slow := &r.Scenes[Policy], &r.Scenes[Slow]
	goal := func(what, want, got string, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: what, Want: want, Got: got, Met: met && slices.Min(r.Counts[:]) > 0})
	}
	goal("rounds in which the antagonist is held", fmt.Sprintf("at least %.0f %%", 100*leastHeld), ours.Held.Text(), ours.Held.Value() >= leastHeld)
	goal("rounds in which somebody else is", "none", ours.Others.Text(), ours.Others.Value() == 0)
	goal("rounds on a slow disk in which anybody is", "none", slow.Others.Text(), slow.Others.Value() == 0)
	goal("an operation of the database, of that before, in the mean", fmt.Sprintf("at most %.0f x", mostTimes), ours.Times.Text(1, 2), ours.Times.Mean <= mostTimes)
	goal("what the antagonist still does, of that with nothing done, in the mean", fmt.Sprintf("at least %.0f %%", 100*leastLeft), ours.Left.Text(100, 0), ours.Left.Mean >= leastLeft)
	ours, slow = &r.Scenes[LightPolicy], &r.Scenes[LightSlow]
	goal("of databases that use little: rounds in which the antagonist is held", fmt.Sprintf("at least %.0f %%", 100*leastHeldLight), ours.Held.Text(), ours.Held.Value() >= leastHeldLight)
	goal("... in which somebody else is", fmt.Sprintf("at most %.0f %%", 100*mostOthers), ours.Others.Text(), ours.Others.Value() <= mostOthers)
	goal("... on a slow disk in which anybody is", fmt.Sprintf("at most %.0f %%", 100*mostOthers), slow.Others.Text(), slow.Others.Value() <= mostOthers)
	if r.Slight.Of > 0 || !r.Quick { // of a few rounds there may be none
		goal("... that wait 2 to 10 % of the time: rounds in which the antagonist is held", fmt.Sprintf("at least %.0f %%", 100*leastHeldLight), r.Slight.Text(), r.Slight.Value() >= leastHeldLight)
	}
	goal("plays that left a limit behind", "none", fmt.Sprint(behind), behind == 0)
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	scenes := report.Table{Columns: report.Heads("what is played", "antagonist held|of rounds", "after|s, median", "somebody else|of all rounds", "database's operation|x before, median", "database waits|% of the time", "antagonist does|% of unheld")}
	for i := range r.Scenes {
		s := &r.Scenes[i]
		after, held, left := "", "", ""
		if s.After >= 0 {
			after = fmt.Sprintf("%.0f", s.After)
		}
		if !Scene(i).is(Slow) {
			held, left = s.Held.Text(), s.Left.Text(100, 0)
		}
		scenes.Rows = append(scenes.Rows, report.Cells(s.Scene, held, after, s.Others.Text(), stat.Text(s.Median, 2), s.Waits.Text(100, 0), left))
	}
	scenes.Notes = []string{
		fmt.Sprintf("Of an antagonist over the %d rounds in which the database's operations take at least %.0f times as long with nothing done; means but for medians, with their 95 %% intervals.", r.Counts[0], hurts),
		fmt.Sprintf("Of databases that use little and wait %.0f to %.0f %% of the time, an operation at least %.0f times as long with nothing done: held in %s; an operation takes %.2f times as long as before under the policy, median.", 100*slightWaits, 100*lightWaits, slightTimes, r.Slight.Text(), r.Longer),
		fmt.Sprintf("Of a database that uses little over the %d of these in which it waits more than %.0f %% of the time as well.", r.Counts[1], 100*lightWaits),
	}
	return report.Report{
		Title:   "Who makes a service wait for its disk",
		Summary: []string{fmt.Sprintf("%d drawn rounds of eight minutes on simulated disks.", len(r.Rounds))},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Scenes", Tables: []report.Table{scenes}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
			{Title: "Rounds that went wrong", Tables: []report.Table{r.wrong()}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// wrong are the first plays in which somebody else was held, or the antagonist was not.
func (r *Result) wrong() report.Table {
	t := report.Table{Columns: report.Heads("round", "scene", "antagonist", "held after|s", "database's operation|x before", "database waits|% of the time", "others held")}
	for s := range NumScenes {
		for i := range r.Rounds {
			o, f := &r.Rounds[i], &r.Rounds[i].Scenes[s]
			if missed := s.is(Policy) && r.counts(i, s) && f.AfterSec < 0; (len(f.Others) > 0 || missed) && len(t.Rows) < 40 {
				kind := map[bool]string{true: "writes", false: "reads"}[o.Writes]
				if s.is(Slow) {
					kind = "none"
				}
				t.Rows = append(t.Rows, report.Cells(fmt.Sprint(o.Index), s.String(), kind, fmt.Sprintf("%.0f", f.AfterSec), fmt.Sprintf("%.1f", f.Ms/f.AloneMs), fmt.Sprintf("%.0f", 100*f.Waits), strings.Join(f.Others, ", ")))
			}
		}
	}
	return t
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
