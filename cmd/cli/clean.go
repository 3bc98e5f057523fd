package cli

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes a text safe to print on a terminal: what that would obey (a cgroup's name may
// hold escape sequences) or cannot show becomes "?", and so does all that is no ASCII where
// the terminal does not take UTF-8 (wide).
func Clean(s string, wide bool) string {
	plain := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			plain = false
		}
	}
	if plain {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) || (r > '~' && !wide) {
			return '?'
		}
		return r
	}, s)
}

// cleaner is a writer that cleans what goes through it, but for ends of lines and tabs. No
// command has to think of the names in what it prints.
type cleaner struct {
	w    io.Writer
	part []byte // the beginning of a character whose end is still to come
}

func (c *cleaner) Write(b []byte) (int, error) {
	text := append(c.part, b...)
	whole := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= i
			}
			break
		}
	}
	c.part = append([]byte(nil), text[whole:]...)
	var out strings.Builder
	for line := range strings.SplitAfterSeq(string(text[:whole]), "\n") {
		line, ended := strings.CutSuffix(line, "\n")
		for i, field := range strings.Split(line, "\t") {
			if i > 0 {
				out.WriteByte('\t')
			}
			out.WriteString(Clean(field, true))
		}
		if ended {
			out.WriteByte('\n')
		}
	}
	if _, err := io.WriteString(c.w, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// close writes what is left.
func (c *cleaner) close() error {
	_, err := io.WriteString(c.w, strings.Repeat("?", min(1, len(c.part))))
	return err
}
