package procstat

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/kernel/hostfs"
)

func TestParseFlocks(t *testing.T) {
	const text = `1: OFDLCK ADVISORY  READ -1 fe:00:5357825 201 201
2: POSIX  ADVISORY  WRITE 17 fe:00:5317844 0 EOF
5: FLOCK  ADVISORY  WRITE 9270 fe:00:5317844 0 EOF
5: -> FLOCK  ADVISORY  WRITE 9311 fe:00:5317844 0 EOF
6: FLOCK  ADVISORY  READ 12 00:1a:1 0 EOF
7: FLOCK  ADVISORY  READ 13 00:1a:1 0 EOF
`
	for file, want := range map[string][]int{"fe:00:5317844": {9270}, "00:1a:1": {12, 13}, "00:1b:1": nil, "fe:00:5357825": nil} {
		if got, err := parseFlocks(text, file); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; expected %v", file, got, err, want)
		}
	}
	for _, bad := range []string{"1: FLOCK  ADVISORY", "1: FLOCK  ADVISORY  WRITE x fe:00:1 0 EOF"} {
		if _, err := parseFlocks(bad, "fe:00:1"); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestKernelFlockHolders asks this kernel about a lock that this process takes, also on a
// directory.
func TestKernelFlockHolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "file")} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		for _, want := range [][]int{nil, {os.Getpid()}} {
			if got, err := FlockHolders(hostfs.NewRoot("/"), &st); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v; expected %v", path, got, err, want)
			}
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
		}
	}
}
