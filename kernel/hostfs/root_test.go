package hostfs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var (
	_ FS          = (*Root)(nil)
	_ DirMaker    = (*Root)(nil)
	_ WriteOpener = (*Root)(nil)
)

// tree makes a captured host: /proc/stat, /sys/a/, /sys/b and a link.
func tree(t *testing.T) (*Root, string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"proc", "sys/a"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"proc/stat": "cpu 1 2 3\n", "sys/b": strings.Repeat("x", 5000), "sys/empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "sys/link")); err != nil {
		t.Fatal(err)
	}
	return NewRoot(dir + "/"), dir
}

func TestReadFile(t *testing.T) {
	root, _ := tree(t)
	for _, c := range []struct {
		path string
		size int // of the buffer handed in
		want string
	}{
		{"/proc/stat", 0, "cpu 1 2 3\n"},
		{"/proc/stat", 3, "cpu 1 2 3\n"},
		{"/proc/stat", 10, "cpu 1 2 3\n"}, // full at the end: one more read sees it
		{"/proc/stat", 100, "cpu 1 2 3\n"},
		{"/sys/b", 64, strings.Repeat("x", 5000)},
		{"/sys/empty", 0, ""},
	} {
		got, err := root.ReadFile(c.path, bytes.Repeat([]byte{'z'}, c.size))
		if err != nil || string(got) != c.want {
			t.Errorf("ReadFile(%s, %d bytes) = %q, %v", c.path, c.size, got, err)
		}
	}
}

func TestErrorsCarryErrnoAndRootedPath(t *testing.T) {
	root, dir := tree(t)
	checks := map[string]func(path string) error{
		"open":  func(p string) error { _, err := root.Open(p); return err },
		"read":  func(p string) error { _, err := root.ReadFile(p, nil); return err },
		"write": func(p string) error { return root.WriteFile(p, []byte("1")) },
		"list":  func(p string) error { _, err := root.ReadDir(p); return err },
		"inode": func(p string) error { _, err := root.Inode(p); return err },
		"dir":   func(p string) error { _, _, err := root.OpenDir(p); return err },
		"rdwr":  func(p string) error { _, _, err := root.OpenReadWrite(p); return err },
		"rmdir": func(p string) error { return root.Rmdir(p) },
	}
	for name, f := range checks {
		err := f("/gone/file")
		var pe *fs.PathError
		if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, unix.ENOENT) || !errors.As(err, &pe) {
			t.Errorf("%s: %v, want a PathError with ENOENT", name, err)
		} else if pe.Path != "/gone/file" || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: path %q, want it within the root: %v", name, pe.Path, err)
		}
		for _, bad := range []string{"", "proc/stat", "/..", "/../etc/passwd", "/sys/../../x", "/sys/..", "/a\x00b"} {
			if err := f(bad); !errors.Is(err, ErrBadPath) {
				t.Errorf("%s(%q) = %v, want ErrBadPath", name, bad, err)
			}
		}
	}
	if err := root.Mkdir("/../x", 0o755); !errors.Is(err, ErrBadPath) {
		t.Errorf("Mkdir: %v", err)
	}
	if _, err := root.ReadFile("/sys/..b", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that begins with dots is no escape: %v", err)
	}
	if _, _, err := root.OpenDir("/proc/stat"); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("OpenDir of a file: %v, want ENOTDIR", err)
	}
}

