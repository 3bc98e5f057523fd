// Package export writes a record as tables that others read: a fleet's store, SQL, Python.
// The same columns go into lines of JSON and into Parquet. docs/RECORD.md is the schema.
package export

import (
	"encoding/json"
	"fmt"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/record"
)

// Kind is what a column holds.
type Kind uint8

// The kinds.
const (
	Text  Kind = iota
	Int        // 64 bits, signed
	Uint       // 64 bits, unsigned: a counter
	Float      // 64 bits
)

// Column is one column of a table.
type Column struct {
	Name string
	Kind Kind
	// Optional: a row may be without it. It is null in Parquet, and left out of JSON.
	Optional bool
}

// Table is one table.
type Table struct {
	Name    string
	Columns []Column
}

// The tables, by number.
const (
	samples = iota
	nodes
	decisions
	facts
	incidents
	latencies
	domains
	numTables
)

// Tables lists the tables in their order. Counters are those of model, so that a new one is a
// new column.
func Tables() []Table {
	at := []Column{{"boot", Text, false}, {"seq", Uint, false}, {"mono_nsec", Int, false}, {"wall_nsec", Int, false}}
	with := func(more ...Column) []Column { return append(at[:len(at):len(at)], more...) }
	counters := func(list []Column, rows []model.CounterRow) []Column {
		for i := range rows {
			list = append(list, Column{rows[i].Name, Uint, true})
		}
		return list
	}
	mark := Column{"mark", Int, false}
	return []Table{
		{"samples", counters(with(mark, Column{"task", Int, false}, Column{"path", Text, true}, Column{"job", Text, true}, Column{"class", Text, true}), model.TaskCounters())},
		{"nodes", counters(with(mark, Column{"cpus", Int, false}), model.NodeCounters())},
		{"decisions", with(Column{"index", Int, false}, Column{"kind", Text, false}, Column{"policy", Text, true}, Column{"mode", Text, true},
			Column{"task", Int, true}, Column{"path", Text, true}, Column{"incident", Text, true}, Column{"reason", Text, false})},
		{"facts", []Column{
			{"boot", Text, false}, {"seq", Uint, false}, {"index", Int, false}, {"name", Text, false}, {"value", Float, false}, {"unit", Text, true},
		}},
		{"incidents", []Column{
			{"boot", Text, false}, {"id", Text, false}, {"victim", Int, false}, {"victim_path", Text, false}, {"victim_job", Text, false},
			{"source", Text, false}, {"signal", Float, false}, {"threshold", Float, false}, {"violations", Int, false},
			{"opened_nsec", Int, false}, {"opened_wall_nsec", Int, false}, {"closed_nsec", Int, true}, {"state", Text, false}, {"rounds", Int, false},
			{"story", Text, false},
		}},
		{"latencies", with(Column{"job", Text, false}, Column{"state", Text, true}, Column{"target", Float, true}, Column{"quantile", Float, true}, Column{"figure", Float, true},
			Column{"p50", Float, true}, Column{"p99", Float, true}, Column{"p999", Float, true}, Column{"samples", Int, false}, Column{"errors", Int, false},
			Column{"lateness", Float, false}, Column{"why", Text, true})},
		{"domains", counters(with(mark, Column{"task", Int, false}, Column{"path", Text, true}, Column{"job", Text, true}, Column{"class", Text, true},
			Column{"domain", Int, false}, Column{"since_nsec", Int, false}, Column{"read_nsec", Int, false}), model.DomainCounters())},
	}
}

// sink takes rows: a value for each column, nil for none. The row is the caller's again
// afterwards.
type sink interface {
	put(table int, row []any) error
	close() error
}

// source goes through a record.
type source struct {
	to    sink
	boot  string
	tasks map[model.TaskNum]model.Task
	last  map[string]*model.Incident // as they stood last
	order []string
	rows  [numTables]int
	row   []any
	err   error
}

func (s *source) begin(_ string, r *record.Reader) error {
	if s.boot = r.Header.Boot; s.boot == "" {
		s.boot = "unknown"
	}
	clear(s.tasks)
	for _, t := range r.Checkpoint.Tasks.Tasks {
		s.tasks[t.Num] = t
	}
	return nil
}

func (s *source) put(table int, row ...any) {
	if s.err == nil {
		s.rows[table]++
		s.err = s.to.put(table, row)
	}
}

// text is a string, or none.
func text(v string) any {
	if v == "" {
		return nil
	}
	return v
}

// positive is a number, or none.
func positive(v float64) any {
	if v > 0 {
		return v
	}
	return nil
}

// value is what was measured, or none.
func value(v model.Value) any {
	if v.Outcome != model.OK {
		return nil
	}
	return v.V
}

