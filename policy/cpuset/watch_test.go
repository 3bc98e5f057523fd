package cpuset

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// A watch says that the border stays just as long as it would if all that LC's CPUs did were LC's.
func TestWatch(t *testing.T) {
	p := Defaults()
	m := &machine{}
	for id := range 8 {
		m.cores = append(m.cores, core{id: id, threads: 1})
	}
	s := State{Status: Divided, Order: []int{0, 1, 2, 3, 4, 5, 6, 7}, BE: 4, FloorCores: 1, LeastCores: 1}
	s.plan = s.derive(&p, m)
	s.Load = Load{Begun: true, Fast: 1, Slow: 1, SeenNsec: 1e9}
	s.Pace.MoveNsec = 1e9 // just moved: nothing is given yet
	const pulse = 50e6
	for _, c := range []struct {
		what        string
		cpus        float64 // that LC's CPUs do
		least, most int     // pulses for which the border stays
	}{
		{"little", 1, 19, 19}, {"full", 4, 0, 0}, {"more, which the mean follows", 2.5, 1, 4},
	} {
		var w Watch
		w.Begin(&s, 1e9, model.Read(7e9))
		n := 0
		for now := int64(1e9 + pulse); n < 19 && w.Stays(&p, &s, now, model.Read(uint64(7e9+c.cpus*float64(now-1e9))), 8); now += pulse {
			n++
		}
		if n < c.least || n > c.most {
			t.Errorf("%s: the border stays for %d pulses, want %d to %d", c.what, n, c.least, c.most)
		}
	}
	var w Watch
	if w.Begin(&s, 2e9, model.Read(7e9)); w.known {
		t.Error("the load was not known at that step")
	}
	if w.Begin(&s, 1e9, model.Counter{}); w.known {
		t.Error("nobody knows what LC's CPUs did")
	}
}
