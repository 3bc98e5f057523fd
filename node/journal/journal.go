// Package journal keeps, in a file, what must be put back: before each write to the
// kernel the value found and the value intended are appended, so that whoever comes
// after a crash of the agent knows both (DESIGN.md, decisions 5 and 6).
//
// It has to outlive the agent and not the kernel, whose settings end with a boot: nothing is
// synced, and the file belongs on a tmpfs, where no neighbour fills its disk or keeps it busy.
//
// The file is a sequence of lines: eight hexadecimal digits of CRC-32C, a space, one
// JSON entry, a newline. The first entry names the format's version and the boot. A last
// line without its newline was cut off by a crash; its write never happened, because the
// write comes after the append. Any other line that does not verify makes the journal
// corrupt: what it says elsewhere is still used, because every restore checks that the
// value in the kernel is ours, and what could not be read is reported.
//
// A file that cannot be written must never keep anybody from putting things back. So memory
// goes before: only an intent to take needs the file. What else happened while it could
// not be written is owed, and goes into the next append that succeeds; until then a crash
// finds an earlier state, by which what was put back is as found, and a value that the file
// never heard of is a stranger's.
//
// When nothing is outstanding the file is cut back to its first line, so that it grows
// with what is held and not with time.
package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/commensal-io/commensal/model"
)

// Version of the format that this package writes and the newest that it reads. Since 3 a
// setting is {"knob": name, "value": what the knob's row encodes}; before, the fields of CPU
// bandwidth and of cpusets stood beside each other, and in 1, which knew bandwidth alone, no
// knob was named. All are read; an older agent refuses a newer one's journal by its version.
const Version = 3

const (
	// maxBytes bounds what is read: far above what max_held_tasks can fill, far below
	// what would hurt. Nothing is appended beyond the half of it, so that what was written
	// can be read.
	maxBytes = 16 << 20
	// compactBytes is from what size on the file is written anew, or from twice what it
	// had then: else it would grow with time where something is always outstanding.
	compactBytes = 1 << 20
)

// Sentinels.
var (
	// ErrCorrupt: a line before the last does not verify.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrNewer: a newer version of the agent wrote the journal.
	ErrNewer = errors.New("journal was written by a newer version of the agent (put back what it left with that version's `commensal restore`)")
)

// Journal is what is outstanding, and the file that says so.
type Journal struct {
	disk      Disk
	path      string
	boot      string // of the entries
	file      File   // nil: there is none
	size      int64  // of the entries: where the next one goes
	header    int64
	compactAt int64 // the size from which on the file is written anew
	least     int64 // of compactAt
	uncut     bool  // behind size there may be something: a truncation failed, or seemed to
	failed    error // of the last write
	limits    table
	owed      map[Key]bool // of these the file says something else than limits
	buf       bytes.Buffer
}

// Create starts a new journal for this boot, in place of whatever was there. The caller
// has restored an old one before.
func Create(path, boot string) (*Journal, error) { return Continue(path, boot, nil) }

// Continue starts a new journal that holds, from its first moment on, the limits that an
// older one left outstanding; it takes the older one's place in one step.
func Continue(path, boot string, limits []Limit) (*Journal, error) {
	return ContinueOn(RealDisk(), path, boot, limits)
}

// ContinueOn is Continue on a disk. With an error, too, the journal can be used: by it things
// are put back, and whatever would take anything tries to make the file again.
func ContinueOn(d Disk, path, boot string, limits []Limit) (*Journal, error) {
	j := &Journal{disk: d, path: path, boot: boot, owed: map[Key]bool{}, least: compactBytes}
	if s, ok := d.(Small); ok && s.CompactBytes() > 0 {
		j.least = s.CompactBytes()
	}
	for _, l := range limits {
		j.limits.put(l)
	}
	return j, j.renew()
}

