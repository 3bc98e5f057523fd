package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// From the stream to the store and the learner. The stream keeps a message until a commit has it; which messages those are
// the store knows, and so the stream's consumer acknowledges nothing: it is made anew where the store wants to go on.

const (
	fetchMost    = 512             // messages at once
	commitRows   = 300_000         // rows that wait at most
	commitEvery  = 5 * time.Second // a batch waits at most, where the configuration does not say
	tidyEvery    = 10 * time.Minute
	stateEvery   = 5 * time.Minute // what was learned is kept
	failedWait   = 5 * time.Second // after a commit that failed: a full disk
	inactive     = 2 * time.Minute // a consumer that nobody asks is gone
	maxIncidents = 2000            // that the pages show; the store has all
)

// ingest runs until the context ends.
func (h *Hub) ingest(ctx context.Context) error {
	for {
		err := h.follow(ctx)
		if ctx.Err() != nil {
			return h.commit(context.WithoutCancel(ctx))
		}
		h.log.Error("batches are not read: the stream keeps them", "error", err)
		h.trouble(err)
		select {
		case <-ctx.Done():
		case <-time.After(failedWait):
		}
	}
}

// follow reads the stream from where the store is.
func (h *Hub) follow(ctx context.Context) error {
	stream, err := h.t.js.Stream(ctx, wire.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", wire.Stream, err)
	}
	from := h.store.From(stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano))
	if first := stream.CachedInfo().State.FirstSeq; first > from && from > 1 {
		h.log.Warn("the stream lost messages before they were read", "from", from, "first", first)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: inactive,
	})
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", wire.Stream, err)
	}
	h.trouble(nil)
	next, committed := from, time.Now()
	for ctx.Err() == nil {
		msgs, err := consumer.Fetch(fetchMost, jetstream.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			return err
		}
		for m := range msgs.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if seq := meta.Sequence.Stream; seq > next && next > from {
				return fmt.Errorf("message %d came after %d: going back", seq, next-1)
			} else if seq >= next {
				next = seq + 1
				h.take(seq, strings.TrimPrefix(m.Subject(), wire.UpPrefix), m.Data())
			}
		}
		if err := msgs.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if now := time.Now(); h.store.Pending() >= commitRows || now.Sub(committed) >= h.cfg.CommitEvery {
			if err := h.commit(ctx); err != nil {
				return err
			}
			committed = now
		}
		if now := time.Now(); now.Sub(h.calculated).Nanoseconds() >= h.cfg.Spec.PeriodNsec/10 {
			h.calculated = now
			h.publish(ctx)
		}
	}
	return ctx.Err()
}

// take takes one message in.
func (h *Hub) take(seq uint64, node string, data []byte) {
	b, err := codec.Decode(data)
	if err == nil {
		err = b.Check(node, time.Now().UnixMilli())
	}
	if err != nil {
		h.store.Put(seq, nil)
		h.mu.Lock()
		n := h.node(node)
		n.Refused++
		first := n.Why == ""
		n.Why = err.Error()
		h.mu.Unlock()
		if first {
			h.log.Warn("a batch is refused; further ones of this node are counted", "node", node, "error", err)
		}
		return
	}
	fresh := h.store.Put(seq, b)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.node(node)
	if !fresh {
		n.Doubles++
		return
	}
	n.Seen, n.Platform, n.Program, n.Boot, n.Rollout = time.Now(), b.Platform, b.Program, b.Boot, b.Rollout
	n.Batches++
	n.Lost += b.Lost
	n.Samples += uint64(b.Samples.Len())
	if b.Samples.Len() > 0 {
		n.Tasks = len(b.Tasks)
	}
	h.learner.Add(&h.cfg.Spec, b)
	for _, inc := range b.Incidents {
		h.incident(node, inc)
		h.offend(node, inc, time.Now().UnixNano())
	}
}

// node returns what is known of a node. The transport lets only those publish that are enrolled.
func (h *Hub) node(name string) *NodeStatus {
	n := h.nodes[name]
	if n == nil {
		n = &NodeStatus{Name: name}
		h.nodes[name] = n
	}
	return n
}

// incident keeps the latest ones for the pages.
func (h *Hub) incident(node string, inc *model.Incident) {
	for i := len(h.incidents) - 1; i >= 0; i-- {
		if h.incidents[i].Node == node && h.incidents[i].ID == inc.ID {
			h.incidents[i].Incident = inc
			return
		}
	}
	h.node(node).Incidents++
	h.incidents = append(h.incidents, NodeIncident{Node: node, Incident: inc})
	if len(h.incidents) > maxIncidents {
		h.incidents = append(h.incidents[:0], h.incidents[len(h.incidents)-maxIncidents:]...)
	}
}

// commit puts what waits into the store, and lets the stream forget it.
func (h *Hub) commit(ctx context.Context) error {
	_, before := h.store.Committed()
	if err := h.store.Commit(); err != nil {
		return err
	}
	through, count := h.store.Committed()
	if count == before {
		return nil
	}
	if time.Since(h.kept) >= stateEvery {
		h.kept = time.Now()
		if err := h.keepState(count); err != nil {
			return err
		}
	}
	if time.Since(h.tidied) >= tidyEvery {
		h.tidied = time.Now()
		h.tidy(h.tidied, h.keptCount)
	}
	stream, err := h.t.js.Stream(ctx, wire.Stream)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSequence(through+1))
	}
	if err != nil {
		h.log.Warn("what is in the store stays in the stream for now", "through", through, "error", err)
	}
	return nil
}

// tidy merges files and removes old ones.
func (h *Hub) tidy(now time.Time, count uint64) {
	merged, err := h.store.Compact(now, count)
	if err != nil {
		h.log.Error("files of the store are not merged", "error", err)
	}
	gone, err := h.store.Expire(now, h.cfg.Keep)
	if err != nil {
		h.log.Error("old files of the store are not removed", "error", err)
	}
	if merged+gone > 0 {
		h.log.Info("the store is tidied", "merged", merged, "removed", gone)
	}
}
