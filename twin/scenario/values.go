package scenario

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes, written as 22MiB, 112GB or a plain number.
type Size float64

var sizeUnits = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(n.Value, u.suffix)
		if !ok || n.Kind != yaml.ScalarNode {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			break
		}
		*s = Size(v * u.bytes)
		return nil
	}
	return fmt.Errorf("is %q; expected a size such as 22MiB, 112GB or a number of bytes", short(n.Value))
}

// short cuts a text that somebody wrote to what fits into a line.
func short(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// items returns a node's elements, or the node itself when it is a plain value.
func items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// Masks are way masks: one for all last-level caches, or one a cache.
type Masks []uint32

// UnmarshalYAML reads 0x3, or [0x3, 0x7ff].
func (m *Masks) UnmarshalYAML(n *yaml.Node) error {
	list := Masks{}
	for _, c := range items(n) {
		v, err := strconv.ParseUint(c.Value, 0, 32)
		if err != nil || c.Kind != yaml.ScalarNode {
			return fmt.Errorf("is %q; expected a mask such as 0x3, or a list with one for each socket", short(c.Value))
		}
		list = append(list, uint32(v))
	}
	*m = list
	return nil
}

// contiguous says whether the set bits of a mask stand side by side, as CAT wants them.
func contiguous(mask uint32) bool {
	return mask != 0 && bits.OnesCount32(mask) == bits.Len32(mask)-bits.TrailingZeros32(mask)
}

// Levels are levels of MBA in per cent: one for all last-level caches, or one a cache.
type Levels []int

// UnmarshalYAML reads 40, or [40, 100].
func (l *Levels) UnmarshalYAML(n *yaml.Node) error {
	list := Levels{}
	for _, c := range items(n) {
		v, err := strconv.Atoi(c.Value)
		if err != nil || c.Kind != yaml.ScalarNode {
			return fmt.Errorf("is %q; expected per cent such as 40, or a list with one for each socket", short(c.Value))
		}
		list = append(list, v)
	}
	*l = list
	return nil
}

// Names are names of tasks: one, or a list.
type Names []string

// UnmarshalYAML reads stream, or [stream, spark].
func (l *Names) UnmarshalYAML(n *yaml.Node) error {
	list := Names{}
	for _, c := range items(n) {
		if c.Kind != yaml.ScalarNode || c.Value == "" {
			return fmt.Errorf("expected the name of a task, or a list of names")
		}
		list = append(list, c.Value)
	}
	*l = list
	return nil
}

// Scalar is a value of a sweep as it would stand in the file.
type Scalar string

// UnmarshalYAML takes a plain value or a list as it is written.
func (s *Scalar) UnmarshalYAML(n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		*s = Scalar(n.Value)
		return nil
	case yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return fmt.Errorf("expected a plain value or a list of plain values")
			}
			parts[i] = c.Value
		}
		*s = Scalar("[" + strings.Join(parts, ", ") + "]")
		return nil
	}
	return fmt.Errorf("expected a plain value or a list of plain values")
}

// Config is what a scenario changes of the agent's configuration: its keys are those of
// `commensal config defaults`. It is read with the configuration's own rules.
type Config struct{ written bool }

// UnmarshalYAML only notes that there is something.
func (c *Config) UnmarshalYAML(*yaml.Node) error {
	c.written = true
	return nil
}
