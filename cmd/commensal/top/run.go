package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/commensal-io/commensal/agent"
)

// Options are what Run needs.
type Options struct {
	// Fetch asks the agent for its status; it must give up after some seconds.
	Fetch    func(ctx context.Context) (*agent.Status, error)
	Interval time.Duration // between two requests
	Sort     Sort
	Ages     bool     // begin with the view of ages
	In, Out  *os.File // Out is a terminal; keys are read from In where it is one
	Colour   bool
	UTF8     bool
	// Signals bring SIGWINCH, SIGCONT, and those that end.
	Signals <-chan os.Signal
}

// unblock is how long the end waits for a terminal that takes nothing (a dead connection).
const unblock = time.Second

// loop is one run.
type loop struct {
	Options
	screen screen
	view   View
	keys   chan []key
	news   chan news
	crash  chan error
	frames chan []byte // to the writer
	wrote  chan error  // from the writer, one a frame
	busy   bool        // a frame is being written
	shown  int         // tasks on the screen
}

// news is one answer of the agent, or none.
type news struct {
	status *agent.Status
	err    error
}

// Run shows the status until the context ends, a key or a signal says so, or the terminal
// goes away. Whatever ends it, the terminal is as it was: also a panic, which is returned as
// an error with its stack.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &loop{
		Options: o, screen: screen{in: o.In, out: o.Out, colour: o.Colour}, view: View{Sort: o.Sort, Ages: o.Ages, UTF8: o.UTF8},
		keys: make(chan []key), news: make(chan news), crash: make(chan error, 1), frames: make(chan []byte), wrote: make(chan error, 1),
	}
	if err := l.screen.open(); err != nil {
		return l.screen.restore(err)
	}
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		err = l.end(err)
	}()
	l.start(ctx, l.poll)
	l.start(ctx, l.write)
	if l.screen.raw != nil {
		l.start(ctx, l.read)
	}
	return l.run(ctx)
}

// end gives the terminal back. A frame on its way is waited for, but not for ever. That the
// terminal is gone is an end, and no failure.
func (l *loop) end(err error) error {
	if lost(err) {
		err = nil
	}
	back := l.screen.close
	if l.busy {
		select {
		case e := <-l.wrote:
			if err == nil && !lost(e) {
				err = e
			}
		case <-time.After(unblock):
			back = func() error { return l.screen.restore(nil) }
		}
	}
	if e := back(); err == nil && !lost(e) {
		err = e
	}
	return err
}

// lost reports whether an error only says that the terminal is gone.
func lost(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrClosed)
}

// start runs f beside the loop; its panic ends the loop, not the process.
func (l *loop) start(ctx context.Context, f func(context.Context)) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				l.crash <- panicked(p)
			}
		}()
		f(ctx)
	}()
}

func panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// run takes one event after the other.
func (l *loop) run(ctx context.Context) error {
	clock := time.NewTicker(time.Second) // the time, and for how long there is no agent
	defer clock.Stop()
	for {
		if err := l.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.crash:
			return err
		case sig := <-l.Signals:
			switch sig {
			case syscall.SIGWINCH:
				l.screen.redraw()
			case syscall.SIGCONT: // somebody had stopped us, and the shell had the terminal
				if err := l.screen.again(); err != nil {
					return err
				}
			default:
				return nil
			}
		case err := <-l.wrote:
			if l.busy = false; err != nil {
				return err
			}
		case n := <-l.news:
			l.take(n)
		case <-clock.C:
		case keys := <-l.keys:
			for _, k := range keys {
				if k == keyQuit {
					return nil
				}
				if err := l.press(k); err != nil {
					return err
				}
			}
		}
	}
}

// draw hands a frame to the writer, unless it has one: the next event is that it is written.
func (l *loop) draw() error {
	if l.busy {
		return nil
	}
	l.view.Now = time.Now()
	l.view.Columns, l.view.Rows = l.screen.size()
	f := Render(&l.view)
	l.view.Offset, l.shown = f.Offset, f.Shown
	if data := l.screen.draw(f, l.view.Columns, l.view.Rows); len(data) > 0 {
		select {
		case l.frames <- data:
			l.busy = true
		case err := <-l.crash:
			return err
		}
	}
	return nil
}

// take keeps what the agent answered.
func (l *loop) take(n news) {
	if n.err != nil {
		l.view.Lost = n.err.Error()
		if l.view.LostSince.IsZero() {
			l.view.LostSince = time.Now()
		}
		return
	}
	l.view.Status, l.view.Lost, l.view.LostSince = n.status, "", time.Time{}
}

// press does what a key asks for.
func (l *loop) press(k key) error {
	switch k {
	case keyCPU:
		l.view.Sort, l.view.Offset = SortCPU, 0
	case keySignal:
		l.view.Sort, l.view.Offset = SortSignal, 0
	case keyThrottled:
		l.view.Sort, l.view.Offset = SortThrottled, 0
	case keyName:
		l.view.Sort, l.view.Offset = SortName, 0
	case keyIdle:
		l.view.Sort, l.view.Offset = SortIdle, 0
	case keyAges:
		l.view.Ages = !l.view.Ages
	case keyUp:
		l.view.Offset--
	case keyDown:
		l.view.Offset++
	case keyPageUp:
		l.view.Offset -= max(1, l.shown-1)
	case keyPageDown:
		l.view.Offset += max(1, l.shown-1)
	case keyHome:
		l.view.Offset = 0
	case keyEnd:
		l.view.Offset = maxTasks
	case keyRedraw:
		l.screen.redraw()
	case keySuspend:
		return l.suspend()
	}
	l.view.Offset = max(0, min(l.view.Offset, maxTasks))
	return nil
}

// maxTasks is more than an agent has.
const maxTasks = 1 << 20

// suspend gives the terminal back to the shell that started us, until that goes on with us.
func (l *loop) suspend() error {
	if l.busy {
		if err := <-l.wrote; err != nil {
			return err
		}
		l.busy = false
	}
	if err := l.screen.close(); err != nil {
		return err
	}
	// To the whole group, as the terminal does it; where no shell waits the kernel ignores it.
	if err := unix.Kill(0, unix.SIGTSTP); err != nil {
		return fmt.Errorf("suspend: %w", err)
	}
	return l.screen.open()
}

// poll asks the agent, and waits in between.
func (l *loop) poll(ctx context.Context) {
	for {
		st, err := l.Fetch(ctx)
		select {
		case l.news <- news{st, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(l.Interval):
		case <-ctx.Done():
			return
		}
	}
}

// write writes frames, so that a terminal that takes nothing stops nothing else.
func (l *loop) write(ctx context.Context) {
	for {
		select {
		case data := <-l.frames:
			l.wrote <- l.screen.write(data)
		case <-ctx.Done():
			return
		}
	}
}

// read reads keys until the terminal is gone.
func (l *loop) read(ctx context.Context) {
	buf := make([]byte, 256)
	var rest []byte
	for {
		n, err := l.In.Read(buf)
		var keys []key
		keys, rest = parseKeys(append(rest, buf[:n]...))
		if len(keys) > 0 {
			select {
			case l.keys <- keys:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			l.crash <- fmt.Errorf("read keys: %w", err)
			return
		}
	}
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
