package buckettest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/fleet/bucket"
)

// Conform asks of an empty bucket what package bucket relies on. It does not look at what becomes of requests that are made at the same time.
func Conform(t *testing.T, b bucket.Objects) {
	t.Helper()
	ctx := t.Context()
	if _, err := b.Stat(ctx, "a"); !errors.Is(err, bucket.ErrNone) {
		t.Errorf("stat of nothing: %v", err)
	}
	if _, err := b.Get(ctx, "a"); !errors.Is(err, bucket.ErrNone) {
		t.Errorf("get of nothing: %v", err)
	}
	if err := b.Delete(ctx, "a"); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if list, err := b.List(ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("list of nothing: %v, %v", list, err)
	}
	large := bytes.Repeat([]byte("commensal"), 3<<20) // beyond what clients send in one part by themselves
	small := []byte("small")
	for name, data := range map[string][]byte{"t/date=2026-05-04/hour=12/1-6.parquet": large, "t/date=2026-05-04/_manifest-1.json": small, "t2/empty": {}} {
		write(t, b, name, data)
		if got := content(t, b, name); !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes came; expected %d", name, len(got), len(data))
		}
		sum := sha256.Sum256(data)
		if o, err := b.Stat(ctx, name); err != nil || o.Bytes != int64(len(data)) || o.Sum != nil && !bytes.Equal(o.Sum, sum[:]) {
			t.Errorf("stat %s: %+v, %v; expected %d bytes with %x", name, o, err, len(data), sum)
		}
	}
	write(t, b, "t/date=2026-05-04/_manifest-1.json", []byte("other"))
	if got := content(t, b, "t/date=2026-05-04/_manifest-1.json"); string(got) != "other" {
		t.Errorf("overwritten: %q", got)
	}
	if err := b.Put(ctx, "wrong", bytes.NewReader(small), int64(len(small)), sha256.Sum256(large)); err == nil {
		t.Error("an object with another SHA-256 than was said is taken")
	}
	conformList(t, b)
}

// conformList is of listing and deleting.
func conformList(t *testing.T, b bucket.Objects) {
	t.Helper()
	ctx := t.Context()
	for i := range 1100 { // more than a server lists at once
		write(t, b, fmt.Sprintf("many/%04d", i), nil)
	}
	if list, err := b.List(ctx, "many/"); err != nil || len(list) != 1100 || list[1099].Name != "many/1099" {
		t.Errorf("%d of 1100 objects are listed: %v", len(list), err)
	}
	var names []string
	list, err := b.List(ctx, "t/")
	for _, o := range list {
		names = append(names, o.Name)
	}
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"t/date=2026-05-04/_manifest-1.json", "t/date=2026-05-04/hour=12/1-6.parquet"}) {
		t.Errorf("%q, %v", names, err)
	}
	if err := b.Delete(ctx, "t2/empty"); err != nil {
		t.Error(err)
	}
	if _, err := b.Stat(ctx, "t2/empty"); !errors.Is(err, bucket.ErrNone) {
		t.Errorf("it is deleted, and there: %v", err)
	}
}

func write(t *testing.T, b bucket.Objects, name string, data []byte) {
	t.Helper()
	if err := b.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), sha256.Sum256(data)); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

func content(t *testing.T, b bucket.Objects, name string) []byte {
	t.Helper()
	r, err := b.Get(t.Context(), name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	defer r.Close() //nolint:errcheck // reading only
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return data
}
