package top

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait: far more than any of it takes.
const patience = 40 * time.Second

// pty is a terminal, whose screen is kept as a person would see it.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File

	mu     sync.Mutex
	all    []byte // everything that was written
	grid   [][]rune
	row    int
	col    int
	alt    bool
	cursor bool
	wrap   bool
	rest   []byte
}

func openPTY(t *testing.T, columns, rows int) *pty {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { _ = master.Close() }) // a test may have closed it
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	p := &pty{t: t, master: master, slave: slave, cursor: true, wrap: true}
	p.resize(columns, rows)
	return p
}

// watch reads what is written, until the terminal goes away.
func (p *pty) watch() {
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := p.master.Read(buf)
			p.mu.Lock()
			p.all = append(p.all, buf[:n]...)
			p.obey(append(p.rest, buf[:n]...))
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

func (p *pty) resize(columns, rows int) {
	p.t.Helper()
	p.mu.Lock()
	p.grid = make([][]rune, rows)
	for i := range p.grid {
		p.grid[i] = []rune(strings.Repeat(" ", columns))
	}
	p.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}); err != nil {
		p.t.Fatal(err)
	}
}

// obey does what a terminal does with the sequences that we use, and fails at others.
func (p *pty) obey(data []byte) {
	p.rest = nil
	text := string(data)
	for len(text) > 0 {
		if text[0] != 0x1b {
			r := []rune(text[:min(4, len(text))])[0]
			p.put(r)
			text = text[len(string(r)):]
			continue
		}
		end := strings.IndexFunc(text[min(2, len(text)):], func(r rune) bool { return r >= '@' && r <= '~' })
		if end < 0 {
			p.rest = []byte(text)
			return
		}
		p.escape(text[1 : end+3])
		text = text[end+3:]
	}
}

func (p *pty) put(r rune) {
	switch r {
	case '\r':
		p.col = 0
	case '\n':
		p.row++
	default:
		if p.row >= 0 && p.row < len(p.grid) && p.col < len(p.grid[p.row]) {
			p.grid[p.row][p.col] = r
		}
		if p.row < len(p.grid) && !p.wrap && p.col >= len(p.grid[p.row])-1 {
			return // the cursor stays in the last column, as terminals have it
		}
		p.col++
	}
}

func (p *pty) escape(s string) {
	switch {
	case s == "[?1049h", s == "[?1049l":
		p.alt = strings.HasSuffix(s, "h")
	case s == "[?25h", s == "[?25l":
		p.cursor = strings.HasSuffix(s, "h")
	case s == "[?7h", s == "[?7l":
		p.wrap = strings.HasSuffix(s, "h")
	case s == "[2J":
		for _, line := range p.grid {
			for i := range line {
				line[i] = ' '
			}
		}
	case s == "[K":
		for i := p.col; p.row < len(p.grid) && i < len(p.grid[p.row]); i++ {
			p.grid[p.row][i] = ' '
		}
	case strings.HasSuffix(s, "m"):
	default:
		if _, err := fmt.Sscanf(s, "[%d;%dH", &p.row, &p.col); err != nil {
			p.t.Errorf("the sequence %q is unknown", s)
		}
		p.row, p.col = p.row-1, p.col-1
	}
}

// screen returns what is seen.
func (p *pty) screen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]string, len(p.grid))
	for i, l := range p.grid {
		lines[i] = strings.TrimRight(string(l), " ")
	}
	return strings.Join(lines, "\n")
}

// shows waits until the screen shows a text, or with "!" before it does not any more.
func (p *pty) shows(text string) {
	p.t.Helper()
	want, not := strings.CutPrefix(text, "!")
	for end := time.Now().Add(patience); strings.Contains(p.screen(), want) == not; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not within %s: %q; the screen is\n%s", patience, text, p.screen())
		}
	}
}

func (p *pty) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pty) termios() unix.Termios {
	p.t.Helper()
	v, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *v
}

// restored checks that the terminal is as it was.
func (p *pty) restored(before unix.Termios) {
	p.t.Helper()
	if now := p.termios(); now != before {
		p.t.Errorf("termios are %+v, were %+v", now, before)
	}
	state := func() (alt, cursor, wrap bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.alt, p.cursor, p.wrap
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		alt, cursor, wrap := state()
		if !alt && cursor && wrap {
			return
		}
		if time.Now().After(end) {
			p.t.Errorf("alternate screen %v, cursor %v, wrapping %v", alt, cursor, wrap)
			return
		}
	}
}
