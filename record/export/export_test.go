package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/engine"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// renewed is a record that is kept for an older version, decided and written anew: it has
// decisions of all of today's facts.
func renewed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var e *engine.Engine
	var w *record.Writer
	_, err := record.ReadSegment("../testdata/v2/caps.crec", func(r *record.Reader) (err error) {
		if e, err = engine.Resume(r.Header.Params, r.Checkpoint); err == nil {
			w = record.NewWriter(dir, 1<<30, r.Header)
			err = w.Begin(e.State, 0, r.Header.WallNsec)
		}
		return err
	}, func(tick *record.Tick) bool {
		switch tick.Input.Seq % 20 {
		case 3:
			tick.Input.SLO = []model.Latency{{
				Job: "web", P50: model.Known(0.001), P99: model.Known(0.006), Target: 0.005, Quantile: 0.99, Figure: model.Known(0.006), State: "red", Samples: 150, Errors: 1, Lateness: 1e-4,
			}}
		case 5:
			if s := tick.Input.Snapshot; s != nil && len(s.Tasks) > 0 {
				d := model.DomainSample{Num: s.Tasks[0].Num, Domain: 1, SinceNsec: 7, MonoNsec: s.MonoNsec - 1}
				d.C[model.CountOccupancy], d.C[model.CountMovedTotal] = model.Read(12<<20), model.Counter{Outcome: model.Absent}
				s.Domains = []model.DomainSample{d}
			}
		case 9:
			tick.Input.SLO = []model.Latency{{Job: "web", Target: 0.005, Quantile: 0.99, State: "grey", Why: "connection refused"}, {Job: "dns"}}
		}
		must(t, w.Tick(&tick.Input, e.Step(&tick.Input)))
		return true
	})
	must(t, err)
	must(t, w.Close())
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// jsonRows reads a table of lines; numbers stay as they are written.
func jsonRows(t *testing.T, name string) (rows []map[string]any) {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		d := json.NewDecoder(bytes.NewReader(in.Bytes()))
		d.UseNumber()
		var row map[string]any
		must(t, d.Decode(&row))
		rows = append(rows, row)
	}
	must(t, in.Err())
	return rows
}

// parquetRows reads a table of Parquet as a reader would that knows nothing of us.
func parquetRows(t *testing.T, table *Table, name string) (rows []map[string]any) {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	r := parquet.NewReader(f)
	names := r.Schema().Columns()
	buf := make([]parquet.Row, 1)
	for {
		n, err := r.ReadRows(buf)
		if n == 1 {
			row := map[string]any{}
			for _, v := range buf[0] {
				column := names[v.Column()][0]
				unsigned := slices.ContainsFunc(table.Columns, func(c Column) bool { return c.Name == column && c.Kind == Uint })
				switch {
				case v.IsNull():
				case v.Kind() == parquet.ByteArray:
					row[column] = string(v.ByteArray())
				case v.Kind() == parquet.Double:
					b, err := json.Marshal(v.Double())
					must(t, err)
					row[column] = json.Number(b)
				case unsigned:
					row[column] = json.Number(fmt.Sprint(v.Uint64()))
				default:
					row[column] = json.Number(fmt.Sprint(v.Int64()))
				}
			}
			rows = append(rows, row)
		}
		if errors.Is(err, io.EOF) {
			return rows
		}
		must(t, err)
	}
}

// Both formats say the same, and what the record says.
func TestFormatsAgree(t *testing.T) {
	recorded, dir := renewed(t), t.TempDir()
	lines, err := JSONL(recorded, dir)
	must(t, err)
	columns, err := Parquet(recorded, dir)
	must(t, err)
	for _, table := range Tables() {
		a, b := jsonRows(t, filepath.Join(dir, table.Name+".jsonl")), parquetRows(t, &table, filepath.Join(dir, table.Name+".parquet"))
		if len(a) == 0 || len(a) != lines.Rows[table.Name] || len(b) != columns.Rows[table.Name] || len(a) != len(b) {
			t.Fatalf("%s: %d and %d rows, said to be %d and %d", table.Name, len(a), len(b), lines.Rows[table.Name], columns.Rows[table.Name])
		}
		for i := range a {
			for _, c := range table.Columns {
				if a[i][c.Name] != b[i][c.Name] || a[i][c.Name] == nil && !c.Optional {
					t.Fatalf("%s, row %d, %s: %v and %v", table.Name, i, c.Name, a[i][c.Name], b[i][c.Name])
				}
			}
		}
	}
	if _, err := JSONL(recorded, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("written over: %v", err)
	}
}

