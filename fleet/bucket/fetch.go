package bucket

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
)

// Fetched is what came into a folder.
type Fetched struct {
	Files  int   `json:"files"` // that count, of the days that were asked for
	Bytes  int64 `json:"bytes"`
	Copied int   `json:"copied"` // of these: the others were there
}

// triesMost is how often a day's manifest is read anew because one of its files was replaced since.
const triesMost = 5

// Fetch brings the days from one to another, both included, into a folder, as a store has them. It may be called again for the same folder:
// what is there and right is not read again, and what does not count any more is removed. A hub's own store is refused.
func Fetch(ctx context.Context, from Objects, into string, first, last time.Time) (Fetched, error) {
	var all Fetched
	if _, err := os.Stat(filepath.Join(into, "commit.json")); err == nil {
		return all, fmt.Errorf("fetch: %s is a hub's store; expected a folder for what is fetched", into)
	}
	if _, err := store.Open(into); err != nil { // a table has its columns there also where no day has rows
		return all, err
	}
	for _, table := range store.Tables() {
		for at := first; !at.After(last); at = at.AddDate(0, 0, 1) {
			folder := store.DayFolder(table, at)
			var got Fetched
			err := ErrNone
			for try := 0; try < triesMost && errors.Is(err, ErrNone); try++ {
				got, err = fetchDay(ctx, from, into, folder)
			}
			if err != nil {
				return all, err
			}
			all.Files, all.Bytes, all.Copied = all.Files+got.Files, all.Bytes+got.Bytes, all.Copied+got.Copied
		}
	}
	return all, nil
}

func fetchDay(ctx context.Context, from Objects, into, folder string) (Fetched, error) {
	var got Fetched
	m, _, _, err := Read(ctx, from, folder)
	if err != nil {
		return got, err
	}
	for _, e := range m.Files {
		copied, err := fetchFile(ctx, from, filepath.Join(into, e.Name), e)
		if err != nil {
			return got, err
		}
		got.Files, got.Bytes = got.Files+1, got.Bytes+e.Bytes
		if copied {
			got.Copied++
		}
	}
	there, err := filepath.Glob(filepath.Join(into, folder, "hour=*", "*"))
	if err != nil {
		return got, fmt.Errorf("fetch: %w", err)
	}
	for _, path := range there {
		if !slices.ContainsFunc(m.Files, func(e Entry) bool { return filepath.Join(into, e.Name) == path }) {
			if err := os.Remove(path); err != nil {
				return got, fmt.Errorf("fetch: %w", err)
			}
		}
	}
	return got, nil
}

// fetchFile makes a file what the manifest says; false: it was that.
func fetchFile(ctx context.Context, from Objects, path string, e Entry) (bool, error) {
	if f, err := os.Open(path); err == nil {
		is, err := entryOfFile(e.Name, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return false, fmt.Errorf("fetch: %w", err)
		}
		if is == e {
			return false, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("fetch: %w", err)
	}
	r, err := from.Get(ctx, e.Name)
	if err != nil {
		return false, fmt.Errorf("%s: %s: %w", from, e.Name, err)
	}
	defer r.Close() //nolint:errcheck // reading only
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return false, fmt.Errorf("fetch: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(path), "*.part") // no engine takes it for a table's file
	if err != nil {
		return false, fmt.Errorf("fetch: %w", err)
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), r)
	if err = errors.Join(err, out.Close()); err == nil && !e.is(n, h.Sum(nil)) {
		err = fmt.Errorf("%d bytes with SHA-256 %x came; expected %d with %s", n, h.Sum(nil), e.Bytes, e.SHA256)
	}
	if err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		_ = os.Remove(out.Name()) // what is there of it helps nobody
		return false, fmt.Errorf("%s: %s: %w", from, e.Name, err)
	}
	return true, nil
}
