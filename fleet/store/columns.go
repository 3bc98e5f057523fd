package store

import (
	"github.com/parquet-go/parquet-go"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// fill puts what a column has of a batch's rows into out: of row from on, as many as fit. A column is filled at once, since a call a cell takes as long
// as all that comes after it.
type fill func(out []parquet.Value, b *wire.Batch, from int)

// each is for what is written seldom: a call a cell.
func each(value func(r row) parquet.Value) fill {
	return func(out []parquet.Value, b *wire.Batch, from int) {
		for i := range out {
			out[i] = value(row{b, from + i})
		}
	}
}

// ofBatch is what all rows of a batch have in common.
func ofBatch(value func(b *wire.Batch) parquet.Value) fill {
	return func(out []parquet.Value, b *wire.Batch, _ int) {
		v := value(b)
		for i := range out {
			out[i] = v
		}
	}
}

// ofTask is what all samples of a task have in common: it is made once a task, unless the samples are fewer.
func ofTask(value func(t *wire.Task) parquet.Value) fill {
	return func(out []parquet.Value, b *wire.Batch, from int) {
		at := b.Samples.Task[from : from+len(out)]
		if len(at) < len(b.Tasks) {
			for i, t := range at {
				out[i] = value(&b.Tasks[t])
			}
			return
		}
		all := make([]parquet.Value, len(b.Tasks))
		for i := range all {
			all[i] = value(&b.Tasks[i])
		}
		for i, t := range at {
			out[i] = all[t]
		}
	}
}

// ofFlag is whether a sample has a flag.
func ofFlag(flag uint32) fill {
	is := [2]parquet.Value{parquet.BooleanValue(false), parquet.BooleanValue(true)}
	return func(out []parquet.Value, b *wire.Batch, from int) {
		for i, flags := range b.Samples.Flags[from : from+len(out)] {
			out[i] = is[min(flags&flag, 1)]
		}
	}
}

// signalOf returns what a batch has of a signal; nil: nothing.
func signalOf(b *wire.Batch, src model.Source) *wire.Signal {
	for k := range b.Samples.Signals {
		if s := &b.Samples.Signals[k]; s.Source == src {
			return s
		}
	}
	return nil
}

// ofSignal are the values of a signal; null where there is none.
func ofSignal(src model.Source) fill {
	return func(out []parquet.Value, b *wire.Batch, from int) {
		clear(out)
		if s := signalOf(b, src); s != nil {
			for i, v := range s.Values[from : from+len(out)] {
				if v == v { // not NaN
					out[i] = parquet.FloatValue(v)
					out[i].SetDefinitionLevel(1) // as present does, which is not inlined
				}
			}
		}
	}
}

// present is a value of an optional column that is not null: all others are of level 0 as they are made.
func present(v parquet.Value) parquet.Value {
	v.SetDefinitionLevel(1)
	return v
}
