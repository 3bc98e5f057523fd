package store

import (
	"encoding/json"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Row is one row that is to be written: of a batch, the i-th sample, decision or incident.
type row struct {
	b *wire.Batch
	i int
}

// column is one column of a table.
type column struct {
	name, unit, what string
	node             parquet.Node
	fill             fill
}

// table is one table: a folder of Parquet files by date and hour (UTC).
type table struct {
	name    string
	columns []column
	rows    func(b *wire.Batch) int
	msec    func(r row) int64 // when it was, ms since 1970
}

func word() parquet.Node  { return parquet.Encoded(parquet.String(), &parquet.RLEDictionary) }
func prose() parquet.Node { return parquet.String() }
func when() parquet.Node {
	return parquet.Encoded(parquet.Timestamp(parquet.Millisecond), &parquet.DeltaBinaryPacked)
}
func whole() parquet.Node { return parquet.Encoded(parquet.Int(64), &parquet.DeltaBinaryPacked) }
func float() parquet.Node {
	return parquet.Encoded(parquet.Leaf(parquet.FloatType), &parquet.ByteStreamSplit)
}
func truth() parquet.Node { return parquet.Leaf(parquet.BooleanType) }

// text takes the string as it is: parquet.ValueOf would put each into an interface, an allocation a row and column.
func text(s string) parquet.Value {
	return parquet.ByteArrayValue(unsafe.Slice(unsafe.StringData(s), len(s))) //nolint:gosec // a writer only reads it
}

// origin says of each row from which batch it is.
func origin() []column {
	return []column{
		{"node", "", "the node's name", word(), ofBatch(func(b *wire.Batch) parquet.Value { return text(b.Node) })},
		{"spool", "", "with node and batch, the name of the batch", word(), ofBatch(func(b *wire.Batch) parquet.Value { return text(b.Spool) })},
		{"batch", "", "its number within the spool", whole(), ofBatch(func(b *wire.Batch) parquet.Value { return parquet.Int64Value(int64(b.Seq)) })}, //nolint:gosec // Check bounds it
	}
}

// tables are what the store holds.
var tables = []table{samplesTable(), decisionsTable(), incidentsTable(), specsTable(), auditTable()}

func samplesTable() table {
	t := table{
		name: "samples", rows: func(b *wire.Batch) int { return b.Samples.Len() }, msec: func(r row) int64 { return r.b.Samples.WallMsec[r.i] },
		columns: append(origin(),
			column{"time", "ms since 1970, UTC", "end of the window", when(), func(out []parquet.Value, b *wire.Batch, from int) {
				for i, at := range b.Samples.WallMsec[from : from+len(out)] {
					out[i] = parquet.Int64Value(at)
				}
			}},
			column{"platform", "", "CPU type", word(), ofBatch(func(b *wire.Batch) parquet.Value { return text(b.Platform) })},
			column{"job", "", "the task's job", word(), ofTask(func(t *wire.Task) parquet.Value { return text(t.Job) })},
			column{"task", "", "its cgroup's path", word(), ofTask(func(t *wire.Task) parquet.Value { return text(t.Path) })},
			column{"class", "", "LC, BE or system", word(), ofTask(func(t *wire.Task) parquet.Value { return text(t.Class.String()) })},
			column{"importance", "", "of a BE task", word(), ofTask(func(t *wire.Task) parquet.Value { return text(t.Importance.String()) })},
			column{"size", "", "which of its job's sizes it has; empty: not told", word(), ofTask(func(t *wire.Task) parquet.Value { return text(t.Size) })},
			column{"production", "", "it is of a production job", truth(), ofTask(func(t *wire.Task) parquet.Value { return parquet.BooleanValue(t.Production) })},
			column{"cpu", "CPU-sec/sec", "usage", float(), func(out []parquet.Value, b *wire.Batch, from int) {
				for i, used := range b.Samples.CPU[from : from+len(out)] {
					out[i] = parquet.FloatValue(used)
				}
			}},
			column{"usable", "", "it ran enough for the window to be evidence of what is normal", truth(), ofFlag(wire.Usable)},
			column{"throttled", "", "a quota of its own stopped it, or nobody knows whether one did", truth(), ofFlag(wire.Stopped)},
			column{"outlier", "", "its signal was above the threshold that the node had", truth(), ofFlag(wire.Outlier)},
		),
	}
	for _, src := range model.Sources() {
		t.columns = append(t.columns, column{src.String(), "", src.Row().Title + "; null: there is none", parquet.Optional(float()), ofSignal(src)})
		if src.Row().ByCore != "" {
			t.columns = append(t.columns, column{src.String() + "_definition", "", "how it is calculated", parquet.Optional(word()), ofBatch(func(b *wire.Batch) parquet.Value {
				if s := signalOf(b, src); s != nil {
					return present(text(s.Definition))
				}
				return parquet.NullValue()
			})})
		}
	}
	return t
}

func decisionsTable() table {
	at := func(r row) *model.Decision { return &r.b.Decisions[r.i] }
	return table{
		name: "decisions", rows: func(b *wire.Batch) int { return len(b.Decisions) }, msec: func(r row) int64 { return at(r).WallNsec / 1e6 },
		columns: append(origin(),
			column{"time", "ms since 1970, UTC", "when it was taken", when(), each(func(r row) parquet.Value { return parquet.Int64Value(at(r).WallNsec / 1e6) })},
			column{"kind", "", "cap, release, cannot-fix, …", word(), each(func(r row) parquet.Value { return text(at(r).Kind.String()) })},
			column{"taken_by", "", "a policy, or detection, operators, kernel", word(), each(func(r row) parquet.Value { return text(at(r).By()) })},
			column{"mode", "", "observe or enforce", word(), each(func(r row) parquet.Value { return text(at(r).Mode) })},
			column{"task", "", "path; empty: of no task", word(), each(func(r row) parquet.Value { return text(at(r).Path) })},
			column{"incident", "", "its id; empty: of none", word(), each(func(r row) parquet.Value { return text(at(r).Incident) })},
			column{"reason", "", "for people", prose(), each(func(r row) parquet.Value { return text(at(r).Reason) })},
			column{"facts", "JSON", "the evidence", prose(), each(func(r row) parquet.Value { return text(document(at(r).Facts)) })},
		),
	}
}

func incidentsTable() table {
	at := func(r row) *model.Incident { return r.b.Incidents[r.i] }
	last := func(r row) *model.Round {
		if rounds := at(r).Rounds; len(rounds) > 0 {
			return &rounds[len(rounds)-1]
		}
		return &model.Round{}
	}
	return table{
		name: "incidents", rows: func(b *wire.Batch) int { return len(b.Incidents) }, msec: func(r row) int64 { return at(r).OpenedWall / 1e6 },
		columns: append(origin(),
			column{"opened", "ms since 1970, UTC", "when it was declared", when(), each(func(r row) parquet.Value { return parquet.Int64Value(at(r).OpenedWall / 1e6) })},
			column{"platform", "", "CPU type", word(), ofBatch(func(b *wire.Batch) parquet.Value { return text(b.Platform) })},
			column{"id", "", "unique on its node; the same incident comes again whenever it changed", word(), each(func(r row) parquet.Value { return text(at(r).ID) })},
			column{"state", "", "searching, holding, verifying, recovered, cannot-fix, observed, victim-gone, dropped", word(), each(func(r row) parquet.Value { return text(at(r).State.String()) })},
			column{"victim", "", "path", word(), each(func(r row) parquet.Value { return text(at(r).VictimPath) })},
			column{"victim_job", "", "", word(), each(func(r row) parquet.Value { return text(at(r).VictimJob) })},
			column{"signal", "", "cpi, slowdown, …", word(), each(func(r row) parquet.Value { return text(at(r).Source.String()) })},
			column{"value", "", "of the signal when it was declared", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(at(r).Signal)) })},
			column{"threshold", "", "of the signal", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(at(r).Threshold)) })},
			column{"antagonist", "", "path of who was chosen last; empty: nobody", word(), each(func(r row) parquet.Value { return text(last(r).ChosenPath) })},
			column{"antagonist_job", "", "", word(), each(func(r row) parquet.Value { return text(chosenJob(r.b, last(r))) })},
			column{"rounds", "", "how many were tried", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(int64(len(at(r).Rounds))) })},
			column{"before", "", "the signal before the last hold; 0: not known", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(last(r).SignalBefore)) })},
			column{"after", "", "the signal in it; 0: not known", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(last(r).SignalAfter)) })},
			column{"sheet", "", "revision of the fleet's spec; 0: the node's own", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(int64(at(r).Spec.Sheet)) })}, //nolint:gosec // counts publications
			column{"document", "JSON", "all of it, as the node's record has it", prose(), each(func(r row) parquet.Value { return text(document(at(r))) })},
		),
	}
}

