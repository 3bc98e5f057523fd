package hub

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// browser is a Chromium that is spoken to by DevTools' protocol through two pipes: a message is a JSON object, and a zero ends it.
type browser struct {
	t    *testing.T
	to   io.Writer
	from *bufio.Reader
	last int      // message
	log  []string // what the pages logged and threw since the last tab was opened
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
	if err := from.SetReadDeadline(time.Now().Add(8 * time.Minute)); err != nil {
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

// tab is a page in a profile of its own.
type tab struct {
	*browser
	session string
	width   int
}

// open opens an address in a light or dark theme.
func (b *browser) open(t *testing.T, width, height int, theme, address string) *tab {
	t.Helper()
	b.t, b.log = t, nil
	var profile struct{ BrowserContextID string }
	b.call("", "Target.createBrowserContext", nil, &profile)
	t.Cleanup(func() {
		b.call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.BrowserContextID}, nil)
	})
	var at struct{ TargetID, SessionID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID}, &at)
	b.call("", "Target.attachToTarget", map[string]any{"targetId": at.TargetID, "flatten": true}, &at)
	p := &tab{browser: b, session: at.SessionID, width: width}
	p.do("Runtime.enable", nil)
	p.do("Log.enable", nil)
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
	p.theme(theme)
	p.do("Page.navigate", map[string]any{"url": address})
	return p
}

func (p *tab) do(method string, params map[string]any) {
	p.t.Helper()
	p.call(p.session, method, params, nil)
}

func (p *tab) theme(name string) {
	p.t.Helper()
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}})
}

// eval has the page work something out, and returns it as text.
func (p *tab) eval(script string) string {
	p.t.Helper()
	value, err := p.try(script)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// try does the same, of a page that may not be there yet.
func (p *tab) try(script string) (string, error) {
	p.t.Helper()
	var is struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	p.call(p.session, "Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &is)
	if is.ExceptionDetails != nil {
		return "", fmt.Errorf("%s: %s", script, is.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(is.Result.Value), nil
}

// until waits until something is true of the page.
func (p *tab) until(what, script string) {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if is, err := p.try(script); is == "true" && err == nil {
			return
		}
	}
	p.t.Fatalf("not within 30 s: %s: %s; the page has\n%.3000s", what, script, p.eval("document.body.innerText"))
}

// settled waits until the page has some texts and changes no more, 15 seconds at most, and returns its elements.
func (p *tab) settled(want []string) (dom string) {
	p.t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		before := dom
		dom = p.eval("document.documentElement?.outerHTML ?? ''")
		if dom == before && !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(dom, text) }) {
			break
		}
	}
	return dom
}

// keys are what keys are called by the protocol; others are the letters that they write.
var keys = map[string]map[string]any{
	"Enter": {"key": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
	"Tab":   {"key": "Tab", "windowsVirtualKeyCode": 9},
	"Up":    {"key": "ArrowUp", "windowsVirtualKeyCode": 38},
	"Down":  {"key": "ArrowDown", "windowsVirtualKeyCode": 40},
	"Right": {"key": "ArrowRight", "windowsVirtualKeyCode": 39},
}

// press presses keys, one after the other.
func (p *tab) press(names ...string) {
	p.t.Helper()
	for _, name := range names {
		key := map[string]any{"key": name, "text": name}
		if k := keys[name]; k != nil {
			key = k
		}
		for _, what := range []string{"keyDown", "keyUp"} {
			params := map[string]any{"type": what}
			for k, v := range key {
				if k != "text" || what == "keyDown" {
					params[k] = v
				}
			}
			p.do("Input.dispatchKeyEvent", params)
		}
	}
}

// picture keeps one of the whole page for people, where PAGES_SHOTS names a folder.
func (p *tab) picture(name string) {
	p.t.Helper()
	shots := os.Getenv("PAGES_SHOTS")
	if shots == "" {
		return
	}
	var shot struct{ Data []byte }
	p.call(p.session, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("pages-%s-%d.png", name, p.width)), shot.Data, 0o600); err != nil {
		p.t.Error(err)
	}
}
