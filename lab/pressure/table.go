package pressure

import (
	"fmt"
	"io"

	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/stat"
)

// Result is a whole run.
type Result struct {
	Seed   uint64   `json:"seed"`
	Quick  bool     `json:"quick"`
	Rounds []Round  `json:"rounds"`
	Arms   []ArmSum `json:"arms"`
	report.Judged
}

// ArmSum is one arm over all rounds.
type ArmSum struct {
	Arm      string        `json:"arm"`
	Services stat.Share    `json:"services"` // rounds in which one was killed
	Batch    stat.Share    `json:"batch"`
	Killed   int           `json:"killed"` // batch tasks
	Ended    int           `json:"ended"`  // batch tasks, by the policy
	Work     stat.Interval `json:"work"`   // of batch work, beside that with limits by hand
	Stalls   stat.Interval `json:"stalls"` // share of the time in which services waited for memory
}

const leastWork = 0.8 // of batch work with limits by hand

func (r *Result) sum() {
	for arm := range NumArms {
		s := ArmSum{Arm: arm.String()}
		services, batch := 0, 0
		var work, stalls []float64
		for i := range r.Rounds {
			a := &r.Rounds[i].Arms[arm]
			services += one(a.Services > 0)
			batch += one(a.Batch > 0)
			s.Killed += a.Batch
			s.Ended += a.Ended
			work, stalls = append(work, stat.Ratio(a.Work, r.Rounds[i].Arms[ByHand].Work)), append(stalls, a.Stalls)
		}
		s.Services, s.Batch = stat.ShareOf(services, len(r.Rounds)), stat.ShareOf(batch, len(r.Rounds))
		s.Work, s.Stalls = stat.IntervalOf(work), stat.IntervalOf(stalls)
		r.Arms = append(r.Arms, s)
	}
	ours := &r.Arms[Policy]
	goal := func(what, want, format string, got float64, met bool) {
		r.Goals = append(r.Goals, report.Goal{What: what, Want: want, Got: fmt.Sprintf(format, got), Met: met})
	}
	for _, arm := range [...]Arm{Policy, Ending} {
		lost := r.Arms[arm].Services.Value()
		goal(arm.String()+": rounds in which a service is killed", "none", "%.1f %%", 100*lost, lost == 0)
	}
	goal("batch work, of that with limits by hand", fmt.Sprintf("at least %.0f %%", 100*leastWork), "%.0f %%", 100*ours.Work.Mean, ours.Work.Mean >= leastWork)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Report is the result for people.
func (r *Result) Report() report.Report {
	arms := report.Table{Columns: report.Heads("what is done", "a service is killed|of rounds", "a batch task is killed|of rounds", "batch tasks killed|all", "ended by the policy|all", "batch work|% of by hand", "services wait for memory|% of the time")}
	for i := range r.Arms {
		a := &r.Arms[i]
		arms.Rows = append(arms.Rows, append(report.Cells(a.Arm, a.Services.Text(), a.Batch.Text()), report.Figure("%.0f", float64(a.Killed)), report.Figure("%.0f", float64(a.Ended)), report.Cells(a.Work.Text(100, 0))[0], report.Cells(a.Stalls.Text(100, 2))[0]))
	}
	return report.Report{
		Title:   "Who is killed when memory runs out",
		Summary: []string{fmt.Sprintf("%d drawn rounds of six minutes on simulated machines: services, batch work and hogs.", len(r.Rounds))},
		Verdict: report.Judge(r.Goals),
		Sections: []report.Section{
			{Title: "Arms", Tables: []report.Table{arms}},
			{Title: "Goals", Tables: []report.Table{report.GoalTable("", []report.Column{{Name: "what"}, {Name: "goal"}, {Name: "here"}, {Name: ""}}, r.Goals)}},
			{Title: "Rounds in which a service is killed under the policy", Tables: []report.Table{r.lost()}},
		},
		Facts: [][2]string{{"seed", fmt.Sprint(r.Seed)}, {"quick", fmt.Sprint(r.Quick)}},
	}
}

// lost are the first of the rounds that the policy loses.
func (r *Result) lost() report.Table {
	t := report.Table{Columns: report.Heads("round", "GiB", "swap", "nothing|services killed", "by hand|services killed", "pressure|services killed")}
	for i := range r.Rounds {
		if o := &r.Rounds[i]; o.Arms[Policy].Services > 0 && len(t.Rows) < 20 {
			t.Rows = append(t.Rows, append(report.Cells(fmt.Sprint(o.Index), fmt.Sprint(o.GiB), fmt.Sprint(o.Swap)), report.Figure("%.0f", float64(o.Arms[Nothing].Services)), report.Figure("%.0f", float64(o.Arms[ByHand].Services)), report.Figure("%.0f", float64(o.Arms[Policy].Services))))
		}
	}
	return t
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }
