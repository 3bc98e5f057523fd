package hub

import (
	"context"
	"time"

	"github.com/commensal-io/commensal/fleet/bucket"
)

// The store in a bucket as well. Nothing waits for it: a bucket that is away costs room in the folder, and no batch.

const (
	bucketEvery = time.Minute      // from one round to the next ...
	bucketWait  = 10 * time.Minute // ... and at most, while rounds fail
	bucketSays  = time.Hour        // while it stays as it is
)

// openBucket prepares the mirror, where there is a bucket.
func (h *Hub) openBucket() {
	if h.cfg.Bucket != nil {
		h.mirror = bucket.New(h.store, h.cfg.Bucket, bucket.Config{Keep: h.cfg.Keep, KeepLocal: h.cfg.KeepLocal})
	}
}

// fillBucket copies what is settled until the context ends.
func (h *Hub) fillBucket(ctx context.Context) error {
	if h.mirror == nil {
		return nil
	}
	every := h.cfg.BucketEvery
	wait, said, before := every, time.Time{}, bucket.Status{}
	for {
		err := h.mirror.Round(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		st := h.mirror.Status()
		if err == nil {
			wait = every
			if before.Problem != "" {
				h.log.Info("the bucket has what it should again", "bucket", st.Bucket)
			}
			said = time.Time{}
		} else {
			wait = min(2*wait, max(every, bucketWait))
			if time.Since(said) >= bucketSays {
				said = time.Now()
				h.log.Warn("the bucket lacks files: they stay in the folder, until they are older than the store keeps days", "bucket", st.Bucket, "files", st.WaitingFiles, "bytes", st.WaitingBytes, "keep", h.cfg.Keep, "error", err)
			}
		}
		if len(st.Gone) > len(before.Gone) {
			h.log.Error("somebody else deleted files in the bucket, and the folder has them no more", "bucket", st.Bucket, "files", st.Gone)
		}
		before = st
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// bucketStatus is nil where there is no bucket.
func (h *Hub) bucketStatus() *bucket.Status {
	if h.mirror == nil {
		return nil
	}
	st := h.mirror.Status()
	return &st
}
