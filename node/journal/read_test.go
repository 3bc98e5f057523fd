package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A reader that looks at a journal again and again says what one says that looks once: while the
// file grows byte by byte, when it is written anew, when a line in it goes bad and is good again,
// and when it is gone.
func TestReaderSaysWhatReadSays(t *testing.T) {
	from, _ := written(t)
	whole, err := os.ReadFile(from)
	must(t, err)
	path := filepath.Join(t.TempDir(), "journal")
	r := &Reader{Disk: RealDisk(), Path: path}
	look := func(when string, b []byte) {
		t.Helper()
		must(t, os.WriteFile(path, b, 0o600))
		want, wantErr := Read(path)
		got, gotErr := r.Read()
		if diff := cmp.Diff(want, got); diff != "" || (wantErr == nil) != (gotErr == nil) || gotErr != nil && wantErr.Error() != gotErr.Error() {
			t.Fatalf("%s: %v, read once %v (-once +again):\n%s", when, gotErr, wantErr, diff)
		}
	}
	for n := range len(whole) + 1 {
		look("growing", whole[:n])
	}
	bad := append([]byte(nil), whole...)
	bad[len(bad)/2]++
	half := whole[:len(whole)/2]
	for _, b := range [][]byte{bad, whole, half, whole, append(append([]byte(nil), whole...), "no entry\n"...), whole, nil, whole} {
		look("written anew", b)
	}
	must(t, os.Remove(path))
	if c, err := r.Read(); err != nil || len(c.Limits) != 0 {
		t.Errorf("gone: %+v, %v", c, err)
	}
	look("back", whole)
}
