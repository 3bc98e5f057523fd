package hub

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// A task that is held in five incidents of a day is told of once; what an operator wants done with a task goes through the same hook.
func TestHook(t *testing.T) {
	got := make(chan Asked, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a Asked
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.Task == "/no" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		got <- a
	}))
	defer srv.Close()
	cfg := testConfig(t.TempDir())
	cfg.HookURL = srv.URL
	b := startHub(t, cfg)
	n := startNode(t, t.Context(), b.NodesURL(), "node-1", enrol(t, b.dir, "node-1"), t.TempDir())
	defer n.Close()
	held := func(id, path string, state model.IncidentState, applied int64) {
		by := model.TaskNum(2)
		n.Gather.Incident(n.mono, &model.Incident{ID: id, State: state, OpenedWall: n.wall.UnixNano(), Rounds: []model.Round{{Chosen: &by, ChosenPath: path, AppliedNsec: applied, Suspects: []model.Suspect{{Task: by, Job: "batch"}}}}})
		n.window(2)
		time.Sleep(5 * time.Millisecond) // so that the disk keeps up
	}
	for i := range 7 {
		held(fmt.Sprint("a", i), "/be", model.Recovered, 1)
		held(fmt.Sprint("a", i), "/be", model.Recovered, 1) // the same again
		held(fmt.Sprint("b", i), "/observed", model.Observed, 1)
		held(fmt.Sprint("c", i), "/refused", model.CannotFix, 0)
		if i < 4 {
			held(fmt.Sprint("d", i), "/seldom", model.Recovered, 1)
		}
	}
	eventually(t, "the hook is told", func() bool { n.window(2); return len(got) > 0 })
	if a := <-got; a != (Asked{Version: 1, What: "persistent-offender", Node: "node-1", Task: "/be", Job: "batch", Incidents: 5}) && a.Incidents < 5 {
		t.Errorf("%+v", a)
	}
	operator := b.token("o", Operator)
	if code, m := b.call(operator, "POST", "/v1/command", `{"node": "node-1", "kind": "restart", "task": "/be", "why": "again"}`); code != 200 {
		t.Errorf("%d %v", code, m)
	}
	if a := <-got; a.What != "restart" || a.By != "o" || a.Why != "again" || a.Task != "/be" {
		t.Errorf("%+v", a)
	}
	if code, m := b.call(operator, "POST", "/v1/command", `{"node": "node-1", "kind": "confine", "task": "/no", "why": "again"}`); code == 200 || !strings.Contains(fmt.Sprint(m["error"]), "418") {
		t.Errorf("%d %v", code, m)
	}
	if len(got) != 0 {
		t.Errorf("told of %+v", <-got)
	}
	cfg = testConfig(t.TempDir())
	none := startHub(t, cfg)
	if code, m := none.call(none.token("o", Operator), "POST", "/v1/command", `{"node": "node-1", "kind": "restart", "task": "/be", "why": "again"}`); code != 422 || !strings.Contains(fmt.Sprint(m["error"]), "--hook-url") {
		t.Errorf("%d %v", code, m)
	}
}

