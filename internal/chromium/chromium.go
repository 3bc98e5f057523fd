// Package chromium looks at pages in a headless Chromium, for tests and labs: it opens them, works things out in them, presses keys and takes pictures. It
// speaks DevTools' protocol through two pipes: a message is a JSON object, and a zero ends it.
package chromium

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Browser is a Chromium that runs. It is for one goroutine.
type Browser struct {
	// Log is what the pages logged and threw since the last tab was opened.
	Log []string

	cmd    *exec.Cmd
	to     *os.File
	from   *os.File
	answer *bufio.Reader
	last   int // message
}

// Find returns the path of this machine's Chromium; "": it has none.
func Find() (program string) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	return program
}

// Start starts a Chromium that keeps what it has in a folder. What takes longer than patience, from now on, is an error.
func Start(program, dir string, patience time.Duration) (*Browser, error) {
	itsIn, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("chromium: %w", err)
	}
	defer itsIn.Close() //nolint:errcheck // the child has its own
	from, itsOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("chromium: %w", errors.Join(err, to.Close()))
	}
	defer itsOut.Close() //nolint:errcheck // likewise
	b := &Browser{to: to, from: from, answer: bufio.NewReader(from)}
	b.cmd = exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe", "--user-data-dir="+dir) //nolint:gosec // named by Find
	b.cmd.ExtraFiles = []*os.File{itsIn, itsOut}
	if err = from.SetReadDeadline(time.Now().Add(patience)); err == nil {
		err = b.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("chromium: %w", errors.Join(err, to.Close(), from.Close()))
	}
	return b, nil
}

// Close ends it.
func (b *Browser) Close() {
	if b.Call("", "Browser.close", nil, nil) != nil {
		_ = b.cmd.Process.Kill() // it may have ended
	}
	_ = b.cmd.Wait() // how it ends says nothing of the pages
	_, _ = b.to.Close(), b.from.Close()
}

// Call has the browser, or the page of a session, do something, and keeps what pages log meanwhile. A nil result is not wanted.
func (b *Browser) Call(session, method string, params map[string]any, result any) error {
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
		if text, err = b.answer.ReadBytes(0); err == nil {
			err = json.Unmarshal(text[:len(text)-1], &got)
		}
		switch {
		case err != nil:
		case got.Method == "Runtime.exceptionThrown" || got.Method == "Runtime.consoleAPICalled" || got.Method == "Log.entryAdded":
			b.Log = append(b.Log, got.Method+" "+string(got.Params))
		case got.ID != b.last:
		case got.Error != nil:
			err = errors.New(got.Error.Message)
		case result == nil:
			return nil
		default:
			if err = json.Unmarshal(got.Result, result); err == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("chromium: %s: %w", method, err)
}

// Tab is a page in a profile of its own.
type Tab struct {
	*Browser
	session, profile string
	width            int
}

// Open opens an address in a light or dark theme, in a window of so many pixels.
func (b *Browser) Open(width, height int, theme, address string) (*Tab, error) {
	b.Log = nil
	var profile struct{ BrowserContextID string }
	var at struct{ TargetID, SessionID string }
	err := b.Call("", "Target.createBrowserContext", nil, &profile)
	if err == nil {
		err = b.Call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.BrowserContextID}, &at)
	}
	if err == nil {
		err = b.Call("", "Target.attachToTarget", map[string]any{"targetId": at.TargetID, "flatten": true}, &at)
	}
	p := &Tab{Browser: b, session: at.SessionID, profile: profile.BrowserContextID, width: width}
	for _, step := range []struct {
		method string
		params map[string]any
	}{
		{"Runtime.enable", nil}, {"Log.enable", nil},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}},
		{"Emulation.setEmulatedMedia", InTheme(theme)}, {"Page.navigate", map[string]any{"url": address}},
	} {
		if err == nil {
			err = p.Do(step.method, step.params)
		}
	}
	return p, err
}

// InTheme are the parameters of Emulation.setEmulatedMedia for a theme, light or dark.
func InTheme(name string) map[string]any {
	return map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}
}

// Close closes it, and forgets its profile.
func (p *Tab) Close() error {
	return p.Call("", "Target.disposeBrowserContext", map[string]any{"browserContextId": p.profile}, nil)
}

// Do has the page do something.
func (p *Tab) Do(method string, params map[string]any) error {
	return p.Call(p.session, method, params, nil)
}

// Eval has the page work something out, and returns it as text. What the page throws is an *Thrown.
func (p *Tab) Eval(script string) (string, error) {
	var is struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := p.Call(p.session, "Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &is); err != nil {
		return "", err
	}
	if is.ExceptionDetails != nil {
		return "", &Thrown{script, is.ExceptionDetails.Exception.Description}
	}
	return fmt.Sprint(is.Result.Value), nil
}

// Thrown is what a script threw: of a page that is not there yet, maybe.
type Thrown struct{ Script, What string }

func (e *Thrown) Error() string { return e.Script + ": " + e.What }

// Until waits until a script is true of the page, and reports whether it became so in that time.
func (p *Tab) Until(script string, most time.Duration) (bool, error) {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		is, err := p.Eval(script)
		var thrown *Thrown
		if err == nil && is == "true" {
			return true, nil
		}
		if err != nil && !errors.As(err, &thrown) {
			return false, err
		}
	}
	return false, nil
}

// Settled waits until the page has some texts and changes no more, 15 seconds at most, and returns its elements.
func (p *Tab) Settled(want []string) (dom string, err error) {
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		before := dom
		if dom, err = p.Eval("document.documentElement?.outerHTML ?? ''"); err != nil {
			return "", err
		}
		if dom == before && !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(dom, text) }) {
			break
		}
	}
	return dom, nil
}

// Picture keeps one of the whole page for people, where PAGES_SHOTS names a folder.
func (p *Tab) Picture(name string) error {
	shots := os.Getenv("PAGES_SHOTS")
	if shots == "" {
		return nil
	}
	var shot struct{ Data []byte }
	if err := p.Call(p.session, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(shots, fmt.Sprintf("pages-%s-%d.png", name, p.width)), shot.Data, 0o600)
}
