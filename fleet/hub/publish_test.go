package hub

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/commensal-io/commensal/fleet/spec"
	"github.com/commensal-io/commensal/fleet/store"
	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// Sheets go down bit by bit, so that batches need not wait for all of them, each once and none is left behind; and one that an operator has gone
// back behind meanwhile does not go down at all.
func TestSheetsGoDownBitByBit(t *testing.T) {
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
	turns := 0
	for ; len(h.unsent) > 0 && turns < 10*jobs; turns++ {
		h.publish(t.Context(), time.Millisecond)
	}
	if turns < 2 || h.published.sheets != jobs-1 || h.published.publishing <= 0 {
		t.Errorf("%d turns, %+v, %d left", turns, h.published, len(h.unsent))
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
