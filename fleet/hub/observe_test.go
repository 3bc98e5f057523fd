package hub

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
)

// What an overlay enforces is found wherever and however it is written, and its observe form has everything else as it was.
func TestReadOverlay(t *testing.T) {
	for text, want := range map[string][]string{
		"hard_cap: {mode: observe}":                        nil,
		"limits: {max_held_tasks: 3}":                      nil,
		"hard_cap: {cap: 0.2}":                             nil,
		"mode: enforce":                                    {""},
		"hard_cap: {mode: enforce, cap: 0.2}":              {"hard_cap"},
		"hard_cap: {\"mode\": \"enforce\"}":                {"hard_cap"},
		"burst:\n  mode: 'enforce' # now\nio: {mode: off}": {"burst"},
		"a: &x {mode: enforce}\nb: *x":                     {"a"},
		"a: &x enforce\nhard_cap: {mode: *x}":              {"hard_cap"},
		"a: &x {mode: enforce}\nb: {<<: *x}":               {"a"},
		"hard_cap: {mode: !!str enforce}\nio: {mode: enforce}": {
			"hard_cap", "io",
		},
	} {
		o, err := readOverlay(text)
		if err != nil || !slices.Equal(o.enforces, want) {
			t.Errorf("%s: %+v, %v", text, o, err)
			continue
		}
		again, err := readOverlay(o.observed)
		if err != nil || len(again.enforces) != 0 || again.same != o.same {
			t.Errorf("%s as observed: %q: %+v, %v", text, o.observed, again, err)
		}
		if len(want) == 0 && o.observed != text {
			t.Errorf("%s became %s", text, o.observed)
		}
	}
	o, err := readOverlay("hard_cap: {mode: enforce, cap: 0.2}")
	if err != nil {
		t.Fatal(err)
	}
	for text, same := range map[string]bool{"hard_cap:\n  cap: 0.2 # so much\n  mode: observe": true, "hard_cap: {mode: observe, cap: 0.3}": false, "hard_cap: {mode: observe}": false, "hard_cap: {mode: off, cap: 0.2}": false} {
		if x, err := readOverlay(text); err != nil || (x.same == o.same) != same {
			t.Errorf("%s: %v %v", text, x, err)
		}
	}
	for _, text := range []string{"", "enforce", "[mode]", "a: [", "a: 1\na: 2", "? {a: 1}\n: 2"} {
		if o, err := readOverlay(text); err == nil {
			t.Errorf("%q is %+v", text, o)
		}
	}
}

// roll is a fleet to which changes are rolled out.
type roll struct {
	*bed
	admin string
	nodes []*testNode
}

// set makes a change and expects an answer's code and, of a refusal, a text.
func (r *roll) set(code int, text, body string) map[string]any {
	r.t.Helper()
	got, m := r.call(r.admin, "POST", "/v1/rollout", body)
	if got != code || !strings.Contains(fmt.Sprint(m["error"]), text) {
		r.t.Fatalf("%s: %d %v; expected %d %s", body, got, m, code, text)
	}
	return m
}

// having are the nodes that have an overlay, once they have sent something more.
func (r *roll) having(overlay string) (names []string) {
	for _, n := range r.nodes {
		n.window(2)
		n.mu.Lock()
		if strings.TrimSpace(n.overlay) == overlay {
			names = append(names, n.name)
		}
		n.mu.Unlock()
	}
	return names
}

