package hub

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// harm is that a job hurt another on a node so many times, and how often the victim recovered.
type harm struct {
	node, victim, by string
	times, recovered int
	signal           float64
}

// keepHarm puts incidents into a store, all of an hour ago.
func keepHarm(t *testing.T, dir string, list ...harm) {
	t.Helper()
	s, err := store.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.From("test")
	at := time.Now().Add(-time.Hour)
	for k, x := range list {
		b := &wire.Batch{Node: x.node, Spool: fmt.Sprintf("%016x", k), Seq: 1, Platform: "cpu"}
		for i := range x.times {
			chosen, state := model.TaskNum(2), model.CannotFix
			if i < x.recovered {
				state = model.Recovered
			}
			b.Incidents = append(b.Incidents, &model.Incident{
				ID: fmt.Sprint(i), VictimJob: x.victim, VictimPath: "/" + x.victim, Signal: x.signal, Threshold: 2, OpenedWall: at.UnixNano(), State: state,
				Rounds: []model.Round{{Chosen: &chosen, ChosenPath: "/" + x.by, Suspects: []model.Suspect{{Task: 2, Path: "/" + x.by, Job: x.by}}}},
			})
		}
		s.Put(uint64(k+1), b)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// wilson is the least share, at 95 %, that goes with so many of so many.
func wilson(good, n float64) float64 {
	p := good / n
	return (p + 1.92/n - 1.96*math.Sqrt((p*(1-p)+0.96/n)/n)) / (1 + 3.84/n)
}

// A node hears who hurts its own jobs, and nobody else's; it hears it once, and again when it changed; and one that comes later is not told what is not
// said any more.
func TestNodesHearTheirPriors(t *testing.T) {
	needSQL(t)
	dir := t.TempDir()
	var list []harm
	for n := range 5 {
		node := fmt.Sprintf("n%d", n)
		list = append(list, harm{node, "web", "batch", 8, 7, 3}, harm{node, "db", "scan", 8, 8, 3}, harm{node, "batch", "", 8, 8, 3})
	}
	keepHarm(t, filepath.Join(dir, "store"), list...)
	b := startHub(t, testConfig(dir))
	n := startNode(t, context.Background(), b.NodesURL(), "n0", enrol(t, dir, "n0"), t.TempDir())
	defer n.Close()
	tell := func() {
		t.Helper()
		if err := b.sendPriors(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	eventually(t, "the node hears of its job", func() bool { n.window(1.8); return len(n.told()) > 0 })
	want := model.Prior{Antagonist: "batch", Incidents: 40, Nodes: 5, Degradation: 1.5, Low: 1.5, High: 1.5, Confidence: math.Round(1000*wilson(28, 32)) / 1000}
	if got := n.told(); len(got) != 1 || got[0].Job != "web" || len(got[0].Pairs) != 1 || got[0].Pairs[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	tell() // nothing changed
	b.said.mu.Lock()
	for key, s := range b.said.last { // nor did it for long
		b.said.last[key] = said{s.pairs, s.at.Add(-priorAgain)}
	}
	b.said.mu.Unlock()
	tell()
	eventually(t, "it hears the same again", func() bool { n.window(1.8); return len(n.told()) == 2 })
	kv, err := b.Hub.t.js.KeyValue(t.Context(), wire.PriorBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), wire.SpecKey("cpu", "gone"), []byte(`{"version": 1}`)); err != nil {
		t.Fatal(err)
	}
	tell()
	if e, err := kv.Get(t.Context(), wire.SpecKey("cpu", "gone")); err == nil {
		t.Errorf("what is not said any more is there: %s", e.Value())
	}
	if _, err := kv.Get(t.Context(), wire.SpecKey("cpu", "db")); err != nil {
		t.Errorf("what another node wants is not there: %v", err)
	}
	if got := n.told(); len(got) != 2 || got[1].Job != "web" {
		t.Errorf("%+v", got)
	}
}

// Whatever one node says, no prior is more than what all the others say together, and three of them must: a liar neither brings a pair up nor raises one.
func TestOneNodeCannotRaiseAPrior(t *testing.T) {
	needSQL(t)
	honest := []harm{
		{"n0", "web", "two", 9, 9, 3}, {"n1", "web", "two", 9, 9, 3}, // seen on two nodes
		{"n0", "web", "three", 4, 2, 3}, {"n1", "web", "three", 4, 3, 3}, {"n2", "web", "three", 4, 2, 3},
		{"n0", "web", "four", 6, 4, 3}, {"n1", "web", "four", 6, 3, 3}, {"n2", "web", "four", 6, 4, 3}, {"n3", "web", "four", 40, 20, 3},
	}
	var lies []harm
	for _, by := range []string{"none", "two", "three", "four"} {
		lies = append(lies, harm{"liar", "web", by, 2000, 2000, 1999})
	}
	nan := harm{"liar", "web", "four", 3, 3, math.Inf(1)}
	priors := func(list ...harm) map[string]model.Prior {
		t.Helper()
		dir := t.TempDir()
		keepHarm(t, filepath.Join(dir, "store"), list...)
		b := startHub(t, testConfig(dir))
		defer b.stop()
		sheets, err := b.priors(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]model.Prior{}
		for _, sh := range sheets {
			if err := sh.Check("web", "cpu"); err != nil {
				t.Error(err)
			}
			for _, p := range sh.Pairs {
				got[p.Antagonist] = p
			}
		}
		return got
	}
	before := priors(honest...)
	if p := before["four"]; len(before) != 1 || p.Nodes != 4 || p.Incidents != 58 || math.Abs(p.Confidence-wilson(12, 22)) > 6e-4 { // without n0 or n2; n3's 40 count as 10 with 5
		t.Errorf("before: %+v", before)
	}
	after := priors(append(append(honest, nan), lies...)...)
	for by, most := range map[string]float64{"three": wilson(7, 12), "four": wilson(16, 28)} { // of all that is true
		if p := after[by]; !(p.Confidence <= most+6e-4) || p.Confidence <= 0 {
			t.Errorf("%s: %+v; all others together say %.3f", by, p, most)
		}
	}
	if _, ok := after["two"]; ok || len(after) != 2 {
		t.Errorf("after: %+v", after)
	}
}
