package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What is no socket is left, and where others could put something into the socket's place none
// is made.
func TestSocketsAreMadeWhereNobodyInterferes(t *testing.T) {
	dir := t.TempDir()
	in := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(path, "agent.sock")
	}
	file, link, left := in("file", 0o755), in("link", 0o755), in("left", 0o755)
	if err := os.WriteFile(file, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for path, refused := range map[string]string{
		file: "something else is there", link: "something else is there", left: "", in("new", 0o755): "",
		in("open", 0o777): "mode 0777", in("group", 0o775): "mode 0775", in("sticky", os.ModeSticky|0o777): "",
	} {
		err := clearSocket(path)
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%s: %v, want %q", path, err, refused)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file in the socket's place is now %q, %v", b, err)
	}
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("an earlier agent's socket: %v", err)
	}
}

// Idle connections, of which anybody can hold as many as he likes, keep nobody out, and are no
// more than the bound; one that waits for its answer is not the first to go.
func TestConnectionsAreBounded(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		<-release
		fmt.Fprint(w, "late")
	})
	s, _ := (&Agent{}).newServer(context.Background(), mux)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	dial := func() net.Conn {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c net.Conn, path string) error {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, err := fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
		return err
	}
	slow := dial()
	if err := ask(slow, "/slow"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // it is busy by then, or the oldest of all, which is as good a test
	idle := make([]net.Conn, 0, 300)
	for range 300 {
		idle = append(idle, dial())
		c := dial()
		if err := ask(c, "/"); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "here") {
			t.Fatalf("a newcomer beside %d idle connections got %q, %v", len(idle), b, err)
		}
		c.Close()
	}
	close(release)
	if b, err := io.ReadAll(slow); err != nil || !strings.HasSuffix(string(b), "late") {
		t.Errorf("who waited for an answer got %q, %v", b, err)
	}
	open := 0
	for _, c := range idle {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && strings.Contains(err.Error(), "timeout") {
			open++
		}
		c.Close()
	}
	if open == 0 || open > maxConns {
		t.Errorf("%d of 300 idle connections are still open, want 1 to %d", open, maxConns)
	}
}

// fullOnce has no descriptor for the next connection, as long as there is a connection to close.
type fullOnce struct {
	net.Listener
	full chan int // how often the next connection finds none
}

func (l fullOnce) Accept() (net.Conn, error) {
	select {
	case n := <-l.full:
		if n > 1 {
			l.full <- n - 1
		}
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	default:
		return l.Listener.Accept()
	}
}

// Where there is no descriptor left, halves of requests give way at once, one that waits for its
// answer does not, and then a spare is lent.
func TestWithoutDescriptorsHalvesGiveWay(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s, limit := (&Agent{}).newServer(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { close(asked) })
		<-release
		fmt.Fprint(w, "late")
	}))
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var lent atomic.Int32
	l := &lending{fullOnce{inner, make(chan int, 1)}, limit, func() bool { return lent.Add(1) == 1 }}
	send := func(text string) net.Conn {
		c, err := net.Dial("unix", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(text))
		return c
	}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	slow := send("GET / HTTP/1.0\r\n\r\n")
	<-asked
	half := send("GET / HTTP/1.0\r\nX-Long: ")
	for limit.count() < 2 {
		time.Sleep(time.Millisecond)
	}
	// The server is in Accept: the next connection finds a descriptor, and those after it do not.
	l.Listener.(fullOnce).full <- 4
	newest := send("GET / HTTP/1.0\r\n")
	deadline := time.Now().Add(20 * time.Second)
	_ = half.SetReadDeadline(deadline)
	if n, err := half.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("half a request: read %d bytes, %v: expected that it is closed", n, err)
	}
	close(release)
	_, _ = newest.Write([]byte("\r\n"))
	for _, c := range []net.Conn{slow, newest} {
		_ = c.SetReadDeadline(deadline)
		if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "late") {
			t.Errorf("who waited for an answer, or came last, got %q, %v", b, err)
		}
	}
	for ; lent.Load() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a spare was asked for %d times, want twice: lent, and then none left", lent.Load())
		}
	}
}

func (l *connLimit) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}
