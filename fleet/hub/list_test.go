package hub

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
)

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// asked is an answer of the hub's, without a network.
type asked struct {
	hub   *Hub
	token string
	cpu   time.Duration // of this process, which has other work as well
	n     int
	bytes int    // of the largest answer
	alloc uint64 // bytes that were taken for the dearest one: names in order once in a while
}

func (a *asked) get(t *testing.T, path string, v any) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+a.token)
	w := httptest.NewRecorder()
	handler := a.hub.handler()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime(t)
	handler.ServeHTTP(w, r)
	a.cpu, a.n = a.cpu+cpuTime(t)-begin, a.n+1
	runtime.ReadMemStats(&after)
	a.alloc, a.bytes = max(a.alloc, after.TotalAlloc-before.TotalAlloc), max(a.bytes, w.Body.Len())
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatal(err)
	}
}

// through goes through the pages of nodes.
func (a *asked) through(t *testing.T, q url.Values) iter.Seq[NodeStatus] {
	return func(yield func(NodeStatus) bool) {
		for {
			var page NodePage
			a.get(t, "/v1/nodes?"+q.Encode(), &page)
			for _, n := range page.Nodes {
				if !yield(n) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Set("after", page.Next)
		}
	}
}

// TestManyNodes looks at a fleet of 300,000 nodes and 20,000 jobs: each is in exactly one page, a status is small, and no answer takes more memory
// than its page.
func TestManyNodes(t *testing.T) {
	const nodes, jobs = 300_000, 20_000
	b := startHub(t, testConfig(t.TempDir()))
	a := &asked{hub: b.Hub, token: b.token("v", Viewer)}
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	list := make([]Enrolled, nodes)
	for i := range list {
		list[i] = Enrolled{Name: fmt.Sprintf("node-%d", i), Key: key}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.enrolled(list)
	now := time.Now()
	b.mu.Lock()
	for i := range list {
		n := b.node(list[i].Name)
		n.Seen, n.Samples, n.Platform = now, 1800, strings.Clone("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz")
		if i%1000 == 7 {
			n.Seen = now.Add(-time.Hour)
		}
	}
	stranger := b.node("stranger")
	stranger.Refused, stranger.Why = 3, "no batch"
	runtime.GC()
	runtime.ReadMemStats(&after)
	for i := range jobs {
		k := spec.Key{Job: fmt.Sprintf("job/%d ß", i%(jobs/2)), Platform: []string{"cpu a", "b/b"}[i/(jobs/2)]}
		b.learner.Jobs[k] = &spec.Job{Revision: uint64(i)} //nolint:gosec // few
	}
	b.mu.Unlock()
	t.Logf("%d bytes of memory a node", (after.HeapAlloc-before.HeapAlloc)/nodes)

	var st Status
	a.get(t, "/v1/fleet", &st)
	if want := (NodeTotals{Known: nodes + 1, Enrolled: nodes, Heard: nodes, Silent: nodes / 1000, Refusing: 1, Samples: 1800 * nodes, Refused: 3}); st.Nodes != want {
		t.Errorf("%+v, want %+v", st.Nodes, want)
	}
	if t.Logf("a status took %v of CPU, names in order included", a.cpu); a.bytes > 4096 {
		t.Errorf("a status is %d bytes", a.bytes)
	}
	a.cpu, a.n = 0, 0
	last, n := "", 0
	for x := range a.through(t, url.Values{"limit": {"1000"}}) {
		if n++; x.Name <= last {
			t.Fatalf("%s after %s", x.Name, last)
		}
		last = x.Name
	}
	if n != nodes+1 {
		t.Errorf("%d nodes in all pages", n)
	}
	t.Logf("%d pages took %v of CPU; the largest is %d bytes; at most %d bytes were taken for one", a.n, a.cpu, a.bytes, a.alloc)
	if a.bytes > 1<<20 || a.alloc > 8<<20 {
		t.Errorf("an answer of %d bytes, for which %d were taken", a.bytes, a.alloc)
	}
	for q, want := range map[string]int{"only=silent": nodes / 1000, "only=refused": 1, "only=unknown": 1, "only=lost": 0, "match=e-29999": 11, "match=none": 0, "match=node-7&only=silent": 12} {
		values, err := url.ParseQuery(q)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(slices.Collect(a.through(t, values))); n != want {
			t.Errorf("%s: %d nodes, want %d", q, n, want)
		}
	}
	var all []JobStatus
	for q := (url.Values{"limit": {"999"}}); ; {
		var page JobPage
		a.get(t, "/v1/jobs?"+q.Encode(), &page)
		all = append(all, page.Jobs...)
		if page.Next == "" {
			break
		}
		q.Set("after", page.Next)
	}
	sorted := slices.IsSortedFunc(all, func(x, y JobStatus) int {
		return spec.Key{Job: x.Job, Platform: x.Platform}.Compare(spec.Key{Job: y.Job, Platform: y.Platform})
	})
	if len(all) != jobs || !sorted {
		t.Errorf("%d jobs in all pages, in order: %v", len(all), sorted)
	}
	var page JobPage
	a.get(t, "/v1/jobs?job="+url.QueryEscape("job/17 ß"), &page)
	if len(page.Jobs) != 2 || page.Jobs[0].Platform != "b/b" {
		t.Errorf("%+v", page)
	}
}

// What asks for no page is told so, a node that is dismissed and sent nothing is forgotten, and what many refuse is named of some.
func TestPagesThatAreNone(t *testing.T) {
	b := startHub(t, testConfig(t.TempDir()))
	token := b.token("v", Viewer)
	for path, want := range map[string]string{
		"/v1/nodes?limit=0": "expected 1 to 1000", "/v1/nodes?limit=1001": "expected 1 to 1000", "/v1/nodes?limit=x": "expected 1 to 1000", "/v1/nodes?only=all": "expected one of silent",
		"/v1/jobs?only=silent": "expected one of held", "/v1/jobs?after=x": "what `next`", "/v1/jobs?after=%25/y": "what `next`",
	} {
		if code, m := b.call(token, "GET", path, ""); code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(m["error"]), want) {
			t.Errorf("%s: %d %v", path, code, m)
		}
	}
	b.enrolled([]Enrolled{{Name: "a"}, {Name: "b"}})
	b.mu.Lock()
	b.nodes["b"].Seen = time.Now()
	b.mu.Unlock()
	b.enrolled(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.nodes) != 1 || b.nodes["b"] == nil || b.nodes["b"].Enrolled {
		t.Errorf("%v", b.nodes)
	}
	b.countRollout(&wire.Rollout{ID: "x"})
	for i := range 3 * maxRefused {
		b.watched.hear(fmt.Sprint(i), "!x: no such key")
	}
	if st := b.countRollout(&wire.Rollout{ID: "x"}); len(st.Refused) != maxRefused || st.Refusing != 3*maxRefused {
		t.Errorf("%d refuse it, %d are named", st.Refusing, len(st.Refused))
	}
}

// What the hub answers is what its document for programs says, path by path.
func TestEveryPathIsDescribed(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(openapi, &doc); err != nil {
		t.Fatal(err)
	}
	var described, answered []string
	for path, methods := range doc.Paths {
		for method := range methods {
			if strings.HasPrefix(path, "/v1/") {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for _, r := range (&Hub{}).routes() {
		answered = append(answered, r.pattern)
	}
	slices.Sort(described)
	slices.Sort(answered)
	if !slices.Equal(described, answered) {
		t.Errorf("described %q\nanswered  %q", described, answered)
	}
}
