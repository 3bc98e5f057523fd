package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
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

// inlineInTests is so little that stores of two addresses have a journal.
const inlineInTests = 1

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.inline = inlineInTests
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
		err := s.each(f.Name, func(rg parquet.RowGroup) error {
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
		f := File{Name: filepath.Join("samples", "date=2026-05-04", hour, "1-1.parquet")}
		n := 0
		if err := s.each(f.Name, func(rg parquet.RowGroup) error { n += int(rg.NumRows()); return nil }); err != nil || n != want {
			t.Errorf("%s: %d rows, %v", hour, n, err)
		}
	}
	rows := rowsOf(t, s, "samples")
	if len(rows) != 90 {
		t.Fatalf("%d rows", len(rows))
	}
	want := map[string]string{
		"node": "n", "spool": "s", "batch": "1", "platform": "cpu", "job": "be", "task": "/be", "class": "BE", "importance": "batch", "production": "false", "size": "", "cpu": "1",
		"usable": "true", "throttled": "false", "outlier": "false", "cpi": "1.5", "cpi_definition": "reference", "time": fmt.Sprint(noon.Add(time.Minute).UnixMilli()),
		"slowdown": "<null>", "pressure": "<null>", "wait": "<null>", "latency": "<null>", "io": "<null>", "memory": "<null>",
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

// What was published is a row a spec, with the next commit, batches or none.
func TestSheetsAreRows(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	s.From("a")
	sheet := &wire.SpecSheet{Job: "web", Platform: "cpu", Size: "large", Revision: 3, WallNsec: noon.UnixNano(), Nodes: 7, Specs: []model.Spec{
		{Source: model.SourceCPI, Definition: "reference", NumSamples: 500, Tasks: 5, Mean: 1.5, StdDev: 0.25, P50: 1.5, P90: 1.75, P99: 2}, {Source: model.SourceWait, NumSamples: 100, Mean: 0.5},
	}}
	s.PutSheet(sheet)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOf(t, s, "specs"); len(rows) != 2 {
		t.Errorf("without a batch: %v", rows)
	}
	for seq := range uint64(2) {
		s.Put(seq+1, batch("n", "s", seq+1, noon, 1))
		sheet.Revision += seq
		if seq > 0 {
			s.PutSheet(sheet)
		}
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	rows := rowsOf(t, open(t, dir), "specs")
	want := map[string]string{
		"time": fmt.Sprint(noon.UnixMilli()), "platform": "cpu", "job": "web", "size": "large", "revision": "3", "pinned": "false", "nodes": "7", "signal": "cpi", "definition": "reference",
		"samples": "500", "tasks": "5", "cpu": "0", "mean": "1.5", "stddev": "0.25", "tail": "0", "p50": "1.5", "p90": "1.75", "p99": "2",
	}
	if len(rows) != 4 || !maps.Equal(rows[0], want) || rows[1]["signal"] != "wait" || rows[1]["p99"] != "<null>" || rows[2]["revision"] != "4" {
		t.Errorf("%v", rows)
	}
}

// Lines of the audit are rows once, whether the commit that has them came through or not, and also where the file is an older copy.
func TestActsAreRows(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	act := func(id string) wire.Act {
		return wire.Act{Time: noon, ID: id, By: "ann", Role: "operator", What: "cap", Node: "n", Detail: json.RawMessage(`{"cap":1}`), Why: "it's he"}
	}
	s.PutAct(act("a"), 100)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()                // as a commit or a merger holds it: nobody waits for that
	s.PutAct(act("lost"), 200) // with a process that ends
	s.mu.Unlock()
	s = open(t, dir)
	if from := s.AuditFrom(200); from != 100 {
		t.Fatalf("it goes on from byte %d", from)
	}
	s.PutAct(act("lost"), 200)
	s.Put(1, batch("n", "s", 1, noon, 1))
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if from := open(t, dir).AuditFrom(150); from != 150 { // never committed: a store that is only looked at stays
		t.Errorf("of an older copy it goes on from byte %d", from)
	}
	s = open(t, dir)
	if from := s.AuditFrom(150); from != 150 {
		t.Errorf("of an older copy it goes on from byte %d", from)
	}
	if err := s.Commit(); err != nil { // without anything new
		t.Fatal(err)
	}
	s = open(t, dir)
	if from := s.AuditFrom(999); from != 150 {
		t.Errorf("after a commit it goes on from byte %d", from)
	}
	rows := rowsOf(t, s, "audit")
	want := map[string]string{"time": fmt.Sprint(noon.UnixMilli()), "id": "a", "who": "ann", "role": "operator", "what": "cap", "node": "n", "detail": `{"cap":1}`, "why": "it's he", "result": ""}
	if len(rows) != 2 || !maps.Equal(rows[0], want) || rows[1]["id"] != "lost" {
		t.Errorf("%v", rows)
	}
	if _, err := s.Compact(noon.Add(24*time.Hour), 99); err != nil || len(rowsOf(t, s, "audit")) != 2 {
		t.Errorf("%v: merged %v", err, rowsOf(t, s, "audit"))
	}
}

// A copy of a store that runs on meanwhile, commit.json first, is the store as that commit has it: what later commits and mergers brought does not
// count, and is stored when it comes again.
func TestACopyOfARunningStore(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	s := open(t, dir)
	s.From("a")
	put := func(s *Store, from, to uint64) {
		t.Helper()
		for seq := from; seq <= to; seq++ {
			s.Put(seq, batch("n", "s", seq, noon, 10))
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(s, 1, 4)
	first, err := os.ReadFile(filepath.Join(dir, "commit.json"))
	if err == nil {
		err = os.CopyFS(copied, os.DirFS(dir)) // an hour before its merger ...
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Compact(noon.Add(24*time.Hour), 4); err != nil {
		t.Fatal(err)
	}
	put(s, 5, 6)
	for _, table := range Tables() { // ... and the same after it, with what came later
		list, err := s.list(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			b, err := os.ReadFile(filepath.Join(dir, f.Name))
			if err == nil {
				err = os.WriteFile(filepath.Join(copied, f.Name), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(copied, "commit.json"), first, 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, copied)
	check := func(batches int) {
		t.Helper()
		got := stored(t, c)
		if len(got) != batches {
			t.Errorf("%d batches of %d", len(got), batches)
		}
		for name, n := range got {
			if n != 10 {
				t.Errorf("%s has %d samples", name, n)
			}
		}
	}
	check(4)
	c.From("a")
	put(c, 1, 6)
	check(6)
	if len(rowsOf(t, c, "incidents")) != 6 {
		t.Errorf("%d incidents", len(rowsOf(t, c, "incidents")))
	}
}

// What the tables take is counted day by day, and right after whatever changes files.
func TestUsageFollowsTheFiles(t *testing.T) {
	s := open(t, t.TempDir())
	s.From("a")
	check := func(what string) {
		t.Helper()
		got, err := s.Usage()
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range got {
			files, err := s.list(u.Table)
			if err != nil {
				t.Fatal(err)
			}
			bytes := int64(0)
			for _, f := range files {
				bytes += f.Bytes
			}
			if u.Files != len(files) || u.Bytes != bytes || u.Files == 0 {
				t.Errorf("%s: %+v; there are %d files of %d bytes", what, u, len(files), bytes)
			}
		}
	}
	check("an empty store")
	for seq := range uint64(6) {
		s.Put(seq+1, batch("n", "s", seq+1, noon.Add(time.Duration(seq/2)*16*time.Hour), 90))
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
		check("a commit")
	}
	if n, err := s.Compact(noon.Add(72*time.Hour), 99); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	check("a merger")
	files, err := s.Settled(noon.Add(72 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Drop(files[:2]); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	check("what a bucket has instead")
	if n, err := s.Expire(noon.Add(60*time.Hour), 24*time.Hour); err != nil || n == 0 {
		t.Fatal(n, err)
	}
	check("days that are too old")
	s.used.mu.Lock()
	defer s.used.mu.Unlock()
	if len(s.used.days) == 0 || len(s.used.stale) != 0 {
		t.Errorf("%v, %v", s.used.days, s.used.stale)
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
		switch rng.IntN(5) {
		case 4: // ends in the midst of a merger
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
			endInMerger(t, s, rng.IntN(20))
			s = open(t, dir)
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

// endInMerger merges what it can, until the process ends after so many steps and, which is worse, the power fails: what was not synced of new
// files is lost. It reports whether it came to that.
func endInMerger(t *testing.T, s *Store, steps int) (ended bool) {
	t.Helper()
	files := func() map[uint64]string { // by inode: a file that is moved is the same one
		found := map[uint64]string{}
		for _, pattern := range []string{"tmp/*", "*/date=*/hour=*/*"} {
			names, err := filepath.Glob(s.path(pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				st, err := os.Stat(name)
				if err != nil {
					t.Fatal(err)
				}
				found[st.Sys().(*syscall.Stat_t).Ino] = name
			}
		}
		return found
	}
	synced := files()
	s.fsync = func(f *os.File) error {
		st, err := f.Stat()
		if err == nil {
			synced[st.Sys().(*syscall.Stat_t).Ino] = f.Name()
		}
		return errors.Join(err, f.Sync())
	}
	ends := errors.New("the process ends")
	s.point = func() {
		if steps--; steps < 0 {
			panic(ends)
		}
	}
	defer func() {
		if r := recover(); r != nil && r != ends { //nolint:errorlint // it is that one, or none
			panic(r)
		} else if r != nil {
			ended = true
		}
		for ino, name := range files() {
			if synced[ino] == "" {
				if err := os.Truncate(name, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}()
	if _, err := s.Compact(noon.Add(24*time.Hour), committed(s)); err != nil {
		t.Fatal(err)
	}
	return false
}

// A merger that ends anywhere, by a power cut as well, loses no row and doubles none, and is done again by the next process.
func TestAMergerMayEndAnywhere(t *testing.T) {
	first := t.TempDir()
	s := open(t, first)
	s.From("a")
	for seq := range uint64(6) { // three files in each of two hours
		s.Put(seq+1, batch("n", "s", seq+1, noon.Add(time.Duration(seq%2)*time.Hour), 10))
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	want, ended := stored(t, s), true
	steps := 0
	for ; ended; steps++ {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(first)); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		ended = endInMerger(t, s, steps)
		s = open(t, dir)
		if got := stored(t, s); !maps.Equal(got, want) {
			t.Errorf("ended after %d steps: %v, want %v", steps, got, want)
		}
		if _, err := s.Compact(noon.Add(24*time.Hour), committed(s)); err != nil {
			t.Errorf("ended after %d steps: %v", steps, err)
		}
		files, err := s.list("samples")
		if got := stored(t, s); err != nil || !maps.Equal(got, want) || len(files) != 3 { // two hours, and the example
			t.Errorf("ended after %d steps and merged again: %v, %d files, %v", steps, got, len(files), err)
		}
	}
	if steps < 6*5 { // hours of tables; of each begin and end of the commit, one move and two removes or three
		t.Errorf("%d steps", steps)
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
	if err != nil || len(files) != 4 || files[1].Name != "samples/date=2026-05-04/hour=12/1-3.parquet" || files[3].First != 6 {
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

// Somebody who reads all the time, so that there is no moment without a reader, keeps files for as long as one of these lasts, and no longer; nor does a
// file that cannot be read keep those of other hours.
func TestReadersDoNotKeepFilesForEver(t *testing.T) {
	s := open(t, t.TempDir())
	s.From("a")
	for i := range uint64(6) {
		s.Put(i+1, batch("n", "s", i+1, noon.Add(time.Duration(i/2)*24*time.Hour), 10))
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	bad := s.path("samples", "date=2026-05-05", "hour=12", "3-3.parquet")
	if err := os.WriteFile(bad, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				<-turn
				done, err := s.Read(t.Context())
				if err != nil {
					t.Error(err)
				}
				turn <- struct{}{} // the next one begins while this one reads
				time.Sleep(5 * time.Millisecond)
				done()
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	merged, err := s.Compact(noon.Add(72*time.Hour), 6)
	gone, failed := s.Expire(noon.Add(40*time.Hour), 24*time.Hour)
	cancel()
	readers.Wait()
	if merged != 2*3+2 || err == nil || !strings.Contains(err.Error(), "3-3.parquet") { // of the bad hour decisions and incidents
		t.Errorf("%d files fewer, %v", merged, err)
	}
	if gone != 3 || failed != nil {
		t.Errorf("%d files removed, %v", gone, failed)
	}
	s.reading.Lock() // a merger, while somebody's patience ends
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Read(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	s.reading.Unlock()
	for begin := time.Now(); !s.reading.TryLock(); { // who gave up holds nothing
		if time.Sleep(time.Millisecond); time.Since(begin) > 10*time.Second {
			t.Fatal("who gave up keeps the files")
		}
	}
	s.reading.Unlock()
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

// Parts of a stream are read by several stores, and change hands: each batch is in one of them, also one that a node sends again afterwards.
func TestPartsChangeHands(t *testing.T) {
	of := func(seq uint64, part int) *wire.Batch {
		b := batch("n", "s", seq, noon, 4)
		b.Part = part
		return b
	}
	stream := []*wire.Batch{of(1, 0), of(2, 1), of(3, 2), of(4, 0), of(5, 1), of(6, 2), of(7, 1), of(8, 0)}
	feed := func(s *Store, parts ...int) {
		t.Helper()
		for at := s.From("stream", parts...); at <= uint64(len(stream)); at++ {
			if b := stream[at-1]; slices.Contains(parts, b.Part) {
				s.Put(at, b)
			}
		}
		if err := s.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := open(t, dirA), open(t, dirB)
	feed(a, 0, 1)
	feed(b, 2)
	if got := stored(t, a); len(got) != 6 || len(stored(t, b)) != 2 {
		t.Errorf("%v and %v", got, stored(t, b))
	}
	marks, through := a.Marks(1)
	if len(marks) != 1 || len(marks["n"]) != 1 || marks["n"][0] != (Mark{"s", 7}) || through != 8 {
		t.Errorf("%v through %d", marks, through)
	}
	if raw, err := os.ReadFile(filepath.Join(dirA, "commit.json")); err != nil || !strings.Contains(string(raw), `"through":{"0":8,"1":8}`) {
		t.Errorf("%s %v", raw, err)
	}
	// Part 1 goes to b, which stands beyond its messages: what is off the stream is not read again, and what came since is.
	b = open(t, dirB)
	b.Adopt(1, marks)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	b = open(t, dirB)                                                // what was adopted is on disk
	stream = append(stream, of(7, 1), of(9, 1), of(10, 2), of(8, 0)) // 7: its acknowledgement was lost
	feed(b, 1, 2)
	a = open(t, dirA)
	feed(a, 0)
	if got := stored(t, b); len(got) != 4 || got["n s 9"] != 4 || got["n s 7"] != 0 || got["n s 5"] != 0 || got["n s 10"] != 4 {
		t.Errorf("b: %v", got)
	}
	if got := stored(t, a); len(got) != 6 || got["n s 8"] != 4 {
		t.Errorf("a: %v", got)
	}
	// A folder that knows no parts is one of part 0.
	var old commit
	if err := json.Unmarshal([]byte(`{"version": 1, "stream": "x", "through": 12, "count": 3, "marks": {}}`), &old); err != nil || old.Through[0] != 12 {
		t.Errorf("%+v %v", old, err)
	}
	if raw, err := json.Marshal(commit{Through: map[int]uint64{0: 12}}); err != nil || !strings.Contains(string(raw), `"through":12,`) {
		t.Errorf("%s %v", raw, err)
	}
}
