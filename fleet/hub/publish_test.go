package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Sheets go down each once, and none is left behind, also where a hub ends in between; one that an operator has gone back behind meanwhile does not go
// down at all.
func TestSheetsGoDownOnce(t *testing.T) {
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if h.t, err = openTransport(t.Context(), &h.cfg); err != nil {
		t.Fatal(err)
	}
	defer h.t.close()
	if h.store, err = store.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	h.learner = spec.New()
	const jobs = 300
	var old wire.SpecSheet
	for i := range jobs {
		sh := wire.SpecSheet{Version: wire.SheetVersion, Job: fmt.Sprint("job-", i), Platform: "cpu", Revision: 1, Specs: []model.Spec{{Mean: 1, StdDev: 0.1, NumSamples: 10}}}
		h.learner.Adopt(sh)
		h.unsent = append(h.unsent, unsent{spec.KeyOf(&sh), 1, time.Now().UnixNano()})
		old = sh
	}
	if _, err := h.learner.Pin(spec.Key{Job: old.Job, Platform: "cpu"}, old, time.Now().UnixNano()); err != nil {
		t.Fatal(err)
	}
	over, stop := context.WithCancel(t.Context())
	stop()
	if h.publish(over); len(h.unsent) != jobs || h.published.sheets != 0 {
		t.Errorf("when it was over %d sheets went, %d are left of %d", h.published.sheets, len(h.unsent), jobs)
	}
	h.publish(t.Context())
	if len(h.unsent) > 0 || h.published.sheets != jobs-1 || h.published.publishing <= 0 {
		t.Errorf("%+v, %d left", h.published, len(h.unsent))
	}
	for i := range jobs {
		e, err := h.t.specs.Get(t.Context(), wire.SpecKey("cpu", fmt.Sprint("job-", i)))
		if i == jobs-1 {
			if err == nil {
				t.Error("what was gone back behind is published")
			}
			continue
		}
		var sh wire.SpecSheet
		if err != nil || json.Unmarshal(e.Value(), &sh) != nil || sh.Revision != 1 {
			t.Fatalf("job %d: %v, %+v", i, err, sh)
		}
	}
}
