package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// segments is into how many pieces max_bytes is cut: when it is reached one piece of
// the oldest history goes.
const segments = 8

// Header says who wrote a segment and with which parameters.
type Header struct {
	Version  int           `json:"version"`
	Program  string        `json:"program"` // version of the agent
	Boot     string        `json:"boot"`
	Profile  string        `json:"profile"`
	WallNsec int64         `json:"wall_nsec"` // when the segment was begun
	Params   engine.Params `json:"params"`
	// What samples hold, in the order of the frames; since version 3.
	TaskCounters []Column `json:"task_counters,omitempty"`
	NodeCounters []Column `json:"node_counters,omitempty"`
}

// outputFrame is what a tick led to.
type outputFrame struct {
	Seq uint64 `json:"seq"`
	*engine.Output
}

// Writer appends to the newest segment and drops the oldest. It is not safe for
// concurrent use.
type Writer struct {
	dir      string
	maxBytes int64
	header   Header
	file     *os.File
	written  int64
	coder    coder
	buf      []byte
}

// NewWriter makes a writer for a folder, which is made when it is absent.
func NewWriter(dir string, maxBytes int64, h Header) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	h.Version = Version
	h.TaskCounters, h.NodeCounters = columnsOf(model.TaskCounters()), columnsOf(model.NodeCounters())
	return &Writer{dir: dir, maxBytes: maxBytes, header: h}, nil
}

// Due reports whether the next tick must begin a new segment, for which Begin wants the
// engine's state as it is before that tick.
func (w *Writer) Due() bool { return w.file == nil || w.written >= w.maxBytes/segments }

// Begin starts a segment with a checkpoint.
func (w *Writer) Begin(s *engine.State, wallNsec int64) error {
	if err := w.Close(); err != nil {
		return err
	}
	h := w.header
	h.WallNsec = wallNsec
	name, err := w.nextName(wallNsec)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	w.file, w.written, w.coder = f, 0, coder{}
	b := append(w.buf[:0], magic...)
	for _, part := range []struct {
		kind byte
		v    any
	}{{frameHeader, &h}, {frameCheckpoint, s}} {
		j, err := json.Marshal(part.v)
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		var at int
		b, at = openFrame(b, part.kind)
		b = append(b, j...)
		closeFrame(b, at)
	}
	if err := w.write(b); err != nil {
		return err
	}
	w.buf = nil // a checkpoint is far larger than a tick: let it go
	return w.prune()
}

// nextName names a segment after the wall clock, and behind every other segment even
// when that clock was set back: names are the segments' order.
func (w *Writer) nextName(wallNsec int64) (string, error) {
	files, err := Segments(w.dir)
	if err != nil {
		return "", err
	}
	at := max(0, wallNsec)
	if len(files) > 0 {
		last, _ := strings.CutSuffix(filepath.Base(files[len(files)-1]), Suffix)
		if n, err := strconv.ParseInt(last, 10, 64); err == nil {
			at = max(at, n+1)
		}
	}
	return filepath.Join(w.dir, fmt.Sprintf("%019d%s", at, Suffix)), nil
}

// heldBytes is how much of pulses that led to nothing waits for the next tick that matters.
const heldBytes = 8 << 10

// Tick appends one tick and what it led to, in one write. Pulses that led to nothing are
// written with the next reading or decision, about a second later: twenty writes a second
// would be a good part of what pulses cost. A crash loses those that wait.
func (w *Writer) Tick(in *engine.Input, out *engine.Output) error {
	if w.file == nil {
		return errors.New("record: no segment was begun")
	}
	b, at := openFrame(w.buf, frameTick)
	output := len(out.Changes) > 0 || len(out.Decisions) > 0 || len(out.Incidents) > 0
	b, err := w.coder.encode(b, in, output)
	if err != nil {
		return err // w.buf still ends with the frame before
	}
	closeFrame(b, at)
	if in.Params != nil {
		w.header.Params.Take(in.Params) // those of the next segment
	}
	if output {
		j, err := json.Marshal(outputFrame{in.Seq, out})
		if err != nil {
			return fmt.Errorf("record: %w", err)
		}
		b, at = openFrame(b, frameOutput)
		b = append(b, j...)
		closeFrame(b, at)
	}
	w.buf = b
	if !output && in.Snapshot == nil && in.Pulse != nil && len(b) < heldBytes {
		return nil
	}
	return w.flush()
}

// flush writes the frames that wait.
func (w *Writer) flush() error {
	b := w.buf
	w.buf = w.buf[:0]
	if len(b) == 0 {
		return nil
	}
	return w.write(b)
}

// write writes whole frames. After a failure the segment may end inside a frame, and what
// came behind it could not be read: the next tick begins a new one.
func (w *Writer) write(b []byte) error {
	n, err := w.file.Write(b)
	w.written += int64(n)
	if err != nil {
		w.file.Close() //nolint:errcheck // the first error counts
		w.file = nil
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// prune drops the oldest segments until the rest fits with room for one more.
func (w *Writer) prune() error {
	files, err := Segments(w.dir)
	if err != nil {
		return err
	}
	total := w.maxBytes / segments
	for i := len(files) - 1; i >= 0; i-- {
		st, err := os.Stat(files[i])
		if err != nil {
			continue // gone already
		}
		total += st.Size()
		if total > w.maxBytes && files[i] != w.file.Name() {
			if err := os.Remove(files[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("record: %w", err)
			}
		}
	}
	return nil
}

// Close closes the segment.
func (w *Writer) Close() error {
	if w.file == nil {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Segments lists the segments of a folder, oldest first; a path that is a file is the
// only segment.
func Segments(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if !st.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), Suffix) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}
