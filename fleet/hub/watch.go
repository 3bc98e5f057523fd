package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// What is counted of a roll-out outlives the hub: it lies in the transport, so that it is there after SIGKILL, and for another hub that takes this
// one's place. It is put there before each commit: what is counted and what is stored go together, and a batch that is read again because it was not
// stored yet tells of incidents that are known.

// watch is what is known of nodes since a change was made or widened.
type watch struct {
	Version int             `json:"version"` // of this document: 1
	ID      string          `json:"id"`
	Percent int             `json:"percent"`
	Overlay string          `json:"overlay"`
	Shards  int             `json:"shards"` // among how many hubs jobs were divided then: with others the count is of other jobs
	Since   time.Time       `json:"since"`
	Nodes   map[string]*had `json:"nodes"`
	// Before is what was counted until then of the same change, or of the one before it; nil: there was none.
	Before *earlier `json:"before,omitempty"`
	// Observed is since when enough of the nodes have it in force; zero: they have not.
	Observed time.Time `json:"observed"`

	known   map[string]int64 // by node, when the latest incident was opened that an earlier process has counted
	changed bool             // since it was put away
	loaded  bool
}

// had is a node since then.
type had struct {
	Incidents uint64 `json:"n,omitempty"`
	Latest    int64  `json:"l,omitempty"` // when its latest incident was opened, by its own clock
	Rollout   string `json:"r,omitempty"` // as it says in its batches
	Heard     bool   `json:"h,omitempty"` // since then; else there is only Latest, of before
}

// earlier is what nodes had while a change stood as it did before: with it is compared what all of them have.
type earlier struct {
	Nodes   int     `json:"nodes"`
	Usual   float64 `json:"incidents"`
	Seconds float64 `json:"seconds"`
}

// earlierLeast is for how much of the time before incidents are allowed from the start (s), so that a few that come together are no rate.
const earlierLeast = 3600

// expected is how many incidents so many nodes may have in a time (s); ok is false once it is longer than was counted before.
func (e *earlier) expected(nodes int, seconds float64) (n float64, ok bool) {
	if e == nil || e.Nodes == 0 || seconds > e.Seconds {
		return 0, false
	}
	return e.Usual / float64(e.Nodes) * float64(nodes) * max(seconds, min(e.Seconds, earlierLeast)) / e.Seconds, true
}

// earlier is what is counted until now; nil where nobody was heard.
func (w *watch) earlier(now time.Time) *earlier {
	var had []uint64
	for _, n := range w.Nodes {
		if n.Heard {
			had = append(had, n.Incidents)
		}
	}
	if len(had) == 0 || !now.After(w.Since) {
		return nil
	}
	return &earlier{Nodes: len(had), Usual: usual(had), Seconds: now.Sub(w.Since).Seconds()}
}

const watchVersion = 1

// is reports whether it is of a change as it stands.
func (w *watch) is(r *wire.Rollout) bool {
	return w.ID == r.ID && w.Percent == r.Percent && w.Overlay == r.Overlay
}

func (w *watch) node(name string) *had {
	n := w.Nodes[name]
	if n == nil {
		n = &had{}
		w.Nodes[name] = n
	}
	return n
}

// watchAnew begins to count. It is called with the lock.
func (h *Hub) watchAnew(r *wire.Rollout) {
	now := time.Now().UTC()
	w := watch{Version: watchVersion, ID: r.ID, Percent: r.Percent, Overlay: r.Overlay, Shards: h.cfg.Shards, Since: now, Nodes: map[string]*had{}, Before: h.watched.earlier(now), known: h.watched.known, changed: true, loaded: h.watched.loaded}
	for name, latest := range w.known {
		w.node(name).Latest = latest
	}
	for i := range h.incidents {
		n := w.node(h.incidents[i].Node)
		n.Latest = max(n.Latest, h.incidents[i].OpenedWall)
	}
	h.watched = w
}

// hear notes what a node says of the change, and incident one that this process has not heard of. Both are called with the lock.
func (w *watch) hear(node, rollout string) {
	if w.ID == "" {
		return
	}
	n := w.node(node)
	w.changed = w.changed || !n.Heard || n.Rollout != rollout
	n.Heard, n.Rollout = true, rollout
}

func (w *watch) incident(node string, inc *model.Incident) {
	if w.ID == "" || w.known[node] != 0 && inc.OpenedWall <= w.known[node] {
		return
	}
	n := w.node(node)
	n.Incidents, n.Latest, w.changed = n.Incidents+1, max(n.Latest, inc.OpenedWall), true
}

// watchKey is where this hub's count lies. A key of two words is nothing that nodes can read.
func (h *Hub) watchKey() string { return fmt.Sprintf("%s.%d", wire.KeyRollout, h.cfg.Shard) }

// keepWatch puts away what is counted. That it cannot be must not keep batches out of the store.
func (h *Hub) keepWatch(ctx context.Context) {
	h.mu.Lock()
	w := &h.watched
	var b []byte
	var err error
	if w.changed && w.loaded {
		b, err = json.Marshal(w)
		w.changed = false
	}
	h.mu.Unlock()
	if b == nil && err == nil {
		return
	}
	var kv jetstream.KeyValue
	if err == nil {
		kv, err = h.t.js.KeyValue(ctx, wire.ControlBucket)
	}
	if err == nil {
		var z *zstd.Encoder
		if z, err = zstd.NewWriter(nil); err == nil { // of tens of thousands of nodes it is longer than a message may be
			_, err = kv.Put(ctx, h.watchKey(), z.EncodeAll(b, nil))
		}
	}
	if err != nil {
		h.log.Warn("what is counted of a roll-out is not kept: a restart would begin to count anew", "error", err)
		h.mu.Lock()
		h.watched.changed = true
		h.mu.Unlock()
	}
}

// recallWatch goes on from what this process's predecessor counted. It is called once this hub has its partitions, and before it takes a batch.
func (h *Hub) recallWatch(ctx context.Context) error {
	h.mu.Lock()
	loaded := h.watched.loaded
	h.mu.Unlock()
	if loaded {
		return nil
	}
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return err
	}
	w := watch{}
	e, err := kv.Get(ctx, h.watchKey())
	switch {
	case err == nil:
		err = unpackWatch(e.Value(), &w)
	case errors.Is(err, jetstream.ErrKeyNotFound):
		err = nil
	default:
		return err
	}
	if err != nil {
		h.log.Error("what was counted of a roll-out cannot be read: it is counted anew", "error", err)
		w = watch{}
	}
	r, err := h.rollout(ctx)
	if err != nil {
		return err
	}
	w.known = map[string]int64{}
	for name, n := range w.Nodes {
		w.known[name] = n.Latest
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.loaded, h.watched.loaded = true, true
	if w.Shards == h.cfg.Shards && w.Nodes != nil {
		h.watched = w
	} else {
		h.watched.known = w.known
	}
	h.countRollout(&r) // it begins with one that was made after the last commit: what is read again may tell of incidents under it
	return nil
}

func unpackWatch(b []byte, w *watch) error {
	z, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return err
	}
	defer z.Close()
	if b, err = z.DecodeAll(b, nil); err != nil {
		return err
	}
	if err := json.Unmarshal(b, w); err != nil {
		return err
	}
	if w.Version > watchVersion {
		return fmt.Errorf("it %w: %d, known here: %d", wire.ErrNewer, w.Version, watchVersion)
	}
	return nil
}
