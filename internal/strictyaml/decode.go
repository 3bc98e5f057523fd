package strictyaml

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Decode stores the document in v, a pointer to a struct. What the document does not
// mention stays as it is; a list replaces a list.
func (d *Doc) Decode(v any) error { return d.DecodeAt("", v) }

// DecodeAt stores what is written at a key in v; a key that is not written stores nothing.
func (d *Doc) DecodeAt(key string, v any) error {
	n := d.find(key)
	if n == nil || n.Kind == 0 {
		return nil
	}
	return d.value(n, key, reflect.ValueOf(v).Elem())
}

var (
	unmarshaler     = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType    = reflect.TypeFor[time.Duration]()
	nodeType        = reflect.TypeFor[yaml.Node]()
)

// value stores one node.
func (d *Doc) value(n *yaml.Node, key string, v reflect.Value) error {
	t := v.Type()
	switch {
	case t == nodeType:
		v.Set(reflect.ValueOf(*n))
		return nil
	case reflect.PointerTo(t).Implements(unmarshaler), reflect.PointerTo(t).Implements(textUnmarshaler):
		return d.plain(n, key, v)
	case t.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return d.value(n, key, v.Elem())
	case t.Kind() == reflect.Struct:
		return d.mapping(n, key, v)
	case t.Kind() == reflect.Slice:
		return d.sequence(n, key, v)
	}
	return d.plain(n, key, v)
}

// mapping stores a node in a struct.
func (d *Doc) mapping(n *yaml.Node, key string, v reflect.Value) error {
	if n.Kind != yaml.MappingNode {
		return d.at(n, key, fmt.Sprintf("expected keys of its own: %s", strings.Join(keysOf(v.Type()), ", ")))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		for j := 0; j < i; j += 2 {
			if n.Content[j].Value == k.Value {
				return d.at(k, join(key, k.Value), fmt.Sprintf("is given twice, first in line %d", n.Content[j].Line))
			}
		}
		field, ok := fieldOf(v, k.Value)
		if !ok {
			return fmt.Errorf("%s:%d: unknown key %q%s", d.Name, k.Line, k.Value, suggest(k.Value, keysOf(v.Type())))
		}
		if err := d.value(n.Content[i+1], join(key, k.Value), field); err != nil {
			return err
		}
	}
	return nil
}

// Field is a key that a list describes and not a struct's tag. The way to it is written
// with dots; what leads to several fields is a section.
type Field struct {
	Key string
	At  any // a pointer to the value
}

// DecodeFields stores what is written at a key and below it in fields. A value may have
// several keys, of which a document may use one.
func (d *Doc) DecodeFields(key string, fields []Field) error {
	n := d.find(key)
	if n == nil || n.Kind == 0 {
		return nil
	}
	return d.section(n, key, "", fields, map[any]*yaml.Node{})
}

// section stores a node in the fields below a way. written has the key that each value was
// last given by.
func (d *Doc) section(n *yaml.Node, key, way string, fields []Field, written map[any]*yaml.Node) error {
	known := keysAt(way, fields)
	if n.Kind != yaml.MappingNode {
		return d.at(n, key, fmt.Sprintf("expected keys of its own: %s", strings.Join(known, ", ")))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		for j := 0; j < i; j += 2 {
			if n.Content[j].Value == k.Value {
				return d.at(k, join(key, k.Value), fmt.Sprintf("is given twice, first in line %d", n.Content[j].Line))
			}
		}
		if !slices.Contains(known, k.Value) {
			return fmt.Errorf("%s:%d: unknown key %q%s", d.Name, k.Line, k.Value, suggest(k.Value, known))
		}
		way := join(way, k.Value)
		f := slices.IndexFunc(fields, func(f Field) bool { return f.Key == way })
		if f < 0 {
			if err := d.section(v, join(key, k.Value), way, fields, written); err != nil {
				return err
			}
			continue
		}
		at := fields[f].At
		if first := written[at]; first != nil {
			return d.at(k, join(key, k.Value), fmt.Sprintf("is given twice, first in line %d under its other name", first.Line))
		}
		written[at] = k
		if err := d.value(v, join(key, k.Value), reflect.ValueOf(at).Elem()); err != nil {
			return err
		}
	}
	return nil
}

