package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
)

// What the fleet was told of protection and what this node was told are kept apart, off is what either says, neither takes back what the other said, and only
// the node's own is learned for the next run: the fleet's is heard again.
func TestTheFleetsProtectionAndTheNodesOwn(t *testing.T) {
	e := engine.New(cpuParams(t))
	const on, off = model.CommandProtectOn, model.CommandProtectOff
	for i, x := range []struct {
		kind, job  string
		fleet      bool
		said       string
		own, whole []string
		mode       model.Mode
	}{
		{off, "web", true, "ann turned protection off in the whole fleet", nil, []string{"web"}, model.ModeEnforce},
		{off, "web", true, "ann turned protection off in the whole fleet", nil, []string{"web"}, model.ModeEnforce},
		{on, "web", false, "ann turned protection on", nil, []string{"web"}, model.ModeEnforce},
		{off, "", false, "ann turned protection off", []string{""}, []string{"web"}, model.ModeObserve},
		{off, "", true, "ann turned protection off in the whole fleet", []string{""}, []string{"web", ""}, model.ModeObserve},
		{on, "", false, "ann turned protection on", nil, []string{"web", ""}, model.ModeObserve},
		{off, "mail", false, "ann turned protection off", []string{"mail"}, []string{"web", ""}, model.ModeObserve},
		{on, "", true, "ann turned protection on in the whole fleet", []string{"mail"}, nil, model.ModeEnforce},
	} {
		out := e.Step(&engine.Input{Seq: uint64(i + 1), MonoNsec: int64(i+1) * 1e9, Commands: []model.Command{{Kind: x.kind, Job: x.job, Fleet: x.fleet, By: "ann"}}})
		said := slices.ContainsFunc(out.Decisions, func(d model.Decision) bool { return d.Kind == model.DecideOperator && d.Reason == x.said })
		s := e.State
		if !said || !slices.Equal(s.ProtectOff, x.own) || !slices.Equal(s.FleetOff, x.whole) || s.Policies[0].Mode != x.mode {
			t.Errorf("%d %s %q: the node's %q, the fleet's %q, mode %s, %+v; expected %q, %q, %s", i, x.kind, x.job, s.ProtectOff, s.FleetOff, s.Policies[0].Mode, out.Decisions, x.own, x.whole, x.mode)
		}
		if again := enginetest.Resumed(t, e); !slices.Equal(again.State.FleetOff, x.whole) {
			t.Errorf("%d: resumed with %q", i, again.State.FleetOff)
		}
		kept, err := json.Marshal(e.Keep(1, 1))
		if err != nil || strings.Contains(string(kept), "web") {
			t.Errorf("%d: %s, %v", i, kept, err)
		}
	}
}
