package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Contents is what a journal says.
type Contents struct {
	Boot   string
	Limits []Limit
	// Bad describes each line that could not be used.
	Bad []string
	// Torn: the last line was cut off by a crash, before its write.
	Torn bool
}

// Read reads a journal without opening it for writing. A missing file is an empty
// journal. With ErrCorrupt the contents hold what could still be read.
func Read(path string) (*Contents, error) { return ReadOn(RealDisk(), path) }

// ReadOn is Read on a disk.
func ReadOn(d Disk, path string) (*Contents, error) {
	return (&Reader{Disk: d, Path: path}).Read()
}

// Reader reads a journal that is looked at again and again: of one that has only grown since the
// last time it parses what is new.
type Reader struct {
	Disk Disk
	Path string

	seen []byte   // whole lines, all of them good
	last *parsing // what they say; nil: nothing is known
}

// Read is ReadOn. The contents are good until the next one.
func (r *Reader) Read() (*Contents, error) {
	b, err := r.Disk.ReadFile(r.Path, maxBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		return &Contents{}, nil
	}
	if err != nil {
		return &Contents{}, fmt.Errorf("journal: read %s: %w", r.Path, err)
	}
	if len(b) == 0 {
		// A journal takes its name when it has its first line: this is none of ours.
		return &Contents{}, fmt.Errorf("%s: %w: it is empty", r.Path, ErrCorrupt)
	}
	if r.last == nil || !bytes.HasPrefix(b, r.seen) {
		r.seen, r.last = nil, &parsing{}
	}
	c, err := r.last.take(b, len(r.seen))
	r.seen = b[:bytes.LastIndexByte(b, '\n')+1]
	if err != nil {
		r.seen, r.last = nil, nil
		return c, fmt.Errorf("%s: %w", r.Path, err)
	}
	return c, nil
}

// KeepCorrupt copies a corrupt journal beside itself, in place of the one before it, and
// returns the copy's path.
func KeepCorrupt(d Disk, path string) (string, error) {
	b, err := d.ReadFile(path, maxBytes+1)
	if err != nil {
		return "", err
	}
	aside := path + ".corrupt"
	f, err := d.Create(aside)
	if err != nil {
		return "", err
	}
	if _, err = f.WriteAt(b, 0); err == nil || len(b) == 0 {
		return aside, f.Close()
	}
	return "", errors.Join(err, f.Close(), d.Remove(aside))
}

// parse reads the lines; of more than maxBytes those that fit.
func parse(b []byte) (*Contents, error) { return new(parsing).take(b, 0) }

// parsing is what the lines say so far.
type parsing struct {
	c     Contents
	t     table
	lines int
}

// take reads a file's lines from a byte on, at which a line begins: those before it were taken.
func (p *parsing) take(b []byte, from int) (*Contents, error) {
	c := &p.c
	c.Torn = false
	if len(b) > maxBytes {
		c.Bad = append(c.Bad, fmt.Sprintf("larger than %d bytes", maxBytes))
		b = b[:bytes.LastIndexByte(b[:maxBytes], '\n')+1]
	}
	for b = b[from:]; len(b) > 0; {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		b = rest
		if !whole {
			c.Torn = true
			break
		}
		p.lines++
		e, err := parseLine(line)
		if err == nil {
			err = c.take(&p.t, e, p.lines)
		}
		if errors.Is(err, ErrNewer) {
			return c, err
		}
		if err != nil {
			c.Bad = append(c.Bad, fmt.Sprintf("line %d: %v", p.lines, err))
		}
	}
	c.Limits = p.t.list
	if n := len(c.Bad); n > 0 {
		return c, fmt.Errorf("%w: %s", ErrCorrupt, strings.Join(c.Bad[:min(n, maxTold)], "; "))
	}
	return c, nil
}

// maxTold bounds how many bad lines an error names.
const maxTold = 10

// take applies one entry to what is outstanding.
func (c *Contents) take(t *table, e *entry, line int) error {
	if e.Kind == kindOpen && e.Version > Version {
		err := fmt.Errorf("%w: version %d, this one reads up to %d", ErrNewer, e.Version, Version)
		if e.Program != "" {
			err = fmt.Errorf("%w; what is held is put back by `%s restore`", err, e.Program)
		}
		return err
	}
	if e.Boot != "" {
		if c.Boot != "" && c.Boot != e.Boot {
			*t = table{} // everything before is of an earlier boot
		}
		c.Boot = e.Boot
	}
	switch {
	case e.Kind == kindOpen:
		return nil
	case line == 1:
		return errors.New("the first line does not name the version and the boot")
	}
	return t.apply(e)
}