// keysAt lists the keys of a section in their order.
func keysAt(way string, fields []Field) []string {
	var keys []string
	for i := range fields {
		rest := fields[i].Key
		if way != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, way+"."); !ok {
				continue
			}
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(keys, name) {
			keys = append(keys, name)
		}
	}
	return keys
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// sequence stores a node in a slice.
func (d *Doc) sequence(n *yaml.Node, key string, v reflect.Value) error {
	if n.Kind != yaml.SequenceNode {
		return d.at(n, key, "expected a list")
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		if err := d.value(c, fmt.Sprintf("%s[%d]", key, i), list.Index(i)); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// plain stores a node that has no keys.
func (d *Doc) plain(n *yaml.Node, key string, v reflect.Value) error {
	err := n.Decode(v.Addr().Interface())
	if err == nil && v.Type() == durationType && n.Tag != "!!str" && n.Value != "0" {
		err = errors.New("no unit") // the library takes a bare number for nanoseconds
	}
	if err == nil {
		return nil
	}
	if want := wanted(v.Type()); want != "" {
		return d.at(n, key, fmt.Sprintf("%s; expected %s", shown(n), want))
	}
	msg, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
	return d.at(n, key, msg)
}

// shown says what stands at a node.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "has keys of its own"
	case yaml.SequenceNode:
		return "is a list"
	}
	text := n.Value
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return fmt.Sprintf("is %q", text)
}

// wanted says what a plain type takes, "" for types that say it themselves.
func wanted(t reflect.Type) string {
	if t == durationType {
		return "a duration such as 10s or 1h30m"
	}
	if reflect.PointerTo(t).Implements(unmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler) {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	}
	return ""
}

func (d *Doc) at(n *yaml.Node, key, text string) error {
	line := max(1, n.Line)
	if key == "" {
		return fmt.Errorf("%s:%d: %s", d.Name, line, text)
	}
	return fmt.Errorf("%s:%d: %s: %s", d.Name, line, key, text)
}

// fieldOf returns the field of a key; embedded structs marked inline lend theirs.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	t := v.Type()
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if options == "inline" {
			if f, ok := fieldOf(v.Field(i), key); ok {
				return f, true
			}
			continue
		}
		if name == key && name != "" && name != "-" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keysOf lists the keys of a struct in their order.
func keysOf(t reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			keys = append(keys, keysOf(t.Field(i).Type)...)
		case name != "" && name != "-":
			keys = append(keys, name)
		}
	}
	return keys
}

// suggest names the known key that was probably meant, or all of them when none is near.
func suggest(key string, known []string) string {
	if best := Nearest(key, known); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return "; known here: " + strings.Join(known, ", ")
}

// Nearest returns the known word that is a small slip away from a word, "" when none is.
func Nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if n := slips(word, k); n < least {
			best, least = k, n
		}
	}
	return best
}

// slips counts the letters to add, drop or change, and neighbours to swap, that make one
// word of another.
func slips(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// Keys returns every key that a type knows, as paths with [] for lists, in order: what a
// document about it has to explain.
func Keys(t reflect.Type) []string {
	return slices.Compact(keysBelow(t, "", nil))
}

func keysBelow(t reflect.Type, prefix string, out []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			prefix += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == nodeType || reflect.PointerTo(t).Implements(unmarshaler) {
		return out
	}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			out = keysBelow(t.Field(i).Type, prefix, out)
		case name != "" && name != "-":
			out = append(out, join(prefix, name))
			out = keysBelow(t.Field(i).Type, join(prefix, name), out)
		}
	}
	return out
}
