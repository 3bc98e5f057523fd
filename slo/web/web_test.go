package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/commensal-io/commensal/slo"
	"github.com/commensal-io/commensal/slo/probe"
)

// Requests of 40 ms each, one each 4 ms: they go side by side, and none waits for another. What is asked is
// what was said, also over a unix socket; a status that is not the expected one, a body that is too large
// and a redirect are failures.
func TestRealServer(t *testing.T) {
	var status, large atomic.Int32
	status.Store(http.StatusNoContent)
	seen := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r.Method + " " + r.Host + " " + r.URL.String():
		default:
		}
		time.Sleep(40 * time.Millisecond)
		if w.WriteHeader(int(status.Load())); large.Load() == 1 {
			_, _ = w.Write(make([]byte, maxBody+1))
		}
	}))
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = l
	server.Start()
	defer server.Close()
	c := probe.Config{Interval: 4 * time.Millisecond, Window: 600 * time.Millisecond, Timeout: 500 * time.Millisecond, Quantile: 0.99}
	s, err := New(c, Request{Address: "unix:" + socket, Method: "HEAD", Path: "/health?deep=1", Host: "shop.example", Status: http.StatusNoContent})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	await := func(what string, ok func(slo.Reading) bool) {
		t.Helper()
		for began := time.Now(); !ok(s.Read(time.Now())); time.Sleep(2 * time.Millisecond) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("never %s: %+v", what, s.Read(time.Now()))
			}
		}
	}
	well := func(r slo.Reading) bool {
		return r.Status.State == slo.StateOK && r.Errors == 0 && r.P50 >= 40*time.Millisecond && r.P50 < 80*time.Millisecond
	}
	await("well", well)
	if got := <-seen; got != "HEAD shop.example /health?deep=1" {
		t.Error(got)
	}
	status.Store(http.StatusFound)
	await("refused", func(r slo.Reading) bool {
		return r.Status.String() == "unavailable: refuses whatever is asked: status 302, expected 204"
	})
	status.Store(http.StatusNoContent)
	await("well again", well)
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	large.Store(1)
	status.Store(http.StatusOK)
	big, err := New(c, Request{Address: "unix:" + socket})
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = big
	await("refused for its size", func(r slo.Reading) bool {
		return r.Errors > 0 || strings.Contains(r.Status.Reason, "an answer of more than")
	})
	_ = big.Close()
}

func TestRequestsAreRefused(t *testing.T) {
	for _, r := range []Request{{Address: "x"}, {Address: ""}, {Address: "127.0.0.1:"}, {Address: "unix:"}, {Address: "127.0.0.1:80", Path: "/%zz"}} {
		if _, err := New(probe.Config{}, r); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	for _, a := range []string{"127.0.0.1:80", "localhost:80", "http://[::1]:80", "https://shop.example:443", "https://unix:/run/s"} {
		if _, err := New(probe.Config{}, Request{Address: a}); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
}
