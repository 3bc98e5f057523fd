package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/commensal-io/commensal/fleet/store"
)

// drop removes from the folder what the bucket has and the folder need not have. The bucket is asked anew about each file: by now somebody may
// have emptied it.
func (m *Mirror) drop(ctx context.Context, now time.Time, files []store.File) error {
	learned := m.learned.Load()
	var sure []store.File
	for list := range store.Days(files) {
		folder := list[0].Day()
		ended, err := store.Ended(folder, now)
		if err != nil || ended < m.cfg.KeepLocal {
			continue
		}
		list = slices.DeleteFunc(slices.Clone(list), func(f store.File) bool { return f.Last > learned })
		if len(list) == 0 {
			continue
		}
		if d := m.days[folder]; d != nil {
			d.known = false
		}
		d, err := m.day(ctx, folder)
		if err != nil {
			return err
		}
		for _, f := range list {
			ok, err := m.has(ctx, d, f)
			if err != nil {
				return err
			}
			if ok {
				sure = append(sure, f)
			}
		}
	}
	n, err := m.store.Drop(sure)
	m.count(func(st *Status) { st.Dropped += uint64(max(0, n)) }) //nolint:gosec // not negative
	return err
}

// has reports whether manifest and bucket have a file as the folder has it. One that they have not is copied by the next round.
func (m *Mirror) has(ctx context.Context, d *day, f store.File) (bool, error) {
	in, err := os.Open(filepath.Join(m.store.Dir(), f.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // merged meanwhile
	}
	if err != nil {
		return false, fmt.Errorf("bucket: %w", err)
	}
	defer in.Close() //nolint:errcheck // reading only
	is, err := entryOfFile(f.Name, in)
	if err != nil {
		return false, fmt.Errorf("bucket: %w", err)
	}
	e := d.find(f)
	if e == nil {
		return false, nil
	}
	if *e == is {
		err = verify(ctx, m.to, is)
	} else {
		err = errOther
	}
	if errors.Is(err, ErrNone) || errors.Is(err, errOther) {
		d.doubt[f.Name] = true
		return false, nil
	}
	return err == nil, err
}

// goneMost bounds the list of files that somebody deleted.
const goneMost = 20

// tidy looks through the whole bucket: days that are too old go, and what a hub that ended has left behind.
func (m *Mirror) tidy(ctx context.Context, now time.Time, local []store.File) error {
	var gone []string
	for _, table := range store.Tables() {
		list, err := m.to.List(ctx, table+"/")
		if err != nil {
			return fmt.Errorf("%s: %w", m.to, err)
		}
		days := map[string][]Object{}
		for _, o := range list {
			if f, ok := store.ParseName(o.Name); ok {
				days[f.Day()] = append(days[f.Day()], o)
			} else if _, ok := number(o.Name); ok {
				days[filepath.Dir(o.Name)] = append(days[filepath.Dir(o.Name)], o)
			}
		}
		for folder, objects := range days {
			if m.old(folder, now) {
				err = m.expire(ctx, folder, objects)
			} else {
				err = m.tidyDay(ctx, folder, objects, local, &gone)
			}
			if err != nil {
				return err
			}
		}
	}
	slices.Sort(gone)
	m.count(func(st *Status) { st.Gone = gone[:min(len(gone), goneMost)] })
	return nil
}

// tidyDay compares what lies in a day with its manifest.
func (m *Mirror) tidyDay(ctx context.Context, folder string, objects []Object, local []store.File, gone *[]string) error {
	d, err := m.day(ctx, folder)
	if err != nil {
		return err
	}
	for _, e := range d.m.Files {
		switch {
		case slices.ContainsFunc(objects, func(o Object) bool { return o.Name == e.Name }):
		case slices.ContainsFunc(local, func(f store.File) bool { return f.Name == e.Name }):
			d.doubt[e.Name] = true // copied by the next round
		default:
			*gone = append(*gone, e.Name)
		}
	}
	return m.sweep(ctx, d, objects, local)
}

// expire deletes a day: manifests first, so that nobody is told of files that are gone.
func (m *Mirror) expire(ctx context.Context, folder string, objects []Object) error {
	delete(m.days, folder)
	slices.SortStableFunc(objects, func(a, b Object) int {
		_, x := number(a.Name)
		_, y := number(b.Name)
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	for _, o := range objects {
		if err := m.delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}
