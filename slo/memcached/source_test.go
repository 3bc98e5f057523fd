package memcached

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/probe"
)

// startMemcached runs a real server on a unix socket and returns its process. It is
// killed by its pid at the end of the test at the latest.
func startMemcached(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skipf("no memcached on this machine: %v", err)
	}
	_ = os.Remove(socket)
	cmd := exec.Command(path, "-s", socket, "-t", "2", "-m", "16", "-u", "root")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, cmd) })
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if cmd.ProcessState != nil {
		return
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = cmd.Wait() // "signal: killed" is what was asked for
}

// waitFor polls until ok says so, within a bound that only a broken source reaches.
func waitFor(t *testing.T, s *probe.Source, what string, ok func(slo.Reading) bool) slo.Reading {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		r := s.Read(time.Now())
		if ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("never %s; last reading %+v", what, r)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func state(want slo.State) func(slo.Reading) bool {
	return func(r slo.Reading) bool { return r.Status.State == want }
}

func startSource(t *testing.T, c probe.Config, network, address string, keys ...string) *probe.Source {
	t.Helper()
	s, err := New(c, network, address, keys...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The life of a server: not there, there, gone, back.
func TestSourceFollowsServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := startSource(t, probe.Config{Interval: 2 * time.Millisecond, Window: 500 * time.Millisecond, Timeout: 100 * time.Millisecond}, "unix", socket)
	r := waitFor(t, s, "unavailable with a reason", func(r slo.Reading) bool {
		return r.Status.State == slo.StateUnavailable && strings.Contains(r.Status.Reason, "no such file")
	})
	if r.Valid != 0 || r.P99 != 0 {
		t.Errorf("percentiles of an unavailable service: %+v", r)
	}

	server := startMemcached(t, socket)
	r = waitFor(t, s, "ok without errors", func(r slo.Reading) bool { return r.Status.State == slo.StateOK && r.Errors == 0 })
	if !r.Valid.Has(slo.HasP50|slo.HasP99) || r.P50 <= 0 || r.P99 < r.P50 || r.Samples < 100 || r.Window != 500*time.Millisecond {
		t.Errorf("%+v", r)
	}
	t.Logf("p50 %v p99 %v lateness %v of %d samples", r.P50, r.P99, r.Lateness, r.Samples)

	kill(t, server)
	r = waitFor(t, s, "unavailable", state(slo.StateUnavailable))
	t.Log(r.Status)

	startMemcached(t, socket)
	waitFor(t, s, "ok again", func(r slo.Reading) bool { return r.Status.State == slo.StateOK && r.Errors == 0 })
}

// A stopped server keeps its connection: probes time out, and the p99 says at least so.
func TestSourceSeesHungServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := startMemcached(t, socket)
	s := startSource(t, probe.Config{Interval: 2 * time.Millisecond, Window: 500 * time.Millisecond, Timeout: 60 * time.Millisecond, MaxOutstanding: 8}, "unix", socket)
	waitFor(t, s, "ok", state(slo.StateOK))
	if err := server.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, s, "hung", func(r slo.Reading) bool {
		return r.Status.State == slo.StateOK && r.Errors > 100 && r.P99 >= 60*time.Millisecond
	})
	if err := server.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitFor(t, s, "well again", func(r slo.Reading) bool {
		return r.Status.State == slo.StateOK && r.Errors == 0
	})
}

// Probing by `version` must leave the hit and miss counters alone; by key it must be a get.
func TestProbeCommands(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	startMemcached(t, socket)
	base := probe.Config{Interval: time.Millisecond, Window: 300 * time.Millisecond}
	s := startSource(t, base, "unix", socket)
	waitFor(t, s, "ok", state(slo.StateOK))
	if n := stat(t, socket, "cmd_get"); n != 0 {
		t.Errorf("cmd_get is %d after probing by version", n)
	}
	byKey := startSource(t, base, "unix", socket, "commensal:probe", "commensal:other")
	r := waitFor(t, byKey, "ok", state(slo.StateOK))
	if n := stat(t, socket, "get_misses"); n < r.Samples {
		t.Errorf("get_misses is %d after %d probes by key", n, r.Samples)
	}
	// A hit larger than the receive buffer.
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("set commensal:probe 0 0 100000\r\n" + strings.Repeat("v", 100000) + "\r\n")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a full window of answers after the value is there
		before := stat(t, socket, "get_hits")
		waitFor(t, byKey, "hits", func(r slo.Reading) bool {
			return r.Status.State == slo.StateOK && stat(t, socket, "get_hits") > before+50
		})
	}
}

// stat asks the server for one of its counters.
func stat(t *testing.T, socket, name string) int {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("stats\r\nquit\r\n")); err != nil {
		t.Fatal(err)
	}
	all := make([]byte, 0, 8192)
	buf := make([]byte, 8192)
	for {
		n, err := conn.Read(buf)
		all = append(all, buf[:n]...)
		if err != nil {
			break
		}
	}
	for line := range strings.SplitSeq(string(all), "\r\n") {
		if v, ok := strings.CutPrefix(line, "STAT "+name+" "); ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no counter %s in %q", name, all)
	return 0
}

// A peer that speaks another language is given up, with its words in the reason.
func TestSourceRefusesOtherProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
			go func() { _, _ = conn.Read(make([]byte, 1<<16)); _ = conn.Close() }()
		}
	}()
	s := startSource(t, probe.Config{Interval: time.Millisecond}, "tcp", l.Addr().String())
	waitFor(t, s, "unavailable", func(r slo.Reading) bool {
		return r.Status.State == slo.StateUnavailable && strings.Contains(r.Status.Reason, "-ERR unknown command")
	})
}

func TestReadDoesNotAllocate(t *testing.T) {
	s := startSource(t, probe.Config{}, "unix", filepath.Join(t.TempDir(), "none"))
	waitFor(t, s, "unavailable", state(slo.StateUnavailable))
	if n := testing.AllocsPerRun(100, func() { s.Read(time.Now()) }); n > 0.5 {
		// The loop itself allocates only when a connection fails.
		t.Errorf("%v allocations a reading", n)
	}
}

func TestKeysAreChecked(t *testing.T) {
	if _, err := New(probe.Config{}, "unix", "@x", "a", "a b"); err == nil {
		t.Error("a key with a blank was taken")
	}
}
