package uplink

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/commensal-io/commensal/agent/learned"
	"github.com/commensal-io/commensal/fleet/wire"
)

// heard is what came down that holds also for an agent that starts anew while the hub is away: the kill switch, of which
// jobs protection is off, and which commands were done. Of another hub it means nothing.
type heard struct {
	Hub  string               `json:"hub"`
	Off  wire.Off             `json:"off"`
	Done map[string]time.Time `json:"done,omitempty"`
	// Protection is nil where nobody has turned any off yet.
	Protection *wire.Protection `json:"protection,omitempty"`
}

// heardFile is beside the spool's batches.
const heardFile = "heard"

// notes keeps it on disk, which nobody who notes something waits for.
type notes struct {
	path string
	log  *slog.Logger
	done chan struct{}

	mu    sync.Mutex
	heard heard
	write chan []byte // the newest; nil: closed
}

// openNotes reads what an earlier run heard of this hub. What cannot be read is none.
func openNotes(path, hub string, log *slog.Logger) *notes {
	n := &notes{path: path, log: log, done: make(chan struct{}), write: make(chan []byte, 1)}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &n.heard)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what an earlier run had heard of the hub cannot be read: the hub says it again", "file", path, "error", err)
	}
	if err != nil || n.heard.Hub != hub {
		n.heard = heard{Hub: hub}
	}
	go n.run(n.write)
	return n
}

func (n *notes) run(write <-chan []byte) {
	defer close(n.done)
	for b := range write {
		if err := learned.Replace(n.path, b, 0o600); err != nil {
			n.log.Error("what the hub said is not kept over a restart", "file", n.path, "error", err)
		}
	}
}

// note takes a change over.
func (n *notes) note(change func(h *heard)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.heard)
	b, err := json.Marshal(&n.heard)
	if err != nil || n.write == nil {
		return
	}
	select {
	case <-n.write: // an older one that nobody has written yet
	default:
	}
	n.write <- b
}

// close waits for the disk, though not for ever.
func (n *notes) close() {
	n.mu.Lock()
	if n.write != nil {
		close(n.write)
	}
	n.write = nil
	n.mu.Unlock()
	select {
	case <-n.done:
	case <-time.After(closeWait):
	}
}
