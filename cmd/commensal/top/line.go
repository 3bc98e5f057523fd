package top

import "strings"

// Style is how a part of a line stands out. What it says is in letters too: a terminal
// without colours, and eyes without them, miss nothing.
type Style uint8

// The styles.
const (
	Plain  Style = iota
	Bold         // figures of the node
	Header       // of a table
	Bad          // an outlier, a warning, no agent
	Held         // what is held, and why
	Dim          // what is of no interest now
)

// sgr are the escape sequences of the styles: with the colours that every terminal has, and
// without colours.
var sgr = [...][2]string{
	Plain: {"", ""}, Bold: {"\x1b[1m", "\x1b[1m"}, Header: {"\x1b[7m", "\x1b[7m"},
	Bad: {"\x1b[1;31m", "\x1b[1m"}, Held: {"\x1b[33m", ""}, Dim: {"\x1b[2m", ""},
}

// Span is a part of a line in one style.
type Span struct {
	Text  string
	Style Style
}

// Line is a line of the screen, no wider than it.
type Line []Span

// String returns the line as plain text.
func (l Line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return strings.TrimRight(b.String(), " ")
}

// appendANSI appends the line for a terminal.
func (l Line) appendANSI(buf []byte, colour bool) []byte {
	for _, s := range l {
		on := sgr[s.Style][1]
		if colour {
			on = sgr[s.Style][0]
		}
		buf = append(buf, on...)
		buf = append(buf, s.Text...)
		if on != "" {
			buf = append(buf, "\x1b[m"...)
		}
	}
	return buf
}

// fit cuts a line to columns.
func (l Line) fit(columns int) Line {
	for i := range l {
		w := width(l[i].Text)
		if w > columns {
			l[i].Text = shorten(l[i].Text, columns)
			return l[:i+1]
		}
		columns -= w
	}
	return l
}
