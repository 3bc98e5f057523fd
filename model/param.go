package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Param is one parameter, described once: the configuration reads, checks and prints it,
// random runs draw it and the documents list it by this row.
type Param struct {
	// Key is the parameter's name in its section of the configuration. A dot leads into a
	// section of its own: "groups.enabled".
	Key string
	// At points to the value: *bool, *int, *int64, *float64, *string, *time.Duration (Nsec makes
	// one of a field in nanoseconds), or a type that reads and writes its own text.
	At any
	// Least and Most bound a number; of a duration in nanoseconds. Unbounded: no limit.
	Least, Most float64
	Words       []string // what a text may be; none: any text
	Unit        string   // what the number counts or is a share of; "" where the key says it
	Why         string   // what it is for, and which paper its default is from
	// Soak is the range that random runs draw from where the bounds would be too wide to be
	// of use. Of a switch: the chance of false and of true.
	Soak [2]float64
}

// Unbounded is Most of a number that may be as large as one likes.
const Unbounded = math.MaxFloat64

// Nsec makes a field in nanoseconds a duration that a configuration can read and print.
func Nsec(field *int64) *time.Duration { return (*time.Duration)(field) }

// Below puts rows into a section.
func Below(section string, rows ...[]Param) []Param {
	all := slices.Concat(rows...)
	for i := range all {
		all[i].Key = section + "." + all[i].Key
	}
	return all
}

// Number returns a number's value; ok is false for everything else.
func (p *Param) Number() (v float64, ok bool) {
	switch at := p.At.(type) {
	case *int:
		return float64(*at), true
	case *int64:
		return float64(*at), true
	case *float64:
		return *at, true
	case *time.Duration:
		return float64(*at), true
	}
	return 0, false
}

// Set stores a number, rounded where the parameter is a whole one.
func (p *Param) Set(v float64) {
	switch at := p.At.(type) {
	case *int:
		*at = int(math.Round(v))
	case *int64:
		*at = int64(math.Round(v))
	case *float64:
		*at = v
	case *time.Duration:
		*at = time.Duration(math.Round(v))
	}
}

// Check says what is wrong with the value, "" when nothing is: "is 2; expected 0 to 1 (a
// share)".
func (p *Param) Check() string {
	if v, ok := p.Number(); ok {
		if v >= p.Least && v <= p.Most {
			return ""
		}
		unit := ""
		if p.Unit != "" {
			unit = " (" + p.Unit + ")"
		}
		return fmt.Sprintf("is %s; expected %s%s", p.Text(), p.Bounds(), unit)
	}
	if at, ok := p.At.(*string); ok && len(p.Words) > 0 && !slices.Contains(p.Words, *at) {
		return fmt.Sprintf("is %q; expected %s", *at, p.Bounds())
	}
	return ""
}

// Bounds says what the value may be, "" where it may be anything.
func (p *Param) Bounds() string {
	switch p.At.(type) {
	case *bool:
		return "true or false"
	case *Mode:
		return modeBounds
	}
	if _, ok := p.Number(); !ok {
		return or(p.Words)
	}
	switch p.Most {
	case p.Least:
		return p.show(p.Least)
	case Unbounded:
		return "at least " + p.show(p.Least)
	}
	return p.show(p.Least) + " to " + p.show(p.Most)
}

// or lists words as people do: "a, b or c".
func or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Text returns the value as a configuration would have it.
func (p *Param) Text() string {
	if v, ok := p.Number(); ok {
		return p.show(v)
	}
	switch at := p.At.(type) {
	case *bool:
		return strconv.FormatBool(*at)
	case *string:
		return *at
	case fmt.Stringer:
		return at.String()
	}
	return ""
}

// show writes a number as values of this parameter are written.
func (p *Param) show(v float64) string {
	if _, ok := p.At.(*time.Duration); ok {
		return shortDuration(time.Duration(v))
	}
	if math.Abs(v) >= 1e-3 && math.Abs(v) < 1e15 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// shortDuration leaves out what is zero at the end: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}
