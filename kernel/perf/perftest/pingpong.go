package perftest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const pipesVariable = "COMMENSAL_PERF_PIPES"

// PingPong is two processes on one CPU that wake each other through pipes, so that the CPU does nothing but switch.
type PingPong struct{ ping, pong *Child }

// NewPingPong starts the two in their cgroups.
func NewPingPong(t testing.TB, cpu int, pingDir, pongDir string) *PingPong {
	t.Helper()
	pipes := t.TempDir()
	for _, name := range []string{"there", "back"} {
		Must(t, unix.Mkfifo(filepath.Join(pipes, name), 0o600))
	}
	env := []string{pipesVariable + "=" + pipes, "GODEBUG=asyncpreemptoff=1"}
	p := &PingPong{Start(t, "ping", env...), Start(t, "pong", env...)}
	for child, dir := range map[*Child]string{p.ping: pingDir, p.pong: pongDir} {
		child.Move(t, dir)
		child.Line(t)
		child.Pin(t, cpu)
	}
	return p
}

// Switch makes so many round trips and returns the CPU time of one switch, of which a round trip has two. It is the CPU time
// of the two processes, in which the switching itself is, and not the time that passed: others may want the CPU.
func (p *PingPong) Switch(t testing.TB, trips int) time.Duration {
	t.Helper()
	before := p.ping.cpuTime(t) + p.pong.cpuTime(t)
	p.ping.Say(t, strconv.Itoa(trips))
	if line := p.ping.Line(t); line != "done" {
		t.Fatalf("child says %q", line)
	}
	return (p.ping.cpuTime(t) + p.pong.cpuTime(t) - before) / time.Duration(2*trips)
}

// cpuTime is the CPU time of the child: clock_getcpuclockid(3).
func (c *Child) cpuTime(t testing.TB) time.Duration {
	t.Helper()
	const schedClock = 2 // CPUCLOCK_SCHED
	var at unix.Timespec
	Must(t, unix.ClockGettime(^int32(c.PID())<<3|schedClock, &at))
	return time.Duration(at.Nano())
}

// bat is either child. Bare calls: those of the runtime would hand the thread's work to another meanwhile.
func bat(serves bool) {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	pipes := os.Getenv(pipesVariable)
	there, err := unix.Open(filepath.Join(pipes, "there"), unix.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	back, err := unix.Open(filepath.Join(pipes, "back"), unix.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	var ball [1]byte
	at := uintptr(unsafe.Pointer(&ball[0]))
	fmt.Println("ready")
	if !serves {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(there), at, 1)
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(back), at, 1)
		}
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		trips, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			panic(err)
		}
		for range trips {
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(there), at, 1)
			_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(back), at, 1)
		}
		fmt.Println("done")
	}
}
