package hub

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// browser is a Chromium that shows one address and says what came of it.
type browser struct{ program string }

func findBrowser(t *testing.T) *browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return &browser{path}
		}
	}
	t.Skip("no Chromium on this machine; `make pages-test` installs one")
	return nil
}

// look returns the page's elements as they stand after its scripts have run, and what the browser logged.
func (b *browser) look(t *testing.T, size, address string) (dom, log string) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--enable-logging=stderr", "--v=0",
		"--user-data-dir=" + dir, "--window-size=" + size, "--virtual-time-budget=8000", "--timeout=15000", "--dump-dom",
	}
	if shots := os.Getenv("PAGES_SHOTS"); shots != "" { // a folder for pictures, for people
		name := regexp.MustCompile(`[^a-z]+`).ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-")
		_, view, _ := strings.Cut(address, "view=")
		args = append(args, "--screenshot="+filepath.Join(shots, name+size+regexp.MustCompile(`\W+`).ReplaceAllString(view, "-")+".png"))
	}
	cmd := exec.CommandContext(ctx, b.program, append(args, address)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(out), stderr.String()
}

// Every page shows what it should in a real browser, wide and narrow; names that are markup are shown as text; nothing is asked of any other
// host, and no script fails.
func TestPagesInABrowser(t *testing.T) {
	chromium := findBrowser(t)
	needSQL(t)
	b := startHub(t, testConfig(t.TempDir()))
	hostile := `<img src=x onerror="document.title='owned'">`
	var nodes []*testNode
	for i := range 2 {
		name := fmt.Sprintf("node-%d", i)
		n := startNode(t, t.Context(), b.NodesURL(), name, enrol(t, b.dir, name), t.TempDir())
		defer n.Close()
		nodes = append(nodes, n)
	}
	chosen := model.TaskNum(2)
	for k := range 60 {
		for _, n := range nodes {
			n.window(2 + 0.02*float64(k%7))
		}
		time.Sleep(3 * time.Millisecond)
	}
	n := nodes[0]
	inc := &model.Incident{
		ID: "i1", VictimPath: "/web", VictimJob: "web", Source: model.SourceCPI, Signal: 3, Threshold: 2.2, OpenedWall: n.wall.Add(-20 * time.Second).UnixNano(), State: model.Recovered,
		Rounds: []model.Round{{Chosen: &chosen, ChosenPath: "/be <b>x</b>", Verdict: hostile, Suspects: []model.Suspect{{Task: 2, Path: "/be <b>x</b>", Job: hostile, Score: 0.9, Class: model.BE, Verdict: "held"}}}},
	}
	n.Gather.Incident(n.mono, inc)
	n.Gather.Event(n.mono, &model.Decision{Kind: model.DecideCap, WallNsec: n.wall.Add(-15 * time.Second).UnixNano(), Path: "/be <b>x</b>", Incident: "i1", Reason: hostile})
	n.window(2)
	eventually(t, "all is in the store", func() bool {
		rows := b.store.Pending()
		b.mu.Lock()
		defer b.mu.Unlock()
		return rows == 0 && len(b.incidents) == 1 && n.Status().Waiting == 0
	})
	if _, err := b.command(&person{Name: "ann", Role: Operator}, "node-0", wireCommand("cap", "/gone", hostile)); err != nil {
		t.Fatal(err)
	}
	token := b.token("v", Viewer)
	job := strings.Join([]string{"job", "web", "cpu", "cpi"}, "/")
	for _, size := range []string{"1300,900", "400,800"} {
		for view, want := range map[string][]string{
			"fleet":               {"node-0", "node-1", ">cpu<", "samples"},
			"incidents":           {"recovered", "/be &lt;b&gt;x&lt;/b&gt;", "&lt;img src=x onerror"},
			"jobs":                {">web<", ">batch<", "Threshold"},
			"ask":                 {"jobs that should not share a machine", "SQL on samples"},
			"audit":               {"ann (operator)", "refused: no task", "&lt;img src=x"},
			"incident/node-0/i1":  {"web on node-0: recovered", "<canvas", "Suspects of the last round", ">cap<", "&lt;img src=x onerror"},
			job:                   {"web on cpu: cpi", "<canvas", "Spec: "},
			"node/node-0":         {"What was decided, newest first", ">cap<"},
			"__proto__":           {"node-0"},
			"incident/node-0/own": {"The store has no incident own"},
		} {
			dom, log := chromium.look(t, size, b.URL()+"/#token="+token+"&view="+url.QueryEscape(view))
			for _, text := range want {
				if !strings.Contains(dom, text) {
					_, body, _ := strings.Cut(dom, "<body")
					t.Errorf("%s at %s lacks %q:\n%.3000s", view, size, text, body)
				}
			}
			if strings.Contains(dom, "<title>owned") || strings.Contains(dom, "<img") {
				t.Errorf("%s: a name became markup", view)
			}
			for line := range strings.SplitSeq(log, "\n") {
				if strings.Contains(line, "CONSOLE") && (strings.Contains(line, "Error") || strings.Contains(line, "Refused") || strings.Contains(line, "violates")) {
					t.Errorf("%s: %s", view, line)
				}
			}
		}
	}
	dom, _ := chromium.look(t, "1300,900", b.URL()+"/#token=wrong")
	if !strings.Contains(dom, "the token is not known") {
		t.Errorf("a wrong token: %.2000s", dom)
	}
}