func specsTable() table {
	at := func(r row) *wire.SpecSheet { return &r.b.Sheets[r.i] }
	of := func(r row) *model.Spec { return &at(r).Specs[0] }
	return table{
		name: "specs", rows: func(b *wire.Batch) int { return len(b.Sheets) }, msec: func(r row) int64 { return at(r).WallNsec / 1e6 },
		columns: []column{
			{"time", "ms since 1970, UTC", "when it was published", when(), each(func(r row) parquet.Value { return parquet.Int64Value(at(r).WallNsec / 1e6) })},
			{"platform", "", "CPU type", word(), each(func(r row) parquet.Value { return text(at(r).Platform) })},
			{"job", "", "", word(), each(func(r row) parquet.Value { return text(at(r).Job) })},
			{"size", "", "of the tasks that it is of; empty: of all", word(), each(func(r row) parquet.Value { return text(at(r).Size) })},
			{"revision", "", "counts what was published of the job on the platform", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(int64(at(r).Revision)) })}, //nolint:gosec // counts publications
			{"pinned", "", "an operator chose this revision", truth(), each(func(r row) parquet.Value { return parquet.BooleanValue(at(r).Pinned) })},
			{"nodes", "", "that the samples are from", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(int64(at(r).Nodes)) })},
			{"signal", "", "cpi, slowdown, …", word(), each(func(r row) parquet.Value { return text(of(r).Source.String()) })},
			{"definition", "", "how it is calculated", word(), each(func(r row) parquet.Value { return text(of(r).Definition) })},
			{"samples", "", "", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(of(r).NumSamples) })},
			{"tasks", "", "that contributed", whole(), each(func(r row) parquet.Value { return parquet.Int64Value(int64(of(r).Tasks)) })},
			{"cpu", "CPU-sec/sec", "mean usage", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(of(r).UsageMean)) })},
			{"mean", "", "", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(of(r).Mean)) })},
			{"stddev", "", "", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(of(r).StdDev)) })},
			{"tail", "", "threshold by a fitted distribution; 0: it is mean and deviations", float(), each(func(r row) parquet.Value { return parquet.FloatValue(float32(of(r).Tail)) })},
			{"p50", "", "median of what was sampled; null: not told", parquet.Optional(float()), quantile(func(sp *model.Spec) float64 { return sp.P50 })},
			{"p90", "", "90th percentile; the same", parquet.Optional(float()), quantile(func(sp *model.Spec) float64 { return sp.P90 })},
			{"p99", "", "99th percentile, no higher than the threshold of its time; the same", parquet.Optional(float()), quantile(func(sp *model.Spec) float64 { return sp.P99 })},
		},
	}
}

