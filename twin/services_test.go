package twin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
)

// The ways of services lie where the driver of the kernel's files puts them: parts from the high side, the rest below. It has no L2s.
func TestWaysOfServices(t *testing.T) {
	m, err := machine.New(machine.Skylake(), 1)
	if err != nil {
		t.Fatal(err)
	}
	h, seq := twin.NewHost(m, true), uint64(0)
	ask := func(of model.TaskNum, n int64) {
		t.Helper()
		seq++
		c := model.Change{Seq: seq, Target: model.OfClass(of, 0), Kind: model.Hold, Value: model.Ways(n)}
		if n == 0 {
			c.Kind, c.Value = model.Release, model.Ask(model.CacheWays)
		}
		h.Apply([]model.Change{c})
		if res := h.Results(nil); len(res) != 1 || res[0].Kind != model.Applied {
			t.Fatalf("%+v", res)
		}
	}
	masks := func() string {
		var b strings.Builder
		for clos := 1; clos < m.Classes(); clos++ {
			mask, _, _ := m.Class(clos, 0)
			fmt.Fprintf(&b, "%x ", mask)
		}
		return strings.TrimSpace(b.String())
	}
	for _, step := range []struct {
		of   model.TaskNum
		n    int64
		want string
	}{
		{model.ClassBE, 2, "3"}, {model.ClassLC, 9, "3 7fc"}, {model.ClassLC, 4, "3 780"}, {model.ClassOfPart(0), 3, "3 f0 700"},
		{model.ClassOfPart(1), 2, "3 3c 700 c0"}, {model.ClassOfPart(0), 0, "3 1e0 7ff 600"}, {model.ClassLC, 7, "3 1fc 7ff 600"},
	} {
		if ask(step.of, step.n); masks() != step.want {
			t.Errorf("%s has %d: %s, not %s", model.ClassName(step.of), step.n, masks(), step.want)
		}
	}
	h.Apply([]model.Change{{Seq: 100, Target: model.OfClass(model.ClassBE, model.EveryDomain), Kind: model.Hold, Value: model.Setting{Knob: model.L2Ways, Amount: 2}}})
	if res := h.Results(nil); len(res) != 1 || res[0].Kind == model.Applied {
		t.Errorf("%+v", res)
	}
}
