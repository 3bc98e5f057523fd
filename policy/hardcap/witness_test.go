package hardcap

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
	"github.com/commensal-io/commensal/policy/antagonist"
	"github.com/commensal-io/commensal/policy/outlier"
)

// TestFellTogetherThroughSilence: whose victim falls silent under a nudge is compared with the windows before it, and not with one in which it stood.
func TestFellTogetherThroughSilence(t *testing.T) {
	const minute = int64(60e9)
	in := &policy.View{History: antagonist.NewHistory(10), Table: &model.TaskTable{}}
	for i := range 4 {
		num := model.TaskNum(i + 1)
		in.Table.Tasks = append(in.Table.Tasks, model.Task{Num: num, Class: model.LC})
		in.History.Ensure(num)
		in.Window.Victims = append(in.Window.Victims, policy.Victim{Num: num, Source: model.SourceCPI, Verdict: outlier.Good, Spec: &model.Spec{Mean: 1, StdDev: 0.1}})
	}
	applied := 3*minute + 5e9 // in the pause after the third window
	for at, signal := range []float64{2, 2, 2, 1, 1} {
		in.History.Begin(int64(at+1) * minute)
		for i := range 4 {
			if i == 0 && at == 3 {
				signal = antagonist.NoEvidence // it is well, and has little to do
			} else if signal == antagonist.NoEvidence {
				signal = 1
			}
			in.History.Put(model.TaskNum(i+1), 1, signal)
		}
		in.History.End()
	}
	in.Window.LengthNsec = 10e9
	inc, r := &Incident{Incident: model.Incident{Victim: 1, Source: model.SourceCPI}}, &model.Round{AppliedNsec: applied, WindowsJudged: 1}
	if n := under(in, r); n != 2 {
		t.Errorf("%d windows under the hold, want 2", n)
	}
	counted, asked := fellTogether(in, inc, under(in, r))
	if all, _ := fellTogether(in, inc, r.WindowsJudged); asked != 4 || !(counted > all) || !(counted > sureTogether) {
		t.Errorf("%d fell by %.2f standard errors, by %.2f where the silent window is one before", asked, counted, all)
	}
	r.AppliedNsec = 6 * minute
	if n := under(in, r); n != 1 {
		t.Errorf("%d windows, want the one that was judged", n)
	}
}
