package policy_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy"
)

// What became of a move is told of the memory nodes that it was off, and not of those that somebody else asked for.
func TestPagesMoved(t *testing.T) {
	other, ours := model.Pages(100, 1), model.Pages(500, 0)
	v := policy.View{Results: []model.Result{{Target: model.OfTask(2), Kind: model.Applied, Now: other}}}
	if r := v.PagesMoved(2, ours.CPUs); r != nil {
		t.Errorf("another's move is taken: %+v", r)
	}
	v.Results = append(v.Results, model.Result{Target: model.OfTask(2), Kind: model.Applied, Now: ours}, model.Result{Target: model.OfTask(3), Kind: model.Applied, Now: ours})
	if r := v.PagesMoved(2, ours.CPUs); r != &v.Results[1] {
		t.Errorf("%+v", r)
	}
	v.Results = []model.Result{{Target: model.OfTask(2), Kind: model.Refused, Now: model.Ask(model.MemoryPages)}}
	if r := v.PagesMoved(2, ours.CPUs); r == nil {
		t.Error("a refusal, which tells of no node, is not taken")
	}
}
