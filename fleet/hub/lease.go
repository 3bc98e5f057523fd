package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// What a hub has of a partition only its folder knows. So a partition changes hands when the hub that had it has put all of it away and said so
// (Released), or when an operator says that its folder is lost (--take-over). A hub that only is silent may come back, with batches in its store that it
// had not yet taken off the stream: who read on in its place would store them twice.
//
// A lease is a key of the control bucket, changed by compare-and-swap at each commit. Whether somebody renews it shows in the key's revision, as
// whoever watches sees it: clocks of two machines are never compared. Rejected: leases that run out by themselves, for the reason above.

const (
	leaseVersion = 1
	// leaseSilence is how long a lease must stand still until it may be taken over: six commits. Who holds it renews it before each commit and
	// commits nothing otherwise.
	leaseSilence = 30 * time.Second
	leaveWithin  = 30 * time.Second // what takes longer at the end is left as it is
	renewTries   = 5
)

// lease says who has a partition.
type lease struct {
	Version int    `json:"version"` // of this document: 1
	Hub     string `json:"hub"`     // drawn for a folder
	Run     string `json:"run"`     // drawn by a process
	Name    string `json:"name"`    // machine and folder
	Shard   string `json:"shard"`
	// New: what the holder before left is not taken over yet.
	New bool `json:"new,omitempty"`
	// From are the hubs, while New, that may have left what is learned: the last that had taken it over, and those since.
	From []string `json:"from,omitempty"`
	// Released: all that the stream had of it then is in its holder's store, and off the stream.
	Released bool `json:"released,omitempty"`
}

// held is a lease that this hub has.
type held struct {
	lease
	revision uint64
	foreign  bool // another hub had the partition before, and what is learned of it here is not the latest
}

// sighting is a lease of somebody else, and since when it stands still by our own clock.
type sighting struct {
	revision uint64
	since    time.Time
}

// errDeposed ends the hub: what it has taken in since its last commit is somebody else's.
var errDeposed = errors.New("another hub has taken over")

// before is lease.From for whoever has it next.
func (l *lease) before() []string {
	switch {
	case l.Hub == "":
		return nil
	case !l.New:
		return []string{l.Hub}
	case slices.Contains(l.From, l.Hub):
		return l.From
	}
	return append(slices.Clone(l.From), l.Hub)
}

func leaseKey(part int) string { return fmt.Sprintf("%s.%d", wire.KeyLease, part) }

// claim takes this hub's partitions, all of them or none is read. The first hub also says how the fleet is divided, and for that needs its
// partitions: one that was started as the first by mistake does not get them.
func (h *Hub) claim(ctx context.Context) error {
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return err
	}
	alone := h.t.srv.Load() != nil // nobody else can be in the transport
	h.setAside()
	if !alone { // before anything else: others may wait for it
		if err := h.free(ctx, kv); err != nil {
			return err
		}
	}
	if h.cfg.Shard != 1 {
		if err := h.agree(ctx, kv); err != nil {
			return err
		}
	}
	if !alone {
		if err := h.claimAll(ctx, kv); err != nil {
			return err
		}
		if err := h.takeUp(ctx); err != nil {
			return err
		}
	}
	if h.cfg.Shard == 1 {
		return h.agree(ctx, kv)
	}
	return nil
}

// claimAll takes this hub's partitions, once nobody else has any of them.
func (h *Hub) claimAll(ctx context.Context, kv jetstream.KeyValue) error {
	s := &h.shard
	var taken []error
	before, revision := map[int]lease{}, map[int]uint64{}
	for _, p := range s.parts {
		if s.held[p] != nil {
			continue
		}
		var was lease
		r, err := lookUp(ctx, kv, leaseKey(p), &was)
		if err != nil {
			return err
		}
		if err := h.open(p, &was, r); err != nil {
			taken = append(taken, err) // the others are watched, too
		}
		before[p], revision[p] = was, r
	}
	if len(taken) > 0 {
		return taken[0]
	}
	for _, p := range s.parts {
		was, ok := before[p]
		if !ok {
			continue
		}
		l := &held{lease: s.me, foreign: was.New || was.Hub != "" && was.Hub != s.me.Hub}
		if l.New = was.Hub != s.me.Hub || was.New; l.New {
			l.From = was.before()
		}
		var err error
		if l.revision, err = write(ctx, kv, leaseKey(p), &l.lease, revision[p]); err != nil {
			return err
		}
		if l.foreign && !was.New {
			h.log.Warn("a partition is taken over", "partition", p, "from", was.Name, "released", was.Released)
		}
		s.held[p] = l
	}
	return nil
}

