package fleet

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/fleet/client"
	"github.com/commensal-io/commensal/fleet/hub"
	"github.com/commensal-io/commensal/model"
)

// What people see of a hub: its page, and the answer to who hurt whom.

// look fetches both, notes what is wrong with them, and opens the pages of one incident and of the audit.
func (r *Result) look(ctx context.Context, c *client.Client, o *Options, f *field, nodes []*node) error {
	r.Page = page(ctx, c.URL)
	var list []hub.NodeIncident
	if err := c.Do(ctx, "/v1/incidents?limit=500", nil, &list); err != nil {
		return err
	}
	var inc *hub.NodeIncident
	inc, r.Incident = explained(list, func(name string) bool {
		return slices.ContainsFunc(nodes, func(n *node) bool { return n.name == name && n.antagonist != 0 })
	})
	return r.show(ctx, o, f, inc)
}

// files are what a page names.
var files = regexp.MustCompile(`(?:src|href)="(/[^"]*)"`)

// page says what is wrong with the page at an address, and with the files that it names; "": nothing.
func page(ctx context.Context, url string) string {
	text, why := get(ctx, url+"/", "text/html")
	if why != "" {
		return why
	}
	named := files.FindAllStringSubmatch(text, -1)
	if !strings.Contains(text, "<title>") || len(named) == 0 {
		return "it has no title, or names no files"
	}
	for _, f := range named {
		if _, why := get(ctx, url+f[1], "text/"); why != "" {
			return why
		}
	}
	return ""
}

// get fetches a file that is to be of a kind of content, and says why it could not.
func get(ctx context.Context, url, kind string) (text, why string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err.Error()
	}
	text, is, err := answer(http.DefaultClient, req)
	switch {
	case err != nil:
		return "", err.Error()
	case text == "" || !strings.HasPrefix(is, kind):
		return "", fmt.Sprintf("%s: %d bytes of %q", url, len(text), is)
	}
	return text, ""
}

// explained says what is wrong with the answers for the incidents, since antagonists came, in which somebody was chosen on a node that has one; "": nothing. Each
// has to say which service suffered, by how much, by which spec of the fleet that is judged, and who was suspected; and one at least that it was
// the antagonist, which is returned.
func explained(list []hub.NodeIncident, has func(node string) bool) (found *hub.NodeIncident, why string) {
	for n := range list {
		inc := &list[n]
		i := slices.IndexFunc(inc.Rounds, func(r model.Round) bool { return r.Chosen != nil })
		if !has(inc.Node) || i < 0 || inc.OpenedNsec < quietSec*1e9 {
			continue
		}
		chosen, service := inc.Rounds[i].ChosenPath, false
		for k := range jobs {
			service = service || jobs[k].class == model.LC && jobs[k].job == inc.VictimJob && "/"+jobs[k].job == inc.VictimPath
		}
		switch {
		case !service:
			return nil, fmt.Sprintf("%s of %s: %s suffers, which is no service", inc.ID, inc.Node, inc.VictimPath)
		case !(inc.Signal > inc.Threshold && inc.Threshold > inc.Spec.Mean && inc.Spec.Mean > 0):
			return nil, fmt.Sprintf("%s of %s: a signal of %.4g, a threshold of %.4g and a mean of %.4g", inc.ID, inc.Node, inc.Signal, inc.Threshold, inc.Spec.Mean)
		case inc.Spec.Sheet == 0:
			return nil, fmt.Sprintf("%s of %s goes by a spec that is not the fleet's", inc.ID, inc.Node)
		case !slices.ContainsFunc(inc.Rounds[i].Suspects, func(s model.Suspect) bool { return s.Path == chosen }):
			return nil, fmt.Sprintf("%s of %s: %s is chosen and was no suspect", inc.ID, inc.Node, chosen)
		}
		if found == nil && chosen == "/scan" {
			found = inc
		}
	}
	if found == nil {
		return nil, "in none of them the antagonist is chosen"
	}
	return found, ""
}
