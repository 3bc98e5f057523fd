package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns s with everything spelled out that a reader could be deceived
// by or that a terminal would obey: control characters, direction marks, bytes
// that are no UTF-8. Line ends and tabs become spaces: a text here is one
// paragraph or one cell.
func visible(s string) string {
	if !needsSpelling(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < 0x100 && unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case isDeceptive(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

func needsSpelling(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || isDeceptive(r) })
}

// isDeceptive holds for marks that nobody sees or that change the order or the
// lines of the text around them, and for the noncharacters that XML forbids.
func isDeceptive(r rune) bool {
	switch {
	case r == 0x061c, r == 0x200b, r == 0x200e, r == 0x200f, r == 0xfeff:
		return true
	case r == 0x2060, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return r == 0xfffe || r == 0xffff
}

// wideRunes are the blocks that a terminal draws two columns wide (the common
// part of Unicode's East Asian Width W and F). A full table would be a module;
// a missed block only costs alignment.
var wideRunes = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf}, {0x4e00, 0x9fff},
	{0xa000, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60},
	{0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
}

func isWide(r rune) bool {
	return r >= wideRunes[0][0] && slices.ContainsFunc(wideRunes[:], func(block [2]rune) bool { return r >= block[0] && r <= block[1] })
}

// columnWidth is the number of terminal columns that r takes: 0, 1 or 2.
func columnWidth(r rune) float64 {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case isWide(r):
		return 2
	}
	return 1
}

// emWidth estimates the width of r in a proportional sans-serif font, in ems.
// It leans to the wide side (DejaVu Sans is the widest common system font): a
// text that is guessed too narrow would run into its neighbour.
func emWidth(r rune) float64 {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case isWide(r):
		return 1.05
	case strings.ContainsRune("iljI.,:;'|![]()", r):
		return 0.36
	case strings.ContainsRune("ftr /-", r):
		return 0.40
	case strings.ContainsRune("mwMW@%", r):
		return 0.97
	case unicode.IsUpper(r):
		return 0.72
	}
	return 0.62
}

func measure(s string, width func(rune) float64) float64 {
	var sum float64
	for _, r := range s {
		sum += width(r)
	}
	return sum
}

// wrap breaks s into lines no wider than limit: at a space where there is one,
// else after a slash (paths), else anywhere. A rune wider than limit gets a line
// of its own. An empty s is no line.
func wrap(s string, limit float64, width func(rune) float64) []string {
	var lines []string
	rest := []rune(strings.TrimSpace(s))
	for len(rest) > 0 {
		n := lineLength(rest, limit, width)
		lines = append(lines, strings.TrimRight(string(rest[:n]), " "))
		rest = rest[n:]
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	return lines
}

func lineLength(rest []rune, limit float64, width func(rune) float64) int {
	var used float64
	afterSpace, afterSlash := 0, 0
	for i, r := range rest {
		used += width(r)
		if used > limit && i > 0 && r != ' ' {
			switch {
			case afterSpace > 0:
				return afterSpace
			case afterSlash > 0:
				return afterSlash
			}
			return i
		}
		switch r {
		case ' ':
			afterSpace = i + 1
		case '/':
			if i > 0 { // a leading slash alone on a line says nothing
				afterSlash = i + 1
			}
		}
	}
	return len(rest)
}

// shorten cuts the middle out of s when it is wider than limit: tasks of one job
// often differ only at the end of their names.
func shorten(s string, limit float64, width func(rune) float64) string {
	if measure(s, width) <= limit {
		return s
	}
	limit -= width('…')
	runes := []rune(s)
	head, tail := 0, len(runes)
	var used float64
	for head < tail {
		next, fromHead := runes[tail-1], len(runes)-tail > head // the head gets the odd rune
		if fromHead || head == len(runes)-tail {
			next, fromHead = runes[head], true
		}
		if used+width(next) > limit {
			break
		}
		used += width(next)
		if fromHead {
			head++
		} else {
			tail--
		}
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}
