package cgroup

// cgroup.events: whether a v2 group is populated and frozen. The kernel signals each
// change to who polls the file for POLLPRI.
//
// https://docs.kernel.org/admin-guide/cgroup-v2.html#core-interface-files
//
//	populated 1
//	frozen 0          (since Linux 5.2)
//
// Both are about the group with its descendants. The root group has no such file.

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// Events is what cgroup.events reads.
type Events struct {
	Populated bool // a live process is in the group or below
	Frozen    bool // all processes in the group and below are stopped
	HasFrozen bool // the kernel says the line above
}

// ReadEvents returns a group's cgroup.events, uncached.
func (d *V2) ReadEvents(path string) (Events, error) {
	data, err := d.read(path, "cgroup.events")
	return parsed(data, err, path, "cgroup.events", parseEvents)
}

// parseEvents needs "populated" and passes over lines that it does not know.
func parseEvents(data []byte) (Events, error) {
	var e Events
	populated := false
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		key, value, _ := bytes.Cut(line, []byte(" "))
		var dst, seen *bool
		switch string(key) {
		case "populated":
			dst, seen = &e.Populated, &populated
		case "frozen":
			dst, seen = &e.Frozen, &e.HasFrozen
		default:
			continue
		}
		v, err := parseFlag(value)
		if err != nil {
			return Events{}, fmt.Errorf("%w cgroup.events: line %q", ErrMalformed, clip(line))
		}
		*dst, *seen = v, true
	}
	if !populated {
		return Events{}, fmt.Errorf("%w cgroup.events: no line \"populated\"", ErrMalformed)
	}
	return e, nil
}

// EventsWatch waits for changes of one group's cgroup.events. It stays bound to the group
// that it was opened on. It is not safe for concurrent use.
type EventsWatch struct {
	d    *V2
	path string
	file hostfs.File
	wait hostfs.ChangeWaiter // the file
	buf  []byte
}

// eventsBuffer is far more than two lines, so that one reading takes the file whole:
// a second one would take for seen what changed between the two.
const eventsBuffer = 256

// WatchEvents opens a group's cgroup.events for reading and waiting: one descriptor.
func (d *V2) WatchEvents(path string) (*EventsWatch, error) {
	name, err := d.file(path, "cgroup.events")
	if err != nil {
		return nil, fmt.Errorf("watch cgroup.events of %s: %w", path, err)
	}
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, d.wrap("watch cgroup.events of", path, err)
	}
	wait, ok := f.(hostfs.ChangeWaiter)
	if !ok {
		return nil, errors.Join(fmt.Errorf("watch cgroup.events of %s: %w: this file access waits for no changes", path, ErrUnsupported), f.Close())
	}
	return &EventsWatch{d: d, path: path, file: f, wait: wait, buf: make([]byte, 0, eventsBuffer)}, nil
}

// Read reads the file, which also arms Wait for the next change.
func (w *EventsWatch) Read() (Events, error) {
	var err error
	if w.buf, err = w.file.ReadRecord(w.buf); err != nil {
		return Events{}, w.d.wrap("read cgroup.events of", w.path, err)
	}
	e, err := parseEvents(w.buf)
	if err != nil {
		return Events{}, fmt.Errorf("read cgroup.events of %s: %w", w.path, err)
	}
	return e, nil
}

// Wait blocks until the file has changed since the last Read (true), or within has
// passed (false). When the group was removed the next Read says ErrVanished. It holds an
// operating system thread while it waits.
func (w *EventsWatch) Wait(within time.Duration) (bool, error) {
	changed, err := w.wait.Wait(within)
	if err != nil {
		return false, fmt.Errorf("wait for cgroup.events of %s: %w", w.path, err)
	}
	return changed, nil
}

// Close closes the file.
func (w *EventsWatch) Close() error {
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close cgroup.events of %s: %w", w.path, err)
	}
	return nil
}
