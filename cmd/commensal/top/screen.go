package top

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/term"
)

// Where a terminal does not say its size (a serial console).
const (
	defaultColumns = 80
	defaultRows    = 24
)

// Entering and leaving: the alternate screen, so that what was there comes back; without a
// cursor, and without wrapping, so that a line that a terminal finds wider than we do spoils
// no other.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leave = "\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// screen is the terminal while we have it.
type screen struct {
	in, out *os.File
	colour  bool
	raw     *term.State // how the input was; nil: it is no terminal
	shown   []string    // lines as they stand
	columns int
}

// open takes the terminal over. In raw mode keys come one by one, also those that are
// signals otherwise.
func (s *screen) open() error {
	if term.IsTerminal(int(s.in.Fd())) {
		var err error
		if s.raw, err = term.MakeRaw(int(s.in.Fd())); err != nil {
			return fmt.Errorf("take the terminal over: %w", err)
		}
	}
	s.shown = nil
	return s.write([]byte(enter))
}

// again takes the terminal over that others had meanwhile. How it was at first stays known.
func (s *screen) again() error {
	if s.raw != nil {
		if _, err := term.MakeRaw(int(s.in.Fd())); err != nil {
			return fmt.Errorf("take the terminal over: %w", err)
		}
	}
	s.shown = nil
	return s.write([]byte(enter))
}

// close gives the terminal back as it was, also when it cannot be written to any more.
func (s *screen) close() error {
	err := s.write([]byte(leave))
	return s.restore(err)
}

// restore puts back how the input was, and returns the first error.
func (s *screen) restore(err error) error {
	if s.raw == nil {
		return err
	}
	if e := term.Restore(int(s.in.Fd()), s.raw); err == nil && e != nil {
		err = fmt.Errorf("give the terminal back: %w", e)
	}
	s.raw = nil
	return err
}

func (s *screen) write(data []byte) error {
	if _, err := s.out.Write(data); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// size returns the terminal's size.
func (s *screen) size() (columns, rows int) {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		return defaultColumns, defaultRows
	}
	return columns, rows
}

// redraw forgets what stands on the screen: the next frame is drawn whole.
func (s *screen) redraw() { s.shown = nil }

// draw returns what brings the screen from the frame before to this one: the lines that
// changed.
func (s *screen) draw(f Frame, columns, rows int) []byte {
	var buf, line []byte
	if len(s.shown) != rows || s.columns != columns {
		s.shown, s.columns = make([]string, rows), columns
		buf = append(buf, "\x1b[m\x1b[2J"...)
	}
	for i := range s.shown {
		line = line[:0]
		if i < len(f.Lines) {
			line = f.Lines[i].appendANSI(line, s.colour)
		}
		if bytes.Equal(line, []byte(s.shown[i])) {
			continue
		}
		s.shown[i] = string(line)
		buf = append(buf, "\x1b["...)
		buf = strconv.AppendInt(buf, int64(i+1), 10)
		buf = append(buf, ";1H\x1b[K"...) // first: behind a full line it would erase the last column
		buf = append(buf, line...)
	}
	return buf
}
