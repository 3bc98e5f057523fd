package hub

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/model"
)

// Search is for whoever has a name, or part of one, and not the page that it is on. Jobs, nodes and the latest incidents the hub has in memory; tasks and older
// incidents only the store knows, and that is asked once, for so long and so many rows.

const (
	searchLongest = 200             // bytes of what is looked for
	searchWait    = 8 * time.Second // for the store; what memory has is told all the same
	searchHours   = 2               // of samples, in which a task that runs is
	searchDays    = 30              // of incidents and decisions
)

// Found is what has a text in its name, capitals or not: so many of each kind at most.
type Found struct {
	Jobs      []JobStatus     `json:"jobs"`
	Nodes     []NodeStatus    `json:"nodes"`
	Tasks     []FoundTask     `json:"tasks"`
	Incidents []FoundIncident `json:"incidents"` // newest first
	More      []string        `json:"more"`      // kinds of which there are more
	Store     string          `json:"store"`     // why the store did not answer; "": it did
}

// FoundTask is a task that ran in the last two hours, or of which something was decided in the last 30 days.
type FoundTask struct {
	Node string `json:"node"`
	Task string `json:"task"`
	Job  string `json:"job"` // "": not known
}

// FoundIncident is what tells an incident from others. It is found by its number, its victim and its antagonist, and their jobs.
type FoundIncident struct {
	Node          string `json:"node"`
	ID            string `json:"id"`
	OpenedMsec    int64  `json:"opened_msec"` // since 1970
	State         string `json:"state"`
	Victim        string `json:"victim"`
	VictimJob     string `json:"victim_job"`
	Antagonist    string `json:"antagonist"` // who was chosen last; "": nobody
	AntagonistJob string `json:"antagonist_job"`
}

// foundSQL looks into the store. Its arguments: the text, days, hours, rows. The latest state of each incident is what counts.
const foundSQL = `
WITH asked AS (SELECT CAST(? AS VARCHAR) AS what, CAST(now() AS TIMESTAMP) AS upto),
old AS (SELECT CAST(now() AS DATE) - CAST(? AS INTEGER) AS day),
inc AS (SELECT *, row_number() OVER (PARTITION BY node, spool, id ORDER BY batch DESC) AS nth FROM incidents WHERE date >= (SELECT day FROM old)),
ran AS (SELECT node, task, job FROM samples, asked WHERE date >= CAST(now() AS DATE) - 1 AND time >= upto - INTERVAL '1' HOUR * CAST(? AS INTEGER) AND contains(lower(task), what)
  UNION ALL SELECT node, task, '' FROM decisions, asked WHERE date >= (SELECT day FROM old) AND contains(lower(task), what))
(SELECT 'task' AS kind, node, '' AS id, 0 AS opened, '' AS state, task AS victim, max(job) AS victim_job, '' AS antagonist, '' AS antagonist_job FROM ran GROUP BY node, task ORDER BY task, node LIMIT CAST(? AS INTEGER))
UNION ALL
(SELECT 'incident', node, id, epoch_ms(opened), state, victim, victim_job, antagonist, antagonist_job FROM inc, asked
  WHERE nth = 1 AND (contains(lower(id), what) OR contains(lower(victim), what) OR contains(lower(victim_job), what) OR contains(lower(antagonist), what) OR contains(lower(antagonist_job), what))
  ORDER BY opened DESC, node, id LIMIT CAST(? AS INTEGER))`

