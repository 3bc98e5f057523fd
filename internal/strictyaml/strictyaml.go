// Package strictyaml reads YAML files that people write by hand, and says in one line
// what is wrong with them: file, line, key and what was expected. Unknown keys are
// refused with the key that was probably meant; keys given twice, anchors, aliases, merge
// keys, nulls and second documents are refused too.
//
// The YAML library's own strict mode names no key in its errors, and an error of a custom
// type loses its line; hence the walk over types in decode.go. It is the library that
// parses, and that reads plain values.
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Doc is one YAML document. Keys are written as paths: tasks[2].match.
type Doc struct {
	Name string // of the file; it stands in the errors
	root *yaml.Node
}

// ReadFile returns a file's content. A file larger than limit bytes is refused unread.
func ReadFile(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, errors.Unwrap(err))
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s: has %d bytes; expected at most %d", path, st.Size(), limit)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot be read: %w", path, errors.Unwrap(err))
	}
	return b, nil
}

// Parse reads one document. Empty content is an empty document.
func Parse(name string, b []byte) (*Doc, error) {
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&root); err != nil && !errors.Is(err, io.EOF) {
		return nil, libraryError(name, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: holds more than one YAML document", name)
	}
	if n := fancy(&root); n != nil {
		why := "anchors, aliases and merge keys are not supported here"
		if n.Tag == "!!null" {
			why = "a key without a value: give it one, or leave it out, which means its default"
		}
		return nil, fmt.Errorf("%s:%d: %s", name, n.Line, why)
	}
	n := &root
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	return &Doc{Name: name, root: n}, nil
}

// fancy returns the first anchor, alias, merge key or null, nil when there is none. A configuration needs none of them: nested aliases are a known bomb, and a null
// would wipe defaults.
func fancy(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Tag == "!!merge" || n.Tag == "!!null" {
		return n
	}
	for _, c := range n.Content {
		if found := fancy(c); found != nil {
			return found
		}
	}
	return nil
}

// libraryError makes one line of the library's report: the first problem, with its line.
func libraryError(name string, err error) error {
	msg, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if line, text, ok := strings.Cut(rest, ": "); ok {
			return fmt.Errorf("%s:%s: %s", name, line, text)
		}
	}
	return fmt.Errorf("%s: %s", name, msg)
}

// Value returns the text of a plain value, and whether the key is written down.
func (d *Doc) Value(key string) (text string, ok bool) {
	n := d.find(key)
	if n == nil {
		return "", false
	}
	return n.Value, true
}

// Has says whether a key is written down.
func (d *Doc) Has(key string) bool { return d.find(key) != nil }

// Line finds the line of a key, or of the nearest enclosing key that is written down: a
// value that comes from a default has no line of its own.
func (d *Doc) Line(key string) int {
	for {
		if n := d.find(key); n != nil {
			return max(1, n.Line)
		}
		i := strings.LastIndexAny(key, ".[")
		if i <= 0 {
			return 1
		}
		key = key[:i]
	}
}

// Errorf returns an error about a key: "file:line: key: text".
func (d *Doc) Errorf(key, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s: %s", d.Name, d.Line(key), key, fmt.Sprintf(format, args...))
}

// Version refuses a file whose version is newer than the reader's. What else is wrong
// with it, decoding says.
func (d *Doc) Version(reader int) error {
	version := reader
	if n := d.find("version"); n != nil && n.Decode(&version) == nil && version > reader {
		return d.Errorf("version", "is %d, newer than this program reads (%d)", version, reader)
	}
	return nil
}

// Set returns a copy of the document in which the value at a key that is written down is
// another plain value. The line stays.
func (d *Doc) Set(key, value string) (*Doc, error) {
	old := d.find(key)
	if old == nil {
		return nil, fmt.Errorf("no key %q is written down", key)
	}
	var v yaml.Node
	if err := yaml.Unmarshal([]byte(value), &v); err != nil || len(v.Content) != 1 || fancy(&v) != nil {
		return nil, fmt.Errorf("%q is no value", value)
	}
	place(v.Content[0], old.Line)
	return &Doc{Name: d.Name, root: replace(d.root, old, v.Content[0])}, nil
}

// place gives a value and what is in it a line.
func place(n *yaml.Node, line int) {
	n.Line = line
	for _, c := range n.Content {
		place(c, line)
	}
}

// replace copies the way from the root to a node that is replaced.
func replace(n, old, by *yaml.Node) *yaml.Node {
	if n == old {
		return by
	}
	for i, c := range n.Content {
		if r := replace(c, old, by); r != c {
			copied := *n
			copied.Content = append([]*yaml.Node(nil), n.Content...)
			copied.Content[i] = r
			return &copied
		}
	}
	return n
}

func (d *Doc) find(key string) *yaml.Node { return Find(d.root, key) }

// Find returns the value of a key such as tasks[2].match below a node, nil when it is not
// written.
func Find(n *yaml.Node, key string) *yaml.Node {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, part := range strings.FieldsFunc(key, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n = child(n, part); n == nil {
			return nil
		}
	}
	return n
}

// child returns a mapping's value, or an element of a sequence: by its index, or by what
// it gives as its name.
func child(n *yaml.Node, part string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
		for _, c := range n.Content {
			if name := c.Kind == yaml.MappingNode && part != "" && part == nameOf(c); name {
				return c
			}
		}
	}
	return nil
}

func nameOf(n *yaml.Node) string {
	if c := child(n, "name"); c != nil {
		return c.Value
	}
	return ""
}
