package hub

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// What is learned of a partition's jobs goes with the partition: an object beside that with the marks has it, with which batches are in it and
// whose it is. A hub that gives a partition back leaves it there. One that dies with its folder cannot, and so each hub among several leaves it once in a while,
// and the stream keeps the messages that came since: whoever takes over learns from those, and from none that is in the object.

const (
	// handShare is how many times as long as it takes passes from one leaving to the next: of few jobs it is done with each commit, of many it may take seconds.
	handShare = 30
	// handCommits is how many commits it waits at most: five minutes of them.
	handCommits = 60
	// handBytes is how much of the stream may wait for it.
	handBytes = maxStream / 16
	// handMost bounds an object, as it travels: of a partition that has more only sheets are taken over.
	handMost = 512 << 20
)

// handed is what was left to next hubs.
type handed struct {
	at      time.Time
	took    time.Duration
	all     time.Time // when it was of all partitions
	waiting int64     // bytes of messages since
	owing   bool      // messages are in the store that the stream still has
}

func leftName(part int) string { return fmt.Sprintf("learned-%d", part) }

// handOn leaves what is learned where the next hubs find it, and says whether the stream may drop what is in the store. What operators decided is not in batches,
// and so all partitions are left now and then.
func (h *Hub) handOn(ctx context.Context) (done bool) {
	d := &h.shard.handed
	if len(h.shard.held) == 0 {
		return true
	}
	begin := time.Now()
	if wait := min(handShare*d.took, handCommits*h.cfg.CommitEvery); begin.Sub(d.at) < wait && d.waiting < handBytes {
		return false
	}
	all := begin.Sub(d.all) >= stateEvery
	for part := range h.shard.held {
		if !all && !h.shard.dirty[part] {
			continue
		}
		if err := h.leaveLearned(ctx, part); err != nil {
			h.log.Warn("what is learned is not left for a next hub, which would begin with the specs in force", "partition", part, "error", err)
			break
		}
	}
	d.at, d.took, d.waiting = begin, time.Since(begin), 0
	if all {
		d.all = begin
	}
	return true
}

// leaveLearned leaves what is learned of a partition.
func (h *Hub) leaveLearned(ctx context.Context, part int) error {
	marks, _ := h.store.Marks(part)
	l := learned{Hub: h.shard.me.Hub, Marks: h.shard.withPast(part, marks)}
	h.mu.Lock()
	of, parts := h.learner, h.cfg.Partitions
	if !slices.Contains(h.shard.parts, part) {
		of, parts = h.shard.aside, h.shard.asideParts
	}
	share := spec.New()
	if of != nil {
		share = of.Part(func(k spec.Key) bool { return wire.PartOf(k.Job, parts) == part })
	}
	h.mu.Unlock()
	box, err := h.box(ctx)
	if err != nil {
		return err
	}
	if err := h.putLearned(ctx, box, leftName(part), &l, share); err != nil {
		return fmt.Errorf("object %s: %w", leftName(part), err)
	}
	return nil
}

// putLearned sends what is learned as it is packed. A sending that fails leaves the object as it was before.
func (h *Hub) putLearned(ctx context.Context, box jetstream.ObjectStore, name string, l *learned, share *spec.State) error {
	r, w := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		chunks := bufio.NewWriterSize(&limited{to: w, left: handMost, what: "what is learned of the partition"}, 128<<10) // a message each
		err := l.pack(chunks, share, &h.mu)
		if err == nil {
			err = chunks.Flush()
		}
		w.CloseWithError(err)
	}()
	_, err := box.Put(ctx, jetstream.ObjectMeta{Name: name}, r)
	_ = r.Close() // where it failed, who packs is to end; none is returned
	<-packed      // before anything is learned again
	return err
}

