package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Reading is what became of a record's segments.
type Reading struct {
	Segments int `json:"segments"` // that were read, as far as they are good
	// Torn names segments whose last frame was cut off.
	Torn []string `json:"torn,omitempty"`
	// Damaged are segments of which only a beginning, or nothing, could be read.
	Damaged []Damage `json:"damaged,omitempty"`
}

// Damage is what is wrong with a segment.
type Damage struct {
	Segment string `json:"segment"`
	Error   string `json:"error"`
}

// lacks says, behind a colon, that segments were not read; "" when all were.
func (r *Reading) lacks() string {
	if len(r.Damaged) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d segments could not be read, the first %s: %s", len(r.Damaged), r.Damaged[0].Segment, r.Damaged[0].Error)
}

// Read reads a record, a folder or one segment, oldest first: begin, which may be nil, sees each
// segment's header and checkpoint, visit every tick, which is good until the next, for as long as it returns
// true. Each segment stands alone: one that is damaged is named, and the next one is read.
func Read(path string, begin func(name string, r *Reader) error, visit func(t *Tick) bool) (Reading, error) {
	var res Reading
	files, err := Segments(path)
	if err != nil {
		return res, err
	}
	on := true
	for _, name := range files {
		torn, err := ReadSegment(name, func(r *Reader) error {
			if begin == nil {
				return nil
			}
			return begin(name, r)
		}, func(t *Tick) bool {
			on = visit(t)
			return on
		})
		switch {
		case errors.Is(err, fs.ErrPermission):
			return res, err
		case errors.Is(err, fs.ErrNotExist) && name != path:
			continue // the agent made room for a new one
		case err != nil:
			res.Damaged = append(res.Damaged, Damage{name, err.Error()})
		case torn:
			res.Torn = append(res.Torn, name)
		}
		res.Segments++
		if !on {
			break
		}
	}
	return res, nil
}

// Walk reads every tick of a record in order; damage is an error. A segment whose last frame was
// cut off is read up to there.
func Walk(path string, visit func(t *Tick)) error {
	res, err := Read(path, nil, func(t *Tick) bool {
		visit(t)
		return true
	})
	if err == nil && len(res.Damaged) > 0 {
		err = fmt.Errorf("%s: %s", res.Damaged[0].Segment, res.Damaged[0].Error)
	}
	return err
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