// What enforces is refused until its share of the nodes, and no less, has observed it for long enough; it then goes to the nodes that observed it. An
// administrator may skip that, which the audit has. What was observed outlives the hub.
func TestObserveFirst(t *testing.T) {
	cfg := testConfig(t.TempDir())
	r := &roll{bed: startHub(t, cfg)}
	r.admin, r.nodes = r.token("a", Admin), startNodes(t, r.bed, 12)
	ask := func(percent int, rest string) string {
		return fmt.Sprintf(`{"overlay": "hard_cap: {mode: enforce, cap: 0.2}", "percent": %d, "why": "a test"%s}`, percent, rest)
	}
	r.set(422, "hard_cap.mode) on 50 % of the nodes what these must observe first, for 700ms; it is not there as `observe`", ask(50, ""))
	first := r.set(200, "", ask(50, `, "observe": true`))
	if first["overlay"] != "hard_cap: {mode: observe, cap: 0.2}\n" || fmt.Sprint(first["enforces"]) != "[]" {
		t.Errorf("%v", first)
	}
	r.set(422, "no node has said yet", ask(50, ""))
	var observing []string
	eventually(t, "a part observes", func() bool {
		observing = r.having("hard_cap: {mode: observe, cap: 0.2}")
		_, m := r.call(r.admin, "GET", "/v1/rollout", "")
		return m["in_force"] == m["nodes_meant"] && m["in_force"] == float64(len(observing)) && m["observed_seconds"].(float64) > 0
	})
	r.set(422, "has to be for another 1s", ask(50, ""))
	eventually(t, "they have observed it", func() bool {
		_, m := r.call(r.admin, "GET", "/v1/rollout", "")
		return m["observed_seconds"].(float64) > cfg.ObserveFor.Seconds()
	})
	r.set(422, "it was observed on 50 %", ask(51, ""))
	second := r.set(200, "", ask(50, ""))
	if second["id"] != first["id"] || fmt.Sprint(second["enforces"]) != "[hard_cap]" || second["observed_percent"] != 50.0 {
		t.Errorf("%v", second)
	}
	eventually(t, "the same enforce", func() bool { return cmp.Equal(r.having("hard_cap: {mode: enforce, cap: 0.2}"), observing) })
	r.set(422, "it was observed on 50 %", `{"percent": 60, "why": "more"}`)
	r.set(200, "", `{"percent": 20, "why": "less"}`)
	r.stop()
	cfg.NATSListen = strings.TrimPrefix(r.NodesURL(), "nats://")
	r.bed = startHub(t, cfg)
	r.set(200, "", `{"percent": 50, "why": "as it was"}`)
	other := `{"overlay": "hard_cap: {mode: enforce, cap: 0.3}", "percent": 50, "why": "now", "skip_observe": %v}`
	r.set(422, "it is not there", fmt.Sprintf(other, false))
	if code, _ := r.call(r.token("o", Operator), "POST", "/v1/rollout", fmt.Sprintf(other, true)); code != 403 {
		t.Errorf("an operator skipped it: %d", code)
	}
	r.set(200, "", fmt.Sprintf(other, true))
	r.set(422, "it was observed on 0 %", `{"percent": 60, "why": "more"}`)
	if text, err := os.ReadFile(filepath.Join(r.dir, "store", "audit.jsonl")); err != nil || strings.Count(string(text), `"skip_observe":true`) != 1 {
		t.Errorf("%v %s", err, text)
	}
}

// A change that was halted has to be observed again.
func TestWhatWasHaltedIsObservedAgain(t *testing.T) {
	r := &roll{bed: startHub(t, testConfig(t.TempDir()))}
	r.admin, r.nodes = r.token("a", Admin), startNodes(t, r.bed, 12)
	r.set(200, "", `{"overlay": "mode: enforce", "percent": 50, "why": "try", "skip_observe": true}`)
	k := 0
	eventually(t, "it is halted", func() bool {
		k++
		having := r.having("mode: enforce")
		for _, n := range r.nodes {
			if slices.Contains(having, n.name) {
				n.Gather.Incident(n.mono, &model.Incident{ID: fmt.Sprint(n.name, k), OpenedWall: n.wall.UnixNano()})
			}
		}
		_, m := r.call(r.admin, "GET", "/v1/rollout", "")
		return m["halted"] != nil
	})
	r.set(422, "it is not there", `{"overlay": "mode: enforce", "percent": 1, "why": "again"}`)
	r.set(422, "it is not there", `{"percent": 50, "why": "again"}`)
}

// What changes the fleet has a reason, and it is one line.
func TestWhatChangesTheFleetHasAReason(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	admin := b.token("a", Admin)
	long, err := json.Marshal(strings.Repeat("x", maxWhy+1))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		`/v1/command {"node": "n", "kind": "cap", "task": "/x", "cap": 0.1, "duration_seconds": 60`, `/v1/command {"node": "*", "kind": "protect-off", "job": "web"`, `/v1/command {"node": "n", "kind": "restart", "task": "/x"`,
		`/v1/off {"off": true`, `/v1/off {"off": false`, `/v1/rollout {"percent": 0`, `/v1/rollout {"percent": 5, "overlay": "limits: {max_held_tasks: 1}"`, `/v1/spec {"job": "web", "platform": "p", "what": "accept"`,
	} {
		path, body, _ := strings.Cut(path, " ")
		for _, why := range []string{``, `, "why": ""`, `, "why": " \t"`, `, "why": "two\nlines"`, `, "why": "\u001b[2J"`, `, "why": ` + string(long)} {
			if code, m := b.call(admin, "POST", path, body+why+"}"); code != 400 || !strings.Contains(fmt.Sprint(m["error"]), "why") {
				t.Errorf("%s %s%.40s: %d %v", path, body, why, code, m)
			}
		}
	}
	if text, err := os.ReadFile(filepath.Join(b.dir, "store", "audit.jsonl")); err != nil || len(text) > 0 {
		t.Errorf("%v %s", err, text)
	}
	if code, m := b.call(admin, "POST", "/v1/off", `{"off": true, "why": "Störung: p99 > 40 ms"}`); code != 200 {
		t.Errorf("%d %v", code, m)
	}
}
