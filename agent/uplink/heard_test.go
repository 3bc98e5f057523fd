package uplink

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/wire"
)

// What was heard last is there for the next run with the same hub, for no other, and a damaged file is said and begun anew.
func TestWhatWasHeardLasts(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), heardFile), &strings.Builder{}
	open := func(hub string) *notes { return openNotes(path, hub, slog.New(slog.NewTextHandler(log, nil))) }
	n := open("nats://a")
	for i := range 100 { // the disk has the last one, whichever it took of those before
		n.note(func(h *heard) { h.Off = wire.Off{Off: i == 99, By: "ann"} })
	}
	n.note(func(h *heard) { h.Done = map[string]time.Time{"x": time.Unix(5, 0)} })
	n.close()
	n.note(func(h *heard) { h.Off.Off = false }) // of an uplink that has ended
	n.close()
	again := open("nats://a")
	again.close()
	if h := &again.heard; !h.Off.Off || h.Off.By != "ann" || !h.Done["x"].Equal(time.Unix(5, 0)) || log.Len() > 0 {
		t.Errorf("%+v %s", h, log)
	}
	other := open("nats://b")
	other.close()
	if other.heard.Off.Off || other.heard.Done != nil {
		t.Errorf("heard of another hub: %+v", other.heard)
	}
	if err := os.WriteFile(path, []byte(`{"hub": "nats://a", "off": {"off": true}, "done": 7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := open("nats://a")
	damaged.close()
	if damaged.heard.Off.Off || !strings.Contains(log.String(), "cannot be read") {
		t.Errorf("%+v %s", damaged.heard, log)
	}
}

// Where nothing can be written that is said, and nobody waits.
func TestNothingIsKeptOnABadDisk(t *testing.T) {
	log := &strings.Builder{}
	n := openNotes(filepath.Join(t.TempDir(), "none", heardFile), "nats://a", slog.New(slog.NewTextHandler(log, nil)))
	n.note(func(h *heard) { h.Off.Off = true })
	n.close()
	if !n.heard.Off.Off || !strings.Contains(log.String(), "not kept over a restart") {
		t.Errorf("%+v %s", n.heard, log)
	}
}

// The fleet's word on protection is taken over whole and kept for the next run, and what cannot be read, is of a newer version, too long, or names no job
// leaves it as it was.
func TestProtectionIsHeard(t *testing.T) {
	dir, log := t.TempDir(), &strings.Builder{}
	start := func() *Uplink {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		u, err := Start(ctx, Config{URL: "nats://127.0.0.1:1", Node: "n", Dir: dir, MaxBytes: 1 << 20}, Node{}, NewGather(1), Hooks{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	u := start()
	if u.Protection().Jobs() != nil || u.Status().ProtectOff != nil {
		t.Errorf("%+v", u.Protection())
	}
	u.takeProtection([]byte(`{"version": 1, "off": [{"job": "web", "by": "ann", "why": "an outage", "wall_nsec": 5}], "by": "ann", "why": "an outage", "wall_nsec": 5, "later": 7}`))
	for doc, want := range map[string]string{
		`no`: "invalid character", `{"version": 2, "off": "in another form"}`: "newer version of the format: 2, known here: 1",
		`{"version": 1, "off": [{"job": "a\u0007"}]}`: "no name", `{"version": 1}` + strings.Repeat(" ", wire.MaxProtectionBytes): "bytes",
	} {
		log.Reset()
		if u.takeProtection([]byte(doc)); !strings.Contains(log.String(), want) {
			t.Errorf("%.80s: %s; want %q", doc, log, want)
		}
	}
	u.Close()
	again := start()
	defer again.Close()
	if st := again.Status(); len(st.ProtectOff) != 1 || st.ProtectOff[0] != (wire.Unprotected{Job: "web", By: "ann", Why: "an outage", WallNsec: 5}) || again.Protection().Says("web") != "ann (an outage)" {
		t.Errorf("%+v", st)
	}
}
