package s3

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/bucket"
	"github.com/commensal-io/commensal/fleet/bucket/buckettest"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

func TestOpen(t *testing.T) {
	for _, tc := range []struct{ where, endpoint, want string }{
		{"s3://b", "", "s3://b at https://s3.amazonaws.com"},
		{"s3://b/a/c/", "https://host:9000", "s3://b/a/c at https://host:9000"},
		{"s3://b", "http://127.0.0.1:9000", "s3://b at http://127.0.0.1:9000"},
		{"b", "", `bucket "b": expected s3://NAME`},
		{"s3://", "", `bucket "s3://": expected`},
		{"s3://b", "http://host", "leaves this machine: expected https"},
		{"s3://b", "host:9000", "expected https://HOST"},
		{"s3://b", "https://host/path", "expected https://HOST"},
	} {
		b, err := Open(Config{Where: tc.where, Endpoint: tc.endpoint})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = b.String()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s, %s: %q; expected %q", tc.where, tc.endpoint, got, tc.want)
		}
	}
}

// server is a real S3 server (versitygw) over a folder.
type server struct {
	t            *testing.T
	program, dir string
	address      string
	cmd          *exec.Cmd
}

func startServer(t *testing.T) *server {
	t.Helper()
	program := os.Getenv("VERSITYGW")
	if program == "" {
		t.Skip("no S3 server: `make bucket-test` builds one")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "hub")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of the hub")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, program: program, dir: t.TempDir(), address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "fleet"), 0o755); err != nil { // a bucket
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "--port", s.address, "posix", s.dir)
	s.cmd.Env = []string{"ROOT_ACCESS_KEY=hub", "ROOT_SECRET_KEY=of the hub", "HOME=" + s.dir}
	if testing.Verbose() {
		s.cmd.Stderr = s.t.Output()
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the server does not answer: %v", err)
		}
	}
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // it was killed
		s.cmd = nil
	}
}

func (s *server) open(where string) *Bucket {
	s.t.Helper()
	b, err := Open(Config{Where: where, Endpoint: "http://" + s.address, Region: "us-east-1"})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func TestRealServerConforms(t *testing.T) {
	s := startServer(t)
	buckettest.Conform(t, s.open("s3://fleet/conform"))
}

// A store goes to a real server that is killed and comes back, leaves the folder, and comes back whole.
func TestRealServer(t *testing.T) {
	s := startServer(t)
	b := s.open("s3://fleet/hub/one")
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	now := noon.Add(20 * 24 * time.Hour)
	m := bucket.New(st, b, bucket.Config{Keep: 90 * 24 * time.Hour, KeepLocal: 24 * time.Hour})
	st.From("stream")
	n := uint64(0)
	send := func() {
		n++
		x := &wire.Batch{Node: "n", Spool: "s", Seq: n, Platform: "cpu", Tasks: []wire.Task{{Num: 1, Path: "/web", Job: "web", Class: model.LC}}}
		for i := range 300 {
			x.Samples.Task, x.Samples.CPU, x.Samples.Flags = append(x.Samples.Task, 0), append(x.Samples.CPU, 1), append(x.Samples.Flags, wire.Usable)
			x.Samples.WallMsec = append(x.Samples.WallMsec, noon.Add(time.Duration(i)*time.Minute).UnixMilli())
		}
		if !st.Put(n, x) {
			t.Fatal("not taken")
		}
		if err := st.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Compact(now, n); err != nil {
			t.Fatal(err)
		}
		m.Learned(n)
	}
	local := func() int {
		files, err := st.Settled(now)
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	round := func() error {
		now = now.Add(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return m.Round(ctx, now)
	}
	send()
	send()
	if err := round(); err != nil || local() != 0 {
		t.Fatalf("%v; the folder has %d files", err, local())
	}
	s.stop()
	send()
	if err := round(); err == nil || local() != 5 {
		t.Fatalf("without a server: %v; the folder has %d files", err, local())
	}
	s.start()
	if err := round(); err != nil || local() != 0 {
		t.Fatalf("%v; the folder has %d files", err, local())
	}
	t.Logf("%+v", m.Status())
	into := t.TempDir()
	got, err := bucket.Fetch(t.Context(), b, into, noon, noon)
	if err != nil || got.Files != 10 {
		t.Fatalf("%+v, %v", got, err)
	}
	back, err := store.Open(into)
	if err != nil {
		t.Fatal(err)
	}
	samples := map[uint64]int{}
	if err := back.Replay(0, func(b *wire.Batch) { samples[b.Seq] += b.Samples.Len() }); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= n; seq++ {
		if samples[seq] != 300 {
			t.Errorf("batch %d has %d samples", seq, samples[seq])
		}
	}
}

// A bucket that is not there, and a key that is worth nothing, are said and lose nothing.
func TestRealServerRefuses(t *testing.T) {
	s := startServer(t)
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	refused := func(b *Bucket) {
		t.Helper()
		m := bucket.New(st, b, bucket.Config{Keep: time.Hour, KeepLocal: time.Hour})
		err := m.Round(t.Context(), time.Now())
		if err == nil || m.Status().Problem == "" {
			t.Fatalf("%v, %+v", err, m.Status())
		}
		t.Log(err)
	}
	refused(s.open("s3://nowhere"))
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another")
	refused(s.open("s3://fleet"))
}
