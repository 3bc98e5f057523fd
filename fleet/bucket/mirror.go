package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
)

// Status is how the bucket stands to the folder.
type Status struct {
	Bucket       string    `json:"bucket"`
	Problem      string    `json:"problem,omitempty"` // why it has not what it should; "": it has
	Since        time.Time `json:"since,omitzero"`    // of the problem
	Complete     time.Time `json:"complete,omitzero"` // when all that was settled was there
	WaitingFiles int       `json:"waiting_files"`     // settled, and not there yet
	WaitingBytes int64     `json:"waiting_bytes"`
	Copied       uint64    `json:"copied_files"` // since the start, like what follows
	CopiedBytes  int64     `json:"copied_bytes"`
	Dropped      uint64    `json:"dropped_files"` // from the folder
	Deleted      uint64    `json:"deleted_files"` // from the bucket: replaced, or too old
	// Gone are files that a manifest names and that neither bucket nor folder has, at the last look through all: somebody else deleted them.
	Gone []string `json:"gone,omitempty"`
}

// Config is what a mirror is told.
type Config struct {
	Keep      time.Duration // of the bucket's days
	KeepLocal time.Duration // of the folder's days that the bucket has; Keep or less
}

// Mirror fills a bucket from a store. Its rounds are one goroutine's; Learned and Status may be called by any.
type Mirror struct {
	cfg     Config
	store   *store.Store
	to      Objects
	learned atomic.Uint64

	owned  bool // the bucket is known to be this store's
	days   map[string]*day
	tidied time.Time // when the whole bucket was looked through

	mu sync.Mutex
	st Status
}

// day is what is known of a day in the bucket.
type day struct {
	known bool // as follows; false: read the bucket again
	m     Manifest
	in    uint64          // the manifest's number
	seen  uint64          // the greatest number there, also of one that cannot be read
	tried uint64          // the greatest number that was written, whatever came of it
	swept bool            // nothing else lies there
	doubt map[string]bool // files that the bucket turned out not to have
}

const (
	tidyEvery    = time.Hour
	failuresMost = 3 // days in a round: a bucket that is away must not be asked about each
)

// New makes a mirror.
func New(s *store.Store, to Objects, cfg Config) *Mirror {
	return &Mirror{cfg: cfg, store: s, to: to, days: map[string]*day{}, st: Status{Bucket: to.String()}}
}

// Learned says up to which of the store's messages what was learned is kept: later ones are read from the folder again after a crash.
func (m *Mirror) Learned(count uint64) { m.learned.Store(count) }

// Status says how it stands.
func (m *Mirror) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.st
}

func (m *Mirror) count(f func(st *Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.st)
}

// Round copies what is settled, removes from the folder what need not be there any more, and from the bucket what is too old. After an
// error nothing is lost, and the next round goes on.
func (m *Mirror) Round(ctx context.Context, now time.Time) error {
	away := true
	files, err := m.store.Settled(now)
	if err == nil {
		files = slices.DeleteFunc(files, func(f store.File) bool { return m.old(f.Day(), now) }) // the store's own to remove
		if err = m.own(ctx); err == nil {
			away, err = m.fill(ctx, now, files)
		}
		m.wait(now, files)
	}
	if !away {
		err = cmp.Or(err, m.drop(ctx, now, files)) // one day's trouble is not the others'
	}
	if !away && now.Sub(m.tidied) >= tidyEvery {
		failed := m.tidy(ctx, now, files)
		if failed == nil {
			m.tidied = now
		}
		err = cmp.Or(err, failed)
	}
	m.count(func(st *Status) {
		switch {
		case err == nil:
			st.Problem, st.Since = "", time.Time{}
		case st.Problem == "":
			st.Since = now
			fallthrough
		default:
			st.Problem = err.Error()
		}
	})
	return err
}

// wait notes what is not there yet.
func (m *Mirror) wait(now time.Time, files []store.File) {
	n, size := 0, int64(0)
	for _, f := range files {
		if d := m.days[f.Day()]; d == nil || !d.known || d.find(f) == nil {
			n, size = n+1, size+f.Bytes
		}
	}
	m.count(func(st *Status) {
		if st.WaitingFiles, st.WaitingBytes = n, size; n == 0 {
			st.Complete = now
		}
	})
}

func entryOf(name string, b []byte) Entry {
	sum := sha256.Sum256(b)
	return Entry{Name: name, Bytes: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}
}

// put writes an object and looks whether it is there.
func (m *Mirror) put(ctx context.Context, e Entry, r io.ReadSeeker) error {
	var sum [sha256.Size]byte
	if _, err := hex.Decode(sum[:], []byte(e.SHA256)); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := m.to.Put(ctx, e.Name, r, e.Bytes, sum); err != nil {
		return fmt.Errorf("%s: %s: %w", m.to, e.Name, err)
	}
	return verify(ctx, m.to, e)
}

// fill brings the manifests up to the files; away: it is no use to go on.
func (m *Mirror) fill(ctx context.Context, now time.Time, files []store.File) (away bool, first error) {
	failures := 0
	for list := range store.Days(files) {
		err := m.fillDay(ctx, now, list[0].Day(), list)
		first = cmp.Or(first, err)
		if err == nil || errors.Is(err, errHistory) {
			continue
		}
		if failures++; failures >= failuresMost || ctx.Err() != nil {
			return true, first
		}
	}
	return false, first
}

// old: the bucket does not keep that day any more.
func (m *Mirror) old(folder string, now time.Time) bool {
	ended, err := store.Ended(folder, now)
	return err == nil && ended >= m.cfg.Keep
}

