package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/rig/wire"
)

// What ends processes, mounts or loads modules is tested in a guest: package rig's live
// test. Here is what does the same on any machine.

// captured returns what f sends to a port.
func captured(t *testing.T, f func(*port)) []wire.Message {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "port")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f(&port{file: file})
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	var list []wire.Message
	for d := json.NewDecoder(file); ; {
		var m wire.Message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
}

func lines(messages []wire.Message) []string {
	var list []string
	for _, m := range messages {
		list = append(list, m.Text)
	}
	return list
}

func TestSendLines(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"lines", "a\n\x16b\r\n\nc\n", []string{"a", "\x16b\r", "", "c"}},
		{"no last newline", "a\nb", []string{"a", "b"}},
		{"the longest line", long[1:] + "\nb\n", []string{long[1:], "b"}},
		{"one byte longer", long + "\nb\n", []string{long, "", "b"}},
		{"much longer", long + long + "y", []string{long, long, "y"}},
	} {
		got := captured(t, func(p *port) { sendLines(p, "step", strings.NewReader(c.in)) })
		if diff := cmp.Diff(c.want, lines(got)); diff != "" {
			t.Errorf("%s: -want +got:\n%.400s", c.name, diff)
		}
		for _, m := range got {
			if m.Kind != wire.Line || m.Step != "step" {
				t.Errorf("%s: %+v", c.name, m)
			}
		}
	}
}

func TestExecute(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		sec    int
		want   []string
		exit   int
		late   bool
	}{
		{name: "well", script: "echo $A; echo error >&2; echo $HOME", sec: 60, want: []string{"of the plan", "error", "/"}},
		{name: "code", script: "exit 3", sec: 60, exit: 3},
		{name: "signal", script: "kill -KILL $$", sec: 60, exit: -1},
		{name: "late, and ends when it is asked to", script: "trap 'echo asked; exit 5' QUIT; echo begun; while :; do sleep 0.1; done", sec: 1, want: []string{"begun", "asked"}, exit: 5, late: true},
		{name: "late, and does not hear", script: "trap '' QUIT; echo begun; while :; do sleep 0.1; done", sec: 1, want: []string{"begun"}, exit: -1, late: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var end wire.Message
			var err error
			got := captured(t, func(p *port) {
				err = execute(p, &wire.Plan{Env: []string{"A=of the plan", "PATH=" + os.Getenv("PATH")}},
					&wire.Step{Name: "step", Dir: t.TempDir(), Argv: []string{"/bin/sh", "-c", c.script}, TimeoutSec: c.sec}, &end)
			})
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.exit || end.TimedOut != c.late {
				t.Errorf("exit %d, timed out %v", code, end.TimedOut)
			}
			said := slices.DeleteFunc(lines(got), func(s string) bool { return strings.HasPrefix(s, "Quit") }) // of sh, for its child
			if diff := cmp.Diff(c.want, said); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A step whose child keeps its output open ends nevertheless.
func TestExecuteLeavesAChild(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var end wire.Message
	got := captured(t, func(p *port) {
		// The child lives until our end of the pipe is closed.
		step := &wire.Step{Name: "step", Argv: []string{"/bin/sh", "-c", "cat /proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(r.Fd())) + " & echo begun"}, TimeoutSec: 60}
		err = execute(p, &wire.Plan{}, step, &end)
	})
	w.Close()
	if err != nil || end.TimedOut || !slices.Equal(lines(got), []string{"begun"}) {
		t.Errorf("%v, %+v, %q", err, end, lines(got))
	}
}

func TestExecuteNoProgram(t *testing.T) {
	var end wire.Message
	err := execute(nil, &wire.Plan{}, &wire.Step{Argv: []string{"/no/such/program"}}, &end)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Leftover processes are those with a command line, besides init and the worker.
func TestUserProcesses(t *testing.T) {
	lives := exec.Command("/bin/sh", "-c", "read x")
	in, err := lives.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("/bin/sh", "-c", "exit 0")
	out, err := dead.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(lives.Start(), dead.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); lives.Wait(); dead.Wait() }()
	// Its output ends with it; it stays a zombie until it is waited for.
	if _, err := io.ReadAll(out); err != nil {
		t.Fatal(err)
	}
	for !zombie(t, dead.Process.Pid) {
	}
	got := userProcesses()
	if !slices.Contains(got, lives.Process.Pid) {
		t.Errorf("process %d is not among %d", lives.Process.Pid, got)
	}
	for what, pid := range map[string]int{"init": 1, "this process": os.Getpid(), "a zombie": dead.Process.Pid} {
		if slices.Contains(got, pid) {
			t.Errorf("%s is among them", what)
		}
	}
	// Kernel threads are children of process 2, where they are seen at all.
	for _, pid := range got {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, _ := bytes.Cut(data, []byte(") "))
		if fields := strings.Fields(string(rest)); pid == 2 || fields[1] == "2" && kthreadd() {
			t.Errorf("kernel thread %d is among them", pid)
		}
	}
}

// kthreadd says whether process 2 is the parent of the kernel's threads: in a container
// it is anybody.
func kthreadd() bool {
	data, err := os.ReadFile("/proc/2/comm")
	return err == nil && string(data) == "kthreadd\n"
}

func zombie(t *testing.T, pid int) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z"))
}

func TestFindComplaints(t *testing.T) {
	const log = `[    0.000000] Linux version 6.12.0-amd64
[    1.000000] WARNING: CPU: 0 PID: 1 at kernel/x.c:1 f+0x1/0x2
[    1.000001] Modules linked in:
[    2.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000
[    3.000000] unchecked MSR access error: WRMSR to 0xc90
[    4.000000] INFO: task x:7 blocked for more than 120 seconds.
[    5.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
`
	want := []string{"WARNING: CPU", "BUG: kernel", "unchecked MSR", "blocked for more than", "rcu: INFO"}
	got := strings.Split(findComplaints(log), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("line %d is %q, want %q", i, got[i], want[i])
		}
	}
	if got := findComplaints("[    0.1] all is well\n"); got != "" {
		t.Errorf("got %q", got)
	}
}

// A serial port passes bytes as they are: a pseudo terminal shows it.
func TestPortIsRaw(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	p, err := openPort("/dev/pts/" + strconv.Itoa(n))
	if err != nil {
		t.Fatal(err)
	}
	defer p.file.Close()
	p.send(wire.Message{Kind: wire.Line, Text: "a"})
	got := make([]byte, 100)
	n, err = master.Read(got)
	if want := `{"Kind":"line","Text":"a"}` + "\n"; err != nil || string(got[:n]) != want {
		t.Errorf("got %q, %v; want %q", got[:n], err, want)
	}
	// Nothing comes back: the other side does not echo what the host would send.
	if _, err := master.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	p.send(wire.Message{Kind: wire.Beat})
	n, err = master.Read(got)
	if want := `{"Kind":"beat"}` + "\n"; err != nil || string(got[:n]) != want {
		t.Errorf("got %q, %v; want %q", got[:n], err, want)
	}
}

func TestOpenPortThatIsNone(t *testing.T) {
	if _, err := openPort("/dev/null"); !errors.Is(err, unix.ENOTTY) || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("got %v", err)
	}
	if _, err := openPort("/no/such/port"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
