package top

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/agent"
	"github.com/commensal-io/commensal/internal/rigtest"
)

// binary is the program under test, built once a run.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "commensal-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if rigtest.Inside() { // a guest has no go command: the rig has built the program for it
		if binary, err = exec.LookPath("commensal"); err != nil {
			panic(err)
		}
		return m.Run()
	}
	binary = filepath.Join(dir, "commensal")
	cmd := exec.Command("go", "build", "-o", binary, "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// server is an agent's socket with a status that does not change.
func serve(t *testing.T, socket string, st *agent.Status) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" || r.Method != http.MethodGet {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		_ = json.NewEncoder(w).Encode(st) // the client may be gone
	})}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	stop = func() { _ = srv.Close() }
	t.Cleanup(stop)
	return stop
}

// program is a running `commensal top`.
type program struct {
	*pty
	cmd    *exec.Cmd
	ended  chan error
	before unix.Termios
	socket string
}

func startTop(t *testing.T, st *agent.Status, env ...string) (*program, func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "sock")
	stop := func() {}
	if st != nil {
		stop = serve(t, socket, st)
	}
	p := &program{pty: openPTY(t, 80, 24), socket: socket, ended: make(chan error, 1)}
	p.before = p.termios()
	p.cmd = exec.Command(binary, "top", "--socket", socket, "--interval", "100ms")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Env = append([]string{"TERM=xterm", "LANG=C.UTF-8", "PATH=" + os.Getenv("PATH")}, env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it may have ended
	return p, stop
}

// end waits for the program's end and checks the terminal.
func (p *program) end(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("it does not end; the screen is\n%s", p.screen())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%s, want exit code %d\n%s", p.cmd.ProcessState, code, p.all)
	}
	p.restored(p.before)
}

func TestKeysAndSizes(t *testing.T) {
	st := many()
	st.Tasks[0].Path = "/batch/\x1b[31mevil"
	p, _ := startTop(t, st)
	p.watch()
	p.shows("1-18 of 150 by cpu")
	if now := p.termios(); now.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Errorf("keys do not come one by one: %x", now.Lflag)
	}
	for _, c := range [][2]string{
		{"n", "by name"}, {"s", "by signal"}, {"t", "by throttled"}, {"n", "1-18 of 150 by name"}, {"\x1b[6~", "18-35 of 150"}, {"\x1b[B", "19-36 of 150"},
		{"\x1b[A\x1b[5~", "1-18 of 150"}, {"G", "133-150 of 150"}, {"\x1b[H", "1-18 of 150"}, {"\x0c", "/batch/?[31mevil"}, {"zZ\x1b[99x", "1-18 of 150"},
		{"a", "was not read of any task yet"}, {"i", "0-0 of 0 by idle"}, {"a", "1-18 of 150 by idle"}, {"n", "1-18 of 150 by name"},
	} {
		p.press(c[0])
		p.shows(c[1])
	}
	p.resize(120, 40)
	p.shows("CPUS")
	p.shows("1-34 of 150 by name")
	p.resize(30, 3)
	p.shows("!CPUS")
	p.resize(80, 24)
	p.shows("1-18 of 150 by name")
	// Nobody waits for a child of a session of its own: the kernel lets it run on.
	p.press("\x1a")
	p.press("c")
	p.shows("by cpu")
	p.press("q")
	p.end(0)
}

func TestEnds(t *testing.T) {
	for name, f := range map[string]func(p *program) error{
		"q": func(p *program) error { p.press("q"); return nil }, "Ctrl-C": func(p *program) error { p.press("\x03"); return nil },
		"SIGTERM": func(p *program) error { return p.cmd.Process.Signal(unix.SIGTERM) }, "SIGHUP": func(p *program) error { return p.cmd.Process.Signal(unix.SIGHUP) },
		"SIGINT": func(p *program) error { return p.cmd.Process.Signal(unix.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := startTop(t, sample())
			p.watch()
			p.shows("/services/web")
			if err := f(p); err != nil {
				t.Fatal(err)
			}
			p.end(0)
		})
	}
}

func TestLostTerminal(t *testing.T) {
	p, _ := startTop(t, sample())
	p.watch()
	p.shows("/services/web")
	_ = p.slave.Close()
	if err := p.master.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("it does not end without a terminal")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s", p.cmd.ProcessState)
	}
}

