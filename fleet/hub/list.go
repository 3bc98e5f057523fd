package hub

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/model"
)

// A fleet has more nodes and jobs than fit an answer: lists come in pages, by name, each from where the one before ended.

const (
	pageRows = 100 // where nobody says how many
	pageMost = 1000
)

// NodePage is some of the nodes, by name.
type NodePage struct {
	Nodes []NodeStatus `json:"nodes"`
	Next  string       `json:"next"` // what `after` is for the next page; "": this is the last one
}

// JobPage is some of the jobs, by name, platform and size.
type JobPage struct {
	Jobs []JobStatus `json:"jobs"`
	Next string      `json:"next"`
}

// NodeTotals are all nodes of a fleet together.
type NodeTotals struct {
	Known     int    `json:"known"`
	Enrolled  int    `json:"enrolled"`
	Heard     int    `json:"heard"`    // sent something since the hub was started
	Silent    int    `json:"silent"`   // of these, not for three minutes
	Refusing  int    `json:"refusing"` // whose batches were refused
	Batches   uint64 `json:"batches"`
	Samples   uint64 `json:"samples"`
	Incidents uint64 `json:"incidents"`
	Lost      uint64 `json:"lost"`
	Doubles   uint64 `json:"doubles"`
	Refused   uint64 `json:"refused"`
}

// silentAfter is how long a node may be unheard until it counts as silent.
const silentAfter = 3 * time.Minute

func (n *NodeStatus) silent(now time.Time) bool {
	return !n.Seen.IsZero() && now.Sub(n.Seen) > silentAfter
}

// is says whether a node is one of some kind, "" any.
func (n *NodeStatus) is(kind string, now time.Time) bool {
	switch kind {
	case "silent":
		return n.silent(now)
	case "refused":
		return n.Refused > 0
	case "lost":
		return n.Lost > 0
	case "unknown":
		return !n.Enrolled
	}
	return true
}

func (h *Hub) totals() (t NodeTotals) {
	now := time.Now()
	pick(h, h.nodeNames(), 0, func(name string) (struct{}, bool) {
		n := h.nodes[name]
		if n == nil {
			return struct{}{}, false
		}
		t.Known++
		if n.Enrolled {
			t.Enrolled++
		}
		if !n.Seen.IsZero() {
			t.Heard++
		}
		if n.silent(now) {
			t.Silent++
		}
		if n.Refused > 0 {
			t.Refusing++
		}
		t.Batches, t.Samples, t.Incidents, t.Lost, t.Doubles, t.Refused = t.Batches+n.Batches, t.Samples+n.Samples, t.Incidents+n.Incidents, t.Lost+n.Lost, t.Doubles+n.Doubles, t.Refused+n.Refused
		return struct{}{}, false
	})
	return t
}

// enrolled notes who may connect. Of others it keeps those that sent something.
func (h *Hub) enrolled(list []Enrolled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		n.Enrolled = false
	}
	for _, e := range list {
		h.node(e.Name).Enrolled = true
	}
	maps.DeleteFunc(h.nodes, func(_ string, n *NodeStatus) bool { return !n.Enrolled && n.Seen.IsZero() && n.Refused == 0 })
}

// index is the names of a list in order. Of a large fleet it may be a few seconds old.
type index[K any] struct {
	mu   sync.Mutex
	keys []K
	at   time.Time
}

const (
	indexFew = 10_000          // so many names are put in order for each answer
	indexAge = 5 * time.Second // more of them not more often than this
	atOnce   = 1000            // that are looked at in one hold of the hub's lock, which batches wait for
)

// sorted returns the keys of a map that the hub's lock guards.
func sorted[K comparable, V any](h *Hub, x *index[K], of func() map[K]V, compare func(a, b K) int) []K {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.keys) < indexFew || time.Since(x.at) > indexAge {
		h.mu.Lock()
		from := of()
		keys := slices.AppendSeq(make([]K, 0, len(from)), maps.Keys(from))
		h.mu.Unlock()
		slices.SortFunc(keys, compare)
		x.keys, x.at = keys, time.Now()
	}
	return x.keys
}

// pick returns what get finds wanted of keys, at most so many, the last key of these, and whether there are more. get is called with the hub's lock.
func pick[K, V any](h *Hub, keys []K, most int, get func(K) (V, bool)) (page []V, last K, more bool) {
	page = []V{}
	for some := range slices.Chunk(keys, atOnce) {
		h.mu.Lock()
		for _, k := range some {
			v, ok := get(k)
			if more = ok && len(page) == most; more {
				break
			}
			if ok {
				page, last = append(page, v), k
			}
		}
		h.mu.Unlock()
		if more {
			break
		}
	}
	return page, last, more
}

