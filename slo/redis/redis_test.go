package redis

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/probe"
)

func TestReply(t *testing.T) {
	for _, c := range []struct{ in, refusal string }{
		{"+PONG\r\n", ""}, {":42\r\n", ""}, {"$3\r\nabc\r\n", ""}, {"$0\r\n\r\n", ""}, {"$-1\r\n", ""}, {"*-1\r\n", ""}, {"*0\r\n", ""},
		{"*2\r\n$1\r\na\r\n*2\r\n:1\r\n+b\r\n", ""}, {"%1\r\n+k\r\n~1\r\n:1\r\n", ""}, {"_\r\n", ""}, {"#t\r\n", ""}, {",1.5\r\n", ""}, {"(12\r\n", ""},
		{"=7\r\ntxt:abc\r\n", ""}, {"$4\r\n\r\n\r\n\r\n", ""}, {"*1\r\n-inner\r\n", ""},
		{"-ERR unknown command\r\n", "ERR unknown command"}, {"!5\r\nERR x\r\n", "ERR x"}, {"-\r\n", "an error without words"},
	} {
		n, refusal, err := protocol(nil).Reply([]byte(c.in + "+next\r\n"))
		if n != len(c.in) || refusal != c.refusal || err != nil {
			t.Errorf("%q: %d, %q, %v", c.in, n, refusal, err)
		}
		for i := range c.in {
			if n, _, err := protocol(nil).Reply([]byte(c.in[:i])); n != 0 || err != nil {
				t.Errorf("%q: %d, %v", c.in[:i], n, err)
			}
		}
	}
	for _, bad := range []string{
		"HTTP/1.1 400 Bad Request\r\n", "\r\n", "\n", "+x\n", "$-2\r\n", "$9999999999\r\n", "$1e3\r\n", "$3\r\nabcd\r\n", "*100001\r\n", "$\r\n",
		strings.Repeat("*1\r\n", maxValues+2), "+" + strings.Repeat("x", maxLine), ">1\r\n+push\r\n",
	} {
		if n, _, err := protocol(nil).Reply([]byte(bad)); !errors.Is(err, ErrProtocol) || !errors.Is(err, probe.ErrProtocol) {
			t.Errorf("%.40q: %d, %v", bad, n, err)
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, s := range []string{"+PONG\r\n", "*2\r\n$1\r\na\r\n:1\r\n", "%1\r\n+k\r\n_\r\n", "-ERR\r\n", "*3\r\n*3\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, refusal, err := protocol(nil).Reply(b)
		if n < 0 || n > len(b) || err != nil && n != 0 || n == 0 && refusal != "" && err == nil {
			t.Fatalf("%d of %d, %q, %v", n, len(b), refusal, err)
		}
		if n > 0 { // what is whole stays whole, whatever follows
			if again, _, err := protocol(nil).Reply(b[:n]); again != n || err != nil {
				t.Fatalf("%d of %d alone: %d, %v", n, len(b), again, err)
			}
		}
	})
}

// A real server, where the machine has one: GET of a key that is there, one that is not, a command that it
// does not know, and after it was stopped.
func TestRealServer(t *testing.T) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skipf("no redis-server on this machine (TestNoFaultIsGreen speaks RESP to one of its own): %v", err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	c := probe.Config{Interval: 2 * time.Millisecond, Window: 400 * time.Millisecond, Timeout: 200 * time.Millisecond, Quantile: 0.99}
	start := func(command ...string) *probe.Source {
		s, err := New(c, "unix", socket, command...)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	await := func(s *probe.Source, what string, ok func(*slo.Reading) bool) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			r := s.Read(time.Now())
			if ok(&r) {
				t.Logf("%s: %+v", what, r)
				return
			}
			if time.Since(began) > 20*time.Second {
				t.Fatalf("never %s: %+v", what, r)
			}
		}
	}
	well := func(r *slo.Reading) bool { return r.Status.State == slo.StateOK && r.Errors == 0 }
	await(start(), "answers PING", well)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("SET k v\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	get := start("GET", "k")
	await(get, "answers GET", well)
	await(start("EVAL", "return {1,{'a','b'}}", "0"), "answers a list", well)
	await(start("NOSUCH"), "refused", func(r *slo.Reading) bool {
		return r.Status.State == slo.StateUnavailable && strings.Contains(r.Status.Reason, "unknown command")
	})
	_ = cmd.Process.Kill()
	await(get, "gone", func(r *slo.Reading) bool { return r.Status.State == slo.StateUnavailable })
}
