package fleet

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/internal/chromium"
)

// What people see of an incident and of the audit, in a browser: pages whose scripts ask the hub, and its query engine.

// notLooked begins what Result.Shown says where there was nothing to look with.
const notLooked = "not looked at: "

// show opens both pages, and notes which were looked at and what is wrong with them. A machine without Chromium, or a hub without a query engine, is no fault.
func (r *Result) show(ctx context.Context, o *Options, f *field, inc *hub.NodeIncident) error {
	program := chromium.Find()
	switch {
	case program == "":
		r.Shown = notLooked + "no Chromium"
	case r.Pairs == 0 || inc == nil: // which the verdict says
		r.Shown = notLooked + "nothing to show"
	}
	if r.Shown != "" {
		return nil
	}
	o.Log("a browser opens the pages of incident %s of %s and of the audit", inc.ID, inc.Node)
	token, err := os.ReadFile(hub.AdminToken(f.dir))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "commensal-chromium-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of /tmp
	b, err := chromium.Start(program, dir, 2*time.Minute)
	if err != nil {
		return err
	}
	defer b.Close()
	r.Shown = "incident, audit"
	for _, page := range []struct{ view, script string }{
		{"incident/" + inc.Node + "/" + inc.ID, incidentShown(inc)}, {"audit", auditShown(r.cappedOn)},
	} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.Unshown, err = shown(b, f.hub.URL()+"/#token="+strings.TrimSpace(string(token))+"&view="+page.view, page.view, page.script); r.Unshown != "" || err != nil {
			return err
		}
	}
	return nil
}

// shown says what is wrong with a page of which a script is to be true, "": nothing.
func shown(b *chromium.Browser, address, view, script string) (why string, err error) {
	p, err := b.Open(1300, 900, "light", address)
	if err != nil {
		return "", err
	}
	is, err := p.Until(script, 20*time.Second)
	if err != nil {
		return "", err
	}
	if !is {
		text, _ := p.Eval("document.body.innerText") // none is none
		return fmt.Sprintf("%s: not %s; it has %.2000s", view, script, text), nil
	}
	if err := p.Picture(strings.NewReplacer("/", "-").Replace(view)); err != nil {
		return "", err
	}
	for _, line := range p.Log {
		if strings.HasPrefix(line, "Runtime.exceptionThrown") {
			return view + ": " + line, nil
		}
	}
	return "", p.Close()
}

// incidentShown is true of a page that says who suffers, draws who had the CPU, and lists every suspect of the last round.
func incidentShown(inc *hub.NodeIncident) string {
	script := fmt.Sprintf(`main.innerText.includes(%q) && main.innerText.includes("CPU of all suspects") && [...plots].length == 2 && [...plots].every(p => p.u && p.u.data[0].length > 10)`, inc.VictimJob+" on "+inc.Node+": ")
	for _, s := range inc.Rounds[len(inc.Rounds)-1].Suspects {
		script += fmt.Sprintf(` && [...main.querySelectorAll("td")].some(d => d.textContent == %q)`, s.Path)
	}
	return script
}

// auditShown is true of a page with the line of the operator's cap on a node.
func auditShown(node string) string {
	return fmt.Sprintf(`[...main.querySelectorAll("tr")].some(r => ["admin (admin)", %q, "/compile", "the demo"].every(x => r.innerText.includes(x)))`, node)
}
