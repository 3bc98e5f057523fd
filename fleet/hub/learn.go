package hub

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
)

// What the learner knows outlives the hub: it is kept once in a while, with how many messages are in it, and what came after that
// is learned again from the store.

// learned is how the file begins. The jobs of the state follow one by one: as one value they would take as much memory again as they do in the learner,
// and twice that while it grows. In version 1 the state has them.
type learned struct {
	Version int
	Count   uint64 // of the store's messages that are in it
	State   *spec.Kept
	Jobs    int // that follow
	// Share is which part of the fleet's jobs it is of: partitions, shards, and the number of this one.
	Share [3]int
	// Past are the batches that this hub has to store and not to learn from, by partition and node: it took over what was learned from them.
	Past map[int]map[string][]store.Mark
	// Hub says who left it, and Marks which batches are in it by node, where it is a partition's for its next hub.
	Hub   string
	Marks map[string][]store.Mark
}

const (
	// packWindow is small, since there may be a file a partition at each commit.
	packWindow = 1 << 20
	// packSome is how much is encoded at once, with the lock: fifty jobs with all signals, hundreds with few.
	packSome = 256 << 10
)

// pack writes what is learned, and has the lock while it reads of that, not while it writes. Nobody may learn meanwhile: that is, who ingests calls it. What
// operators decide of a job changes that job alone, and is in what is packed or not, as if it were done after it.
func (l learned) pack(w io.Writer, of *spec.State, lock sync.Locker) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	return errors.Join(l.encode(z, of, lock), z.Close())
}

func (l learned) encode(w io.Writer, of *spec.State, lock sync.Locker) error {
	var some bytes.Buffer
	var kept spec.KeptJob
	enc, n := gob.NewEncoder(&some), 0
	lock.Lock()
	defer lock.Unlock()
	write := func() error {
		lock.Unlock()
		defer lock.Lock()
		_, err := some.WriteTo(w)
		return err
	}
	l.Version, l.State, l.Jobs = spec.KeptVersion, of.Keep(), len(of.Jobs)
	err := enc.Encode(l)
	for k, j := range of.Jobs {
		if err == nil && some.Len() >= packSome {
			err = write()
		}
		if err != nil {
			return err
		}
		j.KeepIn(&kept, k)
		err = enc.Encode(&kept)
		n++
	}
	if err == nil {
		err = write()
	}
	if err == nil && n != l.Jobs {
		err = fmt.Errorf("of %d jobs %d are written: somebody learned meanwhile", l.Jobs, n)
	}
	return err
}

func (h *Hub) learnedFile() string { return filepath.Join(h.cfg.Dir, "learned") }

// keepState writes what is learned. It is called by who ingests, when all that was learned is in the store.
func (h *Hub) keepState(count uint64) error {
	l := learned{Count: count, Share: h.shard.share, Past: h.shard.past}
	if err := store.ReplaceWith(h.learnedFile(), func(w io.Writer) error { return l.pack(w, h.learner, &h.mu) }); err != nil {
		return fmt.Errorf("hub: what is learned cannot be kept: %w", err)
	}
	h.keptCount, h.shard.unlearned = count, false
	return nil
}

// recall reads what was learned, and learns the rest again.
func (h *Hub) recall() error {
	if err := store.Unended(h.learnedFile()); err != nil {
		return err
	}
	l, state := learned{}, spec.New()
	f, err := os.Open(h.learnedFile())
	if err == nil {
		l, state, err = unpack(f)
		_ = f.Close() // reading only
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		aside := h.learnedFile() + ".damaged"
		h.log.Error("what was learned cannot be read: it is put aside and learned again from the store", "aside", aside, "error", err)
		if err := os.Rename(h.learnedFile(), aside); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
		l, state = learned{}, spec.New()
	}
	h.learner, h.keptCount, h.shard.past = state, l.Count, l.Past
	if h.shard.past == nil {
		h.shard.past = map[int]map[string][]store.Mark{}
	}
	if l.Share[0] > 0 { // what it has of partitions that are another hub's now it leaves to that one
		h.shard.share = l.Share
	}
	again := 0
	err = h.store.Replay(l.Count, func(b *wire.Batch) {
		h.learn(b)
		again += b.Samples.Len()
	})
	if err == nil && again > 0 {
		h.log.Info("learned again from the store", "samples", again)
	}
	return err
}

// unpack reads what was packed, by this program or an older one.
func unpack(r io.Reader) (l learned, state *spec.State, err error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return learned{}, nil, err
	}
	defer z.Close()
	dec := gob.NewDecoder(z)
	l = learned{State: &spec.Kept{}}
	if err := dec.Decode(&l); err != nil {
		return learned{}, nil, err
	}
	if l.Version > spec.KeptVersion {
		return learned{}, nil, fmt.Errorf("it is of version %d; known here: %d", l.Version, spec.KeptVersion)
	}
	state = l.State.Recall(l.Version)
	for range l.Jobs {
		j := &spec.KeptJob{}
		if err := dec.Decode(j); err != nil {
			return learned{}, nil, err
		}
		state.Recall(j, l.Version)
	}
	return l, state, nil
}

// published counts what specs took, since the hub's start.
type published struct {
	sheets                  uint64
	calculating, publishing time.Duration
}

// giveBackEvery is how often memory that is not in use goes back to the system, at most: after a calculation, and once all is published, much of it is free, and by itself the runtime keeps as much as was once
// needed while batches came.
const giveBackEvery = 30 * time.Second

