package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Tables names the tables.
func Tables() []string {
	var names []string
	for i := range tables {
		names = append(names, tables[i].name)
	}
	return names
}

// Day is the folder of a file's table and date: TABLE/date=YYYY-MM-DD.
func (f File) Day() string { return filepath.Dir(filepath.Dir(f.Name)) }

// Holds reports whether a file has all the messages of another one of its hour: it came of a merger with it, or is the same.
func (f File) Holds(other File) bool {
	return filepath.Dir(f.Name) == filepath.Dir(other.Name) && f.First <= other.First && other.Last <= f.Last
}

// DayFolder names the folder of a table's day.
func DayFolder(table string, day time.Time) string {
	return filepath.Join(table, "date="+day.UTC().Format(time.DateOnly))
}

// Ended says how long ago the day of such a folder ended; negative: it goes on.
func Ended(folder string, now time.Time) (time.Duration, error) {
	at, err := time.Parse(time.DateOnly, strings.TrimPrefix(filepath.Base(folder), "date="))
	if err != nil {
		return 0, fmt.Errorf("store: %s: %w", folder, err)
	}
	return now.Sub(at.Add(24 * time.Hour)), nil
}

// Settled returns the files that hardly change any more: each is all that the folder has of an hour that ended a while ago.
func (s *Store) Settled(now time.Time) ([]File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.finish(); err != nil { // of a merger whose files could not be removed: rows would be there twice
		return nil, err
	}
	var out []File
	for i := range tables {
		files, err := s.list(tables[i].name)
		if err != nil {
			return nil, err
		}
		for hour := range hours(files) {
			if f := hour[0]; len(hour) == 1 && f.Last > 0 && settled(f, now) {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// Drop removes files that are kept elsewhere, and returns how many: none that is another than it was. It waits for those who read.
func (s *Store) Drop(files []File) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.finish(); err != nil {
		return 0, err
	}
	n := 0
	for _, f := range files {
		st, err := os.Stat(s.path(f.Name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() != f.Bytes {
			continue // merged meanwhile
		}
		if err == nil {
			err = os.Remove(s.path(f.Name))
		}
		if err != nil {
			return n, fmt.Errorf("store: %w", err)
		}
		n++
		s.used.changed(f.Day())
		_ = os.Remove(s.path(filepath.Dir(f.Name))) // fails while anything is in it
		_ = os.Remove(s.path(f.Day()))              // likewise
	}
	return n, nil
}
