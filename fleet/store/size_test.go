package store

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// older takes the columns of sizes out of a file, as a version before had none.
func older(t *testing.T, s *Store, tab table, of []rows) {
	t.Helper()
	tab.columns = slices.DeleteFunc(slices.Clone(tab.columns), func(c column) bool { return c.name == "size" })
	files, err := s.list(tab.name)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		in := of
		if f.Last == 0 {
			in = nil
		}
		if err := tab.write(s.path(f.Name), in); err != nil {
			t.Fatal(err)
		}
	}
}

// The size of a task is stored and comes back to learners. What a version without sizes stored is read and merged with what has them, and its table gets the
// column when the store is opened.
func TestSizesAreStored(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.From("x")
	old := batch("a", "0123456789abcdef", 1, noon, 6)
	s.Put(1, old)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	older(t, s, samplesTable(), []rows{{old, 0, old.Samples.Len()}})
	example := s.path("samples", exampleDay, "hour=00", "0-0.parquet")
	if tab := samplesTable(); tab.in(example) {
		t.Fatal("the old file has the column")
	}
	open(t, dir)
	if tab := samplesTable(); !tab.in(example) {
		t.Error("the table has no column of sizes")
	}
	before, err := os.Stat(example)
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if now, err := os.Stat(example); err != nil || !os.SameFile(before, now) {
		t.Errorf("the file without rows is written at each start: %v", err)
	}
	s.From("x")
	next := batch("a", "0123456789abcdef", 2, noon, 6)
	next.Tasks[0].Size = "large"
	s.Put(2, next)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		sizes := map[string]int{}
		if err := s.Replay(0, func(b *wire.Batch) {
			for _, at := range b.Samples.Task {
				sizes[b.Tasks[at].Job+b.Tasks[at].Size]++
			}
		}); err != nil || sizes["web"] != 3 || sizes["weblarge"] != 3 || sizes["be"] != 6 {
			t.Errorf("%s: %v %v", when, sizes, err)
		}
	}
	check("two files")
	if n, err := s.Compact(noon.Add(5*time.Hour), 9); err != nil || n == 0 {
		t.Fatalf("%d %v", n, err)
	}
	check("merged")
	for _, r := range rowsOf(t, s, "samples") {
		if r["job"] == "" || r["cpu"] == "" || r["task"] != "/web" && r["task"] != "/be" {
			t.Errorf("columns were mixed up: %v", r)
		}
	}
}
