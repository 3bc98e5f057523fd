package bucket_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/bucket/buckettest"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// batch has a sample a minute, one decision and one incident.
func batch(node string, seq uint64, from time.Time, samples int) *wire.Batch {
	b := &wire.Batch{Node: node, Spool: "s", Seq: seq, Platform: "cpu", Tasks: []wire.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}}}
	for i := range samples {
		b.Samples.Task = append(b.Samples.Task, 0)
		b.Samples.WallMsec = append(b.Samples.WallMsec, from.Add(time.Duration(i)*time.Minute).UnixMilli())
		b.Samples.CPU = append(b.Samples.CPU, 1)
		b.Samples.Flags = append(b.Samples.Flags, wire.Usable)
	}
	b.Decisions = []model.Decision{{Kind: model.DecideCannotFix, WallNsec: from.UnixNano(), Path: "/web"}}
	b.Incidents = []*model.Incident{{ID: fmt.Sprint(seq), OpenedWall: from.UnixNano()}}
	return b
}

// rows counts rows by table and batch.
type rows map[string]int

func (r rows) add(o rows) {
	for k, n := range o {
		r[k] += n
	}
}

func rowsOfBatch(b *wire.Batch) rows {
	r := rows{}
	for table, n := range map[string]int{"samples": b.Samples.Len(), "decisions": len(b.Decisions), "incidents": len(b.Incidents)} {
		r[fmt.Sprintf("%s %s %d", table, b.Node, b.Seq)] = n
	}
	return r
}

var known = map[[32]byte]rows{} // what was read before

func rowsOfFile(t *testing.T, name string, data []byte) rows {
	t.Helper()
	sum := sha256.Sum256(append([]byte(name), data...))
	if r := known[sum]; r != nil {
		return r
	}
	p, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	table, _, _ := strings.Cut(name, "/")
	r := rows{}
	for _, rg := range p.RowGroups() {
		columns, all := rg.Schema().Columns(), rg.Rows()
		buf := make([]parquet.Row, 64)
		for err == nil {
			var n int
			n, err = all.ReadRows(buf)
			for _, row := range buf[:n] {
				at := map[string]string{}
				for _, v := range row {
					at[columns[v.Column()][0]] = v.String()
				}
				r[table+" "+at["node"]+" "+at["batch"]]++
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", name, err)
		}
		err = all.Close()
	}
	known[sum] = r
	return r
}

// world is a hub's store with its bucket.
type world struct {
	t   *testing.T
	dir string
	mem *buckettest.Memory
	cfg bucket.Config
	now time.Time
	s   *store.Store
	m   *bucket.Mirror

	stream []*wire.Batch
	seqs   map[string]uint64
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), mem: buckettest.NewMemory(), cfg: bucket.Config{Keep: 1000 * day, KeepLocal: day}, now: noon, seqs: map[string]uint64{}}
	w.start()
	return w
}

// start is a hub that begins: at the time when the one before ended, or later.
func (w *world) start() {
	w.t.Helper()
	w.now = w.now.Add(time.Millisecond)
	var err error
	if w.s, err = store.Open(w.dir); err != nil {
		w.t.Fatal(err)
	}
	w.m = bucket.New(w.s, w.mem, w.cfg)
	w.read()
}

func (w *world) read() {
	for at := w.s.From("stream"); at <= uint64(len(w.stream)); at++ {
		w.s.Put(at, w.stream[at-1])
	}
}

// sends is a node that sends a batch.
func (w *world) sends(node string, from time.Time, samples int) {
	w.seqs[node]++
	w.stream = append(w.stream, batch(node, w.seqs[node], from, samples))
	w.read()
}

// commits puts into the store what was sent, and merges.
func (w *world) commits() {
	w.t.Helper()
	if err := w.s.Commit(); err != nil {
		w.t.Fatal(err)
	}
	w.compacts()
}

func (w *world) compacts() {
	w.t.Helper()
	_, count := w.s.Committed()
	if _, err := w.s.Compact(w.now, count); err != nil {
		w.t.Fatal(err)
	}
	w.m.Learned(count)
}

