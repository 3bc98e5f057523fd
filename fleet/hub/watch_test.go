package hub

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/testchild"
	"github.com/commensal-io/commensal/model"
)

// What a roll-out does to incidents is counted on through SIGKILL, of a hub that comes back in its folder, and of one whose folder is lost, for another
// hub: three incidents before and three after are six, which halt it. Those of before that come again, since they changed, are not counted again.
func TestIncidentsAreCountedThroughAKill(t *testing.T) {
	for _, c := range []struct{ lost, stored bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		t.Run(fmt.Sprintf("lost %t, stored %t", c.lost, c.stored), func(t *testing.T) {
			t.Parallel()
			lost := c.lost
			dir, address := t.TempDir(), freeAddress(t)
			role, url := "hub "+dir+" "+address, "nats://"+address
			if lost {
				_, url = newCluster(t, 1)
				role = fmt.Sprintf("shard %s %s 1 1", dir, url)
			}
			var nodes []*testNode
			inside := 0
			child := testchild.Start(t, role)
			pages := child.Line()
			for i := range 12 {
				name, seed := fmt.Sprintf("node-%d", i), ""
				if !lost {
					seed = enrol(t, dir, name)
				}
				n := startNode(t, t.Context(), url, name, seed, t.TempDir())
				defer n.Close()
				nodes = append(nodes, n)
			}
			token, err := os.ReadFile(AdminToken(dir))
			if err != nil {
				t.Fatal(err)
			}
			ask := func(method, body string) map[string]any {
				t.Helper()
				for _, n := range nodes {
					n.window(2)
				}
				code, m := callAt(t, pages, strings.TrimSpace(string(token)), method, "/v1/rollout", body)
				if code != http.StatusOK {
					t.Fatalf("%d %v", code, m)
				}
				return m
			}
			set := ask("POST", `{"overlay": "worse: 1", "percent": 50, "why": "try"}`)
			change := wire.Rollout{ID: set["id"].(string), Percent: 50}
			var have []*testNode
			for _, n := range nodes {
				if change.Takes(n.name) {
					have = append(have, n)
				}
			}
			inside = len(have)
			eventually(t, "a part has it", func() bool {
				m := ask("GET", "")
				return m["in_force"] == float64(inside) && m["nodes_outside"] == float64(len(nodes)-inside)
			})
			var before []*model.Incident
			for k := range 3 {
				inc := &model.Incident{ID: fmt.Sprint("before", k), OpenedWall: have[0].wall.UnixNano() + int64(k)}
				before = append(before, inc)
				have[0].Gather.Incident(have[0].mono, inc)
			}
			eventually(t, "three are counted", func() bool { return ask("GET", "")["incidents_inside"] == 3.0 })
			since := ask("GET", "")
			if c.stored {
				eventually(t, "all is stored", func() bool {
					_, m := callAt(t, pages, strings.TrimSpace(string(token)), "GET", "/v1/fleet", "")
					return m["waiting_rows"] == 0.0
				})
			}
			child.End()

			cfg := testConfig(dir)
			if cfg.NATSListen = address; lost {
				cfg = shardConfig(t.TempDir(), url, 1, 1)
				cfg.TakeOver = true
			}
			b := startHub(t, cfg)
			if pages = b.URL(); lost {
				token = []byte(b.token("ann", Admin))
			}
			if lost {
				eventually(t, "it takes over", func() bool { return b.troubled() == "" })
			}
			for _, inc := range before {
				again := *inc
				again.State = model.Recovered
				have[0].Gather.Incident(have[0].mono, &again)
			}
			heard := func() (n uint64) {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, inc := range b.incidents {
					if inc.State == model.Recovered {
						n++
					}
				}
				return n
			}
			eventually(t, "they come again", func() bool { ask("GET", ""); return heard() == 3 })
			if m := ask("GET", ""); m["incidents_inside"] != 3.0 || m["in_force"] != since["in_force"] || m["nodes_outside"] != since["nodes_outside"] || m["halted"] != nil {
				t.Errorf("%v\nbefore: %v", m, since)
			}
			for k := range 3 {
				have[0].Gather.Incident(have[0].mono, &model.Incident{ID: fmt.Sprint("after", k), OpenedWall: have[0].wall.UnixNano() + int64(k)})
			}
			eventually(t, "it is halted", func() bool {
				m := ask("GET", "")
				return strings.HasPrefix(fmt.Sprint(m["halted"]), "6 incidents on the")
			})
		})
	}
}
