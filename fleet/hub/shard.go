package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// Several hubs share a fleet by job: a node divides its batches (wire.Batch.Split), each hub reads the partitions that are its own out of the one
// stream, stores them, and learns and publishes what is normal of their jobs. Who has which partition: lease.go.

// shard is this hub's share. What changes in it belongs to the goroutine that ingests.
type shard struct {
	me    lease
	parts []int // never change
	held  map[int]*held
	seen  map[int]sighting
	dirty map[int]bool // partitions with messages that the stream may drop
	freed bool         // what this folder had and has no more is given back
	share [3]int       // which part of the fleet's jobs is learned: partitions, shards, number
	// aside is what an earlier process had learned in another share, until the partitions are given back, and asideParts of how many they are.
	aside      *spec.State
	asideParts int
	past       map[int]map[string][]store.Mark // batches that were learned from elsewhere, by partition and node
	// unlearned: a batch was stored since what is learned was kept, and not learned from.
	unlearned bool
	handed    handed
}

// checkShard says what is wrong with a share, and fills in what is not said.
func (c *Config) checkShard() error {
	c.Partitions, c.Shards, c.Shard = cmp.Or(c.Partitions, 1), cmp.Or(c.Shards, 1), cmp.Or(c.Shard, 1)
	c.LeaseSilence = cmp.Or(c.LeaseSilence, leaseSilence)
	switch {
	case c.Partitions < 1 || c.Partitions > wire.MaxParts:
		return fmt.Errorf("%d partitions; expected 1 to %d", c.Partitions, wire.MaxParts)
	case c.Shards < 1 || c.Shard < 1 || c.Shard > c.Shards:
		return fmt.Errorf("shard %s; expected I/N with I from 1 to N", c.shardName())
	case c.Shards > c.Partitions:
		return fmt.Errorf("%d hubs share %d partitions; expected as many partitions at least", c.Shards, c.Partitions)
	case c.Partitions > 1 && c.NATS == "":
		return errors.New("several partitions or hubs need NATS servers beside them (--nats)")
	}
	return nil
}

func (c *Config) shardName() string { return fmt.Sprintf("%d/%d", c.Shard, c.Shards) }

// shardOf is the number, from 1 on, of the shard that a job is of.
func (c *Config) shardOf(job string) int { return wire.PartOf(job, c.Partitions)%c.Shards + 1 }

func (h *Hub) owns(job string) bool { return inShare(h.cfg.share(), job) }

// share is partitions, shards and number of a hub.
func (c *Config) share() [3]int { return [3]int{c.Partitions, c.Shards, c.Shard} }

// inShare reports whether a job is of a share.
func inShare(share [3]int, job string) bool {
	return share[1] <= 1 || wire.PartOf(job, share[0])%share[1] == share[2]-1
}

// openShard reads, or draws, who this hub is.
func (h *Hub) openShard() error {
	path := filepath.Join(h.cfg.Dir, "hub.id")
	id, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id = []byte(newID() + "\n")
		err = store.Replace(path, id)
	}
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	dir, err := filepath.Abs(h.cfg.Dir)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	h.shard = shard{
		me:   lease{Version: leaseVersion, Hub: strings.TrimSpace(string(id)), Run: newID(), Name: host + ":" + dir, Shard: h.cfg.shardName()},
		held: map[int]*held{}, seen: map[int]sighting{}, dirty: map[int]bool{}, share: h.cfg.share(), past: map[int]map[string][]store.Mark{},
	}
	for p := h.cfg.Shard - 1; p < h.cfg.Partitions; p += h.cfg.Shards {
		h.shard.parts = append(h.shard.parts, p)
		h.shard.dirty[p] = true // an earlier process may have ended before it told the stream
	}
	return nil
}

// reads reports whether a message is of a partition that this hub may have. Hubs that share a fleet read all messages: a consumer that filters has the server look
// through all nodes' subjects for each.
func (h *Hub) reads(subject string) bool {
	_, part, _ := wire.ParseUp(subject) // what cannot be understood is partition 0's
	return part%h.cfg.Shards == h.cfg.Shard-1
}

// learn learns of the jobs that are this hub's. Others are in a batch that was divided for another number of partitions, or by nobody: it is stored
// here, and what is normal of them is learned elsewhere, from later ones.
func (h *Hub) learn(b *wire.Batch) {
	share := h.shard.share
	if !slices.ContainsFunc(b.Tasks, func(t wire.Task) bool { return !inShare(share, t.Job) }) {
		h.learner.Add(&h.cfg.Spec, b)
		return
	}
	for _, part := range b.Split(share[0]) {
		if part.Part%share[1] == share[2]-1 {
			h.learner.Add(&h.cfg.Spec, part)
		}
	}
}

// lookUp reads a key into v; its revision is 0 where there is none.
func lookUp(ctx context.Context, kv jetstream.KeyValue, key string, v any) (revision uint64, err error) {
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("key %s: %w", key, err)
	}
	if err := json.Unmarshal(e.Value(), v); err != nil {
		return 0, fmt.Errorf("key %s: %w", key, err)
	}
	return e.Revision(), nil
}

// write puts v over the revision of a key that is known; 0: there must be none.
func write(ctx context.Context, kv jetstream.KeyValue, key string, v any, revision uint64) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	if revision, err = kv.Update(ctx, key, b, revision); err != nil {
		return 0, fmt.Errorf("key %s: %w", key, err)
	}
	return revision, nil
}

// stillAgree is asked after each commit by those who do not say it.
func (h *Hub) stillAgree(ctx context.Context) error {
	if h.cfg.Shard == 1 {
		return nil
	}
	kv, err := h.t.js.KeyValue(ctx, wire.ControlBucket)
	if err != nil {
		return err
	}
	return h.agree(ctx, kv)
}

// agree looks whether this hub was started for the fleet as it is divided; the first hub divides it anew.
func (h *Hub) agree(ctx context.Context, kv jetstream.KeyValue) error {
	var now wire.Layout
	revision, err := lookUp(ctx, kv, wire.KeyLayout, &now)
	switch {
	case err != nil:
		return err
	case now.Partitions == h.cfg.Partitions && now.Shards == h.cfg.Shards:
		return nil
	case h.cfg.Shard != 1 && revision == 0:
		return errors.New("nobody has said yet how the fleet is divided: shard 1 does, once it runs")
	case h.cfg.Shard != 1:
		return fmt.Errorf("the fleet has %d partitions and %d shards, as %s says, and this hub was started for %d and %d; shard 1 says how many there are", now.Partitions, now.Shards, now.By, h.cfg.Partitions, h.cfg.Shards)
	case now.Partitions > h.cfg.Partitions:
		return fmt.Errorf("the fleet has %d partitions; fewer (%d) are not possible, because nodes may still hold batches of the others", now.Partitions, h.cfg.Partitions)
	}
	now = wire.Layout{Version: wire.LayoutVersion, Partitions: h.cfg.Partitions, Shards: h.cfg.Shards, By: h.shard.me.Name, WallNsec: time.Now().UnixNano()}
	if _, err := write(ctx, kv, wire.KeyLayout, &now, revision); err != nil {
		return err
	}
	h.log.Info("the fleet is divided", "partitions", h.cfg.Partitions, "shards", h.cfg.Shards)
	return nil
}
