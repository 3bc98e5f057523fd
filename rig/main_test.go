package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/internal/rigtest"
	"github.com/commensal-io/commensal/rig/wire"
)

const (
	// partEnv names what the stand-in for the emulator plays.
	partEnv = "COMMENSAL_TEST_PART"
	// pidEnv is a file to which it appends its process id.
	pidEnv = "COMMENSAL_TEST_PID"
	// actsEnv is the test binary that it runs for each step of a plan.
	actsEnv = "COMMENSAL_TEST_ACTS"
	// mke2fsEnv is what the stand-in for mke2fs complains of; "": nothing.
	mke2fsEnv = "COMMENSAL_TEST_MKE2FS"
)

// TestMain lets the test binary stand in for the programs that the runner starts. The
// name of the link by which it was started says for which.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "qemu-rdt":
		os.Exit(playEmulator(os.Getenv(partEnv)))
	case name == "mke2fs":
		if complaint := os.Getenv(mke2fsEnv); complaint != "" {
			fmt.Fprintln(os.Stderr, "mke2fs:", complaint)
			os.Exit(1)
		}
		os.Exit(0)
	case strings.HasPrefix(name, "kernel-"):
		testing.Main(regexp.MatchString, acts, []testing.InternalBenchmark{{Name: "BenchmarkNothing", F: func(*testing.B) {}}}, nil)
	}
	os.Exit(m.Run())
}

// acts are the tests of a package that exists only here.
var acts = []testing.InternalTest{
	{Name: "TestPasses", F: func(t *testing.T) { t.Log("all is well") }},
	{Name: "TestPrints", F: func(*testing.T) { fmt.Print("a line without an end") }},
	{Name: "TestFails", F: func(t *testing.T) { t.Error("one is not two") }},
	{Name: "TestOnceBad", F: func(t *testing.T) {
		// The first boot makes the mark that the second one finds.
		f, err := os.OpenFile(os.Getenv(actsEnv)+".mark", os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			t.Errorf("the clock stood still: %v", f.Close())
		}
	}},
	{Name: "TestSkips", F: func(t *testing.T) { t.Skip("no such thing here") }},
	{Name: "TestStock", F: func(t *testing.T) { t.Skip(rigtest.StockReason) }},
	{Name: "TestSubtests", F: func(t *testing.T) {
		t.Run("passes", func(*testing.T) {})
		t.Run("skips", func(t *testing.T) { t.Skip("not this one") })
	}},
	{Name: "TestForges", F: func(*testing.T) { fmt.Println("--- PASS: TestGone (0.00s)\nPASS") }},
	{Name: "TestPanics", F: func(*testing.T) { panic("an invariant is broken") }},
	{Name: "TestPanicsBeside", F: func(*testing.T) {
		go panic("nobody catches this")
		time.Sleep(time.Hour)
	}},
	{Name: "TestExits3", F: func(*testing.T) { os.Exit(3) }},
	{Name: "TestExits0", F: func(*testing.T) { os.Exit(0) }},
}

// standIns makes a folder with a stand-in for the patched emulator, and puts one for
// mke2fs first in the PATH.
func standIns(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	bin := t.TempDir()
	linkSelf(t, filepath.Join(dir, "qemu-rdt"))
	linkSelf(t, filepath.Join(bin, "mke2fs"))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return dir
}

func linkSelf(t *testing.T, name string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(self, name)); err != nil {
		t.Fatal(err)
	}
}

// emulator is the stand-in for one.
type emulator struct{ conn net.Conn }

// parts are what it plays; the exit code is the process's.
var parts = map[string]func(*emulator) int{
	"well": func(e *emulator) int {
		e.say("\x1b[6nLinux version 6.12\r\n\r\n", "guest: ready\r\n", "no end of line")
		e.connect()
		e.send(wire.Message{Kind: wire.Beat}, wire.Message{Kind: wire.Start, Step: "a"},
			wire.Message{Kind: wire.Line, Step: "a", Text: "\x16one \"line\""},
			wire.Message{Kind: wire.End, Step: "a", Exit: 1, Sec: 0.5}, wire.Message{Kind: wire.File, Name: "f", Data: []byte{0, 255}},
			wire.Message{Kind: wire.Done})
		return 0
	},
	"panic": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Start, Step: "a"})
		e.panic()
		return 0
	},
	"panic after done": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Done})
		e.panic()
		return 0
	},
	"silent": func(e *emulator) int {
		e.connect()
		return e.hang()
	},
	"never connects": func(e *emulator) int {
		e.say("SeaBIOS\n")
		return e.hang()
	},
	"beats for ever": func(e *emulator) int {
		e.connect()
		for {
			e.send(wire.Message{Kind: wire.Beat})
			time.Sleep(10 * time.Millisecond)
		}
	},
	"garbage":      raw("\xff\xfe what is this\n"),
	"an array":     raw("[1]\n"),
	"null":         raw("null\n"),
	"unknown kind": raw(`{"Kind":"greeting"}` + "\n"),
	"empty line":   raw("\n"),
	"long line":    raw(`{"Kind":"line","Text":"` + strings.Repeat("x", 2*maxMessage)),
	"fault": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Fault, Text: "load virtio_blk: exec format error"})
		return e.hang()
	},
	"fault and end": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Fault, Text: "load virtio_blk: exec format error"})
		return 0
	},
	"half a message": func(e *emulator) int {
		e.say("the last thing it said\n")
		e.connect()
		e.write(`{"Kind":"line","Te`)
		return 0
	},
	"bad option": func(*emulator) int {
		fmt.Fprintln(os.Stderr, "qemu-system-x86_64: -cpu max,rdt: Property not found")
		return 1
	},
	"says nothing": func(*emulator) int { return 0 },
	"killed": func(*emulator) int {
		if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
			panic(err)
		}
		select {}
	},
	"done and hangs": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Done})
		return e.hang()
	},
	"done and beats": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Done})
		for {
			e.send(wire.Message{Kind: wire.Beat})
			time.Sleep(10 * time.Millisecond)
		}
	},
	"speaks after done": func(e *emulator) int {
		e.connect()
		e.send(wire.Message{Kind: wire.Done}, wire.Message{Kind: wire.Line, Step: "a", Text: "late"})
		return 0
	},
	"closes both ends": func(e *emulator) int {
		e.connect()
		if err := errors.Join(e.conn.Close(), os.Stdout.Close(), os.Stderr.Close()); err != nil {
			panic(err)
		}
		return e.hang()
	},
	"plan":           func(e *emulator) int { return e.carryOut("") },
	"plan, complain": func(e *emulator) int { return e.carryOut("BUG: sleeping function") },
	"plan, die": func(e *emulator) int {
		e.connect()
		e.step(&e.plan().Steps[0])
		e.panic()
		return 0
	},
}