// leftOf returns what the hub before had learned of a partition, and sees to it that nothing is learned from twice. Of a hub that left nothing, or whose word
// cannot be understood, it is nothing. marks are the batches that are stored elsewhere.
func (h *Hub) leftOf(ctx context.Context, box jetstream.ObjectStore, part int, marks map[string][]store.Mark) (*spec.State, error) {
	l, state, from := learned{}, spec.New(), h.shard.held[part].From
	b, err := box.GetBytes(ctx, leftName(part))
	switch {
	case err == nil:
		l, state, err = unpack(bytes.NewReader(b))
	case !errors.Is(err, jetstream.ErrObjectNotFound):
		return nil, fmt.Errorf("what is learned of partition %d: %w", part, err)
	}
	if err == nil && !slices.Contains(from, l.Hub) {
		err = errors.New("it is of another hub than the last: an older program had the partition since")
	}
	if err != nil {
		h.log.Warn("what the hub before had learned is not taken over; the specs in force are", "partition", part, "error", err)
		return spec.New(), nil
	}
	delete(h.shard.past, part)
	if !maps.EqualFunc(l.Marks, marks, slices.Equal) {
		h.shard.past[part] = l.Marks
	}
	return state, nil
}

// takeOver goes on from what was learned of the jobs of some partitions, and, where that was not left, from the sheets in force.
func (h *Hub) takeOver(fresh []int, left []*spec.State, sheets []wire.SpecSheet) {
	in := func(job string, foreign bool) bool {
		p := wire.PartOf(job, h.cfg.Partitions)
		return slices.Contains(fresh, p) && (!foreign || h.shard.held[p].foreign)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	forgotten := h.learner.Forget(func(k spec.Key) bool { return in(k.Job, true) }) // others knew it later than this one
	taken, adopted := 0, 0
	for _, s := range left {
		n, err := h.learner.Take(&h.cfg.Spec, s, func(k spec.Key) bool { return in(k.Job, true) && h.learns(k.Size) })
		if taken += n; err != nil {
			h.log.Error("of what another hub had learned not all can be taken over: sheets in force are in its place", "error", err)
		}
	}
	for i := range sheets {
		if in(sheets[i].Job, false) && h.learns(sheets[i].Size) && h.learner.Adopt(sheets[i]) {
			adopted++
		}
	}
	h.log.Info("partitions are taken up", "partitions", fresh, "jobs_taken_over", taken, "specs_adopted", adopted, "specs_forgotten", forgotten)
}

// touch notes which partitions' jobs a batch was learned from for that nobody divided: these are handed on, too.
func (h *Hub) touch(b *wire.Batch) {
	if b.Part != 0 || h.cfg.Partitions == 1 {
		return
	}
	for i := range b.Tasks {
		if p := wire.PartOf(b.Tasks[i].Job, h.cfg.Partitions); h.shard.held[p] != nil {
			h.shard.dirty[p] = true
		}
	}
}

// learnedFrom reports whether a batch was learned from before it came here.
func (s *shard) learnedFrom(b *wire.Batch) bool {
	return slices.ContainsFunc(s.past[b.Part][b.Node], func(m store.Mark) bool { return m.Spool == b.Spool && m.Seq >= b.Seq })
}

// withPast adds to the batches that this hub has of a partition those that it took over.
func (s *shard) withPast(part int, marks map[string][]store.Mark) map[string][]store.Mark {
	if len(s.past[part]) == 0 {
		return marks
	}
	all := maps.Clone(s.past[part])
	for node, list := range marks {
		for _, m := range list {
			i := slices.IndexFunc(all[node], func(o store.Mark) bool { return o.Spool == m.Spool })
			switch {
			case i < 0:
				all[node] = append(slices.Clip(all[node]), m)
			case all[node][i].Seq < m.Seq:
				all[node] = slices.Clone(all[node])
				all[node][i] = m
			}
		}
	}
	return all
}

// learns reports whether a size is learned apart here; "", all of a job, is.
func (h *Hub) learns(size string) bool { return size == "" || h.cfg.Spec.Sizes > 0 }

// setAside takes the jobs that are other hubs' now, and sizes that are not learned any more, out of the learner.
func (h *Hub) setAside() {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.shard
	if s.share != h.cfg.share() {
		s.aside, s.asideParts, s.share = h.learner.Part(func(k spec.Key) bool { return !h.owns(k.Job) }), s.share[0], h.cfg.share()
	}
	if n := h.learner.Forget(func(k spec.Key) bool { return !h.owns(k.Job) || !h.learns(k.Size) }); n > 0 {
		h.log.Info("jobs of other shards, and sizes that are not asked for, are forgotten", "jobs", n)
	}
}
