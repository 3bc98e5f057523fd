package fleet

import (
	"strings"
	"testing"
)

// Every node has a key and a place in the hub's list of its own, all samples are stored, and each node has the specs of all its jobs before the clock ends.
func TestIngestOfAgentsUplinks(t *testing.T) {
	f, cl, end, err := hubIn(t.Context(), t.TempDir(), ingestSpec())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	c := &Cost{}
	if err := c.ingest(t.Context(), f, cl, 1, true); err != nil {
		t.Fatal(err)
	}
	now, err := figures(t.Context(), cl.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &c.Ingest
	if r.Samples != 200*3*30*60 || r.Jobs != 1000 || r.Sheets < r.Jobs || r.Publish <= 0 || r.Stored <= 0 || r.Wire <= 0 || now["nodes"] != 200 || now["specs_held_back"] != 0 {
		t.Errorf("%+v; %v", r, now)
	}
	c.Goals = c.goals()
	var b strings.Builder
	if err := c.WriteText(&b); err != nil || !strings.Contains(b.String(), "sheets of specs of 1000 jobs") {
		t.Errorf("%v: %s", err, b.String())
	}
}
