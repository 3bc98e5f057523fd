package hub

import (
	"testing"
	"time"

	"github.com/commensal-io/commensal/internal/chromium"
)

// browser is a Chromium whose errors end the test.
type browser struct {
	*chromium.Browser
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := chromium.Find()
	if program == "" {
		t.Skip("no Chromium on this machine; `make pages-test` installs one")
	}
	b, err := chromium.Start(program, t.TempDir(), 8*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return &browser{b}
}

// tab is a page of it.
type tab struct {
	*chromium.Tab
	t *testing.T
}

// open opens an address in a light or dark theme.
func (b *browser) open(t *testing.T, width, height int, theme, address string) *tab {
	t.Helper()
	p, err := b.Open(width, height, theme, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &tab{p, t}
}

func (p *tab) do(method string, params map[string]any) {
	p.t.Helper()
	if err := p.Do(method, params); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) theme(name string) {
	p.t.Helper()
	p.do("Emulation.setEmulatedMedia", chromium.InTheme(name))
}

// eval has the page work something out, and returns it as text.
func (p *tab) eval(script string) string {
	p.t.Helper()
	value, err := p.Eval(script)
	if err != nil {
		p.t.Fatal(err)
	}
	return value
}

// until waits until something is true of the page.
func (p *tab) until(what, script string) {
	p.t.Helper()
	if is, err := p.Until(script, 30*time.Second); err != nil || !is {
		p.t.Fatalf("not within 30 s: %s: %s %v; the page has\n%.3000s", what, script, err, p.eval("document.body.innerText"))
	}
}

// settled waits until the page has some texts and changes no more, 15 seconds at most, and returns its elements.
func (p *tab) settled(want []string) string {
	p.t.Helper()
	dom, err := p.Settled(want)
	if err != nil {
		p.t.Fatal(err)
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
	if err := p.Picture(name); err != nil {
		p.t.Error(err)
	}
}
