package report

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "web-search é 漢字", "web-search é 漢字"},
		{"empty", "", ""},
		{"terminal escape", "a\x1b[31mred\x07", `a\x1b[31mred\x07`},
		{"C1 control", "a\u009b31m", `a\x9b31m`},
		{"line ends", "a\nb\r\tc", "a b  c"},
		{"direction override", "exe\u202etxt\u2066", `exe\u202etxt\u2066`},
		{"unseen marks", "a\u200bb\ufeff", `a\u200bb\ufeff`},
		{"broken UTF-8", "a\xff\xc3", `a\xff\xc3`},
		{"noncharacter", "a\uffff", `a\uffff`},
		{"markup is left to the escaper", `<b>&"`, `<b>&"`},
		{"NUL", "a\x00b", `a\x00b`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := visible(c.in); got != c.want {
				t.Errorf("visible(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"", "web", "\x1b[2J", "\u202e", "a\xffb", "\u2028", "漢字\t"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		if !utf8.ValidString(got) {
			t.Fatalf("visible(%q) = %q: no UTF-8", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Fatalf("visible(%q) = %q: holds %U", s, got, r)
			}
		}
		if again := visible(got); again != got {
			t.Fatalf("visible(%q) = %q, and again %q", s, got, again)
		}
	})
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		name, in string
		limit    float64
		want     string // lines joined by |
	}{
		{"fits", "one two", 10, "one two"},
		{"at spaces", "one two three", 8, "one two|three"},
		{"exact", "one two", 7, "one two"},
		{"space on the limit", "one two", 3, "one|two"},
		{"path", "/lab/batch/video-encode", 14, "/lab/batch/|video-encode"},
		{"no place to break", "abcdefgh", 3, "abc|def|gh"},
		{"wide runes", "漢字漢字", 5, "漢字|漢字"},
		{"narrower than a rune", "漢字", 1, "漢|字"},
		{"empty", "  ", 5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(wrap(c.in, c.limit, columnWidth), "|"); got != c.want {
				t.Errorf("wrap(%q, %g) = %q, want %q", c.in, c.limit, got, c.want)
			}
		})
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("one two three", 5)
	f.Add("/a/b/c/dddddddd", 3)
	f.Add("漢字 漢", 1)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		s = visible(s)
		limit %= 200
		var kept strings.Builder
		for _, line := range wrap(s, float64(limit), columnWidth) {
			if utf8.RuneCountInString(line) > 1 && cellWidth(line) > max(limit, 2) && !strings.ContainsFunc(line, isZeroWidth) {
				t.Errorf("line %q is wider than %d", line, limit)
			}
			kept.WriteString(line)
		}
		if got, want := squeeze(kept.String()), squeeze(s); got != want {
			t.Errorf("wrapped text %q, want %q", got, want)
		}
	})
}

func isZeroWidth(r rune) bool { return columnWidth(r) == 0 }

func squeeze(s string) string {
	return strings.Join(strings.FieldsFunc(s, unicode.IsSpace), "")
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit float64
		want  string
	}{
		{"short", 5, "short"},
		{"web-search-0001", 9, "web-…0001"},
		{"web-search-0001", 8, "web-…001"},
		{"abc", 1, "…"},
		{"", 0, ""},
	} {
		if got := shorten(c.in, c.limit, columnWidth); got != c.want {
			t.Errorf("shorten(%q, %g) = %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}
