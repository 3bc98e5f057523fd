package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/commensal-io/commensal/rig/wire"
)

// results takes in what a guest says: it writes the console, the events and the files to
// a folder, and prints a line for each package as it ends.
type results struct {
	dir     string
	out     io.Writer
	verbose bool
	judge   func(pkg string, raw []byte, end *wire.Message) *Result

	log    *os.File // the console
	events *os.File // as go test -json
	raw    map[string]*bytes.Buffer
	ended  map[string]bool
	bad    []string
	failed map[string][]string // by package: Result.Failed
	errs   []error             // of writing files
}

func newResults(dir string, out io.Writer, verbose bool) (*results, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	r := &results{dir: dir, out: out, verbose: verbose, raw: map[string]*bytes.Buffer{}, ended: map[string]bool{}, failed: map[string][]string{}}
	var err error
	if r.log, err = os.Create(filepath.Join(dir, "console.log")); err != nil {
		return nil, err
	}
	if r.events, err = os.Create(filepath.Join(dir, "test.json")); err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	return r, nil
}

func (r *results) close() error {
	return errors.Join(append(r.errs, r.log.Close(), r.events.Close())...)
}

// console passes the guest's console on.
func (r *results) console(line string) {
	fmt.Fprintf(r.out, "  | %s\n", line)
	_, err := fmt.Fprintln(r.log, line)
	r.note(err)
}

func (r *results) note(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *results) take(m wire.Message) {
	switch m.Kind {
	case wire.Start:
		r.raw[m.Step] = &bytes.Buffer{}
	case wire.Line:
		if r.raw[m.Step] == nil {
			r.raw[m.Step] = &bytes.Buffer{}
		}
		r.raw[m.Step].WriteString(m.Text + "\n")
		if r.verbose {
			fmt.Fprintln(r.out, strings.TrimPrefix(m.Text, "\x16"))
		}
	case wire.End:
		r.end(m.Step, &m)
	case wire.File:
		r.note(r.keep(m.Name, m.Data))
	case wire.Done:
		if m.Text != "" {
			fmt.Fprintf(r.out, "FAIL\tthe guest's kernel complained:\n%s\n", m.Text)
			r.bad = append(r.bad, "the kernel's log")
		}
	}
}

// end judges a package and prints its line.
func (r *results) end(pkg string, m *wire.Message) {
	r.ended[pkg] = true
	var raw []byte
	if r.raw[pkg] != nil {
		raw = r.raw[pkg].Bytes()
	}
	v := r.judge(pkg, raw, m)
	_, err := r.events.Write(v.JSON)
	r.note(err)
	if len(v.Wrong) == 0 {
		fmt.Fprintf(r.out, "ok  \t%s\t%.1fs\t%d passed%s\n", pkg, v.Sec, v.Passed, v.aside())
		return
	}
	r.bad = append(r.bad, pkg)
	r.failed[pkg] = v.Failed
	fmt.Fprintf(r.out, "%sFAIL\t%s\t%.1fs\t%d passed%s\n", strings.ReplaceAll(v.Output, "\x16", ""), pkg, v.Sec, v.Passed, v.aside())
	for _, w := range v.Wrong {
		fmt.Fprintf(r.out, "    \t%s\n", w)
	}
}

func (v *Result) aside() string {
	var s string
	if v.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped as listed", v.Skipped)
	}
	if v.NoRDT > 0 {
		s += fmt.Sprintf(", %d not run: they need RDT or a PMU", v.NoRDT)
	}
	return s
}

// missing reports a package that the guest did not get to, or not to the end of.
func (r *results) missing(pkg string) {
	if !r.ended[pkg] {
		r.end(pkg, nil)
	}
}

// keep appends a piece to a file that the guest sent.
func (r *results) keep(name string, data []byte) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the guest sent a file named %q", name)
	}
	path := filepath.Join(r.dir, "out", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