// A terminal that takes nothing any more (a connection that hangs) stops nobody from ending.
func TestStalledTerminal(t *testing.T) {
	p, _ := startTop(t, many())
	size := []int{80, 200}
	for i := range 200 { // nobody reads: soon the terminal's buffer is full
		p.resize(size[i%2], 100)
		time.Sleep(2 * time.Millisecond)
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("it does not end while its terminal hangs")
	}
	if now := p.termios(); now != p.before {
		t.Errorf("termios are %+v, were %+v", now, p.before)
	}
}

func TestAgentGoesAndComesBack(t *testing.T) {
	p, stop := startTop(t, sample(), "NO_COLOR=1")
	p.watch()
	p.shows("/services/web")
	stop()
	p.shows("NO AGENT for")
	p.shows("/services/web") // as it was
	serve(t, p.socket, many())
	p.shows("/batch/job-00")
	p.shows("!NO AGENT")
	p.press("q")
	p.end(0)
	if strings.Contains(string(p.all), "\x1b[1;31m") || strings.Contains(string(p.all), "\x1b[33m") {
		t.Error("colours in spite of NO_COLOR")
	}
}

func TestNoAgentAtFirst(t *testing.T) {
	p, _ := startTop(t, nil)
	p.watch()
	p.shows("NO AGENT: no agent is listening")
	serve(t, p.socket, sample())
	p.shows("OUTLIER")
	p.press("q")
	p.end(0)
	if !strings.Contains(string(p.all), "\x1b[1;31m") {
		t.Error("an outlier without colour")
	}
}

func TestBatch(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "sock")
	serve(t, socket, sample())
	out := func(code int, env string, args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, append([]string{"top", "--socket", socket}, args...)...)
		cmd.Env = []string{env}
		b, err := cmd.Output()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("%v: %v, want exit code %d", args, err, code)
		}
		return string(b)
	}
	if text := out(0, "TERM=xterm", "--ages"); !strings.Contains(text, "MAY GO") || !strings.Contains(text, "was not read of any task yet") {
		t.Error(text)
	}
	for _, args := range [][]string{nil, {"--once"}, {"-b"}, {"--sort", "name"}, {"--sort", "idle"}} {
		text := out(0, "TERM=xterm", args...)
		if !strings.Contains(text, "cri-containerd-77d1e2.scope") || !strings.Contains(text, "by hard_cap") || strings.Contains(text, "\x1b") {
			t.Errorf("%v: %s", args, text)
		}
	}
	if text := out(0, "LC_ALL=de_DE.UTF-8", "--once"); !strings.Contains(text, "räuber-日本語") {
		t.Error(text)
	}
	var st agent.Status
	if err := json.Unmarshal([]byte(out(0, "", "--json")), &st); err != nil || len(st.Tasks) != 6 || st.Node.CPUs != 8 {
		t.Errorf("%v, %+v", err, st)
	}
	out(2, "", "--sort", "size")
	out(2, "", "--interval", "1ms")
	socket += "-none"
	out(5, "", "--once")
}

func TestDumbTerminal(t *testing.T) {
	p, _ := startTop(t, sample(), "TERM=dumb")
	p.watch()
	p.shows("INCIDENTS")
	p.end(0)
	if strings.Contains(string(p.all), "\x1b") {
		t.Errorf("escape sequences for a dumb terminal: %q", p.all)
	}
}

// A panic, wherever it happens, leaves the terminal as it was.
func TestPanic(t *testing.T) {
	p := openPTY(t, 80, 24)
	p.watch()
	before := p.termios()
	var n atomic.Int32
	err := Run(context.Background(), Options{In: p.slave, Out: p.slave, Sort: SortCPU, Interval: time.Millisecond, Fetch: func(context.Context) (*agent.Status, error) {
		if n.Add(1) > 3 {
			panic("beside the loop")
		}
		return sample(), nil
	}})
	if err == nil || !strings.Contains(err.Error(), "panic: beside the loop") || !strings.Contains(err.Error(), "goroutine") {
		t.Errorf("%v", err)
	}
	p.restored(before)
	broken := sample()
	broken.Incidents = append(broken.Incidents, nil) // the view cannot take that
	err = Run(context.Background(), Options{In: p.slave, Out: p.slave, Sort: SortCPU, Interval: time.Hour, Fetch: func(context.Context) (*agent.Status, error) {
		return broken, nil
	}})
	if err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("%v", err)
	}
	p.restored(before)
}
