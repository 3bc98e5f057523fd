package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
