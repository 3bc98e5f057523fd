package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Marks are in commit.json while they are few. Of a large fleet they are megabytes, of which a commit changes a small part: then they are in a journal
// beside it, a line an address that changed, and commit.json says how many bytes of which journal count. What lies beyond them no commit knows. A journal
// that has grown to twice its first size is replaced by one with each address once.

const (
	inlineMarks  = 1000    // addresses; more are a journal
	leastJournal = 1 << 20 // bytes that it may always grow by
)

// journal is the part of commit.json about it.
type journal struct {
	Name  string `json:"name"`  // below the store's folder
	Bytes int64  `json:"bytes"` // that count
	First int64  `json:"first"` // that it began with
}

// markLine is a line of a journal; the last one of an address counts.
type markLine struct {
	At    string `json:"at"`
	Marks []Mark `json:"marks"`
}

// address is what marks are kept by. Names of nodes have no dot.
func address(node string, part int) string {
	return strings.TrimPrefix(wire.Up(node, part), wire.UpPrefix)
}

// mark notes a batch; false: it was there.
func (s *Store) mark(b *wire.Batch) bool {
	at := address(b.Node, b.Part)
	list := s.marks[at]
	i := slices.IndexFunc(list, func(m Mark) bool { return m.Spool == b.Spool })
	if i >= 0 && list[i].Seq >= b.Seq {
		return false
	}
	next := make([]Mark, 0, len(list)+1) // those of the last commit stay as they are
	for k, m := range list {
		if k != i {
			next = append(next, m)
		}
	}
	next = append(next, Mark{b.Spool, b.Seq})
	s.marks[at] = next[max(0, len(next)-maxMarks):]
	s.changed[at] = true
	return true
}

// Marks returns what is in the store of a part, for whoever reads that part next, and through which message of the stream.
func (s *Store) Marks(part int) (marks map[string][]Mark, message uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	marks = map[string][]Mark{}
	for at, list := range s.kept {
		if node, _, _ := strings.Cut(at, "."); at == address(node, part) {
			marks[node] = list
		}
	}
	return marks, s.done.Through[part]
}

// Adopt takes over what another store has of a part: a batch that is there is none for this one. It is kept by the next Commit.
func (s *Store) Adopt(part int, marks map[string][]Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, list := range marks {
		for _, m := range list {
			s.mark(&wire.Batch{Node: node, Spool: m.Spool, Seq: m.Seq, Part: part})
		}
	}
}

// keepMarks puts the marks that changed where the next commit says. What an attempt that failed wrote may stay in the journal: a later line follows
// for each of its addresses. It is not cut off, since nobody knows whether a commit.json whose replacement failed is there after a crash.
func (s *Store) keepMarks(next *commit) error {
	if len(s.marks) <= s.inline {
		next.Marks = maps.Clone(s.marks)
		return nil
	}
	j := s.journal
	if j.Name == "" || j.Bytes > 2*j.First+leastJournal {
		s.files++
		j = journal{Name: fmt.Sprintf("marks-%s-%d.jsonl", s.run, s.files)}
		n, err := s.writeMarks(j.Name, 0, maps.Keys(s.marks))
		if err == nil {
			err = syncDir(s.dir)
		}
		if err != nil {
			_ = os.Remove(s.path(j.Name)) // what is there of it helps nobody
			return fmt.Errorf("store: %w", err)
		}
		j.Bytes, j.First = n, n
	} else {
		n, err := s.writeMarks(j.Name, j.Bytes, maps.Keys(s.changed))
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		j.Bytes += n
	}
	s.journal, next.Journal = j, &j
	if old := s.done.Journal; old != nil && old.Name != j.Name {
		next.Removes = append(next.Removes, old.Name)
	}
	return nil
}

// writeMarks writes lines of some addresses into a file from a place on, where it ends, synced, and returns how many bytes these are.
func (s *Store) writeMarks(name string, from int64, addresses iter.Seq[string]) (int64, error) {
	f, err := os.OpenFile(s.path(name), os.O_WRONLY|os.O_CREATE, 0o640)
	if err != nil {
		return 0, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for at := range addresses {
		err = errors.Join(err, enc.Encode(markLine{at, s.marks[at]}))
	}
	if err == nil {
		err = f.Truncate(from) // half a line of a disk that was full
	}
	if err == nil {
		_, err = f.WriteAt(b.Bytes(), from)
	}
	if err == nil {
		err = f.Sync()
	}
	return int64(b.Len()), errors.Join(err, f.Close())
}

// marksKept is called when a commit is on disk.
func (s *Store) marksKept() {
	for at := range s.changed {
		s.kept[at] = s.marks[at]
	}
	clear(s.changed)
}

// readMarks returns the marks of the last commit, and removes journals that it does not know.
func (s *Store) readMarks() (map[string][]Mark, error) {
	marks, j := maps.Clone(s.done.Marks), s.done.Journal
	if marks == nil {
		marks = map[string][]Mark{}
	}
	there, err := filepath.Glob(s.path("marks-*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, path := range there {
		if j == nil || filepath.Base(path) != j.Name {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("store: %w", err)
			}
		}
	}
	if j == nil {
		return marks, nil
	}
	s.journal = *j
	f, err := os.Open(s.path(j.Name))
	if err != nil {
		return nil, fmt.Errorf("store: which batches are in it: %w", err)
	}
	defer f.Close() //nolint:errcheck // reading only
	read := int64(0)
	dec := json.NewDecoder(bufio.NewReader(io.LimitReader(f, j.Bytes)))
	for dec.More() {
		var l markLine
		if err := dec.Decode(&l); err != nil {
			return nil, fmt.Errorf("store: %s, after %d bytes of %d: %w", s.path(j.Name), read, j.Bytes, err)
		}
		marks[l.At], read = l.Marks, dec.InputOffset()
	}
	if read+1 != j.Bytes { // and the end of its line
		return nil, fmt.Errorf("store: %s has %d bytes; expected %d, as commit.json says", s.path(j.Name), read, j.Bytes)
	}
	return marks, nil
}
