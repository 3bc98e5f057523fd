package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/webhook"
	"github.com/commensal-io/commensal/model"
)

// Commensal ends and moves no work; whoever can is told through a hook: of tasks that are held again and again, by the hub itself, and of what an
// operator wants done with a task (CPI² section 5: kill and restart it elsewhere, or confine it).

const (
	offences     = 5 // incidents in which a task was held ...
	offenceNsec  = int64(24 * time.Hour)
	maxOffenders = 10_000
	maxHeld      = 1000 // incidents of a task that are counted

	hookEvery = 200 * time.Millisecond // from one look at who is due to the next
	hookFirst = 5 * time.Second        // from a failure to the next try, where the configuration does not say; twice as long each time ...
	hookMost  = 10 * time.Minute       // ... up to this

	offending = "persistent-offender"
	hookTook  = "the hook took it"
)

// Asked is what a hook is told, as the body of a POST.
type Asked struct {
	Version   int    `json:"version"` // of this document: 1
	What      string `json:"what"`    // persistent-offender, restart or confine
	Node      string `json:"node"`
	Task      string `json:"task"`
	Job       string `json:"job,omitempty"`
	Incidents int    `json:"incidents,omitempty"` // of a day, in which it was held
	By        string `json:"by,omitempty"`        // an operator
	Why       string `json:"why,omitempty"`
}

// offenderKey is a node and the path of a task.
type offenderKey struct{ node, task string }

// offender is a task of a node that was held.
type offender struct {
	job    string
	held   []heldIn // of a day, at most maxHeld, by when they were opened
	told   int64    // when the hook took it last (wall); 0: never
	latest int64
	// The hook did not take it so many times; it is asked again then.
	failed int
	again  time.Time
}

// heldIn is an incident in which a task was held: its id, hashed, since thousands of tasks may have a thousand each, and when it was opened (wall).
type heldIn struct {
	id     uint64
	opened int64
}

var heldSeed = maphash.MakeSeed()

// count notes an incident in which it was held.
func (o *offender) count(incident string, openedWall, nowNsec int64) {
	o.latest = max(o.latest, openedWall)
	id := maphash.String(heldSeed, incident)
	if slices.ContainsFunc(o.held, func(x heldIn) bool { return x.id == id }) {
		return
	}
	at, _ := slices.BinarySearchFunc(o.held, openedWall, func(x heldIn, opened int64) int { return cmp.Compare(x.opened, opened) })
	o.held = slices.Insert(o.held, at, heldIn{id, openedWall})
	o.forget(nowNsec)
}

// forget leaves out incidents that were opened more than a day ago, and the oldest of too many.
func (o *offender) forget(nowNsec int64) {
	n := max(0, len(o.held)-maxHeld)
	for n < len(o.held) && nowNsec-o.held[n].opened > offenceNsec {
		n++
	}
	o.held = slices.Delete(o.held, 0, n)
}

// offend notes who was held in an incident, and has the hook told of one that is held again and again. It is called with the lock.
func (h *Hub) offend(node string, inc *model.Incident, nowNsec int64) {
	if h.cfg.HookURL == "" || inc.State == model.Observed || len(inc.Rounds) == 0 {
		return
	}
	r := &inc.Rounds[len(inc.Rounds)-1]
	if r.Chosen == nil || r.AppliedNsec == 0 {
		return
	}
	job := ""
	for i := range r.Suspects {
		if r.Suspects[i].Task == *r.Chosen {
			job = r.Suspects[i].Job
		}
	}
	h.counts(offenderKey{node, r.ChosenPath}, job, inc.ID, inc.OpenedWall, nowNsec)
}

// counts is called with the lock.
func (h *Hub) counts(key offenderKey, job, incident string, openedWall, nowNsec int64) {
	o := h.offenders[key]
	if o == nil {
		if len(h.offenders) >= maxOffenders {
			h.forgetOffenders(nowNsec)
		}
		if len(h.offenders) >= maxOffenders {
			return
		}
		o = &offender{}
		h.offenders[key] = o
	}
	if job != "" {
		o.job = job
	}
	if o.count(incident, openedWall, nowNsec); len(o.held) >= offences && nowNsec-o.told >= offenceNsec {
		h.due[key] = true
	}
}

func (h *Hub) forgetOffenders(nowNsec int64) {
	for key, o := range h.offenders {
		if nowNsec-o.latest > offenceNsec {
			delete(h.offenders, key)
		}
	}
}

// runHook tells the hook of offenders, one after the other, until it took them. Who fails is asked again later, and after a failure nobody is for a while.
func (h *Hub) runHook(ctx context.Context) error {
	if h.cfg.HookURL == "" {
		return nil
	}
	if err := h.recallOffenders(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("in how many incidents tasks were held before is not known to this run: the hook is told of them later, or twice", "error", err)
	}
	tick := time.NewTicker(hookEvery)
	defer tick.Stop()
	failed, wait := 0, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if now.Before(wait) {
				continue
			}
		}
		for key, a := h.nextDue(time.Now()); a != nil && ctx.Err() == nil; key, a = h.nextDue(time.Now()) {
			err := h.tellHook(ctx, key, a)
			if err == nil {
				failed = 0
				continue
			}
			failed++
			wait = time.Now().Add(h.backoff(failed))
			h.log.Error("the hook failed", "url", h.cfg.HookURL, "again_after", h.backoff(failed), "error", err)
			break
		}
	}
}

