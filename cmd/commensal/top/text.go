package top

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// doubleWidth are the runes that take two columns: what Unicode (UAX 11) calls wide and
// full-width, in blocks. A terminal that thinks otherwise shows a column out of line.
var doubleWidth = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0xa4cf}, {0xa960, 0xa97c}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
	{0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd},
}

func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	for _, b := range doubleWidth {
		if r >= b[0] && r <= b[1] {
			return 2
		}
	}
	return 1
}

// width returns how many columns a clean string takes.
func width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// cut returns as much of a string's beginning as fits.
func cut(s string, columns int) string {
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > columns {
			return s[:i]
		}
	}
	return s
}

// cutFront returns as much of a string's end as fits.
func cutFront(s string, columns int) string {
	n := 0
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n += runeWidth(r); n > columns {
			return s[i:]
		}
		i -= size
	}
	return s
}

// elide fits a path into columns by leaving out its middle: its end tells tasks apart, its
// beginning says whose they are.
func elide(s string, columns int) string {
	if width(s) <= columns {
		return s
	}
	if columns < 5 {
		return cut(s, max(columns, 0))
	}
	front := (columns - 2) / 3
	return cut(s, front) + ".." + cutFront(s, columns-2-front)
}

// shorten fits a sentence into columns by leaving out its end.
func shorten(s string, columns int) string {
	if width(s) <= columns {
		return s
	}
	if columns < 5 {
		return cut(s, max(columns, 0))
	}
	return cut(s, columns-2) + ".."
}

// pad fills a string up to columns, on the right or, for numbers, on the left.
func pad(s string, columns int, right bool) string {
	space := strings.Repeat(" ", max(0, columns-width(s)))
	if right {
		return space + s
	}
	return s + space
}
