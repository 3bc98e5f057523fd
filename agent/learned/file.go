// Package learned keeps on disk what an agent has learned or was told, so that it outlives a
// restart: specs, the bound of the kernel's bursts, which jobs hurt each other, what jobs use by the hour, protection that an operator turned off.
//
// The file is small, versioned and checksummed, and replaced by rename. Nothing in it is worth
// a risk: one that is damaged, newer or no file of ours is put aside and said, and the agent
// learns anew; what was learned under other circumstances is not taken up.
package learned

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
)

// The first line of the file is "commensal-learned VERSION crc32c=HEX", in which the checksum
// is that of all that follows: one JSON document.
const (
	magic   = "commensal-learned"
	version = 1
)

// maxBytes bounds the file: ten thousand specs fit in a third of it.
const maxBytes = 16 << 20

// Under is what specs were learned under: elsewhere they mean something else.
type Under struct {
	Platform string   `json:"platform"` // CPU type
	Kernel   string   `json:"kernel"`   // release; counts for the bound of bursts
	Profile  string   `json:"profile"`
	Window   string   `json:"window"`  // length and distance of sampling windows
	Signals  []string `json:"signals"` // each with its definition
}

// Signals lists all signals with their definitions (model.Source.Definition).
func Signals(coreCycles bool) []string {
	var list []string
	for src := range model.NumSources {
		list = append(list, src.String()+" = "+src.Definition(coreCycles))
	}
	return list
}

// content is the JSON document.
type content struct {
	Program string          `json:"program"`
	Under   Under           `json:"under"`
	State   engine.Restored `json:"state"`
}

// Path is where the file is, below the state directory.
func Path(stateDir string) string { return filepath.Join(stateDir, "learned") }

// errNewer: the file is of a later version of the format.
var errNewer = errors.New("is of a newer version of commensal")

// errForeign: the file is none of ours.
var errForeign = errors.New("is no file of commensal's")

// Read reads the file of an earlier run; nil where there is none that is any good. problem
// tells people what was put aside, and why; notes what was not taken up of a good file.
func Read(path string, now Under) (r *engine.Restored, problem string, notes []string) {
	c, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", nil
	case err != nil:
		aside, why := path+asideOf(err), err.Error()
		if err := os.Rename(path, aside); err != nil {
			return nil, fmt.Sprintf("what an earlier run had learned is not taken up: %s %s; it could not be put aside either: %v", path, why, err), nil
		}
		return nil, fmt.Sprintf("what an earlier run had learned is not taken up: %s %s; it is kept as %s", path, why, aside), nil
	}
	r, notes = c.fit(now)
	return r, "", notes
}

// asideOf is what is put behind the name of a file that is put aside. There is one of each
// kind at most: the next one takes its place.
func asideOf(err error) string {
	switch {
	case errors.Is(err, errNewer):
		return ".newer"
	case errors.Is(err, errForeign):
		return ".foreign"
	}
	return ".damaged"
}

func read(path string) (*content, error) {
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is no regular file", errForeign)
	case st.Size() > maxBytes:
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are read", errForeign, st.Size(), maxBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return parse(b)
}

// parse takes a file's bytes apart.
func parse(b []byte) (*content, error) {
	head, body, _ := bytes.Cut(b, []byte("\n"))
	var v int
	var sum uint32
	n, _ := fmt.Sscanf(string(head[:min(len(head), 100)]), magic+" %d crc32c=%x", &v, &sum)
	switch {
	case n >= 1 && v > version:
		return nil, fmt.Errorf("%w: format %d, known here: %d", errNewer, v, version)
	case n < 1:
		return nil, fmt.Errorf("%w: its first line is none that one begins with", errForeign)
	case n < 2 || v != version || sum != checksum(body):
		return nil, errors.New("is damaged: its checksum is another one")
	}
	var c content
	if err := json.Unmarshal(body, &c); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	return &c, nil
}

func checksum(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// format is the file's bytes.
func (c *content) format() ([]byte, error) {
	body, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, "%s %d crc32c=%08x\n", magic, version, checksum(body)), body...), nil
}

// fit leaves out what was learned under other circumstances.
func (c *content) fit(now Under) (*engine.Restored, []string) {
	r, notes := c.State, []string(nil)
	if why := c.Under.differs(now); why != "" && len(r.Specs) > 0 {
		notes = append(notes, fmt.Sprintf("%d specs of an earlier run are not taken up: %s", len(r.Specs), why))
		r.Specs = nil
	}
	if why := c.Under.differs(now); why != "" && len(r.Pairs) > 0 {
		notes = append(notes, fmt.Sprintf("what was known of %d pairs of jobs is not taken up: %s", len(r.Pairs), why))
		r.Pairs = nil
	}
	if why := c.Under.differs(now); why != "" && len(r.Headroom) > 0 {
		notes = append(notes, fmt.Sprintf("what %d jobs use by the hour of the day is learned anew: %s", len(r.Headroom), why))
		r.Headroom = nil
	}
	if c.Under.Kernel != now.Kernel && r.BurstBound != nil {
		notes = append(notes, fmt.Sprintf("the bound of bursts is sought anew: it was found on kernel %s, this is %s", c.Under.Kernel, now.Kernel))
		r.BurstBound = nil
	}
	return &r, notes
}

// differs says why specs, and usage, of one are none for the other.
func (u *Under) differs(now Under) string {
	switch {
	case u.Platform != now.Platform:
		return fmt.Sprintf("they are of the CPU type %q, this is %q", u.Platform, now.Platform)
	case u.Profile != now.Profile:
		return fmt.Sprintf("they were learned in profile %s, this is %s", u.Profile, now.Profile)
	case u.Window != now.Window:
		return fmt.Sprintf("they are of windows of %s, these are %s", u.Window, now.Window)
	case !slices.Equal(u.Signals, now.Signals):
		return "a signal is calculated in another way than then"
	}
	return ""
}

// WindowOf describes sampling windows.
func WindowOf(duration, every time.Duration) string {
	return fmt.Sprintf("%s in each %s", duration, every)
}
