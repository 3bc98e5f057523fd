package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func journals(t testing.TB, s *Store) []string {
	t.Helper()
	list, err := filepath.Glob(s.path("marks-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The marks of a large fleet are what was committed, whoever ends when: of a commit that failed nothing counts, and a journal that was replaced is gone.
func TestMarksAreAJournal(t *testing.T) {
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any seed will do
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	reopen := func() *Store {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen()
	seqs, names := map[string]uint64{}, map[string]bool{}
	want := map[string][]Mark{}
	for round := range 120 {
		if round%8 == 0 {
			s.journal.First, s.journal.Bytes = 0, leastJournal+1 // as if it had grown
		}
		for range rng.IntN(200) {
			node := fmt.Sprintf("n%d", rng.IntN(100+20*round))
			seqs[node]++
			s.Adopt(rng.IntN(3), map[string][]Mark{node: {{fmt.Sprint("spool", rng.IntN(3)), seqs[node]}}})
		}
		for _, j := range journals(t, s) {
			names[filepath.Base(j)] = true
		}
		switch rng.IntN(6) {
		case 0: // the process ends before it commits, with half a line in the journal
			for _, j := range journals(t, s) {
				f, err := os.OpenFile(j, os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(`{"at": "n1", "ma`); err != nil {
					t.Fatal(err)
				}
				f.Close()
			}
			s = reopen()
		case 1: // commit.json cannot be replaced, and then the process ends, or goes on
			s.dir = filepath.Join(dir, "gone")
			if err := s.Commit(); err == nil && len(s.changed) > 0 {
				t.Fatal("committed to nowhere")
			}
			s.dir = dir
			var next commit
			if err := s.keepMarks(&next); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(2) == 0 {
				s = reopen()
			}
		default:
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			want = maps.Clone(s.marks)
			if rng.IntN(3) == 0 {
				s = reopen()
			}
		}
		if !reflect.DeepEqual(s.kept, want) {
			t.Fatalf("round %d: %d addresses, want %d", round, len(s.kept), len(want))
		}
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	want = maps.Clone(s.marks)
	if s = reopen(); !reflect.DeepEqual(s.kept, want) || len(want) < 2*inlineMarks {
		t.Fatalf("%d addresses, want %d", len(s.kept), len(want))
	}
	if left := journals(t, s); len(left) != 1 || len(names) < 2 {
		t.Errorf("%v; there were %v", left, slices.Sorted(maps.Keys(names)))
	}
	raw, err := os.ReadFile(s.path("commit.json"))
	if err != nil || len(raw) > 1000 {
		t.Errorf("commit.json has %d bytes, %v", len(raw), err)
	}
	if err := os.Truncate(s.path(s.journal.Name), s.journal.Bytes/2); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), s.journal.Name) {
		t.Errorf("opened with half of its marks: %v", err)
	}
}

// BenchmarkMarks commits every fifth second's marks of 300,000 nodes that send once a minute.
func BenchmarkMarks(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	seq := uint64(0)
	some := func(from, count int) {
		seq++
		m := map[string][]Mark{}
		for i := range count {
			m[fmt.Sprintf("node-%06d", (from+i)%300_000)] = []Mark{{"0123456789abcdef", seq}}
		}
		s.Adopt(0, m)
		if err := s.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	some(0, 300_000)
	for i := 0; b.Loop(); i++ {
		some(25_000*i, 25_000)
	}
}
