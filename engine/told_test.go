package engine_test

import (
	"strings"
	"testing"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

func TestToldSpecs(t *testing.T) {
	p := singleNode(t)
	e := engine.New(p)
	web := model.Spec{Job: "web", Platform: p.Platform, Source: model.SourceCPI, NumSamples: 1000, Mean: 2, StdDev: 0.1}
	other := web
	other.Job, other.Platform = "mail", "another CPU"
	none := web
	none.Job, none.NumSamples = "dns", 0
	core := web
	core.Job, core.Definition = "old", "core cycles / instructions"
	out := e.Step(&engine.Input{Seq: 1, MonoNsec: 5e9, Specs: []model.Spec{web, other, none, core}})
	web.MonoNsec, web.Definition = 5e9, "reference cycles / instructions"
	if got := e.State.Specs.Lookup("web", model.SourceCPI); got == nil || *got != web {
		t.Errorf("%+v", got)
	}
	if e.State.Specs.Lookup("mail", model.SourceCPI) != nil || e.State.Specs.Lookup("dns", model.SourceCPI) != nil {
		t.Error("specs were taken that say nothing here")
	}
	if e.State.Specs.Lookup("old", model.SourceCPI) != nil || len(out.Decisions) != 3 || !strings.Contains(out.Decisions[0].Reason, "another CPU") || !strings.Contains(out.Decisions[1].Reason, "no distribution") || !strings.Contains(out.Decisions[2].Reason, "core cycles") {
		t.Errorf("%+v", out.Decisions)
	}
	// What is learned here is weighed against all samples of the fleet.
	e.State.Specs.Add(e.Params.Spec, &model.Task{Num: 1, Job: "web"}, model.SourceCPI, 4, 1, 9)
	local := p.Spec
	local.MinSamplesPerTask, local.RecalculateNsec, local.AgeWeight = 1, 1, 1
	got := e.State.Specs.Recalculate(local, 9e9)
	if len(got) != 1 || got[0].NumSamples != 1001 || got[0].Mean < 2.001 || got[0].Mean > 2.003 {
		t.Errorf("%+v", got)
	}
}

func TestToldParamsAndLatencies(t *testing.T) {
	p := singleNode(t)
	e := engine.New(p)
	n := p
	n.Mode, n.Platform, n.HistoryWindows, n.Outlier.Sigmas = model.ModeOff, "another", 3, 7
	e.Step(&engine.Input{Seq: 1, MonoNsec: 1e9, Params: &n})
	if e.Params.Mode != model.ModeOff || e.Params.Outlier.Sigmas != 7 {
		t.Errorf("not taken over: %+v", e.Params)
	}
	if e.Params.Platform != p.Platform || e.Params.HistoryWindows != p.HistoryWindows {
		t.Errorf("what cannot change did: %+v", e.Params)
	}
	for i, l := range []model.Latency{{Job: "web", P99: model.Known(1)}, {Job: "dns", Samples: 3}, {Job: "web", P99: model.Known(2)}} {
		e.Step(&engine.Input{Seq: uint64(i) + 2, MonoNsec: 2e9 + int64(i), SLO: []model.Latency{l}})
	}
	if s := e.State.SLO; len(s) != 2 || s[0].Job != "dns" || s[1].P99 != model.Known(2) {
		t.Errorf("%+v", s)
	}
}
