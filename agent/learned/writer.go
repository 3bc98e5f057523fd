package learned

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/commensal-io/commensal/engine"
)

// Every is the least time between two writes: what is lost in a crash is learned again.
const Every = time.Minute

// lastWait bounds how long an agent that stops waits for the disk.
const lastWait = 5 * time.Second

// Writer writes the file beside the agent's loop, which never waits for it.
type Writer struct {
	path    string
	program string
	under   Under
	log     *slog.Logger

	in   chan engine.Restored
	done chan struct{}
}

// NewWriter starts a writer; program is the version of the program.
func NewWriter(path, program string, under Under, log *slog.Logger) *Writer {
	w := &Writer{path: path, program: program, under: under, log: log, in: make(chan engine.Restored, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Offer hands in what is to be written. It reports whether it was taken: not while the one
// before waits for a slow disk.
func (w *Writer) Offer(r engine.Restored) bool {
	select {
	case w.in <- r:
		return true
	default:
		return false
	}
}

// Close writes the last state, and waits for it, though not for ever.
func (w *Writer) Close(last engine.Restored) {
	timeout := time.NewTimer(lastWait)
	defer timeout.Stop()
	select {
	case w.in <- last:
	case <-timeout.C:
		w.log.Warn("what was learned last is lost: the disk is too slow", "file", w.path)
		return
	}
	close(w.in)
	select {
	case <-w.done:
	case <-timeout.C:
		w.log.Warn("what was learned last may be lost: the disk is too slow", "file", w.path)
	}
}

func (w *Writer) run() {
	defer close(w.done)
	var written []byte
	failing := false
	for r := range w.in {
		b, err := (&content{Program: w.program, Under: w.under, State: r}).format()
		if err == nil && bytes.Equal(b, written) {
			continue
		}
		if err == nil {
			err = Replace(w.path, b, 0o600)
		}
		if err == nil {
			written = b
		} else if !failing {
			w.log.Error("what was learned cannot be kept; it is tried again each minute", "file", w.path, "error", err)
		}
		failing = err != nil
	}
}

// Replace writes a file whole or not at all.
func Replace(path string, b []byte, mode os.FileMode) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // a full disk wants its room back
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	defer dir.Close() //nolint:errcheck // read only
	return dir.Sync()
}
