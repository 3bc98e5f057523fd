package store

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// batch is a node's batch with a sample a minute from a time on.
func batch(node, spool string, seq uint64, from time.Time, samples int) *wire.Batch {
	b := &wire.Batch{Node: node, Spool: spool, Seq: seq, Platform: "cpu", Tasks: []wire.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}, {Num: 2, Path: "/be", Job: "be", Class: model.BE}}}
	b.Samples.Signals = []wire.Signal{{Source: model.SourceCPI, Definition: "reference"}}
	for i := range samples {
		b.Samples.Task = append(b.Samples.Task, uint32(i%2))
		b.Samples.WallMsec = append(b.Samples.WallMsec, from.Add(time.Duration(i)*time.Minute).UnixMilli())
		b.Samples.CPU = append(b.Samples.CPU, float32(seq))
		b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
		v := float32(1.5)
		if i%5 == 0 {
			v = float32(math.NaN())
		}
		b.Samples.Signals[0].Values = append(b.Samples.Signals[0].Values, v)
	}
	b.Decisions = []model.Decision{{Kind: model.DecideCannotFix, WallNsec: from.UnixNano(), Path: "/web", Reason: "why"}}
	b.Incidents = []*model.Incident{{ID: fmt.Sprint(seq), OpenedWall: from.UnixNano(), VictimJob: "web"}}
	return b
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored counts the samples of each batch that lie in the files.
func stored(t *testing.T, s *Store) map[string]int {
	t.Helper()
	count := map[string]int{}
	if err := s.Replay(0, func(b *wire.Batch) { count[fmt.Sprintf("%s %s %d", b.Node, b.Spool, b.Seq)] += b.Samples.Len() }); err != nil {
		t.Fatal(err)
	}
	return count
}

