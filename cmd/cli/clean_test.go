package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// However a text is cut into pieces, it is cleaned as a whole, and keeps its lines, its tabs
// and its letters.
func TestTextIsCleanedAsItIsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"a\tb\n/batch/作業\n":                 "a\tb\n/batch/作業\n",
		"/be-\x1b]0;x\a\n":                  "/be-?]0;x?\n",
		"\x1b[2J\r\x7f\u0085\u009b2J\u202e": "?[2J????2J?",
		"/be-\xff\n":                        "/be-?\n",
		"ends in \xe4\xbd":                  "ends in ?",
	} {
		for piece := 1; piece <= len(text)+1; piece++ {
			var b bytes.Buffer
			p := Printer{Out: &b}
			err := p.Print(nil, func(w io.Writer) error {
				for rest := text; rest != ""; {
					n := min(piece, len(rest))
					if got, err := io.WriteString(w, rest[:n]); err != nil || got != n {
						return err
					}
					rest = rest[n:]
				}
				return nil
			})
			got := b.String()
			if err != nil || strings.ReplaceAll(got, "??", "?") != strings.ReplaceAll(want, "??", "?") || !utf8.ValidString(got) {
				t.Errorf("%q in pieces of %d: %q, %v; want %q", text, piece, got, err, want)
			}
		}
	}
}