func TestWriteFile(t *testing.T) {
	root, dir := tree(t)
	if err := root.WriteFile("/proc/stat", []byte("CPU")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "proc/stat"))
	if err != nil || string(got) != "CPU 1 2 3\n" {
		t.Errorf("after the write: %q, %v; want no truncation", got, err)
	}
	if err := root.WriteFile("/proc/new", []byte("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write to a missing file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "proc/new")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
	if err := root.WriteFile("/proc/stat", nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("empty write: %v, want EINVAL", err)
	}
}

func TestDirectories(t *testing.T) {
	root, dir := tree(t)
	got, err := root.ReadDir("/sys")
	want := []DirEntry{{"a", true}, {"b", false}, {"empty", false}, {"link", false}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("ReadDir = %v, %v; want %v", got, err, want)
	}
	if err := root.Mkdir("/sys/c", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := root.Mkdir("/sys/c", 0o755); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Mkdir: %v", err)
	}
	inode, err := root.Inode("/sys/c")
	var st unix.Stat_t
	if err != nil || unix.Stat(filepath.Join(dir, "sys/c"), &st) != nil || st.Ino != inode {
		t.Errorf("Inode = %d, %v; want %d", inode, err, st.Ino)
	}
	fd, closeDir, err := root.OpenDir("/sys/c")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != inode {
		t.Errorf("descriptor of inode %d, %v; want %d", st.Ino, err, inode)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v; want close-on-exec", flags, err)
	}
	if err := closeDir(); err != nil {
		t.Error(err)
	}
	if err := closeDir(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if err := root.Rmdir("/sys/c"); err != nil {
		t.Error(err)
	}
}

func TestFileReadsAnewAndCloses(t *testing.T) {
	root, dir := tree(t)
	f, err := root.Open("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	for _, text := range []string{"one\n", "two longer\n", ""} {
		if err := os.WriteFile(filepath.Join(dir, "proc/stat"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if buf, err = f.ReadAll(buf); err != nil || string(buf) != text {
			t.Errorf("ReadAll = %q, %v; want %q", buf, err, text)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if _, err := f.ReadAll(nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("ReadAll after Close: %v", err)
	}
}

// TestLiveProc reads a file of the running kernel that is longer than one piece.
func TestLiveProc(t *testing.T) {
	root := NewRoot("/")
	want, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 100, 1 << 16} {
		got, err := root.ReadFile("/proc/self/mountinfo", make([]byte, size))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("with %d bytes: %d bytes read, %v; want %d", size, len(got), err, len(want))
		}
	}
	if _, err := root.ReadFile("/proc/self", nil); !errors.Is(err, unix.EISDIR) {
		t.Errorf("reading a directory: %v, want EISDIR", err)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	root := NewRoot("/")
	f, err := root.Open("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 1<<20)
	if n := testing.AllocsPerRun(100, func() {
		if buf, err = f.ReadAll(buf); err != nil || len(buf) == 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("File.ReadAll allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if buf, err = root.ReadFile("/proc/self/mountinfo", buf); err != nil || len(buf) == 0 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Root.ReadFile allocates %v times", n)
	}
}

func FuzzValidPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/..", "/a/../b", "..", "", "/a..", "/...", "//", "/a\x00", "/./.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !validPath(path) {
			return
		}
		// What is accepted stays below the root when joined as Root joins it.
		joined := filepath.Clean("/root/dir" + path)
		if joined != "/root/dir" && !strings.HasPrefix(joined, "/root/dir/") {
			t.Errorf("%q leaves the root: %q", path, joined)
		}
	})
}

// A file of one record takes one read; a buffer that is full takes another.
func TestReadRecord(t *testing.T) {
	root, dir := tree(t)
	for _, size := range []int{0, 3, 10, 100} {
		f, err := root.Open("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.ReadRecord(bytes.Repeat([]byte{'z'}, size))
		if err != nil || string(got) != "cpu 1 2 3\n" {
			t.Errorf("%d bytes: %q, %v", size, got, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadRecord(nil); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if n, err := root.Links("/proc/stat"); n != 1 || err != nil {
		t.Errorf("Links of a file = %d, %v", n, err)
	}
	if _, err := root.Links("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Links of nothing: %v", err)
	}
	if _, err := NewRoot(dir).Links("../x"); !errors.Is(err, ErrBadPath) {
		t.Errorf("Links of a bad path: %v", err)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`/a\040b`: "/a b", `\011\012\134\043`: "\t\n\\#", `a\04`: `a\04`, `a\9bc`: `a\9bc`, `\400`: `\400`, `\`: `\`, "": "",
	} {
		if got := Unescape(in); got != want {
			t.Errorf("Unescape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRename(t *testing.T) {
	dir := t.TempDir()
	root := NewRoot(dir)
	if err := errors.Join(root.Mkdir("/a", 0o700), root.Mkdir("/b", 0o700), root.Rename("/a", "/b/a")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/b/a"); err != nil {
		t.Error(err)
	}
	var pe *fs.PathError
	if err := root.Rename("/a", "/c"); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &pe) || pe.Path != "/a" {
		t.Errorf("what is not there: %v", err)
	}
	if err := root.Rename("/b", "/../b"); !errors.Is(err, ErrBadPath) {
		t.Errorf("out of the root: %v", err)
	}
}

// Two mounts at one place have two ids, where the kernel has any.
func TestMountID(t *testing.T) {
	r := NewRoot("/")
	proc, err := r.MountID("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.MountID("/proc/version")
	if err != nil || again != proc {
		t.Errorf("two files of one mount: %d and %d, %v", proc, again, err)
	}
	if other, err := r.MountID("/sys"); err != nil || proc != 0 && other == proc {
		t.Errorf("two mounts have the id %d, %v", other, err)
	}
	if _, err := r.MountID("/no/such/file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := r.MountID("relative"); !errors.Is(err, ErrBadPath) {
		t.Errorf("a relative path: %v", err)
	}
}