// rowsOf reads a table's rows by column name.
func rowsOf(t *testing.T, s *Store, table string) (rows []map[string]string) {
	t.Helper()
	files, err := s.list(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		err := s.each(f.name, func(rg parquet.RowGroup) error {
			names, all := rg.Schema().Columns(), rg.Rows()
			buf := make([]parquet.Row, 10)
			for {
				n, err := all.ReadRows(buf)
				for _, row := range buf[:n] {
					m := map[string]string{}
					for _, v := range row {
						m[names[v.Column()][0]] = v.String()
					}
					rows = append(rows, m)
				}
				if errors.Is(err, io.EOF) {
					return all.Close()
				}
				if err != nil {
					return err
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// What is put in lies in the files of its hours, with all its columns.
func TestRowsLieInTheirHours(t *testing.T) {
	s := open(t, t.TempDir())
	if s.From("a") != 1 || !s.Put(1, batch("n", "s", 1, noon, 90)) {
		t.Fatal("not taken")
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	for hour, want := range map[string]int{"hour=12": 60, "hour=13": 30} {
		f := file{name: filepath.Join("samples", "date=2026-05-04", hour, "1-1.parquet")}
		n := 0
		if err := s.each(f.name, func(rg parquet.RowGroup) error { n += int(rg.NumRows()); return nil }); err != nil || n != want {
			t.Errorf("%s: %d rows, %v", hour, n, err)
		}
	}
	rows := rowsOf(t, s, "samples")
	if len(rows) != 90 {
		t.Fatalf("%d rows", len(rows))
	}
	want := map[string]string{
		"node": "n", "spool": "s", "batch": "1", "platform": "cpu", "job": "be", "task": "/be", "class": "BE", "importance": "batch", "production": "false", "cpu": "1",
		"usable": "true", "throttled": "false", "outlier": "false", "cpi": "1.5", "cpi_definition": "reference", "time": fmt.Sprint(noon.Add(time.Minute).UnixMilli()),
		"slowdown": "<null>", "pressure": "<null>", "wait": "<null>", "latency": "<null>",
	}
	if !maps.Equal(rows[1], want) {
		t.Errorf("%v\nwant %v", rows[1], want)
	}
	if rows[0]["cpi"] != "<null>" {
		t.Errorf("a signal that is not there is %s", rows[0]["cpi"])
	}
	if d := rowsOf(t, s, "decisions"); len(d) != 1 || d[0]["kind"] != "cannot-fix" || d[0]["reason"] != "why" {
		t.Errorf("%v", d)
	}
	if i := rowsOf(t, s, "incidents"); len(i) != 1 || i[0]["victim_job"] != "web" || !strings.Contains(i[0]["document"], `"id":"1"`) {
		t.Errorf("%v", i)
	}
}

// Whatever comes twice, in whichever stream, is there once; and a process that ends at any point of a commit loses nothing that
// was committed and doubles nothing.
func TestEachBatchIsThereOnce(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := open(t, dir)
	type message struct{ b *wire.Batch }
	var stream []message // of which committed ones may be sent again, as a node does whose answer was lost
	want := map[string]int{}
	seqs := map[string]uint64{}
	for range 60 {
		for range rng.IntN(6) {
			node := fmt.Sprintf("n%d", rng.IntN(3))
			seqs[node]++
			b := batch(node, "s", seqs[node], noon.Add(time.Duration(rng.IntN(200))*time.Minute), 1+rng.IntN(20))
			want[fmt.Sprintf("%s s %d", node, seqs[node])] = b.Samples.Len()
			stream = append(stream, message{b})
			if rng.IntN(3) == 0 {
				stream = append(stream, message{b}) // its answer was lost
			}
		}
		for at := s.From("stream"); at <= uint64(len(stream)); at++ {
			s.Put(at, stream[at-1].b)
		}
		switch rng.IntN(4) {
		case 0: // ends before the commit
			s = open(t, dir)
		case 1: // ends after commit.json was written, before files were moved
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			if files, err := filepath.Glob(filepath.Join(dir, "samples", "date=2026*", "*", fmt.Sprintf("*-%d.parquet", committed(s)))); err != nil {
				t.Fatal(err)
			} else if len(files) > 0 {
				from := filepath.Join(dir, "tmp", "samples-again")
				if err := os.Rename(files[0], from); err != nil {
					t.Fatal(err)
				}
				s.done.Moves = []move{{"tmp/samples-again", strings.TrimPrefix(files[0], dir+"/")}}
				if err := s.commit(s.done); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "tmp", "half"), []byte("PAR1"), 0o600); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir)
		case 2:
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Compact(noon.Add(24*time.Hour), committed(s)); err != nil {
				t.Fatal(err)
			}
		default:
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at := s.From("stream"); at <= uint64(len(stream)); at++ {
		s.Put(at, stream[at-1].b)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, s); !maps.Equal(got, want) {
		t.Errorf("seed %d: %v\nwant %v", seed, got, want)
	}
	// A stream that was made anew begins at one, and brings again what nobody had taken from it.
	if s.From("another") != 1 || s.Put(1, stream[len(stream)-1].b) || !s.Put(2, batch("n9", "s", 1, noon, 3)) {
		t.Error("a batch of another stream was taken twice, or not at all")
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	want["n9 s 1"] = 3
	if got := stored(t, s); !maps.Equal(got, want) {
		t.Errorf("seed %d, with another stream: %v\nwant %v", seed, got, want)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Old days go, and files of an hour become one, with the same rows.
func TestCompactAndExpire(t *testing.T) {
	s := open(t, t.TempDir())
	s.From("a")
	for i := range uint64(6) {
		s.Put(i+1, batch("n", "s", i+1, noon.Add(time.Duration(i/3)*24*time.Hour), 10))
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	before := stored(t, s)
	if n, err := s.Compact(noon.Add(time.Hour), 6); n != 0 || err != nil {
		t.Errorf("an hour that goes on was merged: %d, %v", n, err)
	}
	if n, err := s.Compact(noon.Add(72*time.Hour), 5); n != 3*3 || err != nil {
		t.Errorf("%d files fewer, %v", n, err)
	}
	files, err := s.list("samples")
	if err != nil || len(files) != 4 || files[1].name != "samples/date=2026-05-04/hour=12/1-3.parquet" || files[3].first != 6 {
		t.Errorf("%+v %v", files, err)
	}
	if got := stored(t, s); !maps.Equal(got, before) {
		t.Errorf("%v, before %v", got, before)
	}
	if n, err := s.Expire(noon.Add(40*time.Hour), 24*time.Hour); n != 3 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
	if got := stored(t, s); len(got) != 3 || got["n s 4"] != 10 {
		t.Errorf("%v", got)
	}
	if s = open(t, s.dir); len(stored(t, s)) != 3 { // and stay away
		t.Errorf("%v", stored(t, s))
	}
}

// A disk that is full takes nothing, and what was put in waits until it does.
func TestAFullDiskLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.From("a")
	s.Put(1, batch("n", "s", 1, noon, 10))
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tmp"), nil, 0o600); err != nil { // no file can be made there
		t.Fatal(err)
	}
	if err := s.Commit(); err == nil {
		t.Fatal("committed to nowhere")
	}
	s.Put(2, batch("n", "s", 2, noon, 10))
	if err := os.Remove(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, s); got["n s 1"] != 10 || got["n s 2"] != 10 || committed(s) != 2 {
		t.Errorf("%v", got)
	}
}

func committed(s *Store) uint64 {
	_, count := s.Committed()
	return count
}

// A process that ends while it writes its first files leaves halves of them, and commit.json with the moves of the commit before, which was done
// by another process: whoever opens the store then must not move a half over a file that is good.
func TestHalvesAreNotMoved(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.From("a")
	s.Put(1, batch("n", "s", 1, noon, 10))
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir) // the next process, which ends in the midst of its first commit
	for i := range tables {
		for range 9 {
			if err := os.WriteFile(filepath.Join(dir, s.tmp(&tables[i])), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s = open(t, dir)
	if got := stored(t, s); got["n s 1"] != 10 {
		t.Errorf("%v", got)
	}
}