// search answers GET /v1/search.
func (h *Hub) search(r *http.Request) (any, error) {
	q, err := pageOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	what := strings.ToLower(strings.TrimSpace(q.match))
	if what == "" || len(what) > searchLongest {
		return nil, fmt.Errorf("%w: match %.20q; expected 1 to %d bytes", errBad, what, searchLongest)
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(strings.ToLower(name), what) })
	}
	f := &Found{Tasks: []FoundTask{}, More: []string{}}
	note := func(kind string, more bool) {
		if more {
			f.More = append(f.More, kind)
		}
	}
	var more bool
	f.Jobs, _, more = pick(h, h.jobKeys(), q.limit, func(k spec.Key) (JobStatus, bool) {
		if h.learner.Jobs[k] == nil || !has(k.Job) {
			return JobStatus{}, false
		}
		return h.job(k), true
	})
	note("jobs", more)
	f.Nodes, _, more = pick(h, h.nodeNames(), q.limit, func(name string) (NodeStatus, bool) {
		n := h.nodes[name]
		if n == nil || !has(name) {
			return NodeStatus{}, false
		}
		return *n, true
	})
	note("nodes", more)
	h.searchIncidents(f, has)
	if err := h.searchStore(r.Context(), f, what, q.limit+1); err != nil {
		f.Store = err.Error()
	}
	slices.SortFunc(f.Incidents, func(a, b FoundIncident) int {
		return cmp.Or(cmp.Compare(b.OpenedMsec, a.OpenedMsec), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	note("tasks", len(f.Tasks) > q.limit)
	note("incidents", len(f.Incidents) > q.limit)
	f.Tasks, f.Incidents = f.Tasks[:min(len(f.Tasks), q.limit)], f.Incidents[:min(len(f.Incidents), q.limit)]
	return f, nil
}

// searchIncidents looks into those that the hub has in memory.
func (h *Hub) searchIncidents(f *Found, has func(names ...string) bool) {
	h.mu.Lock()
	list := slices.Clone(h.incidents) // what they point to changes no more
	h.mu.Unlock()
	f.Incidents = []FoundIncident{}
	for _, in := range list {
		x := FoundIncident{Node: in.Node, ID: in.ID, OpenedMsec: in.OpenedWall / 1e6, State: in.State.String(), Victim: in.VictimPath, VictimJob: in.VictimJob}
		if n := len(in.Rounds); n > 0 {
			last := &in.Rounds[n-1]
			x.Antagonist = last.ChosenPath
			if i := slices.IndexFunc(last.Suspects, func(s model.Suspect) bool { return last.Chosen != nil && s.Task == *last.Chosen }); i >= 0 {
				x.AntagonistJob = last.Suspects[i].Job
			}
		}
		if has(x.ID, x.Victim, x.VictimJob, x.Antagonist, x.AntagonistJob) {
			f.Incidents = append(f.Incidents, x)
		}
	}
}

// searchStore adds what the store knows, at most so many of each kind. An incident that is there already is as memory has it: that is newer.
func (h *Hub) searchStore(ctx context.Context, f *Found, what string, most int) error {
	ctx, cancel := context.WithTimeout(ctx, searchWait)
	defer cancel()
	res, err := h.query(ctx, &Query{SQL: foundSQL, Args: []any{what, searchDays, searchHours, most, most}})
	if ctx.Err() != nil {
		return fmt.Errorf("%w: it took more than %s", errQuery, searchWait)
	}
	if err != nil {
		return err
	}
	type name struct{ node, id string }
	known := map[name]bool{}
	for i := range f.Incidents {
		known[name{f.Incidents[i].Node, f.Incidents[i].ID}] = true
	}
	for _, row := range res.Rows {
		text := func(i int) string { s, _ := row[i].(string); return s } // null: ""
		if text(0) == "task" {
			f.Tasks = append(f.Tasks, FoundTask{Node: text(1), Task: text(5), Job: text(6)})
			continue
		}
		opened, _ := row[3].(float64) // as JSON has numbers
		x := FoundIncident{Node: text(1), ID: text(2), OpenedMsec: int64(opened), State: text(4), Victim: text(5), VictimJob: text(6), Antagonist: text(7), AntagonistJob: text(8)}
		if !known[name{x.Node, x.ID}] {
			f.Incidents = append(f.Incidents, x)
		}
	}
	return nil
}
