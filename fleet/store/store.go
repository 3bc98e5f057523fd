// Package store keeps what nodes send as Parquet files, by table, date and hour: each batch once, whatever crashes when.
//
// What was taken in since the last commit is in memory. A commit writes it to files under tmp, syncs them, and replaces the
// file commit.json, which says which batches are in (of a large fleet: by a journal, marks.go) and where the files belong; then they are moved there. Whoever opens the store
// does the moves of the last commit again and throws away what no commit knows. So a batch is in the store when it is in
// commit.json, and until then whoever sent it may send it again.
package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// Mark is how far a spool of a node is in the store: batches come in the order of their numbers.
type Mark struct {
	Spool string `json:"spool"`
	Seq   uint64 `json:"seq"`
}

// maxMarks is how many spools of a node are remembered: an agent draws one at each start, and sends what the one before left
// over first.
const maxMarks = 16

// commit is the file commit.json.
type commit struct {
	Version int `json:"version"`
	// Stream says which one was read, and Through the last message of it that is in the store, by part. One that is not there was never read.
	Stream  string  `json:"stream"`
	Through through `json:"through"`
	// Count is how many messages were taken in, of all streams there were: files are named by it.
	Count   uint64            `json:"count"`
	Marks   map[string][]Mark `json:"marks,omitempty"`   // by node and part (address); the spool that was used last is the last
	Journal *journal          `json:"journal,omitempty"` // in the place of Marks
	Audit   int64             `json:"audit,omitempty"`   // bytes of the hub's audit whose acts are in the store
	Moves   []move            `json:"moves,omitempty"`
	Removes []string          `json:"removes,omitempty"`
}

// move is from tmp to where a file belongs, both below the store's folder.
type move struct {
	From string `json:"from"`
	To   string `json:"to"`
}

const commitVersion = 1

// through is a message by part. Of a store that knows part 0 only it is one number.
type through map[int]uint64

// MarshalJSON implements json.Marshaler.
func (t through) MarshalJSON() ([]byte, error) {
	if _, ok := t[0]; ok && len(t) == 1 || len(t) == 0 {
		return json.Marshal(t[0])
	}
	return json.Marshal(map[int]uint64(t))
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *through) UnmarshalJSON(b []byte) error {
	var one uint64
	if json.Unmarshal(b, &one) == nil {
		*t = through{0: one}
		return nil
	}
	return json.Unmarshal(b, (*map[int]uint64)(t))
}

// Store is one folder. Its methods may be called by several goroutines.
type Store struct {
	dir  string
	used used

	mu      sync.Mutex
	done    commit // as it is on disk
	marks   map[string][]Mark
	kept    map[string][]Mark // of these, as the last commit has them
	changed map[string]bool   // addresses whose marks differ
	inline  int               // so many are in commit.json
	journal journal           // the others; Name "": there is none
	parts   []int             // that are read; nil: nobody has said
	through uint64
	count   uint64
	first   uint64 // count of the first message since the last commit; 0: none
	pending []*wire.Batch
	sheets  []wire.SpecSheet // published since the last commit, one spec in each
	rows    int
	run     string // drawn at Open: part of the names below tmp ...
	files   uint64 // ... and how many were given

	// Of the audit, whose writer must wait for no commit or merger: an operator waits for it.
	acting sync.Mutex
	acts   []wire.Act // since the last commit, through byte audit
	audit  int64

	// reading is held by who reads files, so that none is taken away meanwhile. Who takes files away waits for those who read, and who comes to read waits
	// for them: somebody who asks all the time must not keep files for ever.
	reading sync.RWMutex

	// A test may end a process between any two things that are done to files, and lose what was not synced: it replaces these.
	fsync func(f *os.File) error
	point func()
}

