// Package journal keeps, on disk, what must be put back: before each write to the
// kernel the value found and the value intended are appended and synced, so that
// whoever comes after a crash knows both (DESIGN.md, decisions 5 and 6).
//
// The file is a sequence of lines: eight hexadecimal digits of CRC-32C, a space, one
// JSON entry, a newline. The first entry names the format's version and the boot. A last
// line without its newline was cut off by a crash; its write never happened, because the
// write comes after the sync. Any other line that does not verify makes the journal
// corrupt: what it says elsewhere is still used, because every restore checks that the
// value in the kernel is ours, and what could not be read is reported.
//
// When nothing is outstanding the file is cut back to its first line, so that it grows
// with what is held and not with time.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/commensal-io/commensal/model"
)

// Version of the format that this package writes and the newest that it reads. Since 3 a
// setting is {"knob": name, "value": what the knob's row encodes}; before, the fields of CPU
// bandwidth and of cpusets stood beside each other, and in 1, which knew bandwidth alone, no
// knob was named. All are read; an older agent refuses a newer one's journal by its version.
const Version = 3

// maxBytes bounds what Open reads: far above what max_held_tasks can fill, far below
// what would hurt.
const maxBytes = 16 << 20

// Sentinels.
var (
	// ErrCorrupt: a line before the last does not verify.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrNewer: a newer version of the agent wrote the journal.
	ErrNewer = errors.New("journal was written by a newer version")
)

// The kinds of entry.
const (
	kindOpen   = "open"
	kindIntent = "intent" // about to write Value where Found was first and Before is now
	kindWrote  = "wrote"  // read back Value
	kindDone   = "done"   // put back, or no longer ours
)

// entry is one line.
type entry struct {
	Kind    string         `json:"kind"`
	Version int            `json:"version,omitempty"`
	Boot    string         `json:"boot,omitempty"`
	Task    string         `json:"task,omitempty"` // cgroup path of the task whose knob this is part of
	Path    string         `json:"path,omitempty"` // cgroup path of this limit: the task or a descendant
	Inode   uint64         `json:"inode,omitempty"`
	Knob    model.KnobKind `json:"knob,omitempty"` // absent: cpu.max
	Found   *model.Setting `json:"found,omitempty"`
	Before  *model.Setting `json:"before,omitempty"`
	Value   *model.Setting `json:"value,omitempty"`
}

func (e *entry) key() Key { return Key{e.Path, e.Inode, e.Knob} }

// Journal is the open file with what is outstanding in it.
type Journal struct {
	disk   Disk
	path   string
	file   File
	size   int64 // of the entries: where the next one goes
	header int64
	uncut  bool   // behind size there may be something: a truncation failed, or seemed to
	boot   string // of the entries
	limits []Limit
	buf    bytes.Buffer
}

// Contents is what a journal says.
type Contents struct {
	Boot   string
	Limits []Limit
	// Bad describes each line that could not be used.
	Bad []string
	// Torn: the last line was cut off by a crash, before its write.
	Torn bool
}

// Read reads a journal without opening it for writing. A missing file is an empty
// journal. With ErrCorrupt the contents hold what could still be read.
func Read(path string) (*Contents, error) { return ReadOn(RealDisk(), path) }

