package hub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/fleet/wire"
)

// A disk that fills up has store and embedded transport on it. The transport never tries again once a write of a stream failed, and tells a
// sender nothing. So batches are refused, which their nodes keep, while there still is room for everything else: commits, which empty the stream, the
// audit and the kill switch. Where somebody else takes the last room too, the server is started anew once there is some again. (To close and open its
// streams only, which it can do as well, races with its own connections.)

const (
	reserve     = 256 << 20 // more than nodes send between two looks
	diskLook    = time.Second
	reopenEvery = 30 * time.Second // where that does not help: a stream that is damaged
)

// watchDisk looks after the disk until the context ends.
func (h *Hub) watchDisk(ctx context.Context) error {
	if h.t.srv.Load() == nil {
		return nil // those disks are somebody else's
	}
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for {
		err := h.tendDisk(ctx)
		if ctx.Err() != nil {
			return nil
		}
		h.mu.Lock()
		was := h.short
		h.short = ""
		if err != nil {
			h.short = err.Error()
		}
		is := h.short
		h.mu.Unlock()
		switch {
		case is == "" && was != "":
			h.log.Info("batches are taken again")
		case was == "" && is != "":
			h.log.Error("no batches are taken: nodes keep them", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// tendDisk does what the disk's room asks for. An error says why nodes' batches are not taken.
func (h *Hub) tendDisk(ctx context.Context) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(h.t.dir(), &fs); err != nil {
		return fmt.Errorf("hub: the room at %s: %w", h.t.dir(), err)
	}
	free := int64(fs.Bavail) * fs.Bsize //nolint:gosec // of one disk
	least, most := h.cfg.Reserve, int64(maxStream)
	if h.t.most == 1 {
		least *= 2 // so that it is not opened for a moment
	}
	short := free < least
	stuck := h.t.stuck()
	if stuck != nil && !short && time.Since(h.t.reopened) >= reopenEvery {
		h.log.Warn("the transport is started anew: there is room again", "error", stuck)
		h.t.reopened = time.Now()
		if stuck = h.t.start(); stuck == nil {
			stuck = h.t.stuck()
		}
	}
	if stuck != nil {
		return stuck
	}
	if short {
		most = 1
	}
	if err := h.t.bound(ctx, most); err != nil {
		return fmt.Errorf("hub: stream %s: %w", wire.Stream, err)
	}
	if short {
		return fmt.Errorf("the disk is full: %d MB are free at %s; batches are taken again from %d MB on", free>>20, h.cfg.Dir, 2*h.cfg.Reserve>>20)
	}
	return nil
}

// wrong says why batches are not taken or not read; "": they are.
func (h *Hub) wrong() string {
	h.mu.Lock()
	short, problem := h.short, h.problem
	h.mu.Unlock()
	if short != "" {
		return short
	}
	if err := h.t.stuck(); err != nil && problem == "" {
		return err.Error()
	}
	return problem
}

func (t *transport) dir() string { return filepath.Join(t.cfg.Dir, "transport") }

// stuck says which stream takes nothing any more since a write failed, or was not opened; nil: none, or it is somebody else's server.
func (t *transport) stuck() error {
	srv := t.srv.Load()
	if srv == nil {
		return nil
	}
	if !srv.Running() {
		return errors.New("the transport is being started")
	}
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type != server.HealthzErrorConn { // which a busy machine is enough for
			return errors.New("the transport cannot write: " + e.Error)
		}
	}
	return nil
}

// bound has the stream take so many bytes and refuse what is beyond, as a full one does. What is there stays: only what is new is discarded.
func (t *transport) bound(ctx context.Context, most int64) error {
	if t.most == most {
		return nil
	}
	t.most = 0
	cfg := t.stream()
	cfg.MaxBytes = most
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := t.js.UpdateStream(ctx, cfg)
	if err == nil {
		t.most = most
	}
	return err
}