// Open opens a folder, and finishes what an earlier process had begun to commit.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, run: rand.Text(), inline: inlineMarks, changed: map[string]bool{}, done: commit{Version: commitVersion}, fsync: (*os.File).Sync, point: func() {}}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o750); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	b, err := os.ReadFile(s.path("commit.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("store: %w", err)
	default:
		if err := json.Unmarshal(b, &s.done); err != nil {
			return nil, fmt.Errorf("store: %s: %w", s.path("commit.json"), err)
		}
		if s.done.Version > commitVersion {
			return nil, fmt.Errorf("store: %s is of version %d; known here: %d", s.path("commit.json"), s.done.Version, commitVersion)
		}
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	left, err := os.ReadDir(s.path("tmp"))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, e := range left {
		if err := os.Remove(s.path("tmp", e.Name())); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	for i := range tables {
		if err := s.example(&tables[i]); err != nil {
			return nil, err
		}
		if b != nil {
			if err := s.discard(tables[i].name); err != nil {
				return nil, err
			}
		}
	}
	if s.kept, err = s.readMarks(); err != nil {
		return nil, err
	}
	s.marks, s.count, s.audit = maps.Clone(s.kept), s.done.Count, s.done.Audit
	return s, nil
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// tmp is a name below tmp that no process has used before. The last commit's moves stay in commit.json, and whoever opens the store does them
// again: a file that is half written must never have the name of one that they move.
func (s *Store) tmp(t *table) string {
	s.files++
	return fmt.Sprintf("tmp/%s-%s-%d", t.name, s.run, s.files)
}

// discard removes the files that a copy of a running store has too many of, commit.json being copied before them: those of later commits, whose
// batches come again or are lost with what the copy has not, and those that are in a merged one beside them.
func (s *Store) discard(table string) error {
	files, err := s.list(table)
	if err != nil {
		return err
	}
	for hour := range hours(files) {
		for _, f := range hour {
			merged := slices.ContainsFunc(hour, func(o File) bool { return o != f && o.Last <= s.done.Count && o.Holds(f) })
			if f.Last <= s.done.Count && !merged || f.Last == 0 {
				continue
			}
			if err := os.Remove(s.path(f.Name)); err != nil {
				return fmt.Errorf("store: %w", err)
			}
		}
	}
	return nil
}

// Dir is the store's folder.
func (s *Store) Dir() string { return s.dir }

// exampleDay is where the files without rows lie.
const exampleDay = "date=1970-01-01"

// example writes a file without rows, so that a table has its columns, also those of a later version, before it has anything else.
func (s *Store) example(t *table) error {
	path := s.path(t.name, exampleDay, "hour=00", "0-0.parquet")
	if t.in(path) {
		return nil
	}
	if err := t.write(s.path("tmp", "example"), nil); err != nil {
		return err
	}
	return s.move(move{"tmp/example", strings.TrimPrefix(path, s.dir+"/")})
}

// From returns the stream's message to go on with. stream says which one it is; of another one than before all messages are new,
// and the batches' own names tell which of them are not. parts are those that are read from then on, as long as the store is open; of none it is 0.
func (s *Store) From(stream string, parts ...int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done.Stream != stream {
		s.done.Stream, s.done.Through, s.parts = stream, through{}, nil
	}
	if s.parts == nil {
		s.parts = parts
		if len(parts) == 0 {
			s.parts = []int{0}
		}
		s.through = s.committed()
	}
	return s.through + 1
}

// committed is the message through which all parts that are read are in the store.
func (s *Store) committed() uint64 {
	least := s.done.Through[0]
	for i, p := range s.parts {
		if t := s.done.Through[p]; i == 0 || t < least {
			least = t
		}
	}
	return least
}

// Put takes the batch of a message in; fresh is false where it is there already. A batch that is no good is passed over
// by Put with nil: its message is done with as well.
func (s *Store) Put(message uint64, b *wire.Batch) (fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if message <= s.through {
		return false
	}
	s.through = message
	s.count++
	if s.first == 0 {
		s.first = s.count
	}
	if b == nil || message <= s.done.Through[b.Part] || !s.mark(b) {
		return false
	}
	s.pending = append(s.pending, b)
	s.rows += b.Samples.Len() + len(b.Decisions) + len(b.Incidents)
	return true
}

// AuditFrom returns from which byte on the hub's audit is to be put in, which has so many. One that is shorter than it was comes from a backup, or is
// another one: what it says counts as put in.
func (s *Store) AuditFrom(size int64) int64 {
	s.acting.Lock()
	defer s.acting.Unlock()
	s.audit = min(s.audit, size)
	return s.audit
}

// PutAct takes a line of the hub's audit in, which ends at a byte of that file: a hub that ended before the commit puts it again.
func (s *Store) PutAct(act wire.Act, end int64) {
	s.acting.Lock()
	defer s.acting.Unlock()
	s.acts, s.audit = append(s.acts, act), end
}

// PutSheet takes a published sheet of specs in. It goes to disk with the next commit, and is lost with a process that ends before.
func (s *Store) PutSheet(sh *wire.SpecSheet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range sh.Specs {
		one := *sh
		one.Specs = sh.Specs[i : i+1 : i+1]
		s.sheets = append(s.sheets, one)
	}
}

// Pending is how many rows wait for a commit.
func (s *Store) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows
}