// ReadOn is Read on a disk.
func ReadOn(d Disk, path string) (*Contents, error) {
	b, err := d.ReadFile(path, maxBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		return &Contents{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: read %s: %w", path, err)
	}
	if len(b) == 0 {
		// Create renames a file into place that has its first line: this is not one of ours.
		return &Contents{}, fmt.Errorf("%s: %w: it is empty", path, ErrCorrupt)
	}
	c, err := parse(b)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// parse reads the lines.
func parse(b []byte) (*Contents, error) {
	c := &Contents{}
	if len(b) > maxBytes {
		return c, fmt.Errorf("%w: larger than %d bytes", ErrCorrupt, maxBytes)
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		b = rest
		if !whole {
			c.Torn = true
			break
		}
		e, err := parseLine(line)
		if err == nil {
			err = c.take(e, n)
		}
		if errors.Is(err, ErrNewer) {
			return c, err
		}
		if err != nil {
			c.Bad = append(c.Bad, fmt.Sprintf("line %d: %v", n, err))
		}
	}
	if len(c.Bad) > 0 {
		return c, fmt.Errorf("%w: %s", ErrCorrupt, strings.Join(c.Bad, "; "))
	}
	return c, nil
}

func parseLine(line []byte) (*entry, error) {
	if len(line) < 10 || line[8] != ' ' {
		return nil, errors.New("not an entry")
	}
	want, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil {
		return nil, errors.New("no checksum")
	}
	if got := crc32.Checksum(line[9:], crc32.MakeTable(crc32.Castagnoli)); got != uint32(want) {
		return nil, fmt.Errorf("checksum %08x, expected %08x", got, want)
	}
	e := &entry{}
	if err := json.Unmarshal(line[9:], e); err != nil {
		return nil, err
	}
	return e, nil
}

// take applies one entry to what is outstanding.
func (c *Contents) take(e *entry, line int) error {
	if e.Kind == kindOpen {
		if e.Version > Version {
			return fmt.Errorf("%w: version %d, this one reads up to %d", ErrNewer, e.Version, Version)
		}
		if c.Boot != "" && c.Boot != e.Boot {
			c.Limits = c.Limits[:0] // everything before is of an earlier boot
		}
		c.Boot = e.Boot
		return nil
	}
	if line == 1 {
		return errors.New("the first line does not name the version and the boot")
	}
	var err error
	c.Limits, err = apply(c.Limits, e)
	return err
}

// find returns where a limit stands in a list, -1 when it does not.
func find(limits []Limit, k Key) int {
	for i := range limits {
		if limits[i].is(k) {
			return i
		}
	}
	return -1
}

// apply takes one entry into a list of limits.
func apply(limits []Limit, e *entry) ([]Limit, error) {
	for _, v := range []*model.Setting{e.Found, e.Before, e.Value} {
		if v != nil && v.Knob != e.Knob {
			return limits, fmt.Errorf("an entry of %s has a value of %s", e.Knob, v.Knob)
		}
	}
	i := find(limits, e.key())
	switch e.Kind {
	case kindIntent:
		if e.Found == nil || e.Before == nil || e.Value == nil {
			return limits, errors.New("intent without its values")
		}
		l := Limit{Task: e.Task, Path: e.Path, Inode: e.Inode, Found: *e.Found, Before: *e.Before, Intended: *e.Value}
		if i < 0 {
			return append(limits, l), nil
		}
		limits[i] = l
	case kindWrote:
		if i < 0 || e.Value == nil {
			return limits, fmt.Errorf("read-back of %s without an intent", e.Path)
		}
		v := *e.Value
		limits[i].ReadBack = &v
	case kindDone:
		if i >= 0 {
			limits = slices.Delete(limits, i, i+1)
		}
	default:
		return limits, fmt.Errorf("unknown kind %q", e.Kind)
	}
	return limits, nil
}

// Create starts a new journal for this boot, in place of whatever was there. The caller
// has restored an old one before.
func Create(path, boot string) (*Journal, error) { return Continue(path, boot, nil) }

// Continue starts a new journal that holds, from its first moment on, the limits that an
// older one left outstanding; it takes the older one's place in one step.
func Continue(path, boot string, limits []Limit) (*Journal, error) {
	return ContinueOn(RealDisk(), path, boot, limits)
}

// ContinueOn is Continue on a disk.
func ContinueOn(d Disk, path, boot string, limits []Limit) (*Journal, error) {
	j, err := begin(d, path, boot, limits)
	if err != nil && j != nil {
		j.file.Close() //nolint:errcheck // the first error counts
		j = nil
	}
	return j, err
}

// begin is ContinueOn, and returns with an error the journal as far as it came.
func begin(d Disk, path, boot string, limits []Limit) (*Journal, error) {
	tmp := path + ".new"
	f, err := d.Create(tmp)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	j := &Journal{disk: d, path: path, file: f, boot: boot}
	return j, j.begin(tmp, limits)
}

// hasName reports whether a new journal took the old one's place.
func (j *Journal) hasName() bool {
	if j == nil || j.size == 0 {
		return false
	}
	mine, err := j.disk.ReadFile(j.path, j.size+1)
	if err != nil || int64(len(mine)) != j.size {
		return false
	}
	c, err := parse(mine)
	return err == nil && slices.EqualFunc(c.Limits, j.limits, func(a, b Limit) bool { return a.Key() == b.Key() && a.Found == b.Found })
}

func (j *Journal) begin(tmp string, limits []Limit) error {
	if err := j.append(&entry{Kind: kindOpen, Version: Version, Boot: j.boot}); err != nil {
		return err
	}
	j.header = int64(j.buf.Len())
	if len(limits) > 0 {
		if err := j.Intent(limits); err != nil {
			return err
		}
	}
	var notes []Note
	for i := range limits {
		if l := &limits[i]; l.ReadBack != nil {
			notes = append(notes, Note{l.Key(), l.ReadBack})
		}
	}
	if err := j.Note(notes); err != nil {
		return err
	}
	if err := j.disk.Rename(tmp, j.path); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.disk.SyncDir(filepath.Dir(j.path)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// append writes entries in one write and syncs them.
func (j *Journal) append(es ...*entry) error {
	if j.uncut {
		// An error does not say whether the file was cut. Behind the wrong end of it the
		// entry would be lost.
		if err := j.cut(); err != nil {
			return fmt.Errorf("journal: truncate: %w", err)
		}
	}
	j.buf.Reset()
	for _, e := range es {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		fmt.Fprintf(&j.buf, "%08x %s\n", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)), b)
	}
	if _, err := j.file.WriteAt(j.buf.Bytes(), j.size); err != nil {
		return j.cutBack(fmt.Errorf("journal: write: %w", err))
	}
	if err := j.file.Sync(); err != nil {
		return j.cutBack(fmt.Errorf("journal: sync: %w", err))
	}
	j.size += int64(j.buf.Len())
	return nil
}

// cutBack removes what a failed append left, as on a full disk: the next entry would stand
// behind half a line and be lost with it.
func (j *Journal) cutBack(cause error) error {
	return errors.Join(cause, j.cut())
}

// cut cuts the file behind the last entry. Where that fails the next append tries again.
func (j *Journal) cut() error {
	err := j.file.Truncate(j.size)
	j.uncut = err != nil
	return err
}

// compactBytes is from what size on the file is written anew. It is cut back when nothing
// is outstanding; where something always is, it would grow with time, and past maxBytes
// nobody could read it any more.
const compactBytes = 1 << 20

// compact writes the file anew with what is outstanding. Where that fails the old file
// goes on, and the next intent tries again.
func (j *Journal) compact() {
	next, err := begin(j.disk, j.path, j.boot, j.limits)
	if err != nil && next.hasName() {
		err = nil // the new file has the name, whatever the disk said of it
	}
	if err != nil {
		if next != nil {
			_ = next.file.Close() // nobody reads it
		}
		return
	}
	_ = j.file.Close() // every entry was synced, and nobody reads this file any more
	*j = *next
}

// Intent notes, durably, that the limits are about to be written. ReadBack of the given
// limits is ignored. Until Wrote or Done says otherwise each may be half written.
func (j *Journal) Intent(limits []Limit) error {
	if j.size >= compactBytes {
		j.compact()
	}
	es := make([]*entry, len(limits))
	for i := range limits {
		l := &limits[i]
		es[i] = &entry{Kind: kindIntent, Task: l.Task, Path: l.Path, Inode: l.Inode, Knob: l.Found.Knob, Found: &l.Found, Before: &l.Before, Value: &l.Intended}
	}
	if err := j.append(es...); err != nil {
		return err
	}
	for _, e := range es {
		j.limits, _ = apply(j.limits, e) // cannot fail: the values are there, and of one kind
	}
	return nil
}

// Note notes what became of limits, in one write, and cuts the file back when nothing is
// outstanding any more. A read-back without an intent is an error.
func (j *Journal) Note(notes []Note) error {
	if len(notes) == 0 {
		return nil
	}
	es, done := make([]*entry, len(notes)), map[Key]bool{}
	for i := range notes {
		n := &notes[i]
		es[i] = n.entry()
		switch {
		case n.ReadBack == nil:
			done[n.Key] = true
		case find(j.limits, n.Key) < 0:
			return fmt.Errorf("journal: read-back of %s without an intent", n.Path)
		}
	}
	if err := j.append(es...); err != nil {
		return err
	}
	for _, e := range es {
		if e.Kind == kindWrote {
			j.limits, _ = apply(j.limits, e) // cannot fail: the intent is there
		}
	}
	j.limits = slices.DeleteFunc(j.limits, func(l Limit) bool { return done[l.Key()] })
	if len(j.limits) > 0 || len(done) == 0 {
		return nil
	}
	// It is done whether or not the file can be cut: the next append sees to that.
	j.size = j.header
	_ = j.cut()
	return nil
}

// Wrote notes what was read back of one limit.
func (j *Journal) Wrote(path string, inode uint64, now model.Setting) error {
	return j.Note([]Note{{Key{path, inode, now.Knob}, &now}})
}

// Done notes that a limit is no longer ours.
func (j *Journal) Done(k Key) error { return j.Note([]Note{{Key: k}}) }

// Of returns the outstanding limits of a task's knob.
func (j *Journal) Of(task string, knob model.KnobKind) []Limit {
	var out []Limit
	for i := range j.limits {
		if l := &j.limits[i]; l.Found.Knob == knob && l.Task == task {
			out = append(out, *l)
		}
	}
	return out
}

// Limit returns the outstanding limit of a cgroup's knob, nil when there is none. It is good
// until the journal changes.
func (j *Journal) Limit(path string, knob model.KnobKind) *Limit {
	for i := range j.limits {
		if l := &j.limits[i]; l.Found.Knob == knob && l.Path == path {
			return l
		}
	}
	return nil
}

// Unheld returns the outstanding limits of knobs that are not among the held; nil, without
// an allocation, when there are none.
func (j *Journal) Unheld(held func(task string, knob model.KnobKind) bool) []Limit {
	var out []Limit
	for i := range j.limits {
		if l := &j.limits[i]; !held(l.Task, l.Found.Knob) {
			out = append(out, *l)
		}
	}
	return out
}

// Outstanding returns all limits that are not put back.
func (j *Journal) Outstanding() []Limit { return slices.Clone(j.limits) }

// Close closes the file and leaves what is outstanding in it.
func (j *Journal) Close() error { return j.file.Close() }
