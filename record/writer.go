package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// segments is into how many pieces max_bytes is cut: when it is reached one piece of
// the oldest history goes. A segment's checkpoint is not counted in its piece, for one that is
// larger than a piece would be due anew at every tick.
const segments = 8

// checkpointShare is the part of max_bytes that one checkpoint may take: a quarter leaves room
// for two whole segments, the one that is written and the one before.
const checkpointShare = 4

// After a failure the next segment is begun a second later, and each time twice as much later: a
// segment costs a checkpoint, and on a full disk all the names that its folder still takes.
const (
	minRetryNsec = 1e9
	maxRetryNsec = 300e9
)

// Sentinels of a writer.
var (
	// ErrSlow: more waits to be written than is kept in memory.
	ErrSlow = errors.New("the disk is too slow")
	// ErrCheckpoint: the engine's state is too large for the record.
	ErrCheckpoint = errors.New("checkpoint is too large")
	errNoSegment  = errors.New("record: no segment was begun")
)

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
	// DomainCounters are those of a task in a domain of resctrl, since version 6.
	DomainCounters []Column `json:"domain_counters,omitempty"`
}

// outputFrame is what a tick led to.
type outputFrame struct {
	Seq uint64 `json:"seq"`
	*engine.Output
}

// Writer writes a record: it encodes, decides when a segment ends, and hands bytes to the disk.
// It is not safe for concurrent use.
//
// After whatever goes wrong the segment is over, so that no reader takes what follows for what
// it is not. Ticks are lost until a new one was begun, with a checkpoint of its own.
type Writer struct {
	maxBytes int64
	header   Header
	disk     disk
	coder    coder
	buf      []byte // frames that wait to be handed on

	ticks   uint64 // in buf
	open    bool
	bytes   int64 // of the segment's ticks
	trouble error // what went wrong last; nil once all that was handed on is written
	lost    uint64

	failedNsec, delayNsec int64 // when something went wrong last, and how long to wait from then
}

// NewWriter makes a writer for a folder of at most maxBytes, which is made when it is absent.
// It writes at once, and whoever calls waits for the disk.
func NewWriter(dir string, maxBytes int64, h Header) *Writer {
	h.Version = Version
	h.TaskCounters, h.NodeCounters, h.DomainCounters = columnsOf(model.TaskCounters()), columnsOf(model.NodeCounters()), columnsOf(model.DomainCounters())
	return &Writer{maxBytes: maxBytes, header: h, disk: &folder{dir: dir, maxBytes: maxBytes, create: createFile}}
}

// On makes segments' files with create, in place of the system's own: for disks that are
// simulated. It is called before anything is written.
func (w *Writer) On(create func(name string) (io.WriteCloser, error)) {
	w.disk.(*folder).create = create
}

// Lost returns how many ticks are in no segment.
func (w *Writer) Lost() uint64 { return w.lost + w.disk.state().lost }

// Due reports whether the next tick must begin a new segment, for which Begin wants the
// engine's state as it is before that tick.
func (w *Writer) Due(monoNsec int64) bool {
	if w.open && w.bytes < w.maxBytes/segments || !w.open && monoNsec-w.failedNsec < w.delayNsec {
		return false
	}
	return !w.disk.state().waits // a checkpoint may be large: nothing may wait before it
}

// Begin starts a segment with a checkpoint. The error is what is wrong, as long as it is.
func (w *Writer) Begin(s *engine.State, monoNsec, wallNsec int64) error {
	if err := w.flush(); err != nil {
		return w.fail(err, monoNsec)
	}
	h := w.header
	h.WallNsec = wallNsec
	b, err := opening(&h, s)
	if limit := min(w.maxBytes/checkpointShare, maxFrame); err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: it has %d bytes, and at most %d fit in a record of max_bytes %d", ErrCheckpoint, len(b), limit, w.maxBytes)
	}
	if err == nil {
		w.open, w.bytes, w.coder = true, 0, coder{}
		err = w.disk.put(piece{frames: b, begin: true, wallNsec: wallNsec})
	}
	if err != nil {
		return w.fail(err, monoNsec)
	}
	return w.look(monoNsec)
}

// opening is what a segment begins with.
func opening(h *Header, s *engine.State) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("record: header: %w", err)
	}
	state, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("record: checkpoint: %w", err)
	}
	b := make([]byte, 0, len(magic)+len(head)+len(state)+2*longHeadBytes+2)
	b = appendFrame(append(b, magic...), frameHeader, head)
	return appendFrame(b, frameCheckpoint, state), nil
}

// heldBytes is how much of pulses that led to nothing waits for the next tick that matters.
const heldBytes = 8 << 10

// Tick appends one tick and what it led to, in one write. Pulses that led to nothing are
// written with the next reading or decision, about a second later: twenty writes a second
// would be a good part of what pulses cost. A crash loses those that wait. The error is what
// is wrong, as long as it is.
func (w *Writer) Tick(in *engine.Input, out *engine.Output) error {
	if in.Params != nil {
		w.header.Params.Take(in.Params) // those of the next segment
	}
	err := w.look(in.MonoNsec)
	if !w.open {
		w.lost++
		return cmp.Or(err, errNoSegment)
	}
	w.ticks++
	if err := w.add(in, out); err != nil {
		return w.fail(err, in.MonoNsec)
	}
	return err
}

// add encodes a tick, and hands on what waits where something came of it.
func (w *Writer) add(in *engine.Input, out *engine.Output) error {
	var said []byte
	var err error
	output := len(out.Changes) > 0 || len(out.Decisions) > 0 || len(out.Incidents) > 0
	if output {
		if said, err = json.Marshal(outputFrame{in.Seq, out}); err != nil {
			return fmt.Errorf("record: output: %w", err)
		}
	}
	b, at := openFrame(w.buf, frameTick)
	if b, err = w.coder.encode(b, in, output); err != nil {
		return err
	}
	closeFrame(b, at, frameTick)
	if output {
		b = appendFrame(b, frameOutput, said)
	}
	w.buf = b
	if !output && in.Snapshot == nil && in.Pulse != nil && len(b) < heldBytes {
		return nil
	}
	return w.flush()
}

// flush hands on the frames that wait.
func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.disk.put(piece{frames: w.buf, ticks: w.ticks}); err != nil {
		return err
	}
	w.bytes += int64(len(w.buf))
	w.buf, w.ticks = w.buf[:0], 0
	return nil
}

// look asks what became of what was handed on, and returns what is wrong.
func (w *Writer) look(monoNsec int64) error {
	st := w.disk.state()
	switch {
	case !w.open:
	case st.err != nil:
		return w.fail(st.err, monoNsec)
	case !st.waits:
		w.trouble = nil
	}
	return w.trouble
}

// fail ends the segment. A failure soon after the one before doubles the wait.
func (w *Writer) fail(err error, monoNsec int64) error {
	if w.delayNsec > 0 && monoNsec-w.failedNsec > 2*maxRetryNsec {
		w.delayNsec = 0
	}
	w.lost += w.ticks
	w.open, w.buf, w.ticks, w.trouble = false, w.buf[:0], 0, err
	w.failedNsec, w.delayNsec = monoNsec, min(max(2*w.delayNsec, minRetryNsec), maxRetryNsec)
	return err
}

// Close writes what waits and closes the segment.
func (w *Writer) Close() error {
	err := w.flush()
	w.open = false
	return errors.Join(err, w.disk.close())
}
