package uplink

import (
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
