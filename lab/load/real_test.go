package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// startMemcached runs a real server and kills it by its pid at the end of the test.
func startMemcached(t testing.TB, network, address string, more ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skipf("no memcached on this machine: %v", err)
	}
	args := []string{"-s", address}
	if network == "tcp" {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		args = []string{"-l", host, "-p", port}
	}
	cmd := exec.Command(path, append(append(args, "-t", "2", "-m", "64", "-u", "root"), more...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		_ = cmd.Wait()
	})
	for range 2000 {
		if c, err := net.Dial(network, address); err == nil {
			_ = c.Close()
			return cmd
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("memcached does not answer")
	return nil
}

// freePort returns a loopback address that was free a moment ago.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestRealServer(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			address := filepath.Join(t.TempDir(), "s")
			if network == "tcp" {
				address = freePort(t)
			}
			startMemcached(t, network, address)
			c := Config{
				Network: network, Address: address, RatePerSec: 2000, KeyCount: 1000, ValueBytes: 500,
				SetFraction: 0.2, Duration: 1200 * time.Millisecond, Window: 500 * time.Millisecond, Seed: 3,
			}
			if err := Populate(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			var seen []time.Duration
			r, err := Run(t.Context(), c, func(w Window) { seen = append(seen, w.Start.Duration) })
			if err != nil {
				t.Fatal(err)
			}
			checkWhole(t, c, r)
			if r.Done != r.Sent || r.Misses != 0 || r.FirstError != "" || r.P50.Duration <= 0 || r.CPU.Duration <= 0 {
				t.Errorf("%+v", r)
			}
			if want := []time.Duration{0, 500 * time.Millisecond, time.Second}; !cmp.Equal(seen, want) {
				t.Errorf("windows seen %v, want %v", seen, want)
			}
			checkWire(t, r)
			var b strings.Builder
			if err := r.Table(&b); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", b.String())
			if n := strings.Count(b.String(), "\n"); n != 2+3+1+1 {
				t.Errorf("table of %d lines", n)
			}
		})
	}
}

// checkWire sends a result through JSON and compares what comes out.
func checkWire(t *testing.T, r *Result) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{`"p99_seconds":`, `"start_seconds":`, `"length_seconds":`, `"cpu_seconds":`, `"lateness":`} {
		if !bytes.Contains(b, []byte(name)) {
			t.Errorf("no %s in %.200s", name, b)
		}
	}
	var back Result
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.Summary != r.Summary || back.CPU != r.CPU || back.Protection != r.Protection || len(back.Windows) != len(r.Windows) {
		t.Errorf("got %+v, want %+v", back, r)
	}
	for i := range r.Windows {
		if back.Windows[i].Summary != r.Windows[i].Summary || back.Windows[i].Start != r.Windows[i].Start {
			t.Errorf("window %d: got %+v, want %+v", i, back.Windows[i], r.Windows[i])
		}
	}
	if got, want := back.Between(0, time.Second), r.Between(0, time.Second); got != want || got.Sent == 0 {
		t.Errorf("between: got %+v, want %+v", got, want)
	}
}

// Keys that the server does not have are misses; a server that refuses them is an error.
func TestMissesAndRefusals(t *testing.T) {
	address := filepath.Join(t.TempDir(), "s")
	startMemcached(t, "unix", address)
	c := Config{
		Network: "unix", Address: address, RatePerSec: 2000, KeyCount: 50,
		Duration: 300 * time.Millisecond, Seed: 3,
	}
	r, err := Run(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Misses != r.Sent || r.Done != r.Sent {
		t.Errorf("%+v", r.Summary)
	}
	small := filepath.Join(t.TempDir(), "s")
	startMemcached(t, "unix", small, "-I", "16k", "-o", "slab_chunk_max=8192")
	c.Address, c.SetFraction, c.ValueBytes = small, 1, 100_000
	if err := Populate(t.Context(), c); !errors.Is(err, ErrNotStored) {
		t.Errorf("populate: %v", err)
	}
	if r, err = Run(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, c, r)
	if r.Errors != r.Sent || r.Reconnects != 0 || !strings.Contains(r.FirstError, "SERVER_ERROR") {
		t.Errorf("%+v first error %q", r.Summary, r.FirstError)
	}
}
