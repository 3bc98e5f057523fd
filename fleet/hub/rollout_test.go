package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// A change goes to a part of the fleet, to more of it, and back; whoever has it at first keeps it. One that nodes refuse says why.
func TestARolloutGoesToAPart(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	admin := b.token("a", Admin)
	var nodes []*testNode
	for i := range 20 {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, t.Context(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
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
	eventually(t, "all are connected", func() bool {
		for _, n := range nodes {
			if !n.Status().Connected {
				return false
			}
		}
		return true
	})
	first := set(`{"overlay": "x: 1", "percent": 40, "why": "try"}`)
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
	before := having("x: 1")
	second := set(`{"percent": 70}`)
	if second["id"] != first["id"] || second["overlay"] != "x: 1" {
		t.Errorf("%v", second)
	}
	eventually(t, "more have it", func() bool { return len(having("x: 1")) > len(before) })
	now := strings.Join(having("x: 1"), " ") + " "
	for _, name := range before {
		if !strings.Contains(now, name+" ") {
			t.Errorf("%s had it at 40 %% and not at 70", name)
		}
	}
	set(`{"percent": 0}`)
	eventually(t, "nobody has it", func() bool { return len(having("")) == len(nodes) })
	set(`{"overlay": "bad", "percent": 100}`)
	eventually(t, "all refuse it, and say why", func() bool {
		having("")
		_, m := b.call(admin, "GET", "/v1/rollout", "")
		refused, _ := m["refused"].(map[string]any)
		return len(refused) == len(nodes) && strings.Contains(fmt.Sprint(refused["node-3"]), "no such key")
	})
	for _, body := range []string{`{"percent": 101, "overlay": "x"}`, `{"percent": -1}`} {
		if code, _ := b.call(admin, "POST", "/v1/rollout", body); code != 400 {
			t.Errorf("%s: %d", body, code)
		}
	}
	if code, _ := b.call(b.token("o", Operator), "POST", "/v1/rollout", `{"percent": 0}`); code != 403 {
		t.Errorf("an operator rolled out: %d", code)
	}
}

// A change whose nodes have clearly more incidents than the others is halted by the hub, and taken off.
func TestARolloutThatDoesHarmIsHalted(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	admin := b.token("a", Admin)
	var nodes []*testNode
	for i := range 12 {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, t.Context(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
	if code, m := b.call(admin, "POST", "/v1/rollout", `{"overlay": "worse: 1", "percent": 50}`); code != 200 {
		t.Fatalf("%d %v", code, m)
	}
	k := 0
	eventually(t, "it is halted", func() bool {
		k++
		for _, n := range nodes {
			n.window(2)
			n.mu.Lock()
			worse := n.overlay != ""
			n.mu.Unlock()
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
}
