package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// statusAgent is an agent with an engine that was told of three tasks, and no machine.
func statusAgent(t *testing.T) *Agent {
	t.Helper()
	cfg, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		t.Fatal("no such profile")
	}
	e := engine.New(cfg.Params("test"))
	snap := func(at int64, throttled uint64) *model.Snapshot {
		s := &model.Snapshot{MonoNsec: at, Mark: model.WindowStart | model.WindowEnd, Node: model.NodeSample{CPUs: 4}}
		s.Node.C[model.CountBusy], s.Node.C[model.CountSteal] = model.Read(uint64(at)*2), model.Read(0)
		for n := range model.TaskNum(3) {
			s.Tasks = append(s.Tasks, model.TaskSample{Num: n + 1, C: [model.NumTaskCounters]model.Counter{
				model.CountUsage: model.Read(uint64(at) / uint64(n+2)), model.CountThrottled: model.Read(throttled * uint64(n)),
				model.CountRun: model.Read(uint64(at) / 2), model.CountDelay: model.Read(uint64(at) / 2),
			}})
		}
		return s
	}
	first := snap(1e9, 0)
	first.Added = []model.Task{{Num: 1, Path: "/web", Class: model.LC}, {Num: 2, Path: "/batch", Class: model.BE}, {Num: 3, Path: "/cron"}}
	first.Settings = []model.KnobReading{{Target: model.OfTask(2), Value: model.Bandwidth(model.CPUMax{QuotaUsec: 5000, PeriodUsec: 50_000}), Outcome: model.OK}}
	a := &Agent{cfg: &cfg, core: &Core{Engine: e}, slo: &sloSources{}}
	e.Step(&engine.Input{MonoNsec: 1e9, Snapshot: first})
	e.Step(&engine.Input{MonoNsec: 11e9, Snapshot: snap(11e9, 40)})
	return a
}

func TestStatusOfTasksAndNode(t *testing.T) {
	st := statusAgent(t).status()
	if n := st.Node; n.CPUs != 4 || n.Busy != model.Known(2) || n.LC != 0.5 || n.BE < 0.33 || n.BE > 0.34 || n.Other.Outcome != model.OK {
		t.Errorf("%+v", n)
	}
	// Of 200 periods of 50 ms 40 were throttled; of 100 of the default length 80.
	for i, want := range []float64{0, 0.2, 0.8} {
		if got := st.Tasks[i]; got.Throttled.Outcome != model.OK || got.Throttled.V < want-1e-9 || got.Throttled.V > want+1e-9 || got.Raw[model.SourceSlowdown] != model.Known(2) {
			t.Errorf("%s: throttled %+v, want %g; slowdown %+v", got.Path, got.Throttled, want, got.Raw)
		}
	}
	var names []string
	for _, p := range st.Policies {
		names = append(names, p.Name+" "+p.Mode.String())
	}
	if diff := cmp.Diff([]string{"hard_cap observe", "cpuset observe", "cpu_pool observe", "burst observe", "demote off", "cache off", "bandwidth off", "balm off", "remedy off", "pressure off", "coldpages off", "io off", "memory off", "headroom observe"}, names); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}

// Where no policy asks how long pages lay idle that is why nobody tells.
func TestStatusSaysWhoReadsAges(t *testing.T) {
	a := statusAgent(t)
	if why := a.status().Node.NoAges; !strings.Contains(why, "coldpages does in mode observe") {
		t.Errorf("%q", why)
	}
	a.core.Engine.Params.CPU.ColdPagesMode = model.ModeObserve
	if why := a.status().Node.NoAges; why != "" {
		t.Errorf("in mode observe: %q", why)
	}
}

