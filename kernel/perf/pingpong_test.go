package perf_test

import (
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/testchild"
)

// PingPong is two processes on one CPU that wake each other through pipes, so that the CPU does nothing but switch.
type PingPong struct{ ping, pong *testchild.Child }

// NewPingPong starts the two in their cgroups.
func NewPingPong(t testing.TB, cpu int, pingDir, pongDir string) *PingPong {
	t.Helper()
	pipes := t.TempDir()
	for _, name := range []string{"there", "back"} {
		Must(t, unix.Mkfifo(filepath.Join(pipes, name), 0o600))
	}
	o := testchild.Options{Env: []string{"GODEBUG=asyncpreemptoff=1"}}
	p := &PingPong{testchild.StartWith(t, "ping "+pipes, o), testchild.StartWith(t, "pong "+pipes, o)}
	for child, dir := range map[*testchild.Child]string{p.ping: pingDir, p.pong: pongDir} {
		child.Move(dir)
		child.Line()
		child.Pin(cpu)
	}
	return p
}

// Switch makes so many round trips and returns the CPU time of one switch, of which a round trip has two. It is the CPU time
// of the two processes, in which the switching itself is, and not the time that passed: others may want the CPU.
func (p *PingPong) Switch(t testing.TB, trips int) time.Duration {
	t.Helper()
	before := cpuTime(t, p.ping) + cpuTime(t, p.pong)
	p.ping.Say("%d", trips)
	p.ping.Await("done")
	return (cpuTime(t, p.ping) + cpuTime(t, p.pong) - before) / time.Duration(2*trips)
}

// cpuTime is the CPU time of the child: clock_getcpuclockid(3).
func cpuTime(t testing.TB, c *testchild.Child) time.Duration {
	t.Helper()
	const schedClock = 2 // CPUCLOCK_SCHED
	var at unix.Timespec
	Must(t, unix.ClockGettime(^int32(c.PID())<<3|schedClock, &at))
	return time.Duration(at.Nano())
}

// ping plays as many round trips as it is told to, and says "done".
func ping(p *testchild.Parent, args []string) error {
	return bat(p, args[0], func(there, back, ball uintptr) {
		trips, err := strconv.Atoi(p.Line())
		if err != nil {
			panic(err)
		}
		for range trips {
			_, _, _ = unix.RawSyscall(unix.SYS_WRITE, there, ball, 1)
			_, _, _ = unix.RawSyscall(unix.SYS_READ, back, ball, 1)
		}
		p.Say("done")
	})
}

// pong answers each.
func pong(p *testchild.Parent, args []string) error {
	return bat(p, args[0], func(there, back, ball uintptr) {
		_, _, _ = unix.RawSyscall(unix.SYS_READ, there, ball, 1)
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, back, ball, 1)
	})
}

// bat is either child, which goes on until it is killed. Bare calls: those of the runtime would hand the thread's work to
// another meanwhile.
func bat(p *testchild.Parent, pipes string, play func(there, back, ball uintptr)) error {
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	there, err := unix.Open(filepath.Join(pipes, "there"), unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	back, err := unix.Open(filepath.Join(pipes, "back"), unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	ball := new([1]byte) // on the heap, which does not move
	p.Say("ready")
	for {
		play(uintptr(there), uintptr(back), uintptr(unsafe.Pointer(ball)))
		runtime.KeepAlive(ball)
	}
}
