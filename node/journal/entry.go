package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"unicode/utf8"

	"github.com/commensal-io/commensal/model"
)

// The kinds of entry.
const (
	kindOpen   = "open"
	kindIntent = "intent" // about to write Value where Found was first and Before is now
	kindWrote  = "wrote"  // read back Value
	kindDone   = "done"   // put back, or no longer ours
)

// entry is one line.
type entry struct {
	Kind    string         `json:"kind"`
	Version int            `json:"version,omitempty"`
	Program string         `json:"program,omitempty"` // that began the file
	Boot    string         `json:"boot,omitempty"`    // of the first line and of intents
	Task    name           `json:"task,omitempty"`    // cgroup path of the task whose knob this is part of
	Path    name           `json:"path,omitempty"`    // cgroup path of this limit: the task or a descendant
	Inode   uint64         `json:"inode,omitempty"`
	Knob    model.KnobKind `json:"knob,omitempty"` // absent: cpu.max
	Found   *model.Setting `json:"found,omitempty"`
	Before  *model.Setting `json:"before,omitempty"`
	Value   *model.Setting `json:"value,omitempty"`
}

func (e *entry) key() Key { return Key{string(e.Path), e.Inode, e.Knob} }

func (j *Journal) intent(l *Limit) *entry {
	return &entry{
		Kind: kindIntent, Boot: j.boot, Task: name(l.Task), Path: name(l.Path), Inode: l.Inode, Knob: l.Found.Knob,
		Found: &l.Found, Before: &l.Before, Value: &l.Intended,
	}
}

func (n *Note) entry() *entry {
	e := &entry{Kind: kindDone, Path: name(n.Path), Inode: n.Inode, Knob: n.Knob}
	if n.ReadBack != nil {
		e.Kind, e.Value = kindWrote, n.ReadBack
	}
	return e
}

// name is the path of a cgroup, which may be any bytes but a newline. What is no UTF-8 would
// not survive as JSON's text: it is a list of its bytes in base64.
type name string

// MarshalJSON implements json.Marshaler.
func (n name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal([1][]byte{[]byte(n)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *name) UnmarshalJSON(b []byte) error {
	if b[0] != '[' {
		return json.Unmarshal(b, (*string)(n))
	}
	var raw [1][]byte
	err := json.Unmarshal(b, &raw)
	*n = name(raw[0])
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// add appends the lines of entries.
func add(to *bytes.Buffer, es ...*entry) error {
	for _, e := range es {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		fmt.Fprintf(to, "%08x %s\n", crc32.Checksum(b, castagnoli), b)
	}
	return nil
}

func parseLine(line []byte) (*entry, error) {
	if len(line) < 10 || line[8] != ' ' {
		return nil, errors.New("not an entry")
	}
	want, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil {
		return nil, errors.New("no checksum")
	}
	if got := crc32.Checksum(line[9:], castagnoli); got != uint32(want) {
		return nil, fmt.Errorf("checksum %08x, expected %08x", got, want)
	}
	e := &entry{}
	if err := json.Unmarshal(line[9:], e); err != nil {
		return nil, err
	}
	return e, nil
}
