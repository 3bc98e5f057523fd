package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/fleet/wire/codec"
	"github.com/commensal-io/commensal/model"
)

// From the stream to the store and the learner. The stream keeps a message until a commit has it; which messages those are
// the store knows, and so the stream's consumer acknowledges nothing: it is made anew where the store wants to go on.

const (
	fetchMost    = 512      // messages at once ...
	fetchBytes   = 32 << 20 // ... and what they take as they travel: after an outage many may wait that are as large as they may be
	fetchWait    = 500 * time.Millisecond
	commitRows   = 300_000         // rows that wait at most ...
	commitBytes  = 128 << 20       // ... and what they take, where their texts are long
	commitEvery  = 5 * time.Second // a batch waits at most, where the configuration does not say
	tidyEvery    = 10 * time.Minute
	stateEvery   = 5 * time.Minute // what was learned is kept
	inactive     = 2 * time.Minute // a consumer that nobody asks is gone
	maxIncidents = 2000            // that the pages show; the store has all ...
	maxShown     = 32 << 20        // ... and their bytes as JSON: 2,000 of three rounds with ten suspects are 30 MB
	maxRefusal   = 300             // characters of a reason that is kept of each node
)

// ingest runs until the context ends, or another hub has what this one reads.
func (h *Hub) ingest(ctx context.Context) error {
	defer h.tidying.Lock() // until it is over, for the folder may be somebody else's then
	for {
		err := h.follow(ctx)
		if ctx.Err() != nil {
			return h.leave(context.WithoutCancel(ctx))
		}
		if h.trouble(err) {
			h.log.Error("batches are not read: the stream keeps them", "error", err)
		}
		if errors.Is(err, errDeposed) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(h.cfg.CommitEvery): // a full disk, or a partition that somebody else has
		}
	}
}

// follow reads the stream from where the store is.
func (h *Hub) follow(ctx context.Context) error {
	stream, err := h.t.js.Stream(ctx, wire.Stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", wire.Stream, err)
	}
	from := h.store.From(stream.CachedInfo().Created.UTC().Format(time.RFC3339Nano), h.shard.parts...)
	if err := h.claim(ctx); err != nil {
		return err
	}
	if err := h.recallWatch(ctx); err != nil {
		return err
	}
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: inactive,
	}
	if first := stream.CachedInfo().State.FirstSeq; h.cfg.Shards == 1 && first > from && from > 1 { // else it may have been another hub's
		h.log.Warn("the stream lost messages before they were read", "from", from, "first", first)
	}
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", wire.Stream, err)
	}
	h.trouble(nil)
	h.settled = time.Now()
	at := place{next: from}
	ctx, stop := context.WithCancel(ctx)
	sender := make(chan struct{}, 1) // there is something in it while no sheets are on their way
	sender <- struct{}{}
	defer func() {
		stop()
		<-sender
	}()
	for ctx.Err() == nil {
		if err := h.read(ctx, consumer, &at); err != nil {
			return err
		}
		if time.Since(h.settled) >= h.cfg.CommitEvery {
			if err := h.settle(ctx); err != nil {
				return err
			}
		}
		h.calculateOnce(time.Now())
		select {
		case <-sender:
			go func() {
				h.publish(ctx)
				sender <- struct{}{}
			}()
		default:
		}
	}
	return ctx.Err()
}

