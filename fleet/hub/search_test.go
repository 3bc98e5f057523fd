package hub

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/model"
)

// seek asks for a text and returns what was found, in few words.
func (b *bed) seek(token, what, more string) string {
	b.t.Helper()
	code, got := b.call(token, "GET", "/v1/search?match="+url.QueryEscape(what)+more, "")
	if code != 200 {
		return fmt.Sprint(code, " ", got["error"])
	}
	var words []string
	for kind, of := range map[string][]string{"jobs": {"job", "platform"}, "nodes": {"name"}, "tasks": {"node", "task", "job"}, "incidents": {"node", "id", "state", "antagonist"}} {
		for _, x := range got[kind].([]any) {
			word := kind
			for _, field := range of {
				word += fmt.Sprint(" ", x.(map[string]any)[field])
			}
			words = append(words, word)
		}
	}
	return fmt.Sprintf("%d %q more %v %s", len(words), words, got["more"], got["store"])
}

// A part of a name finds jobs and nodes that the hub has in memory, tasks and incidents that the store has, each once and the newest word on it.
func TestSearch(t *testing.T) {
	needSQL(t)
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "store"), 2)
	b := startHub(t, testConfig(dir))
	token := b.token("v", Viewer)
	odd := `100%_'"<b>`
	b.mu.Lock()
	b.learner.Jobs[spec.Key{Job: "Webshop", Platform: "cpu"}] = &spec.Job{}
	b.learner.Jobs[spec.Key{Job: odd, Platform: "cpu"}] = &spec.Job{}
	b.node("web-1")
	b.incident("n0", &model.Incident{ID: "b7", VictimJob: "mail", VictimPath: "/mail", State: model.Dropped, OpenedWall: time.Now().UnixNano()}) // since the store was told of it
	b.mu.Unlock()
	for _, c := range []struct {
		what, more string
		want       []string
	}{
		{"WEB", "&limit=1", []string{"4 [", `"jobs Webshop cpu"`, `"nodes web-1"`, `"incidents n0 a23 recovered /batch-1"`, `"tasks n0 /web web"`, "more [jobs tasks incidents] "}},
		{"/scan", "", []string{`"tasks n0 /scan scan"`, `"incidents n0 b23 cannot-fix /scan"`}},
		{"b7", "", []string{`1 ["incidents n0 b7 dropped "] more [] `}},
		{"A7", "", []string{`2 [`, `"incidents n0 a7 recovered /batch-1"`, `"incidents n1 a7 recovered /batch-1"`}},
		{"scan", "&limit=1000", []string{`"incidents n0 b0 cannot-fix /scan"`, `"incidents n0 b23 cannot-fix /scan"`}},
		{odd[:5], "", []string{`1 [`, `100%_'`}},
		{"%", "", []string{`1 [`}},
		{"nobody", "", []string{"0 [] more [] "}},
		{" ", "", []string{"400", "match"}},
		{strings.Repeat("x", searchLongest+1), "", []string{"400", "match"}},
		{"x", "&limit=0", []string{"400", "limit"}},
	} {
		got := b.seek(token, c.what, c.more)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%.20q%s: %s\nlacks %s", c.what, c.more, got, want)
			}
		}
	}
	if got := b.seek("nobody's", "web", ""); !strings.HasPrefix(got, "401") {
		t.Errorf("without a token: %s", got)
	}
	b.cfg.SQL = "/nonexistent/commensal-sql"
	if got := b.seek(token, "webs", ""); !strings.HasPrefix(got, `1 ["jobs Webshop cpu"]`) || !strings.Contains(got, "not installed") {
		t.Errorf("without the engine: %s", got)
	}
}