// quantile is a column of a spec that may have none.
func quantile(of func(sp *model.Spec) float64) fill {
	return each(func(r row) parquet.Value {
		if sp := &r.b.Sheets[r.i].Specs[0]; sp.P99 > 0 {
			return present(parquet.FloatValue(float32(of(sp))))
		}
		return parquet.NullValue()
	})
}

func auditTable() table {
	at := func(r row) *wire.Act { return &r.b.Acts[r.i] }
	return table{
		name: "audit", rows: func(b *wire.Batch) int { return len(b.Acts) }, msec: func(r row) int64 { return at(r).Time.UnixMilli() },
		columns: []column{
			{"time", "ms since 1970, UTC", "when it was done; in the row with a result, when that was known", when(), each(func(r row) parquet.Value { return parquet.Int64Value(at(r).Time.UnixMilli()) })},
			{"id", "", "of the act, whose result is a second row", word(), each(func(r row) parquet.Value { return text(at(r).ID) })},
			{"who", "", "a person's name; hub: itself; of role local a user of its machine", word(), each(func(r row) parquet.Value { return text(at(r).By) })},
			{"role", "", "viewer, operator or admin; local: by a command on the hub's machine", word(), each(func(r row) parquet.Value { return text(at(r).Role) })},
			{"what", "", "cap, protect-off, spec-rollback, rollout, kill-switch, node-add, person-remove, …", word(), each(func(r row) parquet.Value { return text(at(r).What) })},
			{"node", "", "empty: of no single one", word(), each(func(r row) parquet.Value { return text(at(r).Node) })},
			{"detail", "JSON", "of the command; empty: none", prose(), each(func(r row) parquet.Value { return text(string(at(r).Detail)) })},
			{"why", "", "as was said", prose(), each(func(r row) parquet.Value { return text(at(r).Why) })},
			{"result", "", "what came of it; empty: of the first row", prose(), each(func(r row) parquet.Value { return text(at(r).Result) })},
		},
	}
}

func chosenJob(b *wire.Batch, r *model.Round) string {
	if r.Chosen == nil {
		return ""
	}
	for i := range r.Suspects {
		if s := &r.Suspects[i]; s.Task == *r.Chosen {
			return s.Job
		}
	}
	for i := range b.Tasks {
		if b.Tasks[i].Path == r.ChosenPath {
			return b.Tasks[i].Job
		}
	}
	return ""
}

func document(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// Column is what people are told of a column.
type Column struct{ Table, Name, Unit, What string }

// Columns lists all columns of all tables.
func Columns() (list []Column) {
	for i := range tables {
		for _, c := range tables[i].columns {
			list = append(list, Column{tables[i].name, c.name, c.unit, strings.TrimSpace(c.what)})
		}
	}
	return list
}
