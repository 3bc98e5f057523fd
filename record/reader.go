package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// Tick is one tick as it was recorded.
type Tick struct {
	Input  engine.Input
	Output engine.Output // empty when the tick led to nothing

	snap  model.Snapshot
	pulse model.Pulse
}

// Reader reads one segment.
type Reader struct {
	Header Header
	// Checkpoint is the engine's state before the first tick.
	Checkpoint *engine.State

	r     *bufio.Reader
	coder coder
	buf   []byte
	frame int
	tasks map[model.TaskNum]bool // that there are
}

// NewReader reads a segment's header and checkpoint.
func NewReader(r io.Reader) (*Reader, error) {
	d := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	head := make([]byte, len(magic))
	n, err := io.ReadFull(d.r, head)
	switch {
	case string(head[:n]) != magic[:n]:
		return nil, fmt.Errorf("%w: it does not begin as a record does", ErrCorrupt)
	case err != nil:
		return nil, ErrTorn
	}
	if err := d.expect(frameHeader, &d.Header); err != nil {
		return nil, err
	}
	if d.Header.Version > Version {
		return nil, fmt.Errorf("%w: version %d, this one reads up to %d", ErrNewer, d.Header.Version, Version)
	}
	if d.coder, err = newDecoder(&d.Header); err != nil {
		return nil, d.at(err)
	}
	if d.Header.Version < 3 {
		d.Header.Params.Spec.CoreCycles = true // CPI was of core cycles
	}
	d.Header.Params.CPU.CPUPool.LCOnly = d.Header.Version < 5 // pulses had nothing else
	if n := d.Header.Params.HistoryWindows; n < 0 || n > maxWindows {
		return nil, d.at(fmt.Errorf("%w: a history of %d windows; there are at most %d", ErrCorrupt, n, maxWindows))
	}
	d.Checkpoint = &engine.State{}
	if err := d.expect(frameCheckpoint, d.Checkpoint); err != nil {
		return d, err
	}
	d.tasks = map[model.TaskNum]bool{}
	return d, d.meet(d.Checkpoint.Tasks.Tasks)
}

// What an engine reserves for a record is no more than what an agent would have for itself: each
// task costs 16 bytes a window of its history, whether anything was written of it or not.
const (
	maxWindows = 3600 // as the configuration allows
	maxHistory = 16 << 20
)

// meet counts the tasks that came.
func (d *Reader) meet(came []model.Task) error {
	for i := range came {
		d.tasks[came[i].Num] = true
	}
	if n, windows := len(d.tasks), d.Header.Params.HistoryWindows; n*max(1, windows) > maxHistory {
		return d.at(fmt.Errorf("%w: %d tasks with a history of %d windows", ErrCorrupt, n, windows))
	}
	return nil
}

// expect reads a frame of one kind as JSON.
func (d *Reader) expect(kind byte, v any) error {
	got, payload, err := d.next()
	switch {
	case errors.Is(err, io.EOF):
		return d.at(ErrTorn)
	case err != nil:
		return err
	case got != kind:
		return d.at(fmt.Errorf("%w: frame of kind %d, expected %d", ErrCorrupt, got, kind))
	}
	if err := json.Unmarshal(payload, v); err != nil {
		return d.at(fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	return nil
}

// next returns the next frame; the payload is good until the one after.
func (d *Reader) next() (byte, []byte, error) {
	d.frame++
	kind, payload, buf, err := readFrame(d.r, d.buf, d.Header.Version >= 4)
	d.buf = buf
	if err != nil && !errors.Is(err, io.EOF) {
		err = d.at(err)
	}
	return kind, payload, err
}

func (d *Reader) at(err error) error { return fmt.Errorf("frame %d: %w", d.frame, err) }

// Next reads the next tick into t. It returns io.EOF at the segment's end, ErrTorn when
// the segment ends inside a frame and ErrCorrupt when something does not verify.
func (d *Reader) Next(t *Tick) error {
	kind, payload, err := d.next()
	if err != nil {
		return err
	}
	if kind != frameTick {
		return d.at(fmt.Errorf("%w: frame of kind %d, expected a tick", ErrCorrupt, kind))
	}
	output, err := d.coder.decode(payload, &t.Input, &t.snap, &t.pulse)
	if err != nil {
		return d.at(err)
	}
	if s := t.Input.Snapshot; s != nil {
		for _, n := range s.Removed {
			delete(d.tasks, n)
		}
		if err := d.meet(s.Added); err != nil {
			return err
		}
	}
	t.Output = engine.Output{}
	if !output {
		return nil
	}
	kind, payload, err = d.next()
	switch {
	case errors.Is(err, io.EOF):
		return d.at(ErrTorn)
	case err != nil:
		return err
	case kind != frameOutput:
		return d.at(fmt.Errorf("%w: frame of kind %d, expected an output", ErrCorrupt, kind))
	}
	of := outputFrame{Output: &t.Output}
	if err := json.Unmarshal(payload, &of); err != nil {
		return d.at(fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	if slices.ContainsFunc(t.Output.Decisions, func(d model.Decision) bool { return d.Kind == model.DecideNothing }) {
		return d.at(fmt.Errorf("%w: a decision of no kind in tick %d", ErrCorrupt, of.Seq))
	}
	if of.Seq != t.Input.Seq {
		return d.at(fmt.Errorf("%w: output of tick %d behind tick %d", ErrCorrupt, of.Seq, t.Input.Seq))
	}
	return nil
}

// ReadSegment reads one segment: begin sees its header and checkpoint, visit every tick,
// which is good until the next, for as long as it returns true. torn reports that a crash
// cut the segment off, be it in its beginning; what came before was visited.
func ReadSegment(name string, begin func(r *Reader) error, visit func(t *Tick) bool) (torn bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close() //nolint:errcheck // read only
	var r *Reader
	defer func() {
		// Somebody's state may verify and still be such as no engine has: indices, times, orders.
		if p := recover(); p != nil {
			frame := 0
			if r != nil {
				frame = r.frame
			}
			torn, err = false, fmt.Errorf("%w: nothing can be made of frame %d: %v", ErrCorrupt, frame, p)
		}
	}()
	if r, err = NewReader(f); err == nil {
		err = begin(r)
	}
	var t Tick
	for err == nil {
		if err = r.Next(&t); err == nil && !visit(&t) {
			return false, nil
		}
	}
	switch {
	case errors.Is(err, ErrTorn):
		return true, nil
	case errors.Is(err, io.EOF):
		return false, nil
	}
	return false, err
}
