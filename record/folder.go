package record

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// disk is where a writer's bytes go.
type disk interface {
	// put hands bytes on, which are the caller's again afterwards.
	put(p piece) error
	state() state
	close() error
}

// state is how far a disk is with what it was handed.
type state struct {
	waits bool   // something is to be written yet
	lost  uint64 // ticks that were handed on and not written, ever
	err   error  // what went wrong since the last piece that began a segment
}

// piece is one write.
type piece struct {
	frames   []byte
	ticks    uint64
	begin    bool // of a new segment
	wallNsec int64
}

// folder is the disk itself: segments in a directory.
type folder struct {
	dir      string
	maxBytes int64
	create   func(name string) (io.WriteCloser, error)

	file    io.WriteCloser // nil: no segment is open
	name    string
	written int64
}

// createFile makes a segment's file.
func createFile(name string) (io.WriteCloser, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
}

// state implements disk: whoever hands on hears at once what went wrong.
func (d *folder) state() state { return state{} }

func (d *folder) put(p piece) error {
	if !p.begin {
		if d.file == nil {
			return errNoSegment
		}
		return d.write(p.frames)
	}
	if err := d.close(); err != nil {
		return err
	}
	// Each time: somebody may have removed it.
	if err := os.MkdirAll(d.dir, 0o750); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	// Before, so that there is room on a disk that our own history filled.
	if err := d.prune(int64(len(p.frames))); err != nil {
		return err
	}
	name, err := d.nextName(p.wallNsec)
	if err != nil {
		return err
	}
	f, err := d.create(name)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	d.file, d.name, d.written = f, name, 0
	return d.write(p.frames)
}

// write writes whole frames. After a failure the segment is over, and ends with the last whole
// one; where there is none nothing stays.
func (d *folder) write(b []byte) error {
	_, err := d.file.Write(b)
	if err == nil {
		d.written += int64(len(b))
		return nil
	}
	d.file.Close() //nolint:errcheck // the first error counts
	d.file = nil
	if d.written == 0 {
		_ = os.Remove(d.name)
	} else {
		_ = os.Truncate(d.name, d.written) // else it is torn, and readers say so
	}
	return fmt.Errorf("record: %w", err)
}

// nextName names a segment after the wall clock, and behind every other segment even
// when that clock was set back: names are the segments' order.
func (d *folder) nextName(wallNsec int64) (string, error) {
	files, err := Segments(d.dir)
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
	return filepath.Join(d.dir, fmt.Sprintf("%019d%s", at, Suffix)), nil
}

// maxFiles bounds the segments by number: an agent that dies over and over makes short ones.
const maxFiles = 1000

// prune drops the oldest segments until the rest fits with room for one more, whose checkpoint
// is given.
func (d *folder) prune(checkpoint int64) error {
	files, err := Segments(d.dir)
	if err != nil {
		return err
	}
	total := checkpoint + d.maxBytes/segments
	for i := len(files) - 1; i >= 0; i-- {
		st, err := os.Stat(files[i])
		if err != nil {
			continue // gone already
		}
		total += st.Size()
		if total > d.maxBytes || len(files)-i >= maxFiles {
			if err := os.Remove(files[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("record: %w", err)
			}
		}
	}
	return nil
}

func (d *folder) close() error {
	if d.file == nil {
		return nil
	}
	err := d.file.Close()
	d.file = nil
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
