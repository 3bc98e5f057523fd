package hub

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/agent/config"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/kernel/cgroup"
	"github.com/commensal-io/commensal/lab/stage"
	"github.com/commensal-io/commensal/model"
)

// real is a hub with a real agent: the program itself, as root, on cgroups of this kernel that the test makes.
type real struct {
	*bed
	token, seed string
	stage       *stage.Stage
	cfg         *config.Config
	binary      string
	agent       *stage.Agent
	first       *model.Spec // of the fleet
	batch       string      // the best-effort task
	found       cgroup.CPUMax
}

const realNode = "real-1"

// startReal starts a hub, and an agent with a service that uses 0.6 CPU and a task that does nothing. A spec forms after 20 windows of
// the one service; left to itself the agent would calculate its own every three seconds.
func startReal(t *testing.T) *real {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: cgroups are made and limited")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("the agent cannot be built here: %v", err)
	}
	r := &real{binary: filepath.Join(t.TempDir(), "commensal")}
	build := exec.Command("go", "build", "-o", r.binary, "../../cmd/commensal")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if r.stage, err = stage.Open(t.Output()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stage.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := testConfig(t.TempDir())
	cfg.Spec.MinTasks = 1
	r.bed = startHub(t, cfg)
	r.token, r.seed = r.bed.token("ann", Admin), enrol(t, cfg.Dir, realNode)
	r.cfg = stage.AgentConfig()
	r.cfg.Policies.Mode, r.cfg.Signals = model.ModeEnforce, []string{model.SourceSlowdown.String()}
	r.cfg.Sampling.Duration, r.cfg.Sampling.Frequency = 200*time.Millisecond, 200*time.Millisecond
	r.cfg.Policies.Spec.MinSamplesPerTask, r.cfg.Policies.Spec.RecalculateNsec = 10, 3e9
	r.cfg.Fleet.Hub, r.cfg.Fleet.Node, r.cfg.Fleet.SeedFile, r.cfg.Fleet.Every = r.NodesURL(), realNode, r.seed, time.Second
	r.task("web", model.LC, "burst 60ms")
	r.batch = r.task("batch", model.BE, "sleep")
	r.found = r.limit()
	r.start()
	return r
}

// task makes a group in which a child plays a role, and the rule for it.
func (r *real) task(job string, class model.Class, role string) (path string) {
	t := r.t
	t.Helper()
	path, err := r.stage.Group(job)
	if err != nil {
		t.Fatal(err)
	}
	c := testchild.Start(t, role).Await("ready")
	if err := r.stage.Cgroups().MovePID(path, c.PID()); err != nil {
		t.Fatal(err)
	}
	r.cfg.Tasks = append(r.cfg.Tasks, config.Task{Match: path, Job: job, Class: class.String(), Production: class == model.LC})
	return path
}

func (r *real) start() {
	t := r.t
	t.Helper()
	var err error
	if r.agent, err = r.stage.StartAgent(t.Context(), r.binary, realNode, r.cfg); err != nil {
		t.Fatal(err)
	}
}

// kill ends the agent at once; its guardian puts back what it held.
func (r *real) kill() {
	t := r.t
	t.Helper()
	if err := unix.Kill(r.agent.Pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.agent.Wait(t.Context()); err == nil {
		t.Fatal("the agent ended by itself")
	}
	r.freed("it was killed")
}

func (r *real) limit() cgroup.CPUMax {
	r.t.Helper()
	v, err := r.stage.Cgroups().ReadCPUMax(r.batch)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// freed waits until the task's limit is as it was found.
func (r *real) freed(when string) {
	r.t.Helper()
	eventually(r.t, "the limit is as it was found after "+when, func() bool { return r.limit() == r.found })
}

// until waits until the agent's status is so.
func (r *real) until(what string, f func(st *agent.Status) bool) {
	r.t.Helper()
	var last *agent.Status
	defer func() {
		if r.t.Failed() {
			last.Policies, last.Tasks, last.Incidents = nil, nil, nil // what is long, and no business of a fleet
			text, _ := json.Marshal(last)
			r.t.Logf("%s\n%s", what, text)
		}
	}()
	eventually(r.t, what, func() bool {
		st, err := r.agent.Client.Status(r.t.Context())
		if err == nil {
			last = st
		}
		return err == nil && f(st)
	})
}

// must asks the hub, and fails unless it does it.
func (r *real) must(path, body string) map[string]any {
	r.t.Helper()
	code, m := r.call(r.token, "POST", path, body)
	if code != 200 {
		r.t.Fatalf("%s %s: %d %v", path, body, code, m)
	}
	return m
}

func (r *real) command(kind, rest string) {
	r.t.Helper()
	r.must("/v1/command", fmt.Sprintf(`{"node": %q, "kind": %q, "why": "a test", %s}`, realNode, kind, rest))
}

// cap has the task held, and waits until it is.
func (r *real) cap() {
	r.t.Helper()
	r.command("cap", fmt.Sprintf(`"task": %q, "cap": 0.05, "duration_seconds": 600`, r.batch))
	eventually(r.t, "the task is held", func() bool { return math.Abs(r.limit().Ratio()-0.05) < 1e-9 })
}

// onDisk waits until a file of the agent's has all these words.
func (r *real) onDisk(file string, words ...string) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(words)+" is on disk", func() bool {
		b, err := os.ReadFile(filepath.Join(r.stage.Dir, realNode, file))
		return err == nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(string(b), w) })
	})
}

