package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/twin"
	"github.com/commensal-io/commensal/twin/machine"
	"github.com/commensal-io/commensal/twin/player"
)

// A small fleet, without real agents: everything that the verdict asks for happens.
func TestASmallFleet(t *testing.T) {
	r, err := Run(t.Context(), Options{Seed: 1, Nodes: 20, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome() != report.Pass || r.Samples < 1000 || r.Incidents == 0 {
		t.Errorf("%+v", r)
	}
}

// slow is a log that takes its time: an uplink that writes to it is as slow as one with a busy disk.
type slow struct {
	slog.Handler
	lines atomic.Int64
}

func (s *slow) Enabled(context.Context, slog.Level) bool { return true }

func (s *slow) Handle(context.Context, slog.Record) error {
	time.Sleep(20 * time.Millisecond)
	s.lines.Add(1)
	return nil
}

// Simulated time waits for the disk, so that no batch is given up for what an agent's loop would not wait for. Here the spool takes none, and says so of each.
func TestTimeWaitsForTheDisk(t *testing.T) {
	m, err := machine.New(machine.Skylake(), 1)
	if err != nil {
		t.Fatal(err)
	}
	log := &slow{Handler: slog.DiscardHandler}
	gather := uplink.NewGather(10e9)
	up, err := uplink.Start(t.Context(), uplink.Config{URL: "nats://127.0.0.1:1", Node: "n", Dir: t.TempDir(), MaxBytes: 1}, uplink.Node{}, gather, uplink.Hooks{Log: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	n := &node{host: twin.NewHost(m, true), player: player.Player{Machine: m}, up: up}
	const batches = 20
	for i := int64(1); i <= 3*batches; i++ { // decisions go up after two seconds
		gather.Event(i*1e9, &model.Decision{Kind: model.DecideCap})
		if err := n.until(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := until(t.Context(), time.Millisecond, time.Minute, func() (bool, error) { return up.Handed() == 0, nil }); err != nil || log.lines.Load() != batches {
		t.Errorf("%d of %d batches came to the disk, %v", log.lines.Load(), batches, err)
	}
}

// What was written down before fails a run, each by itself.
func TestVerdict(t *testing.T) {
	host := Host{Node: "host-0", Samples: 9, Tasks: len(hostTasks), Capped: true, Freed: true, On: true}
	good := func() *Result {
		return &Result{Nodes: 200, Antagonists: 20, Held: 20, Capped: true, OffSeconds: 0.1, Real: 2, Pairs: 1, Hosts: []Host{host, host}}
	}
	for name, spoil := range map[string]func(r *Result){
		"a spec":       func(*Result) {},
		"hearing":      func(r *Result) { r.Unheard = 1 },
		"bystanders":   func(r *Result) { r.Wrong = 11 },
		"antagonists":  func(r *Result) { r.Held = 9 },
		"command":      func(r *Result) { r.Capped = false },
		"roll-out":     func(r *Result) { r.Rolled = 1 },
		"kill switch":  func(r *Result) { r.StillHeld = 1 },
		"too late":     func(r *Result) { r.OffSeconds = 10 },
		"lost":         func(r *Result) { r.Lost = 1 },
		"page":         func(r *Result) { r.Page = "none" },
		"query":        func(r *Result) { r.Pairs = 0 },
		"incident":     func(r *Result) { r.Incident = "none" },
		"shown":        func(r *Result) { r.Unshown = "none" },
		"silent host":  func(r *Result) { r.Hosts[1].Samples = 0 },
		"a task of it": func(r *Result) { r.Hosts[0].Tasks = 1 },
		"host command": func(r *Result) { r.Hosts[0].Capped = false },
		"host switch":  func(r *Result) { r.Hosts[1].Freed = false },
		"no hosts":     func(r *Result) { r.Hosts = nil },
		"host on":      func(r *Result) { r.Hosts[1].On = false },
	} {
		r := good()
		spoil(r)
		r.verdict()
		if want := map[bool]int{true: 1, false: 2}[name == "a spec"]; len(r.Failed) != want { // no jobs are there in any
			t.Errorf("%s: %v", name, r.Failed)
		}
	}
}

// The answers for incidents have to explain them, each part by itself.
func TestIncidentsAreExplained(t *testing.T) {
	num := model.TaskNum(3)
	good := func() hub.NodeIncident {
		return hub.NodeIncident{Node: "twin-000", Incident: &model.Incident{
			ID: "a", VictimPath: "/cache", VictimJob: "cache", OpenedNsec: quietSec * 1e9, Signal: 3, Threshold: 2, Spec: model.Spec{Mean: 1, Sheet: 4},
			Rounds: []model.Round{{Suspects: []model.Suspect{{Path: "/sim"}}}, {Suspects: []model.Suspect{{Path: "/scan"}}, Chosen: &num, ChosenPath: "/scan"}},
		}}
	}
	for want, spoil := range map[string]func(inc *hub.NodeIncident){
		"":                           func(*hub.NodeIncident) {},
		"in none of them":            func(inc *hub.NodeIncident) { inc.Node = "twin-001" },
		"in none of them the antag":  func(inc *hub.NodeIncident) { inc.Rounds = inc.Rounds[:1] },
		"in none of":                 func(inc *hub.NodeIncident) { inc.OpenedNsec-- },
		"which is no service":        func(inc *hub.NodeIncident) { inc.VictimPath, inc.VictimJob = "/sim", "sim" },
		"a signal of 1":              func(inc *hub.NodeIncident) { inc.Signal = 1 },
		"a mean of 0":                func(inc *hub.NodeIncident) { inc.Spec.Mean = 0 },
		"is not the fleet's":         func(inc *hub.NodeIncident) { inc.Spec.Sheet = 0 },
		"is chosen and was no suspe": func(inc *hub.NodeIncident) { inc.Rounds[1].Suspects = nil },
	} {
		inc := good()
		spoil(&inc)
		found, got := explained([]hub.NodeIncident{inc}, func(node string) bool { return node == "twin-000" })
		if (got == "") != (want == "") || !strings.Contains(got, want) || (found == nil) != (want != "") {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// A page that lacks a file, or is none, is told of.
func TestPagesAreLookedAt(t *testing.T) {
	served := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := served[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", map[bool]string{true: "text/html", false: "text/css"}[r.URL.Path == "/"])
		_, _ = w.Write([]byte(text))
	}))
	defer srv.Close()
	for _, step := range []struct{ path, text, want string }{
		{"/x", "x", "404"}, {"/", "nothing", "names no files"}, {"/", `<title>x</title><link href="/web/a.css">`, "/web/a.css: 404"}, {"/web/a.css", "a", ""}, {"/web/a.css", "", "0 bytes"},
	} {
		served[step.path] = step.text
		if got := page(t.Context(), srv.URL); (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%+v: %q", step, got)
		}
	}
}

// Where there is no browser the row says so, and the run does not fail by it.
func TestNoBrowser(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := &Result{Pairs: 1}
	if err := r.show(t.Context(), &Options{Log: t.Logf}, &field{}, &hub.NodeIncident{}); err != nil || r.Shown != "not looked at: no Chromium" || r.Unshown != "" {
		t.Errorf("%+v %v", r, err)
	}
}
