package hub

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/jsonreply"
	"github.com/commensal-io/commensal/model"
)

// The HTTP interface. docs/OPERATIONS.md lists it; openapi.json, which is served, describes it to programs.

const maxBody = 64 << 10

//go:embed openapi.json
var openapi []byte

//go:embed web
var web embed.FS

// pages serves the pages. Nothing of them comes from elsewhere.
func pages(mux *http.ServeMux) {
	guard := func(w http.ResponseWriter) {
		head := w.Header()
		head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("X-Content-Type-Options", "nosniff")
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		guard(w)
		http.ServeFileFS(w, r, web, "web/page.html")
	})
	files := http.FileServerFS(web)
	mux.HandleFunc("GET /web/{name}", func(w http.ResponseWriter, r *http.Request) {
		guard(w)
		files.ServeHTTP(w, r)
	})
}

func (h *Hub) handler() http.Handler {
	mux := http.NewServeMux()
	pages(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if problem := h.wrong(); problem != "" {
			reply(w, http.StatusServiceUnavailable, failure{problem})
			return
		}
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi) // the reader went away
	})
	mux.Handle("GET /metrics", h.metrics())
	for _, r := range h.routes() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) {
			p, code, why := h.door.admit(req, r.role)
			if p == nil {
				reply(w, code, failure{why})
				return
			}
			v, err := r.do(p, req)
			switch {
			case err == nil:
				reply(w, http.StatusOK, v)
			case errors.Is(err, errBad):
				reply(w, http.StatusBadRequest, failure{err.Error()})
			case errors.Is(err, errUnknown), errors.Is(err, errQuery):
				reply(w, http.StatusUnprocessableEntity, failure{err.Error()})
			default:
				reply(w, http.StatusBadGateway, failure{err.Error()})
			}
		})
	}
	// A browser shows a certificate whoever's page asks: what another site's page would have done is refused.
	return http.NewCrossOriginProtection().Handler(mux)
}

// route is one thing that people ask.
type route struct {
	pattern string
	role    Role
	do      func(p *person, r *http.Request) (any, error)
}

type failure struct {
	Error string `json:"error"`
}

var errBad = errors.New("request")

func (h *Hub) routes() []route {
	return []route{
		{"GET /v1/fleet", Viewer, func(_ *person, r *http.Request) (any, error) { return h.status(r.Context()) }},
		{"GET /v1/jobs", Viewer, func(_ *person, r *http.Request) (any, error) { return h.listJobs(r) }},
		{"GET /v1/nodes", Viewer, func(_ *person, r *http.Request) (any, error) { return h.listNodes(r) }},
		{"GET /v1/incidents", Viewer, func(_ *person, r *http.Request) (any, error) { return h.listIncidents(r) }},
		{"GET /v1/search", Viewer, func(_ *person, r *http.Request) (any, error) { return h.search(r) }},
		{"GET /v1/audit", Viewer, func(*person, *http.Request) (any, error) { return h.audit.list(), nil }},
		{"GET /v1/interference", Viewer, func(*person, *http.Request) (any, error) { return h.readInterference() }},
		{"GET /v1/questions", Viewer, func(*person, *http.Request) (any, error) { return questions, nil }},
		{"POST /v1/query", Viewer, func(_ *person, r *http.Request) (any, error) {
			var q Query
			if err := read(r, &q); err != nil {
				return nil, err
			}
			return h.query(r.Context(), &q)
		}},
		{"POST /v1/command", Operator, h.handleCommand},
		{"POST /v1/spec", Operator, h.handleSpec},
		{"GET /v1/rollout", Viewer, func(_ *person, r *http.Request) (any, error) { return h.rolloutStatus(r.Context()) }},
		{"POST /v1/rollout", Admin, func(p *person, r *http.Request) (any, error) {
			var q RolloutChange
			if err := read(r, &q); err != nil {
				return nil, err
			}
			return h.setRollout(r.Context(), p, &q)
		}},
		{"POST /v1/off", Admin, func(p *person, r *http.Request) (any, error) {
			var q offBody
			if err := read(r, &q); err != nil {
				return nil, err
			}
			if err := h.setOff(r.Context(), p, q.Off, q.Why); err != nil {
				return nil, err
			}
			return h.off(r.Context())
		}},
	}
}

// What is asked of the hub, as openapi.json has it.
type (
	commandBody struct {
		Node string `json:"node"`
		wire.Command
	}
	specBody struct {
		Job      string `json:"job"`
		Platform string `json:"platform"`
		Size     string `json:"size"`
		What     string `json:"what"`
		Revision uint64 `json:"revision"`
		Why      string `json:"why"`
	}
	offBody struct {
		Off bool   `json:"off"`
		Why string `json:"why"`
	}
)

