package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// JSONL exports a record, a folder or one segment, to a folder: a file a table, a row a line.
func JSONL(path, dir string) (*Result, error) {
	to := &lines{tables: Tables()}
	for _, t := range to.tables {
		f, err := create(dir, t.Name+".jsonl")
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		to.files = append(to.files, f)
		to.out = append(to.out, bufio.NewWriterSize(f, 1<<16))
	}
	return finish(path, dir, "jsonl", to)
}

// create makes a file of an export. What is there already is not written over.
func create(dir, name string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	return f, nil
}

// finish runs an export and closes its files.
func finish(path, dir, format string, to sink) (*Result, error) {
	res, err := run(path, to)
	if err := errors.Join(err, to.close()); err != nil {
		return nil, err
	}
	res.Dir, res.Format = dir, format
	return res, nil
}

// lines is a sink of lines of JSON.
type lines struct {
	tables []Table
	files  []*os.File
	out    []*bufio.Writer
	buf    []byte
}

func (l *lines) put(table int, row []any) error {
	b := append(l.buf[:0], '{')
	for i, c := range l.tables[table].Columns {
		if row[i] == nil {
			continue
		}
		v, err := json.Marshal(row[i])
		if err != nil {
			return fmt.Errorf("export: %s: %w", c.Name, err)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), c.Name...), '"', ':')
		b = append(b, v...)
	}
	l.buf = append(b, '}', '\n')
	_, err := l.out[table].Write(l.buf)
	return err
}

func (l *lines) close() error {
	var errs []error
	for i := range l.files {
		errs = append(errs, l.out[i].Flush(), l.files[i].Close())
	}
	return errors.Join(errs...)
}
