package export

import (
	"errors"
	"fmt"
	"os"

	"github.com/parquet-go/parquet-go"
)

// Parquet exports a record, a folder or one segment, to a folder: a file a table, compressed
// with zstd. The columns are ordered by name.
func Parquet(path, dir string) (*Result, error) {
	to := &columns{tables: Tables()}
	for _, t := range to.tables {
		f, err := create(dir, t.Name+".parquet")
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		schema := schemaOf(&t)
		var places []int // of the schema's columns in the row
		for _, at := range schema.Columns() {
			for i := range t.Columns {
				if t.Columns[i].Name == at[0] {
					places = append(places, i)
				}
			}
		}
		to.files, to.places = append(to.files, f), append(to.places, places)
		to.out = append(to.out, parquet.NewGenericWriter[any](f, schema, parquet.Compression(&parquet.Zstd)))
	}
	return finish(path, dir, "parquet", to)
}

func schemaOf(t *Table) *parquet.Schema {
	group := parquet.Group{}
	for _, c := range t.Columns {
		var n parquet.Node
		switch c.Kind {
		case Int:
			n = parquet.Int(64)
		case Uint:
			n = parquet.Uint(64)
		case Float:
			n = parquet.Leaf(parquet.DoubleType)
		default:
			n = parquet.String()
		}
		if c.Optional {
			n = parquet.Optional(n)
		}
		group[c.Name] = n
	}
	return parquet.NewSchema(t.Name, group)
}

// columns is a sink of Parquet files.
type columns struct {
	tables []Table
	places [][]int
	files  []*os.File
	out    []*parquet.GenericWriter[any]
	row    parquet.Row
}

func (c *columns) put(table int, row []any) error {
	c.row = c.row[:0]
	for at, place := range c.places[table] {
		v, level := parquet.ValueOf(row[place]), 0
		if c.tables[table].Columns[place].Optional && row[place] != nil {
			level = 1
		}
		c.row = append(c.row, v.Level(0, level, at))
	}
	if _, err := c.out[table].WriteRows([]parquet.Row{c.row}); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}

func (c *columns) close() error {
	var errs []error
	for i := range c.files {
		errs = append(errs, c.out[i].Close(), c.files[i].Close())
	}
	return errors.Join(errs...)
}
