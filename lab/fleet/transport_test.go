package fleet

import (
	"testing"
)

// What is sent is in the store, and each connection that idles hears of a changed key.
func TestTransportIsMeasured(t *testing.T) {
	c := &Cost{}
	if err := c.carry(t.Context(), t.TempDir()+"/hub", 1, true); err != nil { // which counts what is stored, and who heard
		t.Fatal(err)
	}
	r := &c.Carried
	if r.Connections != 500 || r.Subscriptions != 66 || r.KiB <= 0 || r.Told <= 0 || r.Syncs <= 0 || len(r.Sent) != 2 || r.Sent[1].Nodes != carrySenders {
		t.Errorf("%+v", r)
	}
	for _, s := range r.Sent {
		if s.Messages < 400 || s.Seconds <= 0 || s.Stored < s.Seconds || s.Bytes < 100 {
			t.Errorf("%+v", s)
		}
	}
}