// round is one of the mirror; crashed: the hub ended in it.
func (w *world) round() (crashed bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(buckettest.Crash); !ok {
				panic(r)
			}
			crashed = true
		}
	}()
	return false, w.m.Round(w.t.Context(), w.now)
}

func (w *world) mustRound() {
	w.t.Helper()
	if _, err := w.round(); err != nil {
		w.t.Fatal(err)
	}
}

// committed is what must be readable.
func (w *world) committed() rows {
	r := rows{}
	through, _ := w.s.Committed()
	for _, b := range w.stream[:through] {
		r.add(rowsOfBatch(b))
	}
	return r
}

// local lists the folder's files.
func (w *world) local() (list []store.File) {
	w.t.Helper()
	paths, err := filepath.Glob(filepath.Join(w.dir, "*", "date=20*", "hour=*", "*.parquet"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range paths {
		f, ok := store.ParseName(strings.TrimPrefix(p, w.dir+"/"))
		if !ok {
			w.t.Fatalf("%s lies in the folder", p)
		}
		list = append(list, f)
	}
	return list
}

// named lists what manifests name.
func (w *world) named() (list []bucket.Entry) {
	w.t.Helper()
	fault := w.mem.Fault
	w.mem.Fault = nil
	defer func() { w.mem.Fault = fault }()
	days := map[string]bool{}
	for _, name := range w.mem.Names() {
		if strings.Contains(name, "/_manifest-") {
			days[filepath.Dir(name)] = true
		}
	}
	for d := range days {
		m, _, _, err := bucket.Read(w.t.Context(), w.mem, d)
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, m.Files...)
	}
	return list
}

// check looks at bucket and folder together: each committed row is in exactly one of the files that count. By manifest alone none is twice.
func (w *world) check(what string) {
	w.t.Helper()
	type part struct {
		store.File
		rows rows
	}
	var all []part
	local, want, manifested := w.local(), w.committed(), rows{}
	for _, f := range local {
		data, err := os.ReadFile(filepath.Join(w.dir, f.Name))
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, part{f, rowsOfFile(w.t, f.Name, data)})
	}
	for _, e := range w.named() {
		f, _ := store.ParseName(e.Name)
		data := w.mem.Object(e.Name)
		if fmt.Sprintf("%x", sha256.Sum256(data)) != e.SHA256 {
			replaced := false
			for _, l := range local {
				replaced = replaced || l.Holds(f)
			}
			if !replaced {
				w.t.Fatalf("%s: %s is named, not there (%d bytes), and in no file of the folder", what, e.Name, len(data))
			}
			continue
		}
		p := part{f, rowsOfFile(w.t, e.Name, data)}
		manifested.add(p.rows)
		all = append(all, p)
	}
	for k, n := range manifested {
		if n > want[k] {
			w.t.Fatalf("%s: %s has %d rows by manifest; expected %d at most", what, k, n, want[k])
		}
	}
	got := rows{}
next:
	for i, p := range all {
		for j, o := range all {
			if i != j && o.Holds(p.File) && (o.Name != p.Name || j < i) {
				continue next
			}
		}
		got.add(p.rows)
	}
	w.compare(what, got, want)
}

func (w *world) compare(what string, got, want rows) {
	w.t.Helper()
	for k, n := range want {
		if got[k] != n {
			w.t.Fatalf("%s: %s has %d rows; expected %d", what, k, got[k], n)
		}
	}
	if len(got) > len(want) {
		w.t.Fatalf("%s: there are rows of %d batches; expected %d", what, len(got), len(want))
	}
}

// fetched reads all by manifest, as people do.
func (w *world) fetched(into string) (rows, bucket.Fetched) {
	w.t.Helper()
	n, err := bucket.Fetch(w.t.Context(), w.mem, into, noon.Add(-30*day), w.now.Add(day))
	if err != nil {
		w.t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(into, "*", "date=20*", "hour=*", "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	got := rows{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			w.t.Fatal(err)
		}
		got.add(rowsOfFile(w.t, strings.TrimPrefix(p, into+"/"), data))
	}
	return got, n
}