// A brief status leaves those of others as they are.
func TestBriefStatus(t *testing.T) {
	a := statusAgent(t)
	for range maxRecent {
		a.core.recent = append(a.core.recent, &model.Incident{Rounds: []model.Round{{Suspects: make([]model.Suspect, 10), ChosenPath: "/batch"}}})
	}
	long, short := a.status(), a.status()
	short.shorten()
	if len(short.Incidents) != briefIncidents || len(short.Incidents[0].Rounds[0].Suspects) != 0 || short.Incidents[0].Rounds[0].ChosenPath != "/batch" || len(short.Tasks) != 3 {
		t.Errorf("%+v", short)
	}
	if last := long.Incidents[maxRecent-1]; len(long.Incidents) != maxRecent || len(last.Rounds[0].Suspects) != 10 {
		t.Errorf("the other status has %d incidents", len(long.Incidents))
	}
}

// A quota that a policy raised is no cap, neither in the status nor among the metrics; and
// policies are told apart there.
func TestRaisedIsNotCapped(t *testing.T) {
	a := statusAgent(t)
	a.asks = make(chan func())
	half, whole := model.Bandwidth(model.CPUMax{QuotaUsec: 50_000, PeriodUsec: 100_000}), model.Bandwidth(model.CPUMax{QuotaUsec: 100_000, PeriodUsec: 100_000})
	e := a.core.Engine
	e.State.Ledger.Knobs = []engine.Knob{
		{Target: model.OfTask(1), State: engine.KnobHeld, Ours: true, AskedFor: model.Set, Found: half, Written: whole},
		{Target: model.OfTask(2), State: engine.KnobHeld, Ours: true, AskedFor: model.Hold, Found: whole, Written: half},
		{Target: model.OfTask(3), State: engine.KnobHeld, Ours: true, AskedFor: model.Release, Found: half, Written: whole}, // the release was refused
	}
	e.Params.CPU.CPUSetMode = model.ModeEnforce
	e.Step(&engine.Input{MonoNsec: 12e9})
	for i, want := range []HeldStatus{{Quota: 1}, {Cap: 0.5}, {Quota: 1}} {
		if got := a.status().Held[i]; got.Cap != want.Cap || got.Quota != want.Quota {
			t.Errorf("%s: cap %g, quota %g; want %g, %g", got.Path, got.Cap, got.Quota, want.Cap, want.Quota)
		}
	}
	a.core.counts.decision(&model.Decision{Kind: model.DecideRelease, Policy: model.PolicyBurst})
	a.core.counts.decision(&model.Decision{Kind: model.DecideCap})
	a.core.counts.decision(&model.Decision{Kind: model.DecideForeign, Policy: model.PolicyBurst})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for {
			select {
			case ask := <-a.asks:
				ask()
			case <-ctx.Done():
				return
			}
		}
	}()
	w := httptest.NewRecorder()
	a.metricsHandler(processMetrics()).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	for _, line := range []string{
		`commensal_enforcing{policy="hard_cap"} 0`, `commensal_enforcing{policy="cpuset"} 1`, `commensal_enforcing{policy="burst"} 0`,
		`commensal_decisions_total{kind="release",policy="burst"} 1`, `commensal_decisions_total{kind="release",policy="hard_cap"} 0`,
		`commensal_decisions_total{kind="cap",policy="hard_cap"} 1`, `commensal_decisions_total{kind="foreign",policy="kernel"} 1`,
		`commensal_decisions_total{kind="resize",policy="cpuset"} 0`, `commensal_task_cap_cores{task="/batch"} 0.5`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	if strings.Contains(text, `task_cap_cores{task="/web"}`) {
		t.Errorf("a raised quota is shown as a cap:\n%s", text)
	}
}

func BenchmarkStatus(b *testing.B) {
	cfg, ok := config.Defaults(config.ProfileSingleNode)
	if !ok {
		b.Fatal("no such profile")
	}
	e := engine.New(cfg.Params("test"))
	first := &model.Snapshot{MonoNsec: 1, Mark: model.WindowStart}
	for n := range model.TaskNum(150) {
		first.Added = append(first.Added, model.Task{Num: n + 1, Path: "/batch/job", Class: model.BE})
	}
	e.Step(&engine.Input{MonoNsec: 1, Snapshot: first})
	a := &Agent{cfg: &cfg, core: &Core{Engine: e}, slo: &sloSources{}}
	for b.Loop() {
		a.status()
	}
}