func (h *Hub) handleCommand(p *person, r *http.Request) (any, error) {
	var q commandBody
	if err := read(r, &q); err != nil {
		return nil, err
	}
	all := q.Node == "*" && (q.Kind == model.CommandProtectOn || q.Kind == model.CommandProtectOff)
	switch {
	case wire.NodeName(q.Node) != nil && !all:
		return nil, fmt.Errorf("%w: %w", errBad, wire.NodeName(q.Node))
	case !slices.Contains(commandKinds, q.Kind):
		return nil, fmt.Errorf("%w: kind %q; expected one of %s", errBad, q.Kind, strings.Join(commandKinds, ", "))
	}
	if err := CheckWhy(q.Why); err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	id := q.ID
	q.By, q.WallNsec = "", 0 // the hub says these
	if id == "" {
		return h.doCommand(r.Context(), p, &q)
	}
	if err := ownID(id); err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	name := nameOf(p, id)
	return h.again.once(r.Context(), name, &q, func() (any, error) {
		named := q
		named.ID = name
		return h.doCommand(r.Context(), p, &named)
	})
}

// doCommand does what was asked for and looked at.
func (h *Hub) doCommand(ctx context.Context, p *person, q *commandBody) (any, error) {
	if q.Node == "*" {
		return h.setProtection(ctx, p, q.Job, q.Kind == model.CommandProtectOn, q.Why)
	}
	if q.Kind == "restart" || q.Kind == "confine" { // no node does that by itself
		return wire.Answer{Done: q.Kind}, h.askHook(ctx, p, Asked{What: q.Kind, Node: q.Node, Task: q.Task, Job: q.Job, Why: q.Why})
	}
	ans, err := h.command(p, q.Node, q.Command)
	if err == nil && ans.Error != "" {
		err = fmt.Errorf("%w: node %s: %s", errUnknown, q.Node, ans.Error)
	}
	return ans, err
}

func (h *Hub) handleSpec(p *person, r *http.Request) (any, error) {
	var q specBody
	if err := read(r, &q); err != nil {
		return nil, err
	}
	if err := model.SizeName(q.Size); err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	return h.specAct(r.Context(), p, q.What, spec.Key{Job: q.Job, Platform: q.Platform, Size: q.Size}, q.Revision, q.Why)
}

// JobStatus is a job on a platform, or its tasks of one size there.
type JobStatus struct {
	Job      string         `json:"job"`
	Platform string         `json:"platform"`
	Size     string         `json:"size,omitempty"`
	Revision uint64         `json:"revision"`
	Pinned   bool           `json:"pinned"`
	Signals  []SignalStatus `json:"signals"`
}

// SignalStatus is one signal of a job.
type SignalStatus struct {
	Signal    string  `json:"signal"`
	Samples   float64 `json:"samples"` // weighted by age, and those since the last calculation
	Tasks     int     `json:"tasks"`   // with any sample in two days
	Published bool    `json:"published"`
	Mean      float64 `json:"mean"`
	StdDev    float64 `json:"stddev"`
	Threshold float64 `json:"threshold"` // a node's least rise may lie higher
	Usage     float64 `json:"cpu_usage_mean"`
	P50       float64 `json:"p50"`
	P90       float64 `json:"p90"`
	P99       float64 `json:"p99"`
	Held      string  `json:"held,omitempty"` // why its newest spec is held back
	// Fit is the distribution, fitted to the windows so far, by which the threshold is; nil: it is mean and deviations.
	Fit *spec.GEV `json:"fit,omitempty"`
}

// job is called with the lock.
func (h *Hub) job(k spec.Key) JobStatus {
	j := h.learner.Jobs[k]
	st := JobStatus{Job: k.Job, Platform: k.Platform, Size: k.Size, Revision: j.Revision, Pinned: j.Pinned, Signals: []SignalStatus{}}
	for i := range j.Signals {
		s := &j.Signals[i]
		x := SignalStatus{Signal: s.Kind.Value().Source.String(), Samples: s.Sketch.Count(), Tasks: j.Tasks(i), P50: s.Sketch.Quantile(0.5), P90: s.Sketch.Quantile(0.9), P99: s.Sketch.Quantile(0.99)}
		if sp, ok := j.Spec(i); ok {
			x.Published, x.Mean, x.StdDev, x.Usage, x.Threshold = true, sp.Mean, float64(sp.StdDev), float64(sp.UsageMean), h.cfg.Spec.Threshold(&sp)
			if float64(sp.Tail) > sp.Mean { // else it is not by a fit
				if g, ok := spec.FitGEV(&s.Sketch); ok {
					x.Fit = &g
				}
			}
		}
		if held := j.Held(i); held != nil {
			x.Held = held.Why
		}
		st.Signals = append(st.Signals, x)
	}
	return st
}

// listIncidents returns the latest, newest first, of all nodes or of one.
func (h *Hub) listIncidents(r *http.Request) (any, error) {
	limit, values := 100, r.URL.Query()
	if text := values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxIncidents {
			return nil, fmt.Errorf("%w: limit %q; expected 1 to %d", errBad, text, maxIncidents)
		}
		limit = n
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []NodeIncident{}
	for i := len(h.incidents) - 1; i >= 0 && len(out) < limit; i-- {
		if !values.Has("node") || h.incidents[i].Node == values.Get("node") {
			out = append(out, h.incidents[i])
		}
	}
	return out, nil
}

func read(r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", errBad, err)
	}
	return nil
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Cache-Control", "no-store")
	jsonreply.Write(w, code, v)
}
