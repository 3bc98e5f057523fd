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
// audit and the kill switch. Where somebody else takes the last room too, the transport is opened anew once there is some again.

const (
	reserve     = 256 << 20 // more than nodes send between two looks
	diskLook    = time.Second
	reopenEvery = 30 * time.Second // where that does not help: a stream that is damaged
)

// watchDisk looks after the disk until the context ends.
func (h *Hub) watchDisk(ctx context.Context) error {
	if h.t.srv == nil {
		return nil // those disks are somebody else's
	}
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for ctx.Err() == nil {
		err := h.tendDisk(ctx)
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
		case <-tick.C:
		}
	}
	return nil
}

// tendDisk does what the disk's room asks for. An error says why nodes' batches are not taken.
func (h *Hub) tendDisk(ctx context.Context) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(h.t.dir(), &fs); err != nil {
		return fmt.Errorf("hub: the room at %s: %w", h.t.dir(), err)
	}
	free := int64(fs.Bavail) * fs.Bsize //nolint:gosec // of one disk
	least := h.cfg.Reserve
	if h.t.closed {
		least *= 2 // so that it is not opened for a moment
	}
	short := free < least
	stuck := h.t.stuck()
	if stuck != nil && !short && time.Since(h.t.reopened) >= reopenEvery {
		h.log.Warn("the transport is opened anew: there is room again", "error", stuck)
		if stuck = h.t.reopen(); stuck == nil {
			stuck = h.t.stuck()
		}
	}
	if stuck != nil {
		return stuck
	}
	if h.t.closed != short {
		if err := h.t.setClosed(ctx, short); err != nil {
			return fmt.Errorf("hub: stream %s: %w", wire.Stream, err)
		}
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
	if t.srv == nil {
		return nil
	}
	for _, e := range t.srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type != server.HealthzErrorConn { // which a busy machine is enough for
			return errors.New("the transport cannot write: " + e.Error)
		}
	}
	return nil
}

// reopen closes the streams and reads them from the disk, as a restart does. Connections stay.
func (t *transport) reopen() error {
	t.reopened = time.Now()
	err := t.srv.ShutdownJetStream()
	if err == nil {
		err = t.srv.EnableJetStream(&server.JetStreamConfig{StoreDir: t.dir(), MaxStore: maxTransport}) // the rest is as in options
	}
	if err != nil {
		return fmt.Errorf("hub: the transport: %w", err)
	}
	return nil
}

// setClosed has the stream refuse batches, as a full one does, or take them again.
func (t *transport) setClosed(ctx context.Context, closed bool) error {
	cfg := t.stream()
	if closed {
		cfg.MaxBytes = 1 // what is there stays: only what is new is discarded
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := t.js.UpdateStream(ctx, cfg)
	if err == nil {
		t.closed = closed
	}
	return err
}
