package agent

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// An operator hears that an action is not done because one is on its way, or will be.
func TestOneActionIsAnswered(t *testing.T) {
	c := &Core{cfg: &config.Config{}, Engine: engine.New(engine.Defaults())}
	c.Engine.Step(&engine.Input{Seq: 1, MonoNsec: 1e9, Snapshot: &model.Snapshot{Added: []model.Task{{Num: 1, Path: "/b", Job: "b", Class: model.BE}}}})
	reclaim := Request{Kind: model.CommandReclaim, Task: "/b", Bytes: 1 << 20}
	if ans := c.Take(reclaim, "ann"); ans.Error != "" {
		t.Fatal(ans.Error)
	}
	if ans := c.Take(reclaim, "ann"); !strings.Contains(ans.Error, "asked for already") {
		t.Errorf("in the same turn: %+v", ans)
	}
	c.Engine.Step(&engine.Input{Seq: 2, MonoNsec: 2e9, Commands: c.commands})
	c.commands = nil
	if ans := c.Take(reclaim, "ann"); !strings.Contains(ans.Error, "on its way") {
		t.Errorf("while it is carried out: %+v", ans)
	}
	for _, other := range []Request{{Kind: model.CommandMovePages, Task: "/b", Keep: 0.5}, {Kind: model.CommandCap, Task: "/b", Cap: 1, Duration: 9}} {
		if ans := c.Take(other, "ann"); ans.Error != "" {
			t.Errorf("%s: %s", other.Kind, ans.Error)
		}
	}
}
