package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A change of parameters goes to a part of the fleet first. While it is there the hub compares how many incidents its nodes have with how many the
// others have in the same time, and ends it when that is clearly more: nobody has to look.

const (
	rolloutLook = 5 * time.Second
	// haltFewest, haltTimes and haltSigmas are what is too much: so many incidents at least, so many times what the others' rate lets
	// expect, and so many standard deviations of a Poisson count above it.
	haltFewest = 5
	haltTimes  = 2
	haltSigmas = 3
	maxOverlay = 16 << 10
	maxRefused = 100 // nodes that are named with their reason
)

// watch is what is known of incidents since a change was made.
type watch struct {
	id      string
	percent int
	since   time.Time
	base    map[string]uint64 // incidents of each node then
}

// RolloutStatus is how a change stands.
type RolloutStatus struct {
	wire.Rollout
	InForce  int               `json:"in_force"`          // nodes that have it
	Refusing int               `json:"refusing"`          // nodes that refuse it ...
	Refused  map[string]string `json:"refused,omitempty"` // ... and why, of some of them
	Inside   uint64            `json:"incidents_inside"`  // since it was made or widened, of nodes that have it
	Outside  uint64            `json:"incidents_outside"`
	// Outsiders are the nodes to compare with; with none the change is not halted.
	Outsiders int     `json:"nodes_outside"`
	Expected  float64 `json:"expected_inside"` // by the rate outside
}

// rollout returns the change that is there; its ID is "" where there is none.
func (h *Hub) rollout(ctx context.Context) (wire.Rollout, error) {
	var r wire.Rollout
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return r, err
	}
	_, err = lookUp(ctx, kv, wire.KeyRollout, &r)
	return r, err
}

func (h *Hub) putRollout(ctx context.Context, r *wire.Rollout) error {
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, wire.KeyRollout, b)
	return err
}

// setRollout makes a change, widens the one that is there, or ends it (percent 0).
func (h *Hub) setRollout(ctx context.Context, p *person, overlay string, percent int, why string) (*RolloutStatus, error) {
	if percent < 0 || percent > 100 || len(overlay) > maxOverlay {
		return nil, fmt.Errorf("%w: %d %% and %d bytes; expected 0 to 100, and at most %d", errBad, percent, len(overlay), maxOverlay)
	}
	now, err := h.rollout(ctx)
	if err != nil {
		return nil, err
	}
	if overlay == "" {
		overlay = now.Overlay
	}
	r := wire.Rollout{Version: wire.RolloutVersion, ID: now.ID, Percent: percent, Overlay: overlay, By: p.Name, Why: why, WallNsec: time.Now().UnixNano()}
	switch {
	case percent == 0:
		r.ID, r.Overlay = "", ""
	case overlay == "":
		return nil, fmt.Errorf("%w: there is no change to widen", errBad)
	case now.ID == "" || now.Halted != "" || now.Overlay != overlay:
		r.ID = newID()
	}
	_, err = h.do(p, wire.Act{What: "rollout", Why: why}, map[string]any{"id": r.ID, "percent": percent, "overlay": r.Overlay}, func() (string, error) {
		return "done", h.putRollout(ctx, &r)
	})
	if err != nil {
		return nil, err
	}
	return h.rolloutStatus(ctx)
}

// rolloutStatus counts.
func (h *Hub) rolloutStatus(ctx context.Context) (*RolloutStatus, error) {
	r, err := h.rollout(ctx)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.countRollout(&r), nil
}

// countRollout is called with the lock.
func (h *Hub) countRollout(r *wire.Rollout) *RolloutStatus {
	st := &RolloutStatus{Rollout: *r, Refused: map[string]string{}}
	if r.ID == "" {
		return st
	}
	if w := &h.watched; w.id != r.ID || w.percent != r.Percent {
		*w = watch{id: r.ID, percent: r.Percent, since: time.Now(), base: map[string]uint64{}}
		for name, n := range h.nodes {
			w.base[name] = n.Incidents
		}
	}
	others := 0
	for name, n := range h.nodes {
		if n.Seen.Before(h.watched.since) {
			continue // not heard since: it says nothing
		}
		more := n.Incidents - h.watched.base[name]
		switch {
		case n.Rollout == r.ID:
			st.InForce++
			st.Inside += more
		case len(n.Rollout) > 0 && n.Rollout[0] == '!':
			if st.Refusing++; len(st.Refused) < maxRefused {
				st.Refused[name] = n.Rollout[1:]
			}
			others++
			st.Outside += more
		default:
			others++
			st.Outside += more
		}
	}
	if others > 0 {
		st.Expected = float64(st.Outside) / float64(others) * float64(st.InForce)
	}
	st.Outsiders = others
	return st
}

// tooMany says why a change is to be ended; "" where it is not.
func (st *RolloutStatus) tooMany() string {
	k := float64(st.Inside)
	if st.ID == "" || st.Halted != "" || st.Outsiders == 0 || st.Inside < haltFewest || k <= haltTimes*st.Expected || k <= st.Expected+haltSigmas*math.Sqrt(st.Expected+1) {
		return ""
	}
	return fmt.Sprintf("%d incidents on the %d nodes that have it, where the others' rate lets expect %.1f", st.Inside, st.InForce, st.Expected)
}

// watchRollout ends a change that does harm.
func (h *Hub) watchRollout(ctx context.Context) error {
	tick := time.NewTicker(h.cfg.RolloutLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		st, err := h.rolloutStatus(ctx)
		if err != nil {
			continue // the transport is away: nobody gets a change either
		}
		why := st.tooMany()
		if why == "" {
			continue
		}
		h.log.Error("a roll-out is halted", "id", st.ID, "why", why)
		r := st.Rollout
		r.Halted, r.WallNsec = why, time.Now().UnixNano()
		_, err = h.do(&person{Name: "hub", Role: Admin}, wire.Act{What: "rollout-halted", Why: why}, map[string]any{"id": r.ID, "percent": r.Percent}, func() (string, error) {
			return "done", h.putRollout(ctx, &r)
		})
		if err != nil && ctx.Err() == nil {
			h.log.Error("a roll-out that does harm could not be halted", "error", err)
		}
	}
}
