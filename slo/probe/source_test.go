package probe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/slo"
)

// silent is a protocol in which nothing is ever answered.
type silent struct{}

func (silent) Request(dst []byte) []byte         { return append(dst, '?') }
func (silent) Reply([]byte) (int, string, error) { return 0, "", nil }
func (silent) Reset()                            {}

func TestLifecycle(t *testing.T) {
	s, err := NewLink(Config{}, "unix", "@nobody-listens-here", silent{})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Read(time.Now()); r.Status.String() != "unavailable: not started" {
		t.Error(r.Status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(ctx); !errors.Is(err, slo.ErrStarted) {
		t.Error(err)
	}
	cancel()
	<-s.done // the context ends it
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.interrupt() // a late wake-up must not write to a descriptor that is no longer ours
	if r := s.Read(time.Now()); r.Status.State != slo.StateUnavailable {
		t.Error(r.Status)
	}
	never, err := NewLink(Config{}, "unix", "@x", silent{})
	if err != nil {
		t.Fatal(err)
	}
	if err := never.Close(); err != nil {
		t.Error(err)
	}
	if err := never.Start(t.Context()); !errors.Is(err, slo.ErrStarted) {
		t.Error(err)
	}
}

func TestConfigIsRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"interval":    {Interval: time.Microsecond},
		"window":      {Window: time.Millisecond},
		"timeout":     {Timeout: time.Millisecond},
		"outstanding": {MaxOutstanding: -1},
	} {
		if _, err := NewLink(c, "unix", "@x", silent{}); err == nil {
			t.Errorf("%s: %+v was taken", name, c)
		}
	}
	for name, a := range map[string][2]string{
		"network": {"udp", "127.0.0.1:1"}, "name": {"tcp", "localhost:11211"}, "no port": {"tcp", "127.0.0.1"}, "port 0": {"tcp", "127.0.0.1:0"},
		"no path": {"unix", ""}, "long path": {"unix", strings.Repeat("a", 108)},
	} {
		if _, err := NewLink(Config{}, a[0], a[1], silent{}); err == nil {
			t.Errorf("%s: %v was taken", name, a)
		}
	}
	for _, a := range []string{"127.0.0.1:11211", "[::1]:11211", "127.8.8.8:1"} {
		e, err := ParseEndpoint("tcp", a)
		if err != nil || !e.Local() {
			t.Errorf("%s: %v, local %v", a, err, e.Local())
		}
	}
	if e, err := ParseEndpoint("tcp", "10.0.0.1:11211"); err != nil || e.Local() {
		t.Errorf("10.0.0.1: %v, local %v", err, e.Local())
	}
}
