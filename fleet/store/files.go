package store

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
)

// hourRows are the rows of one hour.
type hourRows struct {
	folder string
	rows   []rows
}

// rows are some of a batch that follow each other, from one to before another.
type rows struct {
	b        *wire.Batch
	from, to int
}

// byHour sorts what batches have of a table into hours. Rows of an hour are ordered by node and batch, as they came.
func (t *table) byHour(batches []*wire.Batch) []hourRows {
	at := map[int64]int{}
	var list []hourRows
	for _, b := range batches {
		hour, k := int64(math.MinInt64), 0 // of the row before
		for i := range t.rows(b) {
			msec := t.msec(row{b, i})
			if msec/3600e3 == hour {
				into := list[k].rows
				into[len(into)-1].to++
				continue
			}
			hour = msec / 3600e3
			var ok bool
			if k, ok = at[hour]; !ok {
				k = len(list)
				at[hour] = k
				list = append(list, hourRows{folder: folderOf(msec)})
			}
			list[k].rows = append(list[k].rows, rows{b, i, i + 1})
		}
	}
	slices.SortFunc(list, func(a, b hourRows) int { return cmp.Compare(a.folder, b.folder) })
	return list
}

func (t *table) schema() *parquet.Schema {
	g := parquet.Group{}
	for _, c := range t.columns {
		g[c.name] = c.node
	}
	return parquet.NewSchema(t.name, g)
}

// in reports whether a file can be read and has the table's columns.
func (t *table) in(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // reading only
	st, err := f.Stat()
	if err != nil {
		return false
	}
	p, err := parquet.OpenFile(f, st.Size())
	return err == nil && slices.EqualFunc(p.Schema().Columns(), t.schema().Columns(), slices.Equal)
}

// chunk is how many values go to a column at once.
const chunk = 4096

// write makes a file of rows, synced.
func (t *table) write(path string, all []rows) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = t.writeTo(f, all)
	err = cmp.Or(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // a full disk: what is there of it helps nobody
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// newWriter leaves out of pages their least and greatest values, which it takes as long to find as for the footer, where readers look.
func newWriter(f *os.File, schema *parquet.Schema) *parquet.GenericWriter[any] {
	return parquet.NewGenericWriter[any](f, schema, parquet.Compression(&parquet.Zstd), parquet.DataPageStatistics(false))
}

func (t *table) writeTo(f *os.File, all []rows) error {
	schema := t.schema()
	w := newWriter(f, schema)
	places := schema.Columns() // ordered by name
	values := make([]parquet.Value, chunk)
	for at, out := range w.ColumnWriters() {
		c := &t.columns[slices.IndexFunc(t.columns, func(c column) bool { return c.name == places[at][0] })]
		n := 0
		for _, some := range all {
			for i := some.from; i < some.to; {
				k := min(some.to-i, chunk-n)
				c.fill(values[n:n+k], some.b, i)
				i, n = i+k, n+k
				if n == chunk {
					if _, err := out.WriteRowValues(values); err != nil {
						return err
					}
					n = 0
				}
			}
		}
		if _, err := out.WriteRowValues(values[:n]); err != nil {
			return err
		}
	}
	return w.Close()
}

// File is one file of a table.
type File struct {
	Name        string // below the store's folder: TABLE/date=YYYY-MM-DD/hour=HH/FIRST-LAST.parquet
	First, Last uint64 // messages, by the store's count
	Bytes       int64
}

// ParseName says which messages a file has, by its name; false: it is somebody else's.
func ParseName(name string) (File, bool) {
	dir, base := filepath.Split(name)
	at, ok := strings.CutSuffix(base, ".parquet")
	a, b, ranged := strings.Cut(at, "-")
	first, err1 := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	_, err3 := hourOf(filepath.Clean(dir))
	return File{Name: name, First: first, Last: last}, ok && ranged && errors.Join(err1, err2, err3) == nil
}

// hourOf is when the hour of a folder began.
func hourOf(dir string) (time.Time, error) {
	return time.Parse("date=2006-01-02/hour=15", filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir))
}

// list returns a table's files in the order of their folders and messages.
func (s *Store) list(table string) ([]File, error) { return s.listDays(table + "/date=*") }

func (s *Store) listDays(pattern string) ([]File, error) {
	names, err := filepath.Glob(s.path(pattern, "hour=*", "*.parquet"))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var out []File
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			continue // it was taken away meanwhile
		}
		if f, ok := ParseName(strings.TrimPrefix(name, s.dir+"/")); ok {
			f.Bytes = st.Size()
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b File) int {
		return cmp.Or(cmp.Compare(filepath.Dir(a.Name), filepath.Dir(b.Name)), cmp.Compare(a.First, b.First))
	})
	return out, nil
}