// beyond are the keys after one.
func beyond[K any](keys []K, after K, compare func(a, b K) int) []K {
	i, there := slices.BinarySearchFunc(keys, after, compare)
	if there {
		i++
	}
	return keys[i:]
}

// asksPage is what a request says about a page.
type asksPage struct {
	limit              int
	after, match, only string
}

func pageOf(q url.Values, only ...string) (p asksPage, err error) {
	p = asksPage{limit: pageRows, after: q.Get("after"), match: q.Get("match"), only: q.Get("only")}
	if text := q.Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > pageMost {
			return p, fmt.Errorf("%w: limit %q; expected 1 to %d", errBad, text, pageMost)
		}
	}
	if p.only != "" && !slices.Contains(only, p.only) {
		return p, fmt.Errorf("%w: only %q; expected one of %s", errBad, p.only, strings.Join(only, ", "))
	}
	return p, nil
}

func (h *Hub) nodeNames() []string {
	return sorted(h, &h.names, func() map[string]*NodeStatus { return h.nodes }, strings.Compare)
}

// listNodes returns a page of nodes.
func (h *Hub) listNodes(r *http.Request) (any, error) {
	values := r.URL.Query()
	q, err := pageOf(values, "silent", "refused", "lost", "unknown")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var page NodePage
	var more bool
	names := beyond(h.nodeNames(), q.after, strings.Compare)
	if values.Has("node") {
		names = []string{values.Get("node")}
	}
	page.Nodes, page.Next, more = pick(h, names, q.limit, func(name string) (NodeStatus, bool) {
		n := h.nodes[name]
		if n == nil || !n.is(q.only, now) || !strings.Contains(name, q.match) {
			return NodeStatus{}, false
		}
		return *n, true
	})
	if !more {
		page.Next = ""
	}
	return page, nil
}

func (h *Hub) jobKeys() []spec.Key {
	return sorted(h, &h.jobNames, func() map[spec.Key]*spec.Job { return h.learner.Jobs }, spec.Key.Compare)
}

// nextJob is where a page of jobs goes on: two names, either of which may hold anything, and the size where there is one.
func nextJob(k spec.Key) string {
	next := url.PathEscape(k.Job) + "/" + url.PathEscape(k.Platform)
	if k.Size != "" {
		next += "/" + k.Size
	}
	return next
}

// afterJob is the reverse of nextJob.
func afterJob(text string) (k spec.Key, err error) {
	names := strings.Split(text, "/")
	if len(names) == 2 {
		names = append(names, "")
	}
	if len(names) == 3 {
		var errs [2]error
		k.Job, errs[0] = url.PathUnescape(names[0])
		k.Platform, errs[1] = url.PathUnescape(names[1])
		k.Size, err = names[2], errors.Join(errs[0], errs[1], model.SizeName(names[2]))
	}
	if len(names) != 3 || err != nil {
		return k, fmt.Errorf("%w: after %q; expected what `next` of the page before says", errBad, text)
	}
	return k, nil
}

// listJobs returns a page of jobs.
func (h *Hub) listJobs(r *http.Request) (any, error) {
	values := r.URL.Query()
	q, err := pageOf(values, "held")
	if err != nil {
		return nil, err
	}
	keys := h.jobKeys()
	if q.after != "" {
		after, err := afterJob(q.after)
		if err != nil {
			return nil, err
		}
		keys = beyond(keys, after, spec.Key.Compare)
	}
	if values.Has("job") {
		keys = keys[sort.Search(len(keys), func(i int) bool { return keys[i].Job >= values.Get("job") }):]
		keys = keys[:sort.Search(len(keys), func(i int) bool { return keys[i].Job > values.Get("job") })]
	}
	jobs, last, more := pick(h, keys, q.limit, func(k spec.Key) (JobStatus, bool) {
		j := h.learner.Jobs[k]
		if j == nil || !strings.Contains(k.Job, q.match) || q.only != "" && heldBack(j) == 0 {
			return JobStatus{}, false
		}
		return h.job(k), true
	})
	page := JobPage{Jobs: jobs}
	if more {
		page.Next = nextJob(last)
	}
	return page, nil
}

// heldBack is how many specs of a job are held back.
func heldBack(j *spec.Job) (n int) {
	for i := range j.Signals {
		if j.Held(i) != nil {
			n++
		}
	}
	return n
}