// renew writes the file anew with what is outstanding. Where that fails the old file, if
// there is one, goes on.
func (j *Journal) renew() error {
	open := &entry{Kind: kindOpen, Version: Version, Boot: j.boot}
	if _, real := j.disk.(realDisk); real {
		open.Program, _ = os.Executable() // "" where it cannot be told
	}
	j.buf.Reset()
	if err := add(&j.buf, open); err != nil {
		return err
	}
	header := int64(j.buf.Len())
	for i := range j.limits.list {
		if err := add(&j.buf, j.stands(j.limits.list[i].Key())...); err != nil {
			return err
		}
	}
	f, err := j.place()
	if err != nil {
		j.compactAt = j.size + j.least
		return fmt.Errorf("journal: %w", err)
	}
	if j.file != nil {
		_ = j.file.Close() // nobody reads it any more
	}
	j.file, j.header, j.size, j.uncut = f, header, int64(j.buf.Len()), false
	j.compactAt = max(j.least, 2*j.size)
	clear(j.owed)
	return nil
}

// place makes the file of the buffer, and gives it the journal's name.
func (j *Journal) place() (File, error) {
	tmp := j.path + ".new"
	f, err := j.disk.Create(tmp)
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(j.buf.Bytes(), 0); err == nil {
		if err = j.disk.Rename(tmp, j.path); err == nil {
			return f, nil
		}
		if f.Named(j.path) {
			return f, nil // whatever the disk said of it
		}
	}
	return nil, errors.Join(err, f.Close(), j.disk.Remove(tmp))
}

// stands returns the entries that say what is outstanding of a key, or that nothing is.
func (j *Journal) stands(k Key) []*entry {
	l := j.limits.get(k)
	if l == nil {
		return []*entry{(&Note{Key: k}).entry()}
	}
	es := []*entry{j.intent(l)}
	if l.ReadBack != nil {
		es = append(es, (&Note{k, l.ReadBack}).entry())
	}
	return es
}

