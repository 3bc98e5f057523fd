package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
	s := (&Agent{}).newServer(context.Background(), mux)
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