// calculateOnce calculates what is due each tenth of a period; while sheets wait to be sent each period, since looking through all jobs takes time that sending needs.
func (h *Hub) calculateOnce(now time.Time) {
	every := h.cfg.Spec.PeriodNsec / 10
	if h.waiting() > 0 {
		every = h.cfg.Spec.PeriodNsec
	}
	if now.Sub(h.calculated).Nanoseconds() >= every {
		h.calculated = now
		h.calculate()
	}
}

// calculate calculates what is due; publish sends it down. Of a job whose sheet is not yet sent nothing is due: of many jobs sending takes minutes, in which what came of
// others is calculated, and no longer takes the room of what is not.
func (h *Hub) calculate() {
	h.mu.Lock()
	begin := time.Now()
	changed, held := h.learner.Changed(&h.cfg.Spec, begin.UnixNano())
	h.unsent = slices.Grow(h.unsent, len(changed))
	for _, k := range changed {
		j := h.learner.Jobs[k]
		j.Waits = true
		h.unsent = append(h.unsent, unsent{k, j.Revision, begin.UnixNano()})
	}
	h.published.calculating += time.Since(begin)
	h.mu.Unlock()
	for i := range held {
		h.log.Warn("a spec is held back: `commensal-hub spec accept` publishes it", "job", held[i].Spec.Job, "platform", held[i].Spec.Platform, "size", held[i].Spec.Size, "why", held[i].Why)
	}
	if len(changed) > 0 {
		h.releaseMemory()
	}
}

// releaseMemory gives memory that is not in use back to the system, once in a while.
func (h *Hub) releaseMemory() {
	h.mu.Lock()
	due := time.Since(h.gaveBack) >= giveBackEvery
	if due {
		h.gaveBack = time.Now()
	}
	h.mu.Unlock()
	if due {
		debug.FreeOSMemory()
	}
}

// publish sends what was calculated, beside the taking of batches: of many jobs it takes minutes, in which a hub must commit and renew its leases. What is left
// when ctx ends stays for the next time.
func (h *Hub) publish(ctx context.Context) {
	some, begin := false, time.Now()
	for ctx.Err() == nil {
		sh, ok, left := h.sheet()
		if left == 0 {
			break
		}
		if !ok {
			h.sent(1)
			continue
		}
		if err := h.send(ctx, &sh); err != nil {
			if ctx.Err() != nil {
				break
			}
			h.log.Error("specs are not published; those after the next calculation will be", "job", sh.Job, "platform", sh.Platform, "not_published", left, "error", err)
			h.sent(left) // the transport is away
			break
		}
		h.sent(1)
		some, begin = true, h.went(begin)
	}
	if some && h.waiting() == 0 {
		h.releaseMemory()
	}
}

// waiting is how many sheets are to be sent.
func (h *Hub) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.unsent)
}

// went counts a sheet that was sent, and the time since the one before.
func (h *Hub) went(before time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.published.sheets++
	h.published.publishing += now.Sub(before)
	return now
}

// sent forgets the first sheets, and what they hold. Their jobs may be calculated again.
func (h *Hub) sent(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.unsent[:n] {
		if j := h.learner.Jobs[h.unsent[i].key]; j != nil {
			j.Waits = false
		}
	}
	clear(h.unsent[:n])
	if h.unsent = h.unsent[n:]; len(h.unsent) == 0 {
		h.unsent = nil
	}
}

// unsent is a sheet that is to be published, which is made when its turn has come: thousands may wait for minutes.
type unsent struct {
	key      spec.Key
	revision uint64
	wallNsec int64 // when it was calculated
}

// sheet makes the first of those that are left, where it still is what is to be published: an operator may have gone back to another one meanwhile.
func (h *Hub) sheet() (sh wire.SpecSheet, ok bool, left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if left = len(h.unsent); left == 0 {
		return sh, false, 0
	}
	u := &h.unsent[0]
	if j := h.learner.Jobs[u.key]; j != nil && j.Revision == u.revision {
		return j.Sheet(u.key, u.wallNsec), true, left
	}
	return sh, false, left
}

// send puts a sheet where nodes listen. Its revision comes after all that were there: a hub that lost what it had learned would else
// begin again at one.
func (h *Hub) send(ctx context.Context, sh *wire.SpecSheet) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	kv, key := h.t.specs, wire.SizedKey(sh.Platform, sh.Job, sh.Size)
	old, err := kv.Get(ctx, key)
	switch {
	case err == nil:
		var was wire.SpecSheet
		if json.Unmarshal(old.Value(), &was) == nil && was.Revision >= sh.Revision {
			sh.Revision = was.Revision + 1
			h.mu.Lock()
			if j := h.learner.Jobs[spec.KeyOf(sh)]; j != nil {
				j.Revision = sh.Revision
			}
			h.mu.Unlock()
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return err
	}
	b, err := json.Marshal(sh)
	if err != nil {
		return err
	}
	if _, err = kv.Put(ctx, key, b); err == nil {
		h.store.PutSheet(sh)
	}
	return err
}

// Publish puts a sheet where nodes listen, whatever was learned: for measurements.
func (h *Hub) Publish(ctx context.Context, sh *wire.SpecSheet) error { return h.send(ctx, sh) }

// sheetsOf returns the sheets of a job that were published, the oldest first.
func (h *Hub) sheetsOf(ctx context.Context, k spec.Key) ([]wire.SpecSheet, error) {
	history, err := h.t.specs.History(ctx, wire.SizedKey(k.Platform, k.Job, k.Size))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []wire.SpecSheet
	for _, e := range history {
		var sh wire.SpecSheet
		if json.Unmarshal(e.Value(), &sh) == nil {
			out = append(out, sh)
		}
	}
	return out, nil
}