// standsFirst orders what is owed: an append may end anywhere, and what moved is to stand
// under its new name before it goes under the old one.
func (j *Journal) standsFirst(a, b Key) int {
	rank := func(k Key) int {
		if j.limits.get(k) == nil {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.compare(b))
}

// errFull: what is appended could not be read again.
var errFull = fmt.Errorf("more than %d bytes are outstanding", maxBytes/2)

// write appends what is owed, and entries, in one write.
func (j *Journal) write(es []*entry) (err error) {
	defer func() { j.failed = err }()
	if j.file == nil || j.size >= j.compactAt {
		if err = j.renew(); j.file == nil {
			return err
		}
	}
	if j.uncut {
		// An error does not say whether the file was cut. Behind the wrong end of it the
		// entry would be lost.
		if err := j.cut(); err != nil {
			return fmt.Errorf("journal: truncate: %w", err)
		}
	}
	j.buf.Reset()
	for _, k := range slices.SortedFunc(maps.Keys(j.owed), j.standsFirst) {
		if err := add(&j.buf, j.stands(k)...); err != nil {
			return err
		}
	}
	if err := add(&j.buf, es...); err != nil {
		return err
	}
	if j.size+int64(j.buf.Len()) > maxBytes/2 {
		return fmt.Errorf("journal: %w", errFull)
	}
	if j.buf.Len() == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(j.buf.Bytes(), j.size); err != nil {
		// What a failed append left, as on a full disk, goes: the next entry would stand behind
		// half a line and be lost with it.
		return errors.Join(fmt.Errorf("journal: write: %w", err), j.cut())
	}
	j.size += int64(j.buf.Len())
	clear(j.owed)
	return nil
}

// cut cuts the file behind the last entry. Where that fails the next append tries again.
func (j *Journal) cut() error {
	err := j.file.Truncate(j.size)
	j.uncut = err != nil
	return err
}

// Intent notes that the limits are about to be written. ReadBack of the given limits is
// ignored. Until a note says otherwise each may be half written. With an error nothing was
// noted.
func (j *Journal) Intent(limits []Limit) error {
	es := make([]*entry, len(limits))
	for i := range limits {
		es[i] = j.intent(&limits[i])
	}
	if err := j.write(es); err != nil {
		return err
	}
	for _, e := range es {
		_ = j.limits.apply(e) // cannot fail: the values are there, and of one kind
	}
	return nil
}

// Assume is Intent where the file could not be written and the write goes ahead all the
// same: to put something back.
func (j *Journal) Assume(limits []Limit) {
	for _, l := range limits {
		l.ReadBack = nil
		j.limits.put(l)
		j.owed[l.Key()] = true
	}
}

// Move puts a limit in the place of one whose group has another path now.
func (j *Journal) Move(from Key, to Limit) {
	j.limits.remove(from)
	j.limits.put(to)
	j.owed[from], j.owed[to.Key()] = true, true
}

// Note notes what became of limits, in one write, and cuts the file back when nothing is
// outstanding any more. What the file does not take is owed. A read-back without an intent
// is passed over.
func (j *Journal) Note(notes []Note) {
	es := make([]*entry, 0, len(notes))
	for i := range notes {
		if e := notes[i].entry(); j.limits.apply(e) == nil {
			es = append(es, e)
		}
	}
	switch {
	case len(es) == 0:
	case len(j.limits.list) == 0 && j.file != nil:
		j.size = j.header
		clear(j.owed)
		_ = j.cut() // the next append tries again
	default:
		if j.write(es) != nil {
			for _, e := range es {
				j.owed[e.key()] = true
			}
		}
	}
}

// Wrote notes what was read back of one limit.
func (j *Journal) Wrote(path string, inode uint64, now model.Setting) {
	j.Note([]Note{{Key{path, inode, now.Knob}, &now}})
}

// Done notes that a limit is no longer ours.
func (j *Journal) Done(k Key) { j.Note([]Note{{Key: k}}) }

// Tend makes the file again where somebody removed or replaced it, and writes what is owed.
// It is to be called about once a second; an error says why nothing can be taken now.
func (j *Journal) Tend() error {
	if j.file != nil && !j.file.Named(j.path) {
		_ = j.file.Close() // whoever comes after us would not find it
		j.file = nil
	}
	if j.file == nil || j.failed != nil {
		// Whether a write would be taken now only a write can tell.
		if j.failed = j.renew(); j.failed == nil || j.file == nil {
			return j.failed
		}
	}
	if j.uncut || len(j.owed) > 0 {
		return j.write(nil)
	}
	return j.failed
}

// Of returns the outstanding limits of a task's knob.
func (j *Journal) Of(task string, knob model.KnobKind) []Limit {
	var out []Limit
	for i := range j.limits.list {
		if l := &j.limits.list[i]; l.Found.Knob == knob && l.Task == task {
			out = append(out, *l)
		}
	}
	return out
}

// Limit returns the outstanding limit of a cgroup's knob, nil when there is none. It is good
// until the journal changes.
func (j *Journal) Limit(path string, knob model.KnobKind) *Limit {
	for i := range j.limits.list {
		if l := &j.limits.list[i]; l.Found.Knob == knob && l.Path == path {
			return l
		}
	}
	return nil
}

// At returns the outstanding limit of a knob of the cgroup with an inode number, nil when there is
// none. It is good until the journal changes.
func (j *Journal) At(inode uint64, knob model.KnobKind) *Limit {
	for i := range j.limits.list {
		if l := &j.limits.list[i]; l.Found.Knob == knob && l.Inode == inode {
			return l
		}
	}
	return nil
}

// Has reports whether a limit is outstanding.
func (j *Journal) Has(k Key) bool { return j.limits.get(k) != nil }

// Unheld returns the outstanding limits of knobs that are not among the held; nil, without
// an allocation, when there are none.
func (j *Journal) Unheld(held func(l *Limit) bool) []Limit {
	var out []Limit
	for i := range j.limits.list {
		if l := &j.limits.list[i]; !held(l) {
			out = append(out, *l)
		}
	}
	return out
}

// Path is where the file is.
func (j *Journal) Path() string { return j.path }

// Outstanding returns all limits that are not put back.
func (j *Journal) Outstanding() []Limit { return slices.Clone(j.limits.list) }

// Close closes the file and leaves what is outstanding in it.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