// read takes what the stream has, as much as is fetched at once.
func (h *Hub) read(ctx context.Context, consumer jetstream.Consumer, at *place) error {
	msgs, err := consumer.Fetch(fetchMost, jetstream.FetchMaxBytes(fetchBytes), jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return err
	}
	for m := range msgs.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		fresh, err := at.step(meta.Sequence)
		if err != nil {
			return err
		}
		if fresh && h.reads(m.Subject()) {
			h.take(meta.Sequence.Stream, m.Subject(), m.Data())
		}
		if h.store.Pending() >= commitRows || h.pending >= commitBytes { // what is fetched at once may be many times as much when it is read
			if err := h.settle(ctx); err != nil {
				return err
			}
		}
	}
	if err := msgs.Error(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// settle commits, and sees to it that this hub may go on.
func (h *Hub) settle(ctx context.Context) error {
	h.settled = time.Now()
	if err := h.commit(ctx); err != nil {
		return err
	}
	h.pending = 0
	return h.stillAgree(ctx)
}

// place is how far a consumer is: the last message that it counted, and the stream's next one. The stream has gaps where other hubs' messages
// are; what the consumer counts has none.
type place struct{ counted, next uint64 }

// step says whether a message is new. One that is missing before it is an error.
func (p *place) step(at jetstream.SequencePair) (fresh bool, err error) {
	if at.Consumer > p.counted+1 {
		return false, fmt.Errorf("delivery %d (message %d) came after %d (message %d): going back", at.Consumer, at.Stream, p.counted, p.next-1)
	}
	p.counted = max(p.counted, at.Consumer)
	if at.Stream < p.next {
		return false, nil
	}
	p.next = at.Stream + 1
	return true, nil
}

// take takes one message in.
func (h *Hub) take(seq uint64, subject string, data []byte) {
	node, part, err := wire.ParseUp(subject)
	h.shard.dirty[part] = true
	h.shard.handed.waiting += int64(len(data))
	var b *wire.Batch
	if err == nil {
		b, err = codec.Decode(data)
	}
	if err == nil {
		b.Part = part
		err = b.Check(node, time.Now().UnixMilli())
	}
	if err != nil {
		h.store.Put(seq, nil)
		h.mu.Lock()
		n := h.node(node)
		n.Refused++
		first := n.Why == ""
		n.Why = fmt.Sprintf("%.*s", maxRefusal, err.Error())
		why := n.Why
		h.mu.Unlock()
		if first {
			h.log.Warn("a batch is refused; further ones of this node are counted", "node", node, "error", why)
		}
		return
	}
	fresh := h.store.Put(seq, b)
	if fresh {
		h.pending += b.Bytes
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.node(node)
	if !fresh {
		n.Doubles++
		return
	}
	n.Seen, n.Platform, n.Program, n.Boot, n.Rollout = time.Now(), b.Platform, b.Program, b.Boot, b.Rollout
	h.watched.hear(node, b.Rollout)
	n.Batches++
	n.Lost += b.Lost
	n.Samples += uint64(b.Samples.Len())
	if b.Samples.Len() > 0 {
		if n.tasks == nil {
			n.tasks = map[int]int{}
		}
		n.Tasks += len(b.Tasks) - n.tasks[part]
		n.tasks[part] = len(b.Tasks)
	}
	if h.shard.learnedFrom(b) {
		h.shard.unlearned = true
	} else {
		h.learn(b)
		h.touch(b)
	}
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
	text, err := json.Marshal(inc)
	if err != nil {
		h.log.Error("an incident is not shown", "node", node, "error", err) // it was JSON
		return
	}
	x := NodeIncident{Node: node, Incident: inc, bytes: len(text)}
	h.shown += x.bytes
	at := slices.IndexFunc(h.incidents, func(o NodeIncident) bool { return o.Node == node && o.ID == inc.ID })
	if at >= 0 {
		h.shown -= h.incidents[at].bytes
		h.incidents[at] = x
	} else {
		h.node(node).Incidents++
		h.watched.incident(node, inc)
		h.incidents = append(h.incidents, x)
	}
	n := 0
	for ; len(h.incidents)-n > maxIncidents || h.shown > maxShown; n++ {
		h.shown -= h.incidents[n].bytes
	}
	h.incidents = slices.Delete(h.incidents, 0, n) // which forgets them, too
}

// commit puts what waits into the store, and lets the stream forget it.
func (h *Hub) commit(ctx context.Context) error {
	if err := h.renew(ctx); err != nil {
		return err
	}
	h.keepWatch(ctx)
	_, before := h.store.Committed()
	if err := h.store.Commit(); err != nil {
		return err
	}
	through, count := h.store.Committed()
	idle := count == before && !h.shard.handed.owing
	if !idle && (time.Since(h.kept) >= stateEvery || h.shard.unlearned) {
		h.kept = time.Now()
		if err := h.keepState(count); err != nil {
			return err
		}
	}
	h.tidyBeside(time.Now(), h.keptCount)
	if idle {
		return nil
	}
	if h.shard.handed.owing = !h.handOn(ctx); h.shard.handed.owing {
		return nil
	}
	subjects := []string{""} // all
	if h.cfg.Shards > 1 {
		subjects = subjects[:0]
		for part := range h.shard.dirty {
			subjects = append(subjects, wire.Up("*", part))
		}
	}
	for _, subject := range subjects {
		if err := h.purge(ctx, subject, through); err != nil {
			h.log.Warn("what is in the store stays in the stream for now", "through", through, "error", err)
			h.shard.handed.owing = true
			return nil
		}
	}
	clear(h.shard.dirty)
	return nil
}

// purge lets the stream forget the messages of a subject, "" of all, through one of them.
func (h *Hub) purge(ctx context.Context, subject string, through uint64) error {
	if through == 0 {
		return nil // nothing is stored of it
	}
	stream, err := h.t.js.Stream(ctx, wire.Stream)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSequence(through+1), jetstream.WithPurgeSubject(subject))
}

// tidyBeside tidies the store from time to time. That waits for queries, and batches must not.
func (h *Hub) tidyBeside(now time.Time, count uint64) {
	if now.Sub(h.tidied) < h.cfg.TidyEvery || !h.tidying.TryLock() {
		return // not yet, or it is still at it
	}
	h.tidied = now
	go func() {
		defer h.tidying.Unlock()
		h.tidy(now, count)
	}()
}

// tidy merges files and removes old ones.
func (h *Hub) tidy(now time.Time, count uint64) {
	if h.mirror != nil {
		h.mirror.Learned(count)
	}
	merged, err := h.store.Compact(now, count)
	if err != nil {
		h.log.Error("files of the store are not merged", "error", err)
	}
	gone, failed := h.store.Expire(now, h.cfg.Keep)
	if failed != nil {
		h.log.Error("old files of the store are not removed", "error", failed)
	}
	if merged+gone > 0 {
		h.log.Info("the store is tidied", "merged", merged, "removed", gone)
	}
	if err == nil && failed == nil {
		h.wellTidied.Store(time.Now().Unix())
	}
}
