package hub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// startNodes connects nodes called node-0 and so on.
func startNodes(t *testing.T, b *bed, count int) (nodes []*testNode) {
	t.Helper()
	for i := range count {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, t.Context(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		t.Cleanup(n.Close)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		eventually(t, n.name+" is connected", func() bool { return n.Status().Connected })
	}
	return nodes
}

// A change goes to a part of the fleet, to more of it, and back; whoever has it at first keeps it. One that nodes refuse says why.
func TestARolloutGoesToAPart(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	admin := b.token("a", Admin)
	nodes := startNodes(t, b, 20)
	having := func(overlay string) (names []string) {
		for _, n := range nodes {
			n.window(2)
			n.mu.Lock()
			if n.overlay == overlay {
				names = append(names, n.name)
			}
			n.mu.Unlock()
		}
		return names
	}
	inForce := func(want int) func() bool {
		return func() bool {
			having("")
			code, m := b.call(admin, "GET", "/v1/rollout", "")
			return code == 200 && m["in_force"] == float64(want)
		}
	}
	set := func(body string) map[string]any {
		t.Helper()
		code, m := b.call(admin, "POST", "/v1/rollout", body)
		if code != 200 {
			t.Fatalf("%s: %d %v", body, code, m)
		}
		return m
	}
	first := set(`{"overlay": "limits: {max_held_tasks: 1}", "percent": 40, "why": "try"}`)
	r := wire.Rollout{ID: first["id"].(string), Percent: 40}
	want := 0
	for _, n := range nodes {
		if r.Takes(n.name) {
			want++
		}
	}
	if want < 2 || want > 16 {
		t.Fatalf("%d of 20 nodes at 40 %%", want)
	}
	eventually(t, "a part has it", inForce(want))
	before := having("limits: {max_held_tasks: 1}")
	second := set(`{"percent": 70, "why": "more"}`)
	if second["id"] != first["id"] || second["overlay"] != "limits: {max_held_tasks: 1}" {
		t.Errorf("%v", second)
	}
	eventually(t, "more have it", func() bool { return len(having("limits: {max_held_tasks: 1}")) > len(before) })
	now := strings.Join(having("limits: {max_held_tasks: 1}"), " ") + " "
	for _, name := range before {
		if !strings.Contains(now, name+" ") {
			t.Errorf("%s had it at 40 %% and not at 70", name)
		}
	}
	set(`{"percent": 0, "why": "enough"}`)
	eventually(t, "nobody has it", func() bool { return len(having("")) == len(nodes) })
	set(`{"overlay": "bad: 1", "percent": 100, "why": "try"}`)
	eventually(t, "all refuse it, and say why", func() bool {
		having("")
		_, m := b.call(admin, "GET", "/v1/rollout", "")
		refused, _ := m["refused"].(map[string]any)
		return len(refused) == len(nodes) && strings.Contains(fmt.Sprint(refused["node-3"]), "no such key")
	})
	for _, body := range []string{`{"percent": 101, "overlay": "x: 1", "why": "a test"}`, `{"percent": -1, "why": "a test"}`, `{"percent": 1, "overlay": "x", "why": "a test"}`, `{"percent": 1, "overlay": "x: [", "why": "a test"}`, `{"percent": 1, "overlay": "x: 1"}`, `{"percent": 0}`} {
		if code, _ := b.call(admin, "POST", "/v1/rollout", body); code != 400 {
			t.Errorf("%s: %d", body, code)
		}
	}
	if code, _ := b.call(b.token("o", Operator), "POST", "/v1/rollout", `{"percent": 0, "why": "a test"}`); code != 403 {
		t.Errorf("an operator rolled out: %d", code)
	}
}

// A change whose nodes have clearly more incidents than the others is halted by the hub, and taken off.
// One node that does not have it tells of a thousand incidents, and cannot prevent that.
func TestARolloutThatDoesHarmIsHalted(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	admin := b.token("a", Admin)
	nodes := startNodes(t, b, 12)
	if code, m := b.call(admin, "POST", "/v1/rollout", `{"overlay": "worse: 1", "percent": 50, "why": "try"}`); code != 200 {
		t.Fatalf("%d %v", code, m)
	}
	k, liar := 0, ""
	eventually(t, "it is halted", func() bool {
		if k++; k < 3 { // until those who get it have it
			for _, n := range nodes {
				n.window(2)
			}
			return false
		}
		for _, n := range nodes {
			n.window(2)
			n.mu.Lock()
			worse := n.overlay != ""
			n.mu.Unlock()
			if !worse && liar == "" {
				liar = n.name
				for i := range 1000 {
					n.Gather.Incident(n.mono, &model.Incident{ID: fmt.Sprint("lie", i), OpenedWall: n.wall.UnixNano()})
				}
			}
			if worse {
				n.Gather.Incident(n.mono, &model.Incident{ID: fmt.Sprint(n.name, k), OpenedWall: n.wall.UnixNano()})
			}
		}
		_, m := b.call(admin, "GET", "/v1/rollout", "")
		return strings.Contains(fmt.Sprint(m["halted"]), "incidents on the")
	})
	eventually(t, "nobody has it", func() bool {
		for _, n := range nodes {
			n.window(2)
			n.mu.Lock()
			has := n.overlay
			n.mu.Unlock()
			if has != "" {
				return false
			}
		}
		return true
	})
	eventually(t, "metrics say so", func() bool {
		text := b.metricsText()
		return strings.Contains(text, "commensal_hub_rollout_halted 1") && strings.Contains(text, "commensal_hub_fleet_off 0")
	})
	_, m := b.call(admin, "GET", "/v1/audit", "")
	if !strings.Contains(fmt.Sprint(m["list"]), "rollout-halted") {
		t.Errorf("%v", m["list"])
	}
}

// What is too much, and what is chance.
func TestTooMany(t *testing.T) {
	for _, c := range []struct {
		inside, outside  uint64
		nodes, outsiders int
		halts            bool
	}{
		{4, 0, 10, 90, false}, {5, 0, 10, 90, true}, {10, 90, 10, 90, false}, {19, 90, 10, 90, false}, {25, 90, 10, 90, true}, {200, 900, 10, 90, false}, {300, 900, 10, 90, true}, {50, 0, 100, 0, false},
	} {
		st := &RolloutStatus{Rollout: wire.Rollout{ID: "a"}, Inside: c.inside, Outside: c.outside, InForce: c.nodes, Outsiders: c.outsiders}
		if c.outsiders > 0 {
			st.Expected = float64(c.outside) / float64(c.outsiders) * float64(c.nodes)
		}
		if why := st.tooMany(); (why != "") != c.halts {
			t.Errorf("%+v: %q", c, why)
		}
	}
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		earlier, minutes, inside int // incidents of ten nodes in two hours before all had it, and in so many minutes since
		halts                    bool
	}{{30, 60, 29, false}, {30, 60, 40, true}, {30, 5, 29, false}, {30, 119, 55, false}, {30, 119, 70, true}, {30, 121, 200, false}, {0, 5, 4, false}, {0, 5, 5, true}} {
		r := wire.Rollout{ID: "a", Percent: 25}
		h.watched = watch{}
		h.countRollout(&r)
		w := &h.watched
		since := func(minutes int, rollout string, incidents int) {
			w.Since = time.Now().Add(-time.Duration(minutes) * time.Minute)
			for i := range 10 {
				w.hear(fmt.Sprint(i), rollout)
			}
			for i := range incidents {
				w.incident(fmt.Sprint(i%10), &model.Incident{})
			}
		}
		since(120, "", c.earlier)
		r.Percent = 100
		h.countRollout(&r)
		b, err := json.Marshal(w)
		if err == nil {
			*w = watch{}
			err = json.Unmarshal(b, w) // another hub goes on
		}
		if err != nil {
			t.Fatal(err)
		}
		since(c.minutes, "a", c.inside)
		if why := h.countRollout(&r).tooMany(); (why != "") != c.halts || c.halts && !strings.Contains(why, "before") {
			t.Errorf("%+v: %q", c, why)
		}
	}
	if h.watched = (watch{}); h.countRollout(&wire.Rollout{ID: "a", Percent: 100}).before || h.watched.Before != nil {
		t.Error("a change that all have from the start is compared with nothing")
	}
}