// open says why a partition that somebody had cannot be taken; nil: it can.
func (h *Hub) open(part int, was *lease, revision uint64) error {
	s := &h.shard
	if was.Version > leaseVersion {
		return fmt.Errorf("the lease of partition %d is of version %d; known here: %d", part, was.Version, leaseVersion)
	}
	if revision == 0 {
		return nil
	}
	mine := was.Hub == s.me.Hub // on another machine: the folder was moved, or is there twice
	if was.Released || mine && was.Name == s.me.Name {
		return nil
	}
	if s.seen[part].revision != revision {
		s.seen[part] = sighting{revision, time.Now()}
	}
	still := time.Since(s.seen[part].since) >= h.cfg.LeaseSilence
	switch {
	case still && (mine || h.cfg.TakeOver):
		return nil
	case !still:
		return fmt.Errorf("partition %d is held by the hub at %s (shard %s): this one waits until that one gives it back", part, was.Name, was.Shard)
	}
	return fmt.Errorf("partition %d is held by the hub at %s (shard %s), which is silent: start that one, if only to stop it, or, where its folder is lost for good, this one with --take-over", part, was.Name, was.Shard)
}

// put writes a lease that is held.
func (h *Hub) put(ctx context.Context, kv jetstream.KeyValue, part int, l *held) error {
	var err error
	for range renewTries {
		var revision uint64
		if revision, err = write(ctx, kv, leaseKey(part), &l.lease, l.revision); err == nil {
			l.revision = revision
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
		var now lease
		revision, readErr := lookUp(ctx, kv, leaseKey(part), &now)
		switch {
		case readErr != nil:
			return readErr
		case revision <= l.revision: // a server that is behind
			time.Sleep(100 * time.Millisecond)
		case now.Run == l.Run: // ours, whose answer was lost
			l.revision = revision
		default:
			return fmt.Errorf("partition %d: %w: the one at %s (shard %s)", part, errDeposed, now.Name, now.Shard)
		}
	}
	return err
}

// renew is called before each commit: what is not this hub's any more must not get into its store.
func (h *Hub) renew(ctx context.Context) error {
	if len(h.shard.held) == 0 {
		return nil
	}
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return err
	}
	for _, p := range h.shard.parts {
		if l := h.shard.held[p]; l != nil {
			if err := h.put(ctx, kv, p, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeUp takes over what others left of the partitions that are new here: which batches are stored elsewhere, and the sheets in force. Only
// once that is on disk the lease says so.
func (h *Hub) takeUp(ctx context.Context) error {
	var fresh []int
	for _, p := range h.shard.parts {
		if h.shard.held[p].New {
			fresh = append(fresh, p)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	box, err := h.box(ctx)
	if err != nil {
		return err
	}
	var left []*spec.State
	for _, p := range fresh {
		var marks map[string][]store.Mark
		b, err := box.GetBytes(ctx, boxName(p))
		if err == nil {
			err = json.Unmarshal(b, &marks)
		}
		if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return fmt.Errorf("what is stored elsewhere of partition %d: %w", p, err)
		}
		h.store.Adopt(p, marks)
		if h.shard.held[p].foreign {
			s, err := h.leftOf(ctx, box, p, marks)
			if err != nil {
				return err
			}
			left = append(left, s)
		}
	}
	sheets, err := h.sheets(ctx)
	if err != nil {
		return fmt.Errorf("the specs in force: %w", err)
	}
	h.takeOver(fresh, left, sheets)
	if err := h.store.Commit(); err != nil {
		return err
	}
	_, count := h.store.Committed()
	if err := h.keepState(count); err != nil {
		return err
	}
	for _, p := range fresh { // else who comes after this one would find the word of the hub before, and not know that nobody had it since
		if err := h.leaveLearned(ctx, p); err != nil {
			return err
		}
		h.shard.held[p].From = h.shard.held[p].before() // it may be read again, before the lease says that it was
	}
	for _, p := range fresh {
		h.shard.held[p].New, h.shard.held[p].From = false, nil
	}
	return h.renew(ctx)
}

// sheets returns the sheets in force of all jobs.
func (h *Hub) sheets(ctx context.Context) (list []wire.SpecSheet, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	kv, err := h.t.js.KeyValue(ctx, wire.SpecBucket)
	if err != nil {
		return nil, err
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer w.Stop() //nolint:errcheck // it ends with the context
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return nil, errors.New("the transport went away in the midst of them")
			case e == nil: // those that were there
				return list, nil
			}
			var sh wire.SpecSheet
			if json.Unmarshal(e.Value(), &sh) == nil && sh.Version <= wire.SheetVersion {
				list = append(list, sh)
			}
		}
	}
}

// box is where a hub leaves what the next one of a partition must know: more than a key may hold.
func (h *Hub) box(ctx context.Context) (jetstream.ObjectStore, error) {
	return h.t.js.CreateOrUpdateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: wire.MarksBucket, Storage: jetstream.FileStorage, Replicas: h.cfg.Replicas, Description: "which batches are stored, for a partition's next hub",
	})
}

func boxName(part int) string { return fmt.Sprintf("partition-%d", part) }

// leave puts away what waits, and gives the partitions back, so that another hub can have them.
func (h *Hub) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	if err := h.commit(ctx); err != nil {
		return err
	}
	if len(h.shard.held) == 0 {
		return nil
	}
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	for _, p := range h.shard.parts {
		if l := h.shard.held[p]; l != nil && err == nil {
			err = h.giveBack(ctx, kv, p, l)
		}
	}
	if err != nil {
		h.log.Warn("partitions stay this hub's: another can have them once this one was started and stopped again", "error", err)
	}
	return nil
}

