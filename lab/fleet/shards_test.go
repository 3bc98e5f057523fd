package fleet

import (
	"strings"
	"testing"
)

// Each arrangement reads every sample of the backlog once, and the answer has the ratios.
func TestHubsShareABacklog(t *testing.T) {
	c := &Cost{}
	if err := c.share(t.Context(), t.TempDir(), 1, true, t.Logf); err != nil {
		t.Fatal(err)
	}
	for i := range c.Shared {
		s := &c.Shared[i]
		if s.Samples != 100*2*30*60 || len(s.Seconds) != 1 || s.Seconds[0] <= 0 || s.CPU[0] <= 0 {
			t.Errorf("%+v", s)
		}
		if whole := s.Hubs == 1; whole != (s.Most == 1) || s.Most < 0.4 || (s.Partitions > 1) != (s.Messages > 200) {
			t.Errorf("%+v", s)
		}
	}
	var b strings.Builder
	if err := c.WriteText(&b); err != nil || !strings.Contains(b.String(), "CPU of two hubs by that of one") {
		t.Errorf("%v: %s", err, b.String())
	}
	if m, least, most := ratio([]float64{2, 9, 4}, []float64{1, 3, 4}); m != 2 || least != 1 || most != 3 {
		t.Errorf("%v, %v to %v", m, least, most)
	}
}