// fleets returns the spec of the service when it is the fleet's, nil when it is not.
func fleets(st *agent.Status) *model.Spec {
	for _, sp := range st.Specs {
		if sp.Job == "web" && sp.Source == model.SourceSlowdown && sp.Sheet != 0 {
			return sp
		}
	}
	return nil
}

// A real agent in a fleet: it goes by the fleet's spec, does what operators say once, releases everything at the kill switch and goes on after
// it, takes a roll-out and gives it back, and has all that lasts also after it was killed, without the hub.
func TestARealAgent(t *testing.T) {
	r := startReal(t)
	r.learns(t)
	sheet, since := r.pins()
	r.obeys(t)
	r.switchedOff(t)
	r.rolledOut(t)
	r.until("the fleet's spec stands after more than twice as many windows as make one", func(st *agent.Status) bool {
		if sp := fleets(st); sp == nil || sp.Sheet != sheet {
			t.Fatalf("it is replaced after %d windows: %+v", st.Windows-since, st.Specs)
		}
		return st.Windows > since+40
	})
	r.isKilled(t, sheet)
}

// learns: what the agent measures makes a spec at the hub, which the agent goes by.
func (r *real) learns(t *testing.T) {
	t.Helper()
	r.until("a spec of the fleet is used", func(st *agent.Status) bool {
		sp := fleets(st)
		i := slices.IndexFunc(st.Tasks, func(t agent.TaskStatus) bool { return t.Job == "web" })
		if sp == nil || i < 0 {
			return false
		}
		p := r.cfg.Params(sp.Platform)
		r.first = sp
		return math.Abs(st.Tasks[i].Threshold-p.Outlier.Threshold(sp)) < 1e-9
	})
	code, m := r.call(r.token, "GET", "/v1/nodes", "")
	node := m["nodes"].([]any)[0].(map[string]any)
	if code != 200 || node["name"] != realNode || node["samples"].(float64) < 20 || node["tasks"] != 2.0 {
		t.Errorf("%d %v", code, m)
	}
}

// pins goes back to the first sheet, which stands from then on, and waits until the agent has it.
func (r *real) pins() (sheet, windows uint64) {
	r.t.Helper()
	m := r.must("/v1/spec", fmt.Sprintf(`{"job": "web", "platform": %q, "what": "rollback", "revision": %d, "why": "a test"}`, r.first.Platform, r.first.Sheet))
	sheet = uint64(m["revision"].(float64))
	r.until("the agent has the sheet", func(st *agent.Status) bool {
		sp := fleets(st)
		windows = st.Windows
		return sp != nil && sp.Sheet == sheet
	})
	return sheet, windows
}

// obeys: an operator's words have their effect in the kernel, and are taken back.
func (r *real) obeys(t *testing.T) {
	t.Helper()
	for range 2 {
		r.cap()
		r.command("uncap", fmt.Sprintf(`"task": %q`, r.batch))
		r.freed("uncap")
	}
	off := func(want ...string) {
		t.Helper()
		mode := model.ModeEnforce
		if slices.Contains(want, "") {
			mode = model.ModeObserve
		}
		r.until(fmt.Sprintf("protection is off for %q", want), func(st *agent.Status) bool {
			return slices.Equal(st.ProtectOff, want) && st.ModeNow == mode.String()
		})
	}
	r.command("protect-off", `"job": "web"`)
	off("web")
	r.command("protect-on", `"job": "web"`)
	off()
	r.protects(t)
}

// protects: the fleet's word on protection and the node's own are told apart, and off is what either says.
func (r *real) protects(t *testing.T) {
	t.Helper()
	is := func(mode model.Mode, fleet, own []string) {
		t.Helper()
		r.until(fmt.Sprintf("protection is off in the fleet for %q, here for %q", fleet, own), func(st *agent.Status) bool {
			said := wire.Protection{Off: st.Fleet.ProtectOff}
			return slices.Equal(said.Jobs(), fleet) && slices.Equal(st.ProtectOff, own) && st.ModeNow == mode.String()
		})
	}
	fleet := func(kind, job string) {
		t.Helper()
		r.must("/v1/command", fmt.Sprintf(`{"node": "*", "kind": %q, "job": %q, "why": "a test"}`, kind, job))
	}
	none, web, all := []string{}, []string{"web"}, []string{""}
	fleet("protect-off", "web")
	is(model.ModeEnforce, web, none)
	fleet("protect-off", "")
	is(model.ModeObserve, []string{"", "web"}, none)
	body := fmt.Sprintf(`{"node": %q, "kind": "protect-on", "job": "web", "why": "a test"}`, realNode)
	if code, m := r.call(r.token, "POST", "/v1/command", body); code == 200 || !strings.Contains(fmt.Sprint(m["error"]), "which one node cannot undo") {
		t.Errorf("%d %v", code, m)
	}
	r.command("protect-off", `"job": ""`)
	is(model.ModeObserve, []string{"", "web"}, all)
	fleet("protect-on", "")
	is(model.ModeObserve, none, all) // what it was told itself stands
	r.command("protect-on", `"job": ""`)
	is(model.ModeEnforce, none, none)
}

