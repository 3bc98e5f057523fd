// Package rig runs the project's tests in guests: Debian's own kernels, unmodified, on
// an emulated machine that has what development machines lack (docs/RIG.md).
package rig

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/rig/wire"
)

// What a guest may do wrong as a whole.
var (
	ErrSilent  = errors.New("the guest hangs")
	ErrDied    = errors.New("the guest ended before its work was done")
	ErrLate    = errors.New("the guest took too long")
	ErrFault   = errors.New("the guest could not be made ready")
	ErrGarbled = errors.New("the guest's messages cannot be understood")
)

const (
	// silence is how long a guest may give no sign of life. It beats every two seconds
	// of its own clock, which stands still while a busy host runs others.
	silence = 90 * time.Second
	// powerOff is how long it may take to switch off after its last message.
	powerOff = 20 * time.Second
	// lastWords is how much of the console an error repeats.
	lastWords = 8
)

// Run starts a boot; console gets each line of the guest's console, and each every
// message of the steps. An error of the guest wraps one of the above, with the console's
// last words; ErrNotPrepared and others are of what it needed to start, and ctx's cause
// is that of its end. The emulator has ended when Run returns.
func Run(ctx context.Context, dir string, b *Boot, limit time.Duration, console func(string), each func(wire.Message)) error {
	qemu, err := b.Machine.emulator(dir)
	if err != nil {
		return err
	}
	if err := b.prepareDisks(); err != nil {
		return fmt.Errorf("the guest's disks: %w", err)
	}
	// The path of a socket is short, and a checkout's may be long.
	sockets, err := os.MkdirTemp("", "commensal-rig-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sockets) //nolint:errcheck // a leftover socket does no harm
	port, err := net.Listen("unix", filepath.Join(sockets, "port"))
	if err != nil {
		return err
	}
	defer port.Close() //nolint:errcheck // nothing was written

	cmd := b.command(qemu, port.Addr().String())
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	var out io.Reader
	if out, err = cmd.StdoutPipe(); err != nil {
		return err
	}
	if b.Terminal != nil {
		// Of a group that is not the terminal's nobody may read from it.
		cmd.SysProcAttr.Setpgid, cmd.Stdin = false, os.Stdin
		out = io.TeeReader(out, b.Terminal)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the emulator: %w", err)
	}
	g := &guest{
		cmd: cmd, port: port, console: console, each: each,
		silence: cmp.Or(b.Silence, silence), powerOff: cmp.Or(b.PowerOff, powerOff),
	}
	err = g.follow(ctx, limit, readLines(out), readMessages(port))
	// One that closed both ends and lives has nothing more to say.
	lingering := time.AfterFunc(g.powerOff, func() { _ = cmd.Process.Kill() })
	exit := cmd.Wait()
	lingering.Stop()
	switch {
	case err != nil:
	case g.panic != "":
		err = fmt.Errorf("%w: %s", ErrDied, g.panic)
	case !g.done:
		err = fmt.Errorf("%w: %s", ErrDied, exitText(exit))
	}
	if err != nil && len(g.last) > 0 {
		err = fmt.Errorf("%w; its console ended with:\n  %s", err, strings.Join(g.last, "\n  "))
	}
	return err
}

func exitText(err error) string {
	if err == nil {
		return "the emulator ended by itself"
	}
	return "the emulator: " + err.Error()
}

// guest is a running emulator.
type guest struct {
	cmd     *exec.Cmd
	port    net.Listener
	console func(string)
	each    func(wire.Message)

	silence, powerOff time.Duration

	last  []string
	panic string // the kernel's, "" for none
	done  bool
}

// follow hands on what the guest says until the emulator has closed both ends. Whoever
// gives up on it kills the emulator, so that it does.
func (g *guest) follow(ctx context.Context, limit time.Duration, lines <-chan string, messages <-chan received) error {
	late := time.NewTimer(limit)
	defer late.Stop()
	quiet := time.NewTimer(g.silence)
	defer quiet.Stop()
	var reason error
	giveUp := func(err error) {
		if reason == nil && !g.done {
			reason = err
		}
		// With what it may have started, which could keep both ends open. They fail
		// only when all have ended already, or where it has no group of its own.
		_ = unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
		_ = g.cmd.Process.Kill()
	}
	cancelled := ctx.Done()
	for lines != nil || messages != nil {
		select {
		case line, ok := <-lines:
			if !ok {
				lines = nil
				g.endWait()
				continue
			}
			g.hear(line)
		case m, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			if !g.done {
				quiet.Reset(g.silence)
			}
			if err := g.take(m); err != nil {
				giveUp(err)
			}
			if m.Kind == wire.Done {
				quiet.Reset(g.powerOff)
			}
		case <-quiet.C:
			giveUp(fmt.Errorf("%w: no sign of life for %s", ErrSilent, g.silence))
		case <-late.C:
			giveUp(fmt.Errorf("%w: more than %s", ErrLate, limit))
		case <-cancelled:
			giveUp(context.Cause(ctx))
			cancelled = nil
		}
	}
	return reason
}

// endWait ends the wait for the emulator's connection, which will not come any more. One
// that it made already is before ours in the queue, and its messages are not lost.
func (g *guest) endWait() {
	conn, err := net.Dial("unix", g.port.Addr().String())
	if err != nil {
		g.port.Close() //nolint:errcheck,gosec // nothing was written
		return
	}
	conn.Close() //nolint:errcheck,gosec // nothing was written
}

// panicText begins the kernel's own account of why it ends. The trace that follows it is
// longer than the last words of an error.
const panicText = "Kernel panic - not syncing"

// hear hands on a line of the console and keeps it for a while.
func (g *guest) hear(line string) {
	g.console(line)
	if at := strings.Index(line, panicText); at >= 0 && g.panic == "" {
		g.panic = line[at:]
	}
	if strings.TrimSpace(line) == "" {
		return
	}
	if len(g.last) == lastWords {
		g.last = append(g.last[:0], g.last[1:]...)
	}
	g.last = append(g.last, line)
}

func (g *guest) take(m received) error {
	if m.err != nil {
		return fmt.Errorf("%w: %w", ErrGarbled, m.err)
	}
	switch m.Kind {
	case wire.Beat:
	case wire.Fault:
		return fmt.Errorf("%w: %s", ErrFault, m.Text)
	case wire.Start, wire.Line, wire.End, wire.File, wire.Done:
		g.done = g.done || m.Kind == wire.Done
		g.each(m.Message)
	default:
		return fmt.Errorf("%w: a message of kind %q", ErrGarbled, m.Kind)
	}
	return nil
}

// readLines delivers the lines of r, without the console's control sequences.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		br := bufio.NewReaderSize(r, 64<<10)
		for {
			// A line longer than the buffer comes in pieces.
			line, err := br.ReadSlice('\n')
			if len(line) > 0 {
				lines <- strings.TrimRight(strings.ReplaceAll(string(line), "\x1b[6n", ""), "\r\n")
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
	return lines
}

// received is a message, or why it is none.
type received struct {
	wire.Message
	err error
}

// maxMessage bounds a message: a line of output or a piece of a file, as JSON.
const maxMessage = 1 << 20

// readMessages delivers what comes over the first connection to port.
func readMessages(port net.Listener) <-chan received {
	messages := make(chan received)
	go func() {
		defer close(messages)
		conn, err := port.Accept()
		if err != nil {
			return // closed: the emulator ended without having connected
		}
		defer conn.Close() //nolint:errcheck // read only
		scanMessages(conn, func(m received) { messages <- m })
	}()
	return messages
}

// scanMessages decodes the messages of r until its end.
func scanMessages(r io.Reader, each func(received)) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxMessage)
	scanner.Split(wholeLines)
	for scanner.Scan() {
		var m received
		if err := json.Unmarshal(scanner.Bytes(), &m.Message); err != nil {
			m = received{err: fmt.Errorf("%w in %.80q", err, scanner.Text())}
		}
		each(m)
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, unix.ECONNRESET) {
		each(received{err: err})
	}
}

// wholeLines is a bufio.SplitFunc. A last line without its end is what a guest was
// writing when it died: no message, and no fault of its own.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