func TestRowsAreTheRecords(t *testing.T) {
	recorded, dir := renewed(t), t.TempDir()
	_, err := JSONL(recorded, dir)
	must(t, err)
	rows, decided := jsonRows(t, filepath.Join(dir, "samples.jsonl")), jsonRows(t, filepath.Join(dir, "decisions.jsonl"))
	list := jsonRows(t, filepath.Join(dir, "facts.jsonl"))
	states := map[string]string{}
	must(t, record.Walk(recorded, func(tick *record.Tick) {
		for i := range tick.Output.Decisions {
			d := &tick.Output.Decisions[i]
			if decided[0]["kind"] != d.Kind.String() || decided[0]["reason"] != d.Reason || decided[0]["index"] != json.Number(fmt.Sprint(i)) {
				t.Fatalf("%v is not %+v", decided[0], d)
			}
			for _, f := range d.Facts {
				if list[0]["name"] != f.Name || list[0]["seq"] != decided[0]["seq"] {
					t.Fatalf("%v is not %+v", list[0], f)
				}
				list = list[1:]
			}
			decided = decided[1:]
		}
		for _, inc := range tick.Output.Incidents {
			states[inc.ID] = inc.State.String()
		}
		if tick.Input.Snapshot == nil {
			return
		}
		for i := range tick.Input.Snapshot.Tasks {
			s := &tick.Input.Snapshot.Tasks[i]
			for k, counter := range model.TaskCounters() {
				want := any(nil)
				if c := s.C[k]; c.Outcome == model.OK {
					want = json.Number(fmt.Sprint(c.Value))
				}
				if rows[0][counter.Name] != want {
					t.Fatalf("tick %d, task %d, %s: %v, want %v", tick.Input.Seq, s.Num, counter.Name, rows[0][counter.Name], want)
				}
			}
			if rows[0]["path"] == nil || rows[0]["job"] == nil || rows[0]["class"] == nil {
				t.Fatalf("nobody's: %v", rows[0])
			}
			rows = rows[1:]
		}
	}))
	if len(rows)+len(decided)+len(list) > 0 {
		t.Errorf("%d samples, %d decisions and %d facts more", len(rows), len(decided), len(list))
	}
	told := jsonRows(t, filepath.Join(dir, "incidents.jsonl"))
	if len(told) != len(states) || len(told) == 0 {
		t.Fatalf("%d incidents of %d", len(told), len(states))
	}
	for _, inc := range told {
		var story model.Incident
		if err := json.Unmarshal([]byte(inc["story"].(string)), &story); err != nil || inc["state"] != states[story.ID] || story.State.String() != inc["state"] {
			t.Errorf("%v: %v", inc, err)
		}
	}
}

// Who reads the tables without this code has only the document.
func TestDocumentNamesTheColumns(t *testing.T) {
	doc, err := os.ReadFile("../../docs/RECORD.md")
	must(t, err)
	for _, table := range Tables() {
		for _, c := range table.Columns {
			if !bytes.Contains(doc, []byte("`"+c.Name+"`")) {
				t.Errorf("docs/RECORD.md says nothing of %s.%s", table.Name, c.Name)
			}
		}
	}
}

// What latency sources said is a table: a figure that was not valid is none, and no zero.
func TestLatencies(t *testing.T) {
	recorded, dir := renewed(t), t.TempDir()
	_, err := JSONL(recorded, dir)
	must(t, err)
	states := map[any]int{}
	for _, row := range jsonRows(t, filepath.Join(dir, "latencies.jsonl")) {
		states[row["state"]]++
		want := map[any]any{"red": json.Number("0.006"), "grey": nil, nil: nil}[row["state"]]
		if row["figure"] != want || row["state"] == "grey" && row["why"] != "connection refused" || row["state"] == nil && row["target"] != nil {
			t.Fatal(row)
		}
	}
	if states["red"] == 0 || states["grey"] == 0 || states[nil] == 0 {
		t.Errorf("%v", states)
	}
}
