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

// killed is a fleet with a roll-out whose hub is killed.
type killed struct {
	t                 *testing.T
	dir, address      string
	url, pages, token string
	lost              bool // the folder is gone then: another hub takes its place, on a cluster
	child             *testchild.Child
	nodes, having     []*testNode // having: those of the roll-out's share
	told              int         // incidents
}

func startKilled(t *testing.T, lost, uncommitted bool) *killed {
	t.Helper()
	k := &killed{t: t, dir: t.TempDir(), address: freeAddress(t), lost: lost}
	role := "hub " + k.dir + " " + k.address
	if uncommitted {
		role += " uncommitted"
	}
	if k.url = "nats://" + k.address; lost {
		_, k.url = newCluster(t, 1)
		role = fmt.Sprintf("shard %s %s 1 1", k.dir, k.url)
	}
	seeds := make([]string, 12)
	for i := range seeds {
		if !lost {
			seeds[i] = enrol(t, k.dir, fmt.Sprintf("node-%d", i))
		}
	}
	k.child = testchild.Start(t, role)
	k.pages = k.child.Line()
	for i, seed := range seeds {
		n := startNode(t, t.Context(), k.url, fmt.Sprintf("node-%d", i), seed, t.TempDir())
		t.Cleanup(n.Close)
		k.nodes = append(k.nodes, n)
	}
	for _, n := range k.nodes {
		eventually(t, n.name+" is connected", func() bool { return n.Status().Connected })
	}
	token, err := os.ReadFile(AdminToken(k.dir))
	if err != nil {
		t.Fatal(err)
	}
	k.token = strings.TrimSpace(string(token))
	return k
}

// ask lets all nodes send something, and asks about the roll-out.
func (k *killed) ask(method, body string) map[string]any {
	k.t.Helper()
	for _, n := range k.nodes {
		n.window(2)
	}
	code, m := callAt(k.t, k.pages, k.token, method, "/v1/rollout", body)
	if code != http.StatusOK {
		k.t.Fatalf("%d %v", code, m)
	}
	return m
}

// rollOut rolls out to a part, and waits until that has it.
func (k *killed) rollOut() {
	k.t.Helper()
	set := k.ask("POST", `{"overlay": "worse: 1", "percent": 50, "why": "try"}`)
	change := wire.Rollout{ID: set["id"].(string), Percent: 50}
	for _, n := range k.nodes {
		if change.Takes(n.name) {
			k.having = append(k.having, n)
		}
	}
	eventually(k.t, "a part has it", func() bool {
		m := k.ask("GET", "")
		return m["in_force"] == float64(len(k.having)) && m["nodes_outside"] == float64(len(k.nodes)-len(k.having))
	})
}

// tell tells of incidents of a node that has it.
func (k *killed) tell(list ...*model.Incident) {
	for _, inc := range list {
		k.having[0].Gather.Incident(k.having[0].mono, inc)
	}
}

func (k *killed) three() (list []*model.Incident) {
	for range 3 {
		k.told++
		list = append(list, &model.Incident{ID: fmt.Sprint(k.told), OpenedWall: k.having[0].wall.UnixNano() + int64(k.told)})
	}
	return list
}

// stored waits until nothing that was sent waits for the store.
func (k *killed) stored() {
	k.t.Helper()
	eventually(k.t, "all is stored", func() bool {
		_, m := callAt(k.t, k.pages, k.token, "GET", "/v1/fleet", "")
		return m["waiting_rows"] == 0.0
	})
}

// again kills the hub and starts one in its place.
func (k *killed) again() *bed {
	k.t.Helper()
	k.child.End()
	cfg := testConfig(k.dir)
	cfg.RolloutLook = rolloutLook // nobody has looked at the roll-out before batches are read
	if cfg.NATSListen = k.address; k.lost {
		cfg = shardConfig(k.t.TempDir(), k.url, 1, 1)
		cfg.TakeOver = true
	}
	b := startHub(k.t, cfg)
	if k.pages = b.URL(); k.lost {
		k.token = b.token("ann", Admin)
		eventually(k.t, "it takes over", func() bool { return b.troubled() == "" })
	}
	return b
}

// What a roll-out does to incidents is counted on through SIGKILL, of a hub that comes back in its folder, and of one whose folder is lost, for another
// hub, and of one that has committed nothing: three incidents before and three after are six, which halt it. Those of before that come again, since they changed, are not counted again.
func TestIncidentsAreCountedThroughAKill(t *testing.T) {
	for _, c := range []struct{ lost, stored, uncommitted bool }{{}, {stored: true}, {lost: true}, {lost: true, stored: true}, {uncommitted: true}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			k := startKilled(t, c.lost, c.uncommitted)
			k.rollOut()
			before := k.three()
			k.tell(before...)
			eventually(t, "three are counted", func() bool { return k.ask("GET", "")["incidents_inside"] == 3.0 })
			since := k.ask("GET", "")
			if c.stored {
				k.stored()
			}
			b := k.again()
			heard := func(state model.IncidentState) (n int) {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, inc := range b.incidents {
					if inc.State == state {
						n++
					}
				}
				return n
			}
			if c.uncommitted {
				eventually(t, "they are read again", func() bool { return heard(model.Searching) == 3 })
			}
			for _, inc := range before {
				again := *inc
				again.State = model.Recovered
				k.tell(&again)
			}
			eventually(t, "they come again", func() bool { k.ask("GET", ""); return heard(model.Recovered) == 3 })
			var m map[string]any
			eventually(t, "all nodes are known", func() bool {
				m = k.ask("GET", "")
				return m["in_force"] == since["in_force"] && m["nodes_outside"] == since["nodes_outside"]
			})
			if m["incidents_inside"] != 3.0 || m["halted"] != nil {
				t.Errorf("%v\nbefore: %v", m, since)
			}
			k.tell(k.three()...)
			eventually(t, "it is halted", func() bool { return strings.HasPrefix(fmt.Sprint(k.ask("GET", "")["halted"]), "6 incidents on the") })
		})
	}
}