// Expire removes the days that ended more than keep ago, and returns how many files that were. It waits for those who read.
func (s *Store) Expire(now time.Time, keep time.Duration) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	n := 0
	for i := range tables {
		days, err := filepath.Glob(s.path(tables[i].name, "date=*"))
		if err != nil {
			return n, fmt.Errorf("store: %w", err)
		}
		for _, day := range days {
			ended, err := Ended(day, now)
			if err != nil || filepath.Base(day) == exampleDay || ended < keep {
				continue
			}
			files, err := filepath.Glob(filepath.Join(day, "hour=*", "*.parquet"))
			if err != nil {
				return n, fmt.Errorf("store: %w", err)
			}
			if err := os.RemoveAll(day); err != nil {
				return n, fmt.Errorf("store: %w", err)
			}
			n += len(files)
			s.used.changed(strings.TrimPrefix(day, s.dir+"/"))
		}
	}
	return n, nil
}

// Compact merges the files of hours that ended a while ago, where there are several: a commit a minute leaves sixty. Files with messages
// after a count stay as they are. It returns how many files became one less. It waits for those who read, before each merger anew, and an hour that
// cannot be merged is not the others' trouble.
func (s *Store) Compact(now time.Time, count uint64) (merged int, failed error) {
	for i := range tables {
		t := &tables[i]
		files, err := s.list(t.name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		files = slices.DeleteFunc(files, func(f File) bool { return f.Last > count || f.Last == 0 })
		for hour := range hours(files) {
			if n := len(hour); n > 1 && settled(hour[0], now) {
				if err := s.merge(t, hour); err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				merged += n - 1
			}
		}
	}
	return merged, failed
}

// hours yields files that are sorted by folder, hour by hour, and Days day by day.
func hours(files []File) iter.Seq[[]File] {
	return inRuns(files, func(f File) string { return filepath.Dir(f.Name) })
}

// Days yields files in the order of Settled by their table and day (File.Day).
func Days(files []File) iter.Seq[[]File] { return inRuns(files, File.Day) }

// inRuns yields the files that follow each other in one folder.
func inRuns(files []File, folder func(File) string) iter.Seq[[]File] {
	return func(yield func([]File) bool) {
		for len(files) > 0 {
			first := folder(files[0])
			n := slices.IndexFunc(files, func(f File) bool { return folder(f) != first })
			if n < 0 {
				n = len(files)
			}
			if !yield(files[:n]) {
				return
			}
			files = files[n:]
		}
	}
}

// settled: the hour of a file ended so long ago that hardly anything comes for it any more.
func settled(f File, now time.Time) bool {
	at, err := hourOf(filepath.Dir(f.Name))
	return err == nil && now.Sub(at) >= 2*time.Hour
}

// merge puts the files of one folder into one, by a commit of its own.
func (s *Store) merge(t *table, files []File) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.finish(); err != nil {
		return err
	}
	from := s.tmp(t)
	var last uint64
	var names []string
	for _, f := range files {
		last, names = max(last, f.Last), append(names, f.Name)
	}
	if err := s.concat(t, s.path(from), names); err != nil {
		return err
	}
	to := filepath.Join(filepath.Dir(files[0].Name), fmt.Sprintf("%d-%d.parquet", files[0].First, last))
	next := s.done
	next.Moves, next.Removes = []move{{from, to}}, nil
	for _, name := range names {
		if name != to {
			next.Removes = append(next.Removes, name)
		}
	}
	if err := s.commit(next); err != nil {
		return err
	}
	return s.finish()
}

// concat writes the rows of some files into one.
func (s *Store) concat(t *table, path string, names []string) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(path) // what is there of it helps nobody
		}
	}()
	w := newWriter(out, t.schema())
	for _, name := range names {
		if err := s.each(name, func(rg parquet.RowGroup) error {
			rows := rg.Rows()
			_, err := parquet.CopyRows(w, rows)
			return errors.Join(err, rows.Close())
		}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.fsync(out); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// each calls f for each row group of a file.
func (s *Store) each(name string, f func(rg parquet.RowGroup) error) error {
	in, err := os.Open(s.path(name))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer in.Close() //nolint:errcheck // reading only
	st, err := in.Stat()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p, err := parquet.OpenFile(in, st.Size())
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	for _, rg := range p.RowGroups() {
		if err := f(rg); err != nil {
			return fmt.Errorf("store: %s: %w", name, err)
		}
	}
	return nil
}