func (s *source) tick(t *record.Tick) bool {
	if snap := t.Input.Snapshot; snap != nil {
		s.snapshot(t.Input.Seq, snap)
	}
	for i := range t.Input.SLO {
		l := &t.Input.SLO[i]
		s.put(latencies, s.boot, t.Input.Seq, t.Input.MonoNsec, t.Input.WallNsec, l.Job, text(l.State), positive(l.Target), positive(l.Quantile), value(l.Figure),
			value(l.P50), value(l.P99), value(l.P999), int64(l.Samples), int64(l.Errors), l.Lateness, text(l.Why))
	}
	for i := range t.Output.Decisions {
		d := &t.Output.Decisions[i]
		var task any
		if d.Task != 0 {
			task = int64(d.Task)
		}
		s.put(decisions, s.boot, t.Input.Seq, d.MonoNsec, d.WallNsec, int64(i), d.Kind.String(), text(d.Policy), text(d.Mode), task, text(d.Path), text(d.Incident), d.Reason)
		for _, f := range d.Facts {
			s.put(facts, s.boot, t.Input.Seq, int64(i), f.Name, f.Value, text(f.Unit))
		}
	}
	for _, inc := range t.Output.Incidents {
		key := s.boot + " " + inc.ID
		if s.last[key] == nil {
			s.order = append(s.order, key)
		}
		s.last[key] = inc
	}
	return s.err == nil
}

func (s *source) snapshot(seq uint64, snap *model.Snapshot) {
	for _, t := range snap.Added {
		s.tasks[t.Num] = t
	}
	s.row = append(s.row[:0], s.boot, seq, snap.MonoNsec, snap.WallNsec, int64(snap.Mark), int64(snap.Node.CPUs))
	s.put(nodes, s.counters(snap.Node.C[:])...)
	for i := range snap.Tasks {
		sample := &snap.Tasks[i]
		task := s.tasks[sample.Num]
		class := any(nil)
		if task.Num != 0 {
			class = task.Class.String()
		}
		s.row = append(s.row[:0], s.boot, seq, snap.MonoNsec, snap.WallNsec, int64(snap.Mark), int64(sample.Num), text(task.Path), text(task.Job), class)
		s.put(samples, s.counters(sample.C[:])...)
	}
	for i := range snap.Domains {
		d := &snap.Domains[i]
		task := s.tasks[d.Num]
		class := any(nil)
		if task.Num != 0 {
			class = task.Class.String()
		}
		s.row = append(s.row[:0], s.boot, seq, snap.MonoNsec, snap.WallNsec, int64(snap.Mark), int64(d.Num), text(task.Path), text(task.Job), class, int64(d.Domain), d.SinceNsec, d.MonoNsec)
		s.put(domains, s.counters(d.C[:])...)
	}
}

// counters appends counters to the row that is begun; one that was not read is none.
func (s *source) counters(list []model.Counter) []any {
	for _, c := range list {
		if c.Outcome == model.OK {
			s.row = append(s.row, c.Value)
		} else {
			s.row = append(s.row, nil)
		}
	}
	return s.row
}

// end writes the incidents as they stood last.
func (s *source) end() error {
	for _, key := range s.order {
		inc := s.last[key]
		story, err := json.Marshal(inc)
		if err != nil {
			return fmt.Errorf("export: incident %s: %w", inc.ID, err)
		}
		var closed any
		if inc.ClosedNsec != 0 {
			closed = inc.ClosedNsec
		}
		boot := key[:len(key)-len(inc.ID)-1]
		s.put(incidents, boot, inc.ID, int64(inc.Victim), inc.VictimPath, inc.VictimJob, inc.Source.String(), inc.Signal, inc.Threshold, int64(inc.Violations),
			inc.OpenedNsec, inc.OpenedWall, closed, inc.State.String(), int64(len(inc.Rounds)), string(story))
	}
	return s.err
}

// Result says what was written.
type Result struct {
	Dir    string         `json:"dir"`
	Format string         `json:"format"`
	Rows   map[string]int `json:"rows"` // by table
	record.Reading
}

// run exports a record, a folder or one segment, to a sink.
func run(path string, to sink) (res *Result, err error) {
	res = &Result{Rows: map[string]int{}}
	s := &source{to: to, tasks: map[model.TaskNum]model.Task{}, last: map[string]*model.Incident{}}
	if res.Reading, err = record.Read(path, s.begin, s.tick); err != nil {
		return nil, err
	}
	if s.err != nil {
		return nil, s.err
	}
	if res.Segments == 0 {
		return nil, fmt.Errorf("%s holds no segments (*%s)", path, record.Suffix)
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	for i, t := range Tables() {
		res.Rows[t.Name] = s.rows[i]
	}
	return res, nil
}