// Committed is the stream's last message that is in the store for good, and how many of all streams are.
func (s *Store) Committed() (message, count uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed(), s.done.Count
}

// Commit puts what waits into the store. After an error it still waits.
func (s *Store) Commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acting.Lock()
	acts, audit := s.acts, s.audit
	s.acting.Unlock()
	own := len(s.sheets)+len(acts) > 0 || audit != s.done.Audit
	if s.first == 0 && len(s.changed) == 0 && !own {
		return nil
	}
	if s.first == 0 && own { // what is the hub's own counts as a message, since files are named by the count
		s.count++
		s.first = s.count
	}
	if err := s.finish(); err != nil { // of a commit whose files could not be moved
		return err
	}
	next := commit{Version: commitVersion, Stream: s.done.Stream, Through: maps.Clone(s.done.Through), Count: s.count, Audit: audit}
	if next.Through == nil {
		next.Through = through{}
	}
	for _, p := range s.parts {
		next.Through[p] = max(next.Through[p], s.through)
	}
	name := fmt.Sprintf("%d-%d", s.first, s.count)
	pending := append(slices.Clip(s.pending), &wire.Batch{Sheets: s.sheets, Acts: acts})
	for i := range tables {
		t := &tables[i]
		for _, hour := range t.byHour(pending) {
			from := s.tmp(t)
			if err := t.write(s.path(from), hour.rows); err != nil {
				return err
			}
			next.Moves = append(next.Moves, move{from, filepath.Join(t.name, hour.folder, name+".parquet")})
		}
	}
	if err := s.keepMarks(&next); err != nil {
		return err
	}
	if err := s.commit(next); err != nil {
		return err
	}
	s.marksKept()
	s.pending, s.sheets, s.rows, s.first = nil, nil, 0, 0
	s.acting.Lock()
	s.acts = s.acts[len(acts):]
	s.acting.Unlock()
	return s.finish()
}

// commit replaces commit.json.
func (s *Store) commit(next commit) error {
	b, err := json.Marshal(&next)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.point()
	if err := Replace(s.path("commit.json"), b); err != nil {
		return err
	}
	s.done = next
	s.point()
	return nil
}

// Replace writes a file so that it is there whole or as it was before, also after a power cut.
func Replace(path string, data []byte) error {
	return ReplaceWith(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// unended is in the name of what shall replace a file, after that file's.
const unended = ".new"

// ReplaceWith is Replace for what is written bit by bit. What a process that ended in it left is there until Unended.
func ReplaceWith(path string, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+unended+"*")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is there of it helps nobody
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Unended removes what earlier processes wrote to replace a file, and did not end. Nobody may be replacing it.
func Unended(path string) error {
	files, err := os.ReadDir(filepath.Dir(path))
	for _, f := range files {
		if strings.HasPrefix(f.Name(), filepath.Base(path)+unended) {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), f.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// finish does what the last commit says, and may be done any number of times.
func (s *Store) finish() error {
	for _, m := range s.done.Moves {
		if err := s.move(m); err != nil {
			return err
		}
		s.used.changed(File{Name: m.To}.Day())
		s.point()
	}
	s.done.Moves = nil
	for _, name := range s.done.Removes {
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
		s.used.changed(File{Name: name}.Day())
		s.point()
	}
	s.done.Removes = nil
	return nil
}

func (s *Store) move(m move) error {
	to := s.path(m.To)
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err := os.Rename(s.path(m.From), to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // moved before, and perhaps merged into another or too old since
	}
	if err == nil {
		err = syncDir(filepath.Dir(to))
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read keeps files from being taken away until the returned function is called. It waits while that is under way, or about to be.
func (s *Store) Read(ctx context.Context) (done func(), err error) {
	got := make(chan struct{})
	go func() {
		s.reading.RLock()
		close(got)
	}()
	select {
	case <-got:
		return s.reading.RUnlock, nil
	case <-ctx.Done():
		go func() {
			<-got
			s.reading.RUnlock()
		}()
		return nil, fmt.Errorf("store: its files are being merged or removed: %w", ctx.Err())
	}
}

// folderOf is the date and hour of a time, as folders that query engines know as columns.
func folderOf(msec int64) string {
	at := time.UnixMilli(msec).UTC()
	return filepath.Join("date="+at.Format("2006-01-02"), "hour="+at.Format("15"))
}