// day returns what is known of a day, and reads it where nothing is.
func (m *Mirror) day(ctx context.Context, folder string) (*day, error) {
	d := m.days[folder]
	if d == nil {
		d = &day{doubt: map[string]bool{}}
		m.days[folder] = d
	}
	if d.known {
		return d, nil
	}
	got, in, seen, err := Read(ctx, m.to, folder)
	if err != nil {
		return nil, err
	}
	d.known, d.m, d.in, d.seen, d.swept = true, got, in, seen, false
	return d, nil
}

// find returns the entry of a file, nil when there is none to rely on.
func (d *day) find(f store.File) *Entry {
	for i := range d.m.Files {
		if e := &d.m.Files[i]; e.Name == f.Name && e.Bytes == f.Bytes && !d.doubt[f.Name] {
			return e
		}
	}
	return nil
}

// fillDay copies a day's files, publishes the manifest that names them, and deletes what they replace.
func (m *Mirror) fillDay(ctx context.Context, now time.Time, folder string, files []store.File) error {
	d, err := m.day(ctx, folder)
	if err != nil {
		return err
	}
	next, changed := slices.Clone(d.m.Files), false
	for _, f := range files {
		if d.find(f) != nil {
			continue
		}
		rest, conflict := without(next, f)
		if conflict != nil {
			err = fmt.Errorf("%s: %w", m.to, conflict)
			continue
		}
		e, failed := m.copy(ctx, f)
		if errors.Is(failed, fs.ErrNotExist) {
			continue // merged meanwhile
		}
		if failed != nil {
			err = failed
			break // what is copied by now counts nevertheless, or a file that cannot be would have the others copied over and over
		}
		next, changed = append(rest, e), true
	}
	if changed {
		slices.SortFunc(next, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
		if failed := m.publish(ctx, now, folder, d, next); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if d.swept {
		return err
	}
	list, failed := m.to.List(ctx, folder+"/")
	if failed != nil {
		return errors.Join(err, fmt.Errorf("%s: %w", m.to, failed))
	}
	return errors.Join(err, m.sweep(ctx, d, list, files))
}

// without takes out of entries what a file replaces. One that has some of its messages and others is of another past of the store.
func without(entries []Entry, f store.File) ([]Entry, error) {
	var rest []Entry
	for _, e := range entries {
		is, _ := store.ParseName(e.Name) // Read looked at the names
		if f.Holds(is) {
			continue
		}
		if filepath.Dir(is.Name) == filepath.Dir(f.Name) && is.First <= f.Last && f.First <= is.Last {
			return nil, fmt.Errorf("%s has messages of %s, and others: %w", e.Name, f.Name, errHistory)
		}
		rest = append(rest, e)
	}
	return rest, nil
}

// copy copies a file.
func (m *Mirror) copy(ctx context.Context, f store.File) (Entry, error) {
	in, err := os.Open(filepath.Join(m.store.Dir(), f.Name)) // once it is open it may be merged and removed
	if err != nil {
		return Entry{}, fmt.Errorf("bucket: %w", err)
	}
	defer in.Close() //nolint:errcheck // reading only
	e, err := entryOfFile(f.Name, in)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("bucket: %w", err)
	}
	if err := m.put(ctx, e, in); err != nil {
		return Entry{}, err
	}
	m.count(func(st *Status) { st.Copied, st.CopiedBytes = st.Copied+1, st.CopiedBytes+e.Bytes })
	return e, nil
}

func entryOfFile(name string, in io.Reader) (Entry, error) {
	h := sha256.New()
	n, err := io.Copy(h, in)
	return Entry{Name: name, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// publish writes a manifest. Its number is greater than all that were tried, by an earlier hub as well: they are times.
func (m *Mirror) publish(ctx context.Context, now time.Time, folder string, d *day, files []Entry) error {
	next := Manifest{Version: manifestVersion, Files: files}
	b, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	n := max(d.seen+1, d.tried+1, uint64(max(0, now.UnixMilli())))
	d.tried, d.known = n, false // until it is there
	if err := m.put(ctx, entryOf(manifestName(folder, n), b), bytes.NewReader(b)); err != nil {
		return err
	}
	d.known, d.m, d.in, d.seen, d.swept, d.doubt = true, next, n, n, false, map[string]bool{}
	return nil
}

// sweep deletes what lies in a day of the bucket and counts no more: manifests before the one in force, and files that it does not name. Files
// that the folder has as well stay, for they are about to count; and all stays while a later manifest may be there, or come yet. So no name
// is deleted that is written again: a deletion, too, may take effect late.
func (m *Mirror) sweep(ctx context.Context, d *day, list []Object, local []store.File) error {
	for _, o := range list {
		if n, ok := number(o.Name); ok && n > d.seen {
			d.known = false // of a hub that ended, and late
			return nil
		}
	}
	if d.tried > d.in {
		return nil
	}
	for _, o := range list {
		stays := slices.ContainsFunc(d.m.Files, func(e Entry) bool { return e.Name == o.Name }) ||
			slices.ContainsFunc(local, func(f store.File) bool { return f.Name == o.Name })
		n, manifest := number(o.Name)
		if _, file := store.ParseName(o.Name); stays || manifest && n >= d.in || !manifest && !file {
			continue
		}
		if err := m.delete(ctx, o.Name); err != nil {
			return err
		}
	}
	d.swept = true
	return nil
}

func (m *Mirror) delete(ctx context.Context, name string) error {
	if err := m.to.Delete(ctx, name); err != nil {
		return fmt.Errorf("%s: %s: %w", m.to, name, err)
	}
	m.count(func(st *Status) { st.Deleted++ })
	return nil
}
