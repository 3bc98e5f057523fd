package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A change of policies goes to a part of the fleet first. While it is there the hub compares how many incidents its nodes have with how many the
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

// RolloutStatus is how a change stands. What it counts is since it was made, widened or began to enforce.
type RolloutStatus struct {
	wire.Rollout
	Enforces []string          `json:"enforces"`          // where the overlay says `mode: enforce`, as "hard_cap"; "": at the top
	Meant    int               `json:"nodes_meant"`       // that were heard and are of its share
	InForce  int               `json:"in_force"`          // nodes that have it
	Refusing int               `json:"refusing"`          // nodes that refuse it ...
	Refused  map[string]string `json:"refused,omitempty"` // ... and why, of some of them
	Inside   uint64            `json:"incidents_inside"`  // of nodes that have it
	Outside  uint64            `json:"incidents_outside"`
	// Outsiders are the nodes to compare with; with none it is what the nodes had before, for as long as that was counted.
	Outsiders int     `json:"nodes_outside"`
	Expected  float64 `json:"expected_inside"` // by the rate outside, or before
	// ObservedSeconds is for how long enough of the nodes have had it; of a change that enforces nothing.
	ObservedSeconds float64 `json:"observed_seconds"`

	before bool // Expected is by the rate before
}

// enough reports whether what these nodes observe speaks for the share.
func (st *RolloutStatus) enough() bool {
	return st.InForce > 0 && float64(st.InForce) >= observeShare*float64(st.Meant)
}

// RolloutChange is what an administrator wants changed.
type RolloutChange struct {
	Overlay     string `json:"overlay"`      // "": that of the change that is there
	Percent     int    `json:"percent"`      // of the nodes; 0 ends the change
	Observe     bool   `json:"observe"`      // what the overlay enforces is only observed
	SkipObserve bool   `json:"skip_observe"` // it need not have been observed before
	Why         string `json:"why"`
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

// setRollout makes a change, widens the one that is there, has it enforce what it observed, or ends it (percent 0).
func (h *Hub) setRollout(ctx context.Context, p *person, q *RolloutChange) (*RolloutStatus, error) {
	if q.Percent < 0 || q.Percent > 100 || len(q.Overlay) > maxOverlay {
		return nil, fmt.Errorf("%w: %d %% and %d bytes; expected 0 to 100, and at most %d", errBad, q.Percent, len(q.Overlay), maxOverlay)
	}
	now, err := h.rollout(ctx)
	if err != nil {
		return nil, err
	}
	r := wire.Rollout{Version: wire.RolloutVersion, Percent: q.Percent, By: p.Name, Why: q.Why, WallNsec: time.Now().UnixNano()}
	var enforces []string
	if q.Percent > 0 {
		if enforces, err = h.next(&r, &now, q); err != nil {
			return nil, err
		}
	}
	detail := map[string]any{"id": r.ID, "percent": r.Percent, "overlay": r.Overlay, "enforces": enforces, "observed_percent": r.Observed, "skip_observe": q.SkipObserve}
	_, err = h.do(p, wire.Act{What: "rollout", Why: q.Why}, detail, func() (string, error) {
		return "done", h.putRollout(ctx, &r)
	})
	if err != nil {
		return nil, err
	}
	return h.rolloutStatus(ctx)
}

// next fills in what is to come after the change that is there, and says what of it enforces.
func (h *Hub) next(r, now *wire.Rollout, q *RolloutChange) (enforces []string, err error) {
	text := cmp.Or(q.Overlay, now.Overlay)
	if text == "" {
		return nil, fmt.Errorf("%w: there is no change to widen", errBad)
	}
	o, err := readOverlay(text)
	if err == nil && q.Observe {
		o, err = readOverlay(o.observed)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	s := h.seenOf(now, o)
	if err := h.mayEnforce(o, q.Percent, &s); err != nil && !q.SkipObserve {
		return nil, err
	}
	if r.ID, r.Observed = now.ID, s.percent; !s.same {
		r.ID = newID()
	}
	r.Overlay = o.text
	return o.enforces, nil
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
	st := &RolloutStatus{Rollout: *r, Enforces: []string{}, Refused: map[string]string{}}
	w := &h.watched
	if r.ID == "" {
		*w = watch{known: w.known, loaded: w.loaded}
		return st
	}
	if o, err := readOverlay(r.Overlay); err == nil { // else nodes refuse it as well
		st.Enforces = append(st.Enforces, o.enforces...)
	}
	if !w.is(r) {
		h.watchAnew(r)
	}
	var outside []uint64
	for name, n := range w.Nodes {
		if !n.Heard {
			continue // not since: it says nothing
		}
		if r.Takes(name) {
			st.Meant++
		}
		if n.Rollout == r.ID {
			st.InForce++
			st.Inside += n.Incidents
			continue
		}
		if len(n.Rollout) > 0 && n.Rollout[0] == '!' {
			if st.Refusing++; len(st.Refused) < maxRefused {
				st.Refused[name] = n.Rollout[1:]
			}
		}
		st.Outsiders++
		st.Outside += n.Incidents
		outside = append(outside, n.Incidents)
	}
	if st.Outsiders > 0 {
		st.Expected = usual(outside) / float64(st.Outsiders) * float64(st.InForce)
	} else {
		st.Expected, st.before = w.Before.expected(st.InForce, time.Since(w.Since).Seconds())
	}
	if len(st.Enforces) == 0 && st.enough() {
		if w.Observed.IsZero() {
			w.Observed, w.changed = time.Now().UTC(), true
		}
		st.ObservedSeconds = max(0, time.Since(w.Observed).Seconds())
	}
	return st
}

// usual adds up the incidents of nodes that do not have a change, each as at most twice the middle one's, or ten: else one of them, broken or lying, would make
// any harm look like what is to be expected. One that has the change and tells of many may end it: that is the safe side.
func usual(nodes []uint64) (sum float64) {
	slices.Sort(nodes)
	most := max(10, 2*nodes[len(nodes)/2])
	for _, n := range nodes {
		sum += float64(min(n, most))
	}
	return sum
}

// tooMany says why a change is to be ended; "" where it is not.
func (st *RolloutStatus) tooMany() string {
	k := float64(st.Inside)
	if st.ID == "" || st.Halted != "" || st.Outsiders == 0 && !st.before || st.Inside < haltFewest || k <= haltTimes*st.Expected || k <= st.Expected+haltSigmas*math.Sqrt(st.Expected+1) {
		return ""
	}
	whose := "the others' rate lets"
	if st.before {
		whose = "what nodes had before it was changed or widened lets"
	}
	return fmt.Sprintf("%d incidents on the %d nodes that have it, where %s expect %.1f", st.Inside, st.InForce, whose, st.Expected)
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
		off, err := h.off(ctx)
		h.mu.Lock()
		h.halted, h.switchedOff = st.Halted != "", err == nil && off.Off.Off || err != nil && h.switchedOff
		h.mu.Unlock()
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