// backoff is how long to wait after so many failures.
func (h *Hub) backoff(failed int) time.Duration {
	return min(h.cfg.HookAgain<<min(failed-1, 20), hookMost)
}

// nextDue returns the offender of which the hook is to be told, the one that waits longest; nil: there is none now. Whose incidents are too old meanwhile is no
// offender any more.
func (h *Hub) nextDue(now time.Time) (key offenderKey, a *Asked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var next *offender
	for k := range h.due {
		o := h.offenders[k]
		if o != nil {
			o.forget(now.UnixNano())
		}
		if o == nil || len(o.held) < offences {
			delete(h.due, k)
		} else if !o.again.After(now) && (next == nil || o.again.Before(next.again)) {
			key, next = k, o
		}
	}
	if next == nil {
		return key, nil
	}
	return key, &Asked{Version: 1, What: offending, Node: key.node, Task: key.task, Job: next.job, Incidents: len(next.held)}
}

// tellHook asks the hook once, and notes whether it took it.
func (h *Hub) tellHook(ctx context.Context, key offenderKey, a *Asked) error {
	h.log.Warn("a task is held again and again", "node", a.Node, "task", a.Task, "job", a.Job, "incidents", a.Incidents)
	act := wire.Act{What: a.What, Node: a.Node, Why: fmt.Sprintf("held in %d incidents of a day", a.Incidents)}
	_, err := h.do(&person{Name: "hub", Role: Admin}, act, map[string]string{"task": a.Task, "job": a.Job}, func() (string, error) { return hookTook, h.post(ctx, a) })
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.offenders[key]
	switch {
	case o == nil: // forgotten meanwhile
	case err != nil:
		o.failed++
		o.again = time.Now().Add(h.backoff(o.failed))
	default:
		o.told, o.failed, o.again = time.Now().UnixNano(), 0, time.Time{}
		delete(h.due, key)
	}
	return err
}

// heldSQL asks for who was held in which incident of the last day, and toldSQL of whom the hook was told in it. Incidents are counted at each change.
const (
	heldSQL = `SELECT node, antagonist, max(antagonist_job), id, CAST(max(epoch_ms(opened)) AS DOUBLE) AS opened_msec FROM incidents
WHERE state <> 'observed' AND antagonist <> '' AND opened >= CAST(now() AS TIMESTAMP) - INTERVAL '1' DAY AND json_extract_string(document, '$.rounds[#-1].applied_nsec') <> '0'
GROUP BY node, antagonist, id ORDER BY opened_msec DESC, node, antagonist, id`
	toldSQL = `SELECT asked.node, json_extract_string(asked.detail, '$.task'), CAST(max(epoch_ms(took.time)) AS DOUBLE) FROM audit AS asked JOIN audit AS took ON asked.id = took.id
WHERE asked.what = '` + offending + `' AND asked.result = '' AND took.result = '` + hookTook + `' AND took.time >= CAST(now() AS TIMESTAMP) - INTERVAL '1' DAY GROUP BY ALL`
)

// recallOffenders counts what is in the store: a hub that starts anew tells of nobody twice a day, and of nobody later.
func (h *Hub) recallOffenders(ctx context.Context) error {
	told, err := h.query(ctx, &Query{SQL: toldSQL})
	if err != nil {
		return err
	}
	held, err := h.query(ctx, &Query{SQL: heldSQL})
	if err != nil {
		return err
	}
	text := func(v any) string { s, _ := v.(string); return s }
	nsec := func(v any) int64 { msec, _ := v.(float64); return int64(msec) * 1e6 }
	now := time.Now().UnixNano()
	took := map[offenderKey]int64{}
	for _, row := range told.Rows {
		took[offenderKey{text(row[0]), text(row[1])}] = nsec(row[2])
	}
	tasks := map[string]string{}         // of acts
	for _, act := range h.audit.list() { // some are not in the store yet
		var asked struct {
			Task string `json:"task"`
		}
		switch {
		case act.What != offending:
		case act.Result == hookTook:
			took[offenderKey{act.Node, tasks[act.ID]}] = act.Time.UnixNano()
		case json.Unmarshal(act.Detail, &asked) == nil:
			tasks[act.ID] = asked.Task
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, row := range held.Rows {
		h.counts(offenderKey{text(row[0]), text(row[1])}, text(row[2]), text(row[3]), nsec(row[4]), now)
	}
	for key, at := range took {
		if o := h.offenders[key]; o != nil {
			o.told = at
			delete(h.due, key)
		}
	}
	return nil
}

// askHook hands on what an operator wants done with a task.
func (h *Hub) askHook(ctx context.Context, p *person, a Asked) error {
	if h.cfg.HookURL == "" {
		return fmt.Errorf("%w: no hook is configured (--hook-url), and the hub itself ends and moves nothing", errUnknown)
	}
	a.Version, a.By = 1, p.Name
	_, err := h.do(p, wire.Act{What: a.What, Node: a.Node, Why: a.Why}, map[string]string{"task": a.Task, "job": a.Job}, func() (string, error) {
		return hookTook, h.post(ctx, &a)
	})
	return err
}

func (h *Hub) post(ctx context.Context, a *Asked) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return webhook.Post(ctx, h.cfg.HookURL, body)
}
