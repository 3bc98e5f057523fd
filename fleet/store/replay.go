package store

import (
	"errors"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Replay calls f for the samples that came with messages after so many, batch by batch, as far as learners need them: node,
// platform, tasks with path, job and size, usage, flags, signals.
func (s *Store) Replay(after uint64, f func(b *wire.Batch)) error {
	files, err := s.list("samples")
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.First <= after {
			continue
		}
		r := replayer{f: f}
		if err := s.each(file.Name, r.group); err != nil {
			return err
		}
		r.flush()
	}
	return nil
}

// replayer makes batches of rows.
type replayer struct {
	f     func(b *wire.Batch)
	b     *wire.Batch
	tasks map[wire.Task]uint32
	names []string // of the columns
}

func (r *replayer) group(rg parquet.RowGroup) error {
	r.names = r.names[:0]
	for _, at := range rg.Schema().Columns() {
		r.names = append(r.names, at[0])
	}
	rows := rg.Rows()
	buf := make([]parquet.Row, 256)
	for {
		n, err := rows.ReadRows(buf)
		for _, row := range buf[:n] {
			r.row(row)
		}
		if errors.Is(err, io.EOF) {
			return rows.Close()
		}
		if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
}

// row takes one row in.
func (r *replayer) row(row parquet.Row) {
	var node, spool, platform, definition string
	var batch uint64
	var t wire.Task
	var cpu float32
	var flags uint32
	signals := map[model.Source]float32{}
	for _, v := range row {
		if v.IsNull() {
			continue
		}
		switch name := r.names[v.Column()]; name {
		case "node":
			node = v.String()
		case "spool":
			spool = v.String()
		case "batch":
			batch = v.Uint64()
		case "platform":
			platform = v.String()
		case "job":
			t.Job = v.String()
		case "task":
			t.Path = v.String()
		case "size":
			t.Size = v.String()
		case "cpu":
			cpu = v.Float()
		case "usable":
			if v.Boolean() {
				flags |= wire.Usable
			}
		case "throttled":
			if v.Boolean() {
				flags |= wire.Stopped
			}
		default:
			var src model.Source
			if src.UnmarshalText([]byte(name)) == nil {
				signals[src] = v.Float()
			} else if name == model.SourceCPI.String()+"_definition" {
				definition = v.String()
			}
		}
	}
	r.take(wire.Batch{Node: node, Spool: spool, Seq: batch, Platform: platform}, t, cpu, flags, signals, definition)
}

// take adds a sample to the batch that it is of.
func (r *replayer) take(of wire.Batch, t wire.Task, cpu float32, flags uint32, signals map[model.Source]float32, definition string) {
	if b := r.b; b == nil || b.Node != of.Node || b.Spool != of.Spool || b.Seq != of.Seq {
		r.flush()
		r.b, r.tasks = &of, map[wire.Task]uint32{}
	}
	at, ok := r.tasks[t]
	if !ok {
		at = uint32(len(r.b.Tasks)) //nolint:gosec // a batch has at most wire.MaxTasks
		r.tasks[t] = at
		r.b.Tasks = append(r.b.Tasks, t)
	}
	smp := &r.b.Samples
	smp.Task, smp.CPU, smp.Flags, smp.WallMsec = append(smp.Task, at), append(smp.CPU, cpu), append(smp.Flags, flags), append(smp.WallMsec, 0)
	for src := range model.NumSources {
		v, ok := signals[src]
		k := -1
		for i := range smp.Signals {
			if smp.Signals[i].Source == src {
				k = i
			}
		}
		if k < 0 && ok {
			def := src.Definition(false)
			if src == model.SourceCPI {
				def = definition
			}
			k = len(smp.Signals)
			smp.Signals = append(smp.Signals, wire.Signal{Source: src, Definition: def, Values: nan(smp.Len() - 1)})
		}
		switch {
		case k >= 0 && ok:
			smp.Signals[k].Values = append(smp.Signals[k].Values, v)
		case k >= 0:
			smp.Signals[k].Values = append(smp.Signals[k].Values, float32(math.NaN()))
		}
	}
}

func nan(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return v
}

func (r *replayer) flush() {
	if r.b != nil && r.b.Samples.Len() > 0 {
		r.f(r.b)
	}
	r.b = nil
}