// switchedOff: at the fleet's kill switch nothing is held, and nothing can be until it is back.
func (r *real) switchedOff(t *testing.T) {
	t.Helper()
	r.cap()
	r.must("/v1/off", `{"off": true, "why": "trouble"}`)
	r.freed("the kill switch")
	r.until("the agent says so", func(st *agent.Status) bool {
		return st.KillSwitch && st.Fleet.Off && st.Fleet.OffWhy == "ann: trouble" && st.ModeNow == model.ModeObserve.String() && len(st.Held) == 0
	})
	body := fmt.Sprintf(`{"node": %q, "kind": "cap", "task": %q, "cap": 0.05, "duration_seconds": 600, "why": "a test"}`, realNode, r.batch)
	if code, m := r.call(r.token, "POST", "/v1/command", body); code == 200 || !strings.Contains(fmt.Sprint(m["error"]), "kill switch") {
		t.Errorf("%d %v", code, m)
	}
	r.must("/v1/off", `{"off": false, "why": "a test"}`)
	r.until("it goes on", func(st *agent.Status) bool {
		return !st.KillSwitch && !st.Fleet.Off && st.ModeNow == model.ModeEnforce.String()
	})
	r.cap()
	r.command("uncap", fmt.Sprintf(`"task": %q`, r.batch))
	r.freed("uncap")
}

// rolledOut: a change of policies is in force while it is rolled out, and no longer.
func (r *real) rolledOut(t *testing.T) {
	t.Helper()
	mode := func(what string, want model.Mode, rolled bool) {
		t.Helper()
		r.until(what, func(st *agent.Status) bool {
			return st.ModeNow == want.String() && (st.Fleet.Rollout != "") == rolled && !strings.HasPrefix(st.Fleet.Rollout, "!")
		})
	}
	r.must("/v1/rollout", `{"percent": 100, "overlay": "mode: observe", "why": "a test"}`)
	mode("the change is in force", model.ModeObserve, true)
	eventually(t, "the hub hears of it", func() bool {
		_, m := r.call(r.token, "GET", "/v1/nodes", "")
		return m["nodes"].([]any)[0].(map[string]any)["rollout"] != nil
	})
	r.must("/v1/rollout", `{"percent": 0, "why": "a test"}`)
	mode("it is taken back", model.ModeEnforce, false)
}

// isKilled: an agent that is killed returns with what it had, and does no command twice.
func (r *real) isKilled(t *testing.T, sheet uint64) {
	t.Helper()
	sub, err := r.Hub.t.nc.SubscribeSync(wire.CommandPrefix + realNode)
	if err != nil {
		t.Fatal(err)
	}
	r.cap()
	sent, err := sub.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	again := func(when string) {
		t.Helper()
		var m *nats.Msg
		eventually(t, "the agent answers", func() bool {
			m, err = r.Hub.t.nc.Request(sent.Subject, sent.Data, time.Second)
			return err == nil
		})
		if !strings.Contains(string(m.Data), "was done already") {
			t.Errorf("%s the command is done again: %s", when, m.Data)
		}
	}
	r.command("protect-off", `"job": "web"`)
	r.must("/v1/command", `{"node": "*", "kind": "protect-off", "job": "mail", "why": "an outage"}`)
	again("at once")
	r.onDisk("spool/heard", `"job":"mail"`)
	r.onDisk("spool/heard", `"done":{"`)
	r.onDisk("learned", fmt.Sprintf(`"sheet": %d`, sheet), `"protect_off": [`)
	r.kill()
	r.start()
	has := func(off bool) {
		t.Helper()
		r.until("what it had is there again", func(st *agent.Status) bool {
			sp := fleets(st)
			return sp != nil && sp.Sheet == sheet && slices.Equal(st.ProtectOff, []string{"web"}) && len(st.Fleet.ProtectOff) == 1 && st.Fleet.ProtectOff[0].Why == "an outage" && st.KillSwitch == off && len(st.Held) == 0
		})
	}
	has(false)
	again("after a restart")
	r.freed("a command that came again")
	r.must("/v1/off", `{"off": true, "why": "trouble"}`)
	has(true)
	r.onDisk("spool/heard", `"off":true`)
	r.stop()
	r.kill()
	r.start()
	has(true)
	r.until("the hub is away", func(st *agent.Status) bool { return !st.Fleet.Connected && st.Fleet.OffWhy == "ann: trouble" })
}
