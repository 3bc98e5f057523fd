package hub

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/commensal-io/commensal/agent/uplink"
	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// sizedWindow hands in a window of a small and a large task of one job.
func (n *testNode) sizedWindow(small, large float64) {
	n.mono += 1e9
	n.wall = n.wall.Add(time.Second)
	w := uplink.Window{MonoNsec: n.mono, WallNsec: n.wall.UnixNano(), Flags: []uint32{wire.Usable, wire.Usable}, Tasks: []model.Task{
		{Num: 1, Path: "/s", Job: "web", Class: model.LC, Size: "small"}, {Num: 2, Path: "/l", Job: "web", Class: model.LC, Size: "cpu-16"},
	}}
	for i, cpi := range []float64{small, large} {
		o := model.TaskObservation{Num: model.TaskNum(i + 1), CPU: model.Known(0.5)} //nolint:gosec // 1 or 2
		for src := range model.NumSources {
			o.Signals[src] = model.Missing(model.Absent)
		}
		o.Signals[model.SourceCPI] = model.Known(cpi)
		w.Observed = append(w.Observed, o)
	}
	n.Gather.Add(&w)
	n.Turn(n.mono + 1)
}

// A hub that is asked for sizes publishes, beside the spec of all tasks, one of each size, which come down to nodes whose tasks have it; people list, page and roll back a size by
// its name, and a hub that is started again, from what it kept or from its store alone, knows them still. One that is not asked any more forgets them, and its file is of the version before.
func TestSizes(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Spec.Sizes, cfg.Spec.MinTasks = 4, 1
	b := startHub(t, cfg)
	n := startNode(t, t.Context(), b.NodesURL(), "n", enrol(t, b.dir, "n"), t.TempDir())
	defer n.Close()
	means := map[string]float64{}
	eventually(t, "specs of both sizes and of all tasks come down", func() bool {
		n.sizedWindow(1, 3)
		time.Sleep(5 * time.Millisecond)
		n.mu.Lock()
		defer n.mu.Unlock()
		for size, sp := range n.sizes {
			means[size] = sp.Mean
		}
		return len(means) == 3
	})
	for size, want := range map[string]float64{"": 2, "small": 1, "cpu-16": 3} {
		if math.Abs(means[size]-want) > 0.1 {
			t.Errorf("size %q: mean %g, want %g", size, means[size], want)
		}
	}
	token := b.token("ann", Operator)
	var sizes []any
	for after := ""; ; {
		code, page := b.call(token, "GET", "/v1/jobs?"+url.Values{"limit": {"1"}, "job": {"web"}, "after": {after}}.Encode(), "")
		if code != 200 || len(sizes) > 3 {
			t.Fatal(code, page)
		}
		sizes = append(sizes, page["jobs"].([]any)[0].(map[string]any)["size"])
		if after = page["next"].(string); after == "" {
			break
		}
	}
	if fmt.Sprint(sizes) != "[<nil> cpu-16 small]" {
		t.Errorf("pages: %v", sizes)
	}
	small := spec.Key{Job: "web", Platform: "cpu", Size: "small"}
	eventually(t, "two revisions", func() bool {
		n.sizedWindow(1, 3)
		list, err := b.sheetsOf(t.Context(), small)
		return err == nil && len(list) > 1
	})
	if code, m := b.call(token, "POST", "/v1/spec", `{"job": "web", "platform": "cpu", "size": "small", "what": "rollback", "why": "x"}`); code != 200 || m["size"] != "small" || m["pinned"] != true || m["version"] != 2. {
		t.Errorf("%d %v", code, m)
	}
	for _, size := range []string{"large", "../small", "Small"} {
		if code, m := b.call(token, "POST", "/v1/spec", fmt.Sprintf(`{"job": "web", "platform": "cpu", "size": %q, "what": "unpin"}`, size)); code < 400 {
			t.Errorf("%s: %d %v", size, code, m)
		}
	}
	for _, after := range []string{"web", "web/cpu/a/b", "web/cpu/UP", "web/%zz"} {
		if code, m := b.call(token, "GET", "/v1/jobs?"+url.Values{"after": {after}}.Encode(), ""); code != 400 {
			t.Errorf("%s: %d %v", after, code, m)
		}
	}
	count := func(b *bed, when string, want int, pinned bool) {
		t.Helper()
		got := 0
		for _, j := range b.jobs() {
			if got++; j.Pinned != (pinned && j.Size == "small") {
				t.Errorf("%s: %+v", when, j)
			}
		}
		if got != want {
			t.Errorf("%s: %d jobs, want %d", when, got, want)
		}
	}
	if err := b.keepState(b.keptCount); err != nil {
		t.Fatal(err)
	}
	n.Close()
	b.stop()
	b = startHub(t, cfg)
	count(b, "kept", 3, true)
	b.stop()
	if err := os.Remove(b.learnedFile()); err != nil {
		t.Fatal(err)
	}
	b = startHub(t, cfg)
	count(b, "from the store", 3, false)
	if err := b.keepState(b.keptCount); err != nil {
		t.Fatal(err)
	}
	b.stop()
	cfg.Spec.Sizes = 0
	b = startHub(t, cfg)
	eventually(t, "sizes are forgotten", func() bool { return len(b.jobs()) == 1 })
}
