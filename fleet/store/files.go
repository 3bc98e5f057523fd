package store

import (
	"cmp"
	"errors"
	"fmt"
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
	rows   []row
}

// byHour sorts what batches have of a table into hours. Rows of an hour are ordered by node and batch, as they came.
func (t *table) byHour(batches []*wire.Batch) []hourRows {
	at := map[int64]int{}
	var list []hourRows
	for _, b := range batches {
		for i := range t.rows(b) {
			r := row{b, i}
			msec := t.msec(r)
			hour := msec / 3600e3
			k, ok := at[hour]
			if !ok {
				k = len(list)
				at[hour] = k
				list = append(list, hourRows{folder: folderOf(msec)})
			}
			list[k].rows = append(list[k].rows, r)
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

// chunk is how many values go to a column at once.
const chunk = 4096

// write makes a file of rows, synced.
func (t *table) write(path string, rows []row) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	err = t.writeTo(f, rows)
	err = cmp.Or(err, f.Sync())
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path) // a full disk: what is there of it helps nobody
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func (t *table) writeTo(f *os.File, rows []row) error {
	schema := t.schema()
	w := parquet.NewGenericWriter[any](f, schema, parquet.Compression(&parquet.Zstd))
	places := schema.Columns() // ordered by name
	values := make([]parquet.Value, 0, chunk)
	for at, out := range w.ColumnWriters() {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == places[at][0] })
		c := &t.columns[i]
		for from := 0; from < len(rows); from += chunk {
			values = values[:0]
			for _, r := range rows[from:min(from+chunk, len(rows))] {
				v := c.value(r)
				level := 0
				if c.node.Optional() && !v.IsNull() {
					level = 1
				}
				values = append(values, v.Level(0, level, at))
			}
			if _, err := out.WriteRowValues(values); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// file is one file of a table.
type file struct {
	name        string // below the store's folder
	first, last uint64 // messages, by their count
	bytes       int64
}

// list returns a table's files in the order of their folders and messages.
func (s *Store) list(table string) ([]file, error) {
	names, err := filepath.Glob(s.path(table, "date=*", "hour=*", "*.parquet"))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var out []file
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			continue // it was taken away meanwhile
		}
		f := file{name: strings.TrimPrefix(name, s.dir+"/"), bytes: st.Size()}
		a, b, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".parquet"), "-")
		first, err1 := strconv.ParseUint(a, 10, 64)
		last, err2 := strconv.ParseUint(b, 10, 64)
		if err1 != nil || err2 != nil {
			continue // somebody else's
		}
		f.first, f.last = first, last
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b file) int {
		return cmp.Or(cmp.Compare(filepath.Dir(a.name), filepath.Dir(b.name)), cmp.Compare(a.first, b.first))
	})
	return out, nil
}

// Usage is what one table takes.
type Usage struct {
	Table string `json:"table"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Usage returns what the tables take.
func (s *Store) Usage() ([]Usage, error) {
	var out []Usage
	for i := range tables {
		files, err := s.list(tables[i].name)
		if err != nil {
			return nil, err
		}
		u := Usage{Table: tables[i].name, Files: len(files)}
		for _, f := range files {
			u.Bytes += f.bytes
		}
		out = append(out, u)
	}
	return out, nil
}

// Expire removes the days that ended more than keep ago, and returns how many files that were.
func (s *Store) Expire(now time.Time, keep time.Duration) (int, error) {
	if !s.reading.TryLock() {
		return 0, nil // the next time: somebody reads
	}
	defer s.reading.Unlock()
	n := 0
	for i := range tables {
		days, err := filepath.Glob(s.path(tables[i].name, "date=*"))
		if err != nil {
			return n, fmt.Errorf("store: %w", err)
		}
		for _, day := range days {
			at, err := time.Parse("2006-01-02", strings.TrimPrefix(filepath.Base(day), "date="))
			if err != nil || at.Unix() == 0 || now.Sub(at.Add(24*time.Hour)) < keep {
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
		}
	}
	return n, nil
}

// Compact merges the files of hours that ended a while ago, where there are several: a commit a minute leaves sixty. Files with messages
// after a count stay as they are. It returns how many files became one less.
func (s *Store) Compact(now time.Time, count uint64) (int, error) {
	merged := 0
	for i := range tables {
		t := &tables[i]
		files, err := s.list(t.name)
		if err != nil {
			return merged, err
		}
		files = slices.DeleteFunc(files, func(f file) bool { return f.last > count || f.last == 0 })
		for len(files) > 0 {
			dir := filepath.Dir(files[0].name)
			n := slices.IndexFunc(files, func(f file) bool { return filepath.Dir(f.name) != dir })
			if n < 0 {
				n = len(files)
			}
			if n > 1 && settled(dir, now) {
				done, err := s.merge(t, files[:n])
				if err != nil || !done {
					return merged, err
				}
				merged += n - 1
			}
			files = files[n:]
		}
	}
	return merged, nil
}

// settled: the hour of a folder ended so long ago that hardly anything comes for it any more.
func settled(dir string, now time.Time) bool {
	text := strings.TrimPrefix(filepath.Base(filepath.Dir(dir)), "date=") + " " + strings.TrimPrefix(filepath.Base(dir), "hour=")
	at, err := time.Parse("2006-01-02 15", text)
	return err == nil && now.Sub(at) >= 2*time.Hour
}

// merge puts the files of one folder into one, by a commit of its own; false: not now, for somebody reads.
func (s *Store) merge(t *table, files []file) (bool, error) {
	if !s.reading.TryLock() {
		return false, nil
	}
	defer s.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.finish(); err != nil {
		return false, err
	}
	from := s.tmp(t)
	var last uint64
	var names []string
	for _, f := range files {
		last, names = max(last, f.last), append(names, f.name)
	}
	if err := s.concat(t, s.path(from), names); err != nil {
		return false, err
	}
	to := filepath.Join(filepath.Dir(files[0].name), fmt.Sprintf("%d-%d.parquet", files[0].first, last))
	next := s.done
	next.Moves, next.Removes = []move{{from, to}}, nil
	for _, name := range names {
		if name != to {
			next.Removes = append(next.Removes, name)
		}
	}
	if err := s.commit(next); err != nil {
		return false, err
	}
	return true, s.finish()
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
	w := parquet.NewGenericWriter[any](out, t.schema(), parquet.Compression(&parquet.Zstd))
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
	if err := out.Sync(); err != nil {
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