// The hook is told until it takes it, each try is in the audit as the hub's, and a hub that starts anew in the same folder goes on counting, and tells of
// nobody whom it told of today.
func TestTheHookIsToldUntilItTakesIt(t *testing.T) {
	needSQL(t)
	var refuse atomic.Int64
	refuse.Store(3)
	got := make(chan Asked, 64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a Asked
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || refuse.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got <- a
	}))
	defer srv.Close()
	cfg := testConfig(t.TempDir())
	cfg.HookURL, cfg.HookAgain, cfg.QuerySeconds = srv.URL, 50*time.Millisecond, 20
	b := startHub(t, cfg)
	seed := enrol(t, b.dir, "node-1")
	var n *testNode
	held := func(id, path string) {
		t.Helper()
		by := model.TaskNum(2)
		n.Gather.Incident(n.mono, &model.Incident{ID: id, State: model.Recovered, OpenedWall: n.wall.UnixNano(), Rounds: []model.Round{{Chosen: &by, ChosenPath: path, AppliedNsec: 1, Suspects: []model.Suspect{{Task: by, Job: "batch"}}}}})
		if !n.onDisk(func() { n.window(2) }) {
			t.Fatal("a batch does not get to disk")
		}
	}
	told := func(task string, incidents int) {
		t.Helper()
		select {
		case a := <-got:
			if a != (Asked{Version: 1, What: "persistent-offender", Node: "node-1", Task: task, Job: "batch", Incidents: incidents}) {
				t.Errorf("told of %+v", a)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("not told of %s", task)
		}
	}
	n = startNode(t, t.Context(), b.NodesURL(), "node-1", seed, t.TempDir())
	for i := range 4 {
		held(fmt.Sprint("a", i), "/often")
		held(fmt.Sprint("b", i), "/later")
	}
	held("a4", "/often")
	told("/often", 5)
	results := map[string]int{}
	eventually(t, "the audit has it", func() bool {
		clear(results)
		for _, act := range b.audit.list() {
			if act.By == "hub" && act.What == "persistent-offender" && act.Node == "node-1" && act.Why == "held in 5 incidents of a day" {
				results[act.Result]++
			}
		}
		return results[hookTook] == 1
	})
	if results["failed: it answers 503 Service Unavailable"] != 3 || results[""] != 4 || len(results) != 3 {
		t.Errorf("%v", results)
	}
	eventually(t, "all is stored", func() bool { return n.Status().Waiting == 0 && b.store.Pending() == 0 })
	n.Close()
	b.stop()

	cfg.CommitEvery = 20 * time.Second // so that the audit's last lines are in its file alone for a while
	b = startHub(t, cfg)
	n = startNode(t, t.Context(), b.NodesURL(), "node-1", seed, t.TempDir())
	held("a5", "/often") // told today
	held("b4", "/later")
	told("/later", 5)
	eventually(t, "the audit has it", func() bool {
		return slices.ContainsFunc(b.audit.list(), func(act wire.Act) bool { return act.Result == hookTook && act.Time.After(b.started) })
	})
	n.Close()
	b.stop()

	b = startHub(t, cfg)
	n = startNode(t, t.Context(), b.NodesURL(), "node-1", seed, t.TempDir())
	defer n.Close()
	held("b5", "/later")
	for i := range 5 {
		held(fmt.Sprint("c", i), "/third")
	}
	told("/third", 5)
	if len(got) != 0 {
		t.Errorf("told of %+v again", <-got)
	}
	third := func() (o offender) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return *b.offenders[offenderKey{"node-1", "/third"}]
	}
	eventually(t, "it is noted", func() bool { return third().told > 0 })
	b.mu.Lock()
	b.offenders[offenderKey{"node-1", "/third"}].told = 0
	b.mu.Unlock()
	if err := b.recallOffenders(t.Context()); err != nil || third().told == 0 {
		t.Errorf("%+v, %v: what the audit's file alone has is not known", third(), err)
	}
}

// Of a task at most a thousand incidents of a day are counted, the oldest left out, each once, however they come; what the hook is told counts none that is older than a day then.
func TestIncidentsOfAnOffenderAreBounded(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.HookURL = "http://127.0.0.1:1"
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key, now := offenderKey{"n", "/be"}, time.Now().UnixNano()
	at := func(i int) int64 { return now - offenceNsec + int64(i)*1e9 } // i seconds after a day ago
	rng := rand.New(rand.NewPCG(1, 1))
	many := rng.Perm(3 * maxHeld)
	for range 2 {
		for _, i := range many {
			h.counts(key, "batch", fmt.Sprint("i", i), at(i), now)
		}
	}
	o := h.offenders[key]
	if len(o.held) != maxHeld || cap(o.held) > 4*maxHeld || o.held[0].opened != at(2*maxHeld) || o.latest != at(3*maxHeld-1) {
		t.Errorf("%d incidents of %d, the oldest of %d, the latest of %d", len(o.held), cap(o.held), o.held[0].opened, o.latest)
	}
	h.counts(key, "batch", "i0", at(-1), now) // of more than a day ago: it goes on
	if len(o.held) != maxHeld || o.held[0].opened != at(2*maxHeld) {
		t.Errorf("%d incidents, the oldest of %d", len(o.held), o.held[0].opened)
	}
	left := 7
	later := time.Unix(0, at(3*maxHeld-left)+offenceNsec)
	if _, a := h.nextDue(later); a == nil || a.Incidents != left {
		t.Errorf("%d incidents of a day: told %+v", left, a)
	}
	if _, a := h.nextDue(later.Add(4 * time.Second)); a != nil || len(h.due) > 0 {
		t.Errorf("told %+v of too few incidents", a)
	}
}