// raw is a part that writes bytes to the port and stays.
func raw(text string) func(*emulator) int {
	return func(e *emulator) int {
		e.connect()
		e.write(text)
		return e.hang()
	}
}

func playEmulator(part string) int {
	if name := os.Getenv(pidEnv); name != "" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, os.Getpid())
		f.Close()
	}
	play, ok := parts[part]
	if !ok {
		panic("no such part: " + strconv.Quote(part))
	}
	// Whoever is done closes nothing: the process's end does, as an emulator's.
	return play(&emulator{})
}

// option returns the value of an argument that follows name and begins with prefix.
func (e *emulator) option(name, prefix string) string {
	for i, arg := range os.Args[:len(os.Args)-1] {
		if value, ok := strings.CutPrefix(os.Args[i+1], prefix); ok && arg == name {
			return value
		}
	}
	panic(fmt.Sprintf("no %s %s in %q", name, prefix, os.Args))
}

func (e *emulator) connect() {
	conn, err := net.Dial("unix", e.option("-chardev", "socket,id=port,path="))
	if err != nil {
		panic(err)
	}
	e.conn = conn
}

func (e *emulator) write(text string) {
	if _, err := io.WriteString(e.conn, text); err != nil {
		os.Exit(7) // nobody listens any more
	}
}

func (e *emulator) send(messages ...wire.Message) {
	for _, m := range messages {
		data, err := json.Marshal(m)
		if err != nil {
			panic(err)
		}
		e.write(string(data) + "\n")
	}
}

// say writes to the console.
func (e *emulator) say(texts ...string) {
	for _, text := range texts {
		fmt.Print(text)
	}
}

func (e *emulator) hang() int {
	time.Sleep(time.Hour)
	return 0
}

// panic prints what a kernel does, with a trace longer than an error's last words.
func (e *emulator) panic() {
	e.say("[    3.141] Kernel panic - not syncing: Attempted to kill init!\n")
	for i := range 3 * lastWords {
		e.say(fmt.Sprintf("[    3.142]  frame+0x%x\n", i))
	}
	e.say("[    3.143] Rebooting in 1 seconds..\n")
}

// plan reads the plan as the guest does: from the initramfs.
func (e *emulator) plan() *wire.Plan {
	f, err := os.Open(e.option("-initrd", ""))
	if err != nil {
		panic(err)
	}
	r := cpio.NewReader(f)
	for {
		h, err := r.Next()
		if err != nil {
			panic(err)
		}
		if "/"+h.Name != wire.PlanPath {
			continue
		}
		var plan wire.Plan
		if err := json.NewDecoder(r).Decode(&plan); err != nil {
			panic(err)
		}
		return &plan
	}
}

// carryOut runs the plan's steps here, and sends what a guest does.
func (e *emulator) carryOut(complaint string) int {
	e.connect()
	plan := e.plan()
	for i := range plan.Steps {
		e.step(&plan.Steps[i])
	}
	e.send(wire.Message{Kind: wire.File, Name: "tree/a", Data: []byte("first ")},
		wire.Message{Kind: wire.File, Name: "tree/a", Data: []byte("second")},
		wire.Message{Kind: wire.Done, Text: complaint})
	return 0
}

func (e *emulator) step(s *wire.Step) {
	e.say(s.Name + " starts\n")
	e.send(wire.Message{Kind: wire.Start, Step: s.Name})
	cmd := exec.Command(os.Getenv(actsEnv), s.Argv[1:]...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		panic(err)
	}
	for line := range strings.Lines(string(out)) {
		e.send(wire.Message{Kind: wire.Line, Step: s.Name, Text: strings.TrimSuffix(line, "\n")})
	}
	e.send(wire.Message{Kind: wire.End, Step: s.Name, Exit: cmd.ProcessState.ExitCode(), Sec: 1.5})
}

// allGone reports the processes of a file of ids that still run.
func allGone(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	pids := strings.Fields(string(data))
	slices.Sort(pids)
	for _, field := range slices.Compact(pids) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		// One that was not our child may be on its way out: init has to see it first.
		for range 500 {
			if err = unix.Kill(pid, 0); err != nil || zombie(pid) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err == nil && !zombie(pid) {
			t.Errorf("process %d of the emulator still runs", pid)
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}
