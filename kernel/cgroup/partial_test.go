package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

// deafFS fails to list one directory.
type deafFS struct {
	*hostfs.Root
	path string
	err  error
}

func (f *deafFS) ReadDir(path string) ([]hostfs.DirEntry, error) {
	if path == f.path && f.err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: path, Err: f.err}
	}
	return f.Root.ReadDir(path)
}

// A group that cannot be listed takes nothing from the list but what it holds, and not even
// that when it was listed before.
func TestListGoesPastWhatCannotBeListed(t *testing.T) {
	dir := copyFixture(t)
	f := &deafFS{Root: hostfs.NewRoot(dir), path: "/sys/fs/cgroup/cpu/batch"}
	d := fixtureDriver(t, f)
	all, err := d.List()
	if err != nil || !slices.Contains(all, "/batch/job-1") {
		t.Fatal(all, err)
	}
	f.err = unix.EIO
	// Its number of links says that what was listed is not all there is.
	if err := os.Mkdir(filepath.Join(dir, f.path, "job-new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if links, err := f.Links("/sys/fs/cgroup/cpu"); err == nil && links > 1 { // some file systems count none
		if got, err := d.List(); err == nil || !slices.Equal(got, all) {
			t.Errorf("listed before: %v, %v; want %v", got, err, all)
		}
	}
	fresh := fixtureDriver(t, f)
	less := slices.DeleteFunc(slices.Clone(all), func(p string) bool { return strings.HasPrefix(p, "/batch/") })
	for range 2 {
		var partial *PartialError
		got, err := fresh.List()
		if !errors.As(err, &partial) || !errors.Is(err, unix.EIO) || partial.Skipped != 1 || partial.Path != "/batch" || !slices.Equal(got, less) {
			t.Errorf("first sight: %v, %v; want %v", got, err, less)
		}
		if below, err := fresh.Descendants("/batch"); err == nil {
			t.Errorf("below it: %v; want its error", below)
		}
	}
	f.path = "/sys/fs/cgroup/cpu"
	if got, err := fixtureDriver(t, f).List(); !errors.Is(err, unix.EIO) || got != nil {
		t.Errorf("the root: %v, %v; want an error and no list", got, err)
	}
}

// shortFS lacks half of the first list of each directory, as when it changes while it is listed.
type shortFS struct {
	*hostfs.Root
	listed map[string]bool
}

func (f *shortFS) ReadDir(path string) ([]hostfs.DirEntry, error) {
	list, err := f.Root.ReadDir(path)
	if !f.listed[path] {
		list = list[:len(list)/2]
	}
	f.listed[path] = true
	return list, err
}

// A list that lacks what the number of links counts is made once more.
func TestListMadeOnceMore(t *testing.T) {
	dir := copyFixture(t)
	f := &shortFS{hostfs.NewRoot(dir), map[string]bool{}}
	if links, err := f.Links("/sys/fs/cgroup/cpu"); err != nil || links < 2 {
		t.Skipf("this file system counts no links of directories: %d, %v", links, err)
	}
	want, err := fixtureDriver(t, hostfs.NewRoot(dir)).List()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fixtureDriver(t, f).List(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// manyFS holds groups without end: each of the widths is how many one holds at that depth.
type manyFS struct {
	hostfs.FS
	widths []int
}

func (f *manyFS) ReadDir(path string) ([]hostfs.DirEntry, error) {
	depth := strings.Count(strings.TrimPrefix(path, "/top"), "/")
	width := f.widths[min(depth, len(f.widths)-1)]
	list := make([]hostfs.DirEntry, width)
	for i := range list {
		list[i] = hostfs.DirEntry{Name: fmt.Sprint(i), IsDir: true}
	}
	return list, nil
}

func TestWalksAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		widths []int
		listed int
		says   string
	}{
		"no end of depth":  {[]int{1}, maxDepth, "more than 32 deep"},
		"a wide one":       {[]int{2, maxWidth + 1}, 2, "more than 16384 in one"},
		"no end of groups": {[]int{10, 10000, 0}, 60010, "more than 65536"},
	} {
		list, partial, _, err := tree{fs: &manyFS{widths: c.widths}, top: "/top"}.descendants("/")
		if err != nil || len(list) != c.listed || partial == nil || !errors.Is(partial, ErrTooManyGroups) || !strings.Contains(partial.Error(), c.says) {
			t.Errorf("%s: %d groups, %v, %v; want %d and %q", name, len(list), partial, err, c.listed, c.says)
		}
	}
}

// What a group holds is listed up to a bound, which is told, and a Group goes on working.
func TestProcessesAreBounded(t *testing.T) {
	dir := copyFixture(t)
	cpu := filepath.Join(dir, "sys/fs/cgroup/cpu/batch")
	var procs strings.Builder
	for i := range maxProcs + 1 {
		fmt.Fprintln(&procs, i+2)
	}
	d := fixtureDriver(t, hostfs.NewRoot(dir))
	g, err := d.Open("/batch")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() //nolint:errcheck // reading only
	file := filepath.Join(cpu, "job-1/cgroup.procs")
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte(procs.String()))
	if list, err := g.Procs(nil); !errors.Is(err, ErrTooManyProcs) || len(list) != 0 {
		t.Errorf("%d of %d processes, %v", len(list), maxProcs+1, err)
	}
	write(was)
	if list, err := g.Procs(nil); err != nil || len(list) == 0 {
		t.Errorf("afterwards: %v, %v", list, err)
	}
	for i := range maxInside {
		if err := os.Mkdir(filepath.Join(cpu, fmt.Sprint("more-", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Refresh(); err != nil {
		t.Fatal(err)
	}
	if list, err := g.Procs(nil); !errors.Is(err, ErrTooManyGroups) || len(list) != 0 {
		t.Errorf("of too many groups: %v, %v", list, err)
	}
	if th, err := g.Throttling(); err != nil || !th.NotFollowed {
		t.Errorf("throttling %+v, %v", th, err)
	}
}
