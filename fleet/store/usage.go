package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
)

// A store of months has ten thousands of files, and people look at it every few seconds: what a day takes is counted again only after its files
// changed.

// Usage is what one table takes.
type Usage struct {
	Table string `json:"table"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// used is what days take, by their folders (File.Day).
type used struct {
	mu    sync.Mutex
	days  map[string]Usage // nil: nobody asked yet
	stale map[string]bool  // to be counted again
}

// changed is called after files of a day came or went.
func (u *used) changed(day string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.days != nil {
		u.stale[day] = true
	}
}

// Usage returns what the tables take.
func (s *Store) Usage() ([]Usage, error) {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.days == nil {
		days, err := filepath.Glob(s.path("*", "date=*"))
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		u.days, u.stale = map[string]Usage{}, map[string]bool{}
		for _, path := range days {
			u.stale[strings.TrimPrefix(path, s.dir+"/")] = true
		}
	}
	for day := range u.stale {
		files, err := s.listDays(day)
		if err != nil {
			return nil, err
		}
		n := Usage{Files: len(files)}
		for _, f := range files {
			n.Bytes += f.Bytes
		}
		if u.days[day] = n; n.Files == 0 {
			delete(u.days, day)
		}
		delete(u.stale, day)
	}
	out := make([]Usage, len(tables))
	at := map[string]*Usage{}
	for i := range tables {
		out[i].Table = tables[i].name
		at[tables[i].name] = &out[i]
	}
	for day, n := range u.days {
		if t := at[filepath.Dir(day)]; t != nil {
			t.Files, t.Bytes = t.Files+n.Files, t.Bytes+n.Bytes
		}
	}
	return out, nil
}