// giveBack takes off the stream what is in the store of a partition, leaves word of which batches that were, and lets others have it.
func (h *Hub) giveBack(ctx context.Context, kv jetstream.KeyValue, part int, l *held) error {
	if !l.New {
		marks, through := h.store.Marks(part)
		if err := h.leaveLearned(ctx, part); err != nil {
			return err
		}
		if err := h.purge(ctx, wire.Up("*", part), through); err != nil {
			return err
		}
		b, err := json.Marshal(marks)
		if err != nil {
			return err
		}
		box, err := h.box(ctx)
		if err != nil {
			return err
		}
		if _, err := box.PutBytes(ctx, boxName(part), b); err != nil {
			return fmt.Errorf("object %s: %w", boxName(part), err)
		}
	}
	l.Released = true
	if err := h.put(ctx, kv, part, l); err != nil {
		return err
	}
	delete(h.shard.held, part)
	delete(h.shard.past, part)
	return nil
}

// free gives back what this folder still has of an earlier share, whose process did not come to it.
func (h *Hub) free(ctx context.Context, kv jetstream.KeyValue) error {
	s := &h.shard
	if s.freed {
		return nil
	}
	s.freed = true
	for p := range wire.MaxParts {
		if slices.Contains(s.parts, p) {
			continue
		}
		var was lease
		revision, err := lookUp(ctx, kv, leaseKey(p), &was)
		if err == nil && was.Hub == s.me.Hub && !was.Released {
			if h.open(p, &was, revision) != nil { // the same folder, elsewhere
				s.freed = false
				continue
			}
			l := &held{lease: s.me, revision: revision}
			l.New, l.From = was.New, was.From
			if err = h.giveBack(ctx, kv, p, l); err == nil {
				h.log.Info("a partition that is not this hub's any more is given back", "partition", p)
			}
		}
		if err != nil {
			s.freed = false
			return err
		}
	}
	if s.freed {
		s.aside = nil
	}
	return nil
}
