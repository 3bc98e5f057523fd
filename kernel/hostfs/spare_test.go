package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// With no descriptor left a file can still be read, written and a directory listed, as often
// as need be; files that stay open get none of the reserve.
func TestReserveServesWhatIsClosedAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	with, without := NewRoot(dir), NewRoot(dir)
	if err := with.Reserve(2); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = min(512, old.Cur)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var taken []int
	defer func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	for {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	if err := without.WriteFile("/f", []byte("0")); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("without a reserve: %v", err)
	}
	for i := range 100 {
		if err := with.WriteFile("/f", []byte("2")); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
		if b, err := with.ReadFile("/f", nil); err != nil || string(b) != "2\n" {
			t.Fatalf("read %d: %q, %v", i, b, err)
		}
		if l, err := with.ReadDir("/"); err != nil || len(l) != 1 {
			t.Fatalf("list %d: %v, %v", i, l, err)
		}
		if f, err := with.Open("/f"); err == nil {
			f.Close() //nolint:errcheck // the test has failed
			t.Fatalf("open %d: a file that stays open took from the reserve", i)
		}
	}
	if n := len(with.spare.fds); n < 1 {
		t.Errorf("%d spare descriptors left of 2", n)
	}
}
