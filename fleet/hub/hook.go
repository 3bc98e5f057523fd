package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/internal/webhook"
	"github.com/commensal-io/commensal/model"
)

// Commensal ends and moves no work; whoever can is told through a hook: of tasks that are held again and again, by the hub itself, and of what an
// operator wants done with a task (CPI² section 5: kill and restart it elsewhere, or confine it).

const (
	hookWaiting  = 64 // that wait to be told
	offences     = 5  // incidents in which a task was held ...
	offenceNsec  = int64(24 * time.Hour)
	maxOffenders = 10_000
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

// offender is a task of a node that was held.
type offender struct {
	job    string
	ids    map[string]int64 // incidents, and when they were opened (wall)
	told   int64            // when the hook was told last (wall); 0: never
	latest int64
}

// offend notes who was held in an incident, and tells the hook of one that is held again and again. It is called with the lock.
func (h *Hub) offend(node string, inc *model.Incident, nowNsec int64) {
	if h.cfg.HookURL == "" || inc.State == model.Observed || len(inc.Rounds) == 0 {
		return
	}
	r := &inc.Rounds[len(inc.Rounds)-1]
	if r.Chosen == nil || r.AppliedNsec == 0 {
		return
	}
	key := [2]string{node, r.ChosenPath}
	o := h.offenders[key]
	if o == nil {
		if len(h.offenders) >= maxOffenders {
			h.forgetOffenders(nowNsec)
		}
		if len(h.offenders) >= maxOffenders {
			return
		}
		o = &offender{ids: map[string]int64{}}
		h.offenders[key] = o
	}
	for i := range r.Suspects {
		if r.Suspects[i].Task == *r.Chosen {
			o.job = r.Suspects[i].Job
		}
	}
	o.ids[inc.ID], o.latest = inc.OpenedWall, max(o.latest, inc.OpenedWall)
	for id, at := range o.ids {
		if nowNsec-at > offenceNsec {
			delete(o.ids, id)
		}
	}
	if len(o.ids) < offences || nowNsec-o.told < offenceNsec {
		return
	}
	select {
	case h.asked <- Asked{Version: 1, What: "persistent-offender", Node: node, Task: r.ChosenPath, Job: o.job, Incidents: len(o.ids)}:
		o.told = nowNsec
	default: // the hook is too slow: with its next incident
	}
}

func (h *Hub) forgetOffenders(nowNsec int64) {
	for key, o := range h.offenders {
		if nowNsec-o.latest > offenceNsec {
			delete(h.offenders, key)
		}
	}
}

// runHook tells the hook of offenders, one after the other.
func (h *Hub) runHook(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case a := <-h.asked:
			h.log.Warn("a task is held again and again", "node", a.Node, "task", a.Task, "job", a.Job, "incidents", a.Incidents)
			if err := h.post(ctx, &a); err != nil && ctx.Err() == nil {
				h.log.Error("the hook failed", "url", h.cfg.HookURL, "error", err)
			}
		}
	}
}

// askHook hands on what an operator wants done with a task.
func (h *Hub) askHook(ctx context.Context, p *person, a Asked) error {
	if h.cfg.HookURL == "" {
		return fmt.Errorf("%w: no hook is configured (--hook-url), and the hub itself ends and moves nothing", errUnknown)
	}
	a.Version, a.By = 1, p.Name
	_, err := h.do(p, wire.Act{What: a.What, Node: a.Node, Why: a.Why}, map[string]string{"task": a.Task, "job": a.Job}, func() (string, error) {
		return "the hook took it", h.post(ctx, &a)
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
