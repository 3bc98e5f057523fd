package hub

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/model"
)

// browser is a Chromium that is spoken to by DevTools' protocol through two pipes: a message is a JSON object, and a zero ends it.
type browser struct {
	t    *testing.T
	to   io.Writer
	from *bufio.Reader
	last int      // message
	log  []string // what the pages logged and threw since look began
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Skip("no Chromium on this machine; `make pages-test` installs one")
	}
	itsIn, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, itsOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{itsIn, itsOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		b.call("", "Browser.close", nil, nil)
		_ = cmd.Wait() // how it ends says nothing of the pages
		to.Close()
		from.Close()
	})
	itsIn.Close()
	itsOut.Close()
	if err := from.SetReadDeadline(time.Now().Add(4 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return b
}

// call has the browser, or the page of a session, do something, and keeps what pages log meanwhile.
func (b *browser) call(session, method string, params map[string]any, result any) {
	b.t.Helper()
	b.last++
	msg := map[string]any{"id": b.last, "method": method, "params": params}
	if session != "" {
		msg["sessionId"] = session
	}
	text, err := json.Marshal(msg)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	for err == nil {
		var got struct {
			ID             int
			Method         string
			Params, Result json.RawMessage
			Error          *struct{ Message string }
		}
		if text, err = b.from.ReadBytes(0); err == nil {
			err = json.Unmarshal(text[:len(text)-1], &got)
		}
		switch {
		case err != nil:
		case got.Method == "Runtime.exceptionThrown" || got.Method == "Runtime.consoleAPICalled" || got.Method == "Log.entryAdded":
			b.log = append(b.log, got.Method+" "+string(got.Params))
		case got.ID != b.last:
		case got.Error != nil:
			err = errors.New(got.Error.Message)
		case result == nil:
			return
		default:
			if err = json.Unmarshal(got.Result, result); err == nil {
				return
			}
		}
	}
	b.t.Fatalf("%s: %v", method, err)
}

// look opens an address in a profile of its own and returns the page's elements once they have all of some texts and change no more, or after
// 15 seconds as they are then, and what the browser logged.
func (b *browser) look(width, height int, address string, want []string) (dom string, log []string) {
	b.t.Helper()
	b.log = nil
	var profile struct{ BrowserContextID string }
	b.call("", "Target.createBrowserContext", nil, &profile)
	defer b.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.BrowserContextID}, nil)
	var tab struct{ TargetID, SessionID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID}, &tab)
	b.call("", "Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true}, &tab)
	b.call(tab.SessionID, "Runtime.enable", nil, nil)
	b.call(tab.SessionID, "Log.enable", nil, nil)
	b.call(tab.SessionID, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call(tab.SessionID, "Page.navigate", map[string]any{"url": address}, nil)
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var is struct{ Result struct{ Value string } }
		b.call(tab.SessionID, "Runtime.evaluate", map[string]any{"expression": "document.documentElement.outerHTML"}, &is)
		before := dom
		dom = is.Result.Value
		if dom == before && !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(dom, text) }) {
			break
		}
	}
	if shots := os.Getenv("PAGES_SHOTS"); shots != "" { // a folder for pictures, for people
		var shot struct{ Data []byte }
		b.call(tab.SessionID, "Page.captureScreenshot", nil, &shot)
		_, view, _ := strings.Cut(address, "view=")
		name := fmt.Sprintf("pages-%d%s.png", width, regexp.MustCompile(`\W+`).ReplaceAllString(view, "-"))
		if err := os.WriteFile(filepath.Join(shots, name), shot.Data, 0o600); err != nil {
			b.t.Error(err)
		}
	}
	return dom, b.log
}

// Every page shows what it should in a real browser, wide and narrow; names that are markup are shown as text; nothing is asked of any other
// host, and no script fails.
func TestPagesInABrowser(t *testing.T) {
	chromium := startBrowser(t)
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
			if k == 30 {
				n.wall = n.wall.Add(time.Hour) // a day has more than one hour
			}
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
	for _, size := range [][2]int{{1300, 900}, {400, 800}} {
		for view, want := range map[string][]string{
			"fleet":                            {"node-0", "node-1", ">cpu<", "samples"},
			"incidents":                        {"recovered", "/be &lt;b&gt;x&lt;/b&gt;", "&lt;img src=x onerror"},
			"jobs":                             {">web<", ">batch<", "Threshold", "part of a job"},
			"jobs/atc":                         {">batch<"},
			"jobs//held":                       {"No job is so."},
			"fleet/e-1":                        {"2 nodes, of which 2 are enrolled and 2 were heard", ">node-1<"},
			"fleet/none//":                     {"No node is so."},
			"fleet/" + url.PathEscape(hostile): {"No node is so."},
			"ask":                              {"jobs that should not share a machine", "SQL on samples"},
			"audit":                            {"ann (operator)", "refused: no task", "&lt;img src=x"},
			"incident/node-0/i1":               {"web on node-0: recovered", "<canvas", "Suspects of the last round", ">cap<", "&lt;img src=x onerror"},
			job:                                {"web on cpu: cpi", "<canvas", "Spec: ", "By the hour of the day"},
			"node/node-0":                      {"What was decided, newest first", ">cap<"},
			"__proto__":                        {"node-0"},
			"incident/node-0/own":              {"The store has no incident own"},
		} {
			dom, log := chromium.look(size[0], size[1], b.URL()+"/#token="+token+"&view="+url.QueryEscape(view), want)
			for _, text := range want {
				if !strings.Contains(dom, text) {
					_, body, _ := strings.Cut(dom, "<body")
					t.Errorf("%s at %d lacks %q:\n%.3000s", view, size[0], text, body)
				}
			}
			if strings.Contains(dom, "<title>owned") || strings.Contains(dom, "<img") {
				t.Errorf("%s: a name became markup", view)
			}
			for _, line := range log {
				if strings.HasPrefix(line, "Runtime.exceptionThrown") || (strings.Contains(line, "Error") || strings.Contains(line, "Refused") || strings.Contains(line, "violates")) {
					t.Errorf("%s: %s", view, line)
				}
			}
		}
	}
	known := "the token is not known"
	dom, _ := chromium.look(1300, 900, b.URL()+"/#token=wrong", []string{known})
	if !strings.Contains(dom, known) {
		t.Errorf("a wrong token: %.2000s", dom)
	}
	dom, _ = chromium.look(1300, 900, b.URL()+"/", []string{"Enter a token."})
	if !strings.Contains(dom, "Enter a token.") || strings.Contains(dom, "expected the header") {
		t.Errorf("no token: %.2000s", dom)
	}
}
