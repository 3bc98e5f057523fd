package report

import (
	"bytes"
	"encoding/xml"
	"math"
	"strconv"
)

// fontStack is the reader's own sans-serif font; nothing is loaded.
const fontStack = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Helvetica, Arial, sans-serif"

// Font sizes, and the distances of lines of text, in user units (CSS pixels when
// the chart is shown at its own width).
const (
	sizeTitle    = 15.0
	sizeText     = 12.0
	sizeSmall    = 11.0
	lineTitle    = 20.0
	lineText     = 16.0
	lineSmall    = 14.0
	labelPitch   = 15.0 // of direct labels
	hatchSpacing = 7
)

// canvas collects SVG elements. Writing to memory cannot fail, so the drawing
// code stays free of error paths.
type canvas struct{ bytes.Buffer }

// attrs are an element's attributes, in order: name, value, name, value.
type attrs []string

// open writes a start tag.
func (c *canvas) open(name string, a attrs) { c.tag(name, a, ">") }

// leaf writes an element without content.
func (c *canvas) leaf(name string, a attrs) { c.tag(name, a, "/>\n") }

func (c *canvas) tag(name string, a attrs, end string) {
	c.WriteByte('<')
	c.WriteString(name)
	for i := 0; i+1 < len(a); i += 2 {
		c.WriteByte(' ')
		c.WriteString(a[i])
		c.WriteString(`="`)
		c.escape(a[i+1])
		c.WriteByte('"')
	}
	c.WriteString(end)
}

func (c *canvas) shut(name string) { c.WriteString("</" + name + ">\n") }

// escape writes s as character data. xml.EscapeText also replaces what XML
// forbids; it fails only when the writer does.
func (c *canvas) escape(s string) { _ = xml.EscapeText(&c.Buffer, []byte(s)) }

// label is one line of text. x is its start, middle or end after anchor, y its
// baseline. hint, where it is not empty, is the full text of a shortened one.
type label struct {
	x, y   float64
	text   string
	size   float64
	anchor string // "" (start), "middle" or "end"
	fill   string
	bold   bool
	hint   string
}

func (c *canvas) text(l label) {
	if l.text == "" {
		return
	}
	a := attrs{"x", num(l.x), "y", num(l.y), "font-size", num(l.size), "fill", l.fill}
	if l.anchor != "" {
		a = append(a, "text-anchor", l.anchor)
	}
	if l.bold {
		a = append(a, "font-weight", "600")
	}
	c.open("text", a)
	if l.hint != "" && l.hint != l.text {
		c.open("title", nil)
		c.escape(l.hint)
		c.WriteString("</title>")
	}
	c.escape(l.text)
	c.shut("text")
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string, width float64, dash string) {
	a := attrs{"x1", num(x1), "y1", num(y1), "x2", num(x2), "y2", num(y2), "stroke", colour, "stroke-width", num(width)}
	if dash != "" {
		a = append(a, "stroke-dasharray", dash)
	}
	c.leaf("line", a)
}

func (c *canvas) rect(x, y, width, height float64, fill string) {
	c.leaf("rect", attrs{"x", num(x), "y", num(y), "width", num(width), "height", num(height), "fill", fill})
}

// num writes a coordinate with at most two decimals. Layout yields only finite
// numbers; should one slip through, it becomes 0, since a NaN would make
// browsers drop the whole path.
func num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// textSpan estimates how wide a text is drawn.
func textSpan(s string, size float64) float64 { return measure(s, emWidth) * size }
