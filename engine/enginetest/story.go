package enginetest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// tell writes what a step decided into the story.
func (n *Node) tell(out *engine.Output) {
	if n.Log == nil {
		return
	}
	for i := range out.Decisions {
		d := &out.Decisions[i]
		_, _ = fmt.Fprintf(n.Log, "%s  %-10s  %s: %s\n", n.stamp(), d.Kind, d.Path, d.Reason)
	}
}

// note writes what became of a change into the story.
func (n *Node) note(path string, k *Knob, c *model.Change, r *model.Result) {
	if n.Log == nil {
		return
	}
	now := k.Value
	if c.Kind == model.Run {
		now = r.Now
	}
	text := fmt.Sprintf("%s, now %s", r.Kind, now)
	if r.Error != "" {
		text += ": " + r.Error
	}
	_, _ = fmt.Fprintf(n.Log, "%s  -> %s %s of %s: %s\n", n.stamp(), c.Kind, c.Value.Knob, path, text)
}

// stamp is the time since the first chapter.
func (n *Node) stamp() string { return fmt.Sprintf("%8.2f s", float64(n.NowNsec-n.began)/1e9) }

// Chapter heads a part of the story.
func (n *Node) Chapter(title string) {
	if n.began == 0 {
		n.began = n.NowNsec
	}
	_, _ = fmt.Fprintf(n.Log, "\n%s  == %s\n", n.stamp(), title)
}

// Story is what a golden must say whatever it says beside: a careless -rewrite cannot lose
// the point.
type Story struct {
	About string   // heads the golden
	Want  []string // in this order
	Never []string
	Once  []string // exactly once
}

// Check holds a story to its points, and to the golden testdata/name.txt. rewrite writes that
// anew.
func (s *Story) Check(t *testing.T, name, story string, rewrite bool) {
	t.Helper()
	rest := story
	for _, w := range s.Want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Errorf("missing, in order: %q", w)
			break
		}
		rest = after
	}
	for _, w := range s.Never {
		if strings.Contains(story, w) {
			t.Errorf("must not be there: %q", w)
		}
	}
	for _, w := range s.Once {
		if c := strings.Count(story, w); c != 1 {
			t.Errorf("%d times, not once: %q", c, w)
		}
	}
	story = "# " + s.About + "\n" + story
	file := filepath.Join("testdata", name+".txt")
	if rewrite {
		if err := os.WriteFile(file, []byte(story), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -rewrite", err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(story, "\n")); d != "" {
		t.Errorf("%s differs (-golden +got); -rewrite when that is meant:\n%s", file, d)
	}
}

// Resumed returns an engine made from another one's checkpoint.
func Resumed(t testing.TB, e *engine.Engine) *engine.Engine {
	t.Helper()
	b, err := json.Marshal(e.State)
	if err != nil {
		t.Fatal(err)
	}
	s := &engine.State{}
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	again, err := engine.Resume(e.Params, s)
	if err != nil {
		t.Fatal(err)
	}
	return again
}
