package machine

import (
	"math"
	"testing"
)

// Traffic counts for the RMID that a task has while it runs, and the sum of all RMIDs is
// what the tasks moved.
func TestTrafficByRMID(t *testing.T) {
	m := server(t, 8, 6)
	m.Advance(1e9)
	for num, rmid := range map[int]int{0: 1, 1: 2, 2: 2} {
		if err := m.SetRMID(num, rmid); err != nil {
			t.Fatal(err)
		}
	}
	m.Advance(1e9)
	before, _ := m.RMIDTraffic(1, 0)
	if err := m.SetRMID(0, 3); err != nil {
		t.Fatal(err)
	}
	m.Advance(1e9)
	if after, _ := m.RMIDTraffic(1, 0); after != before {
		t.Errorf("RMID 1 counts on without tasks: %v after %v", after, before)
	}
	all, sum := 0.0, 0.0
	for _, task := range m.live {
		all += task.count.bytes
	}
	for rmid := range 5 {
		for s := range m.cfg.Sockets {
			total, local := m.RMIDTraffic(rmid, s)
			if !(local >= 0 && local <= total*(1+1e-9)) {
				t.Errorf("RMID %d, socket %d: %v local of %v", rmid, s, local, total)
			}
			sum += total
		}
	}
	if !(all > 0) || math.Abs(all-sum) > 1e-9*all {
		t.Errorf("tasks moved %v bytes, RMIDs %v", all, sum)
	}
	if total, local := m.RMIDTraffic(99, 0); total != 0 || local != 0 {
		t.Errorf("an RMID that was never used: %v, %v", total, local)
	}
}

// Lines keep the RMID that they were filled with: the sum is what the tasks fill, an old
// RMID's share falls as long as somebody fills the same ways, and stays when nobody does.
func TestOccupancyByRMID(t *testing.T) {
	m := server(t, 8, 6)
	m.Advance(5e9)
	filled := func() float64 {
		sum := 0.0
		for _, task := range m.live {
			sum += task.perf[0].bytes
		}
		return sum
	}
	occupied := func() float64 {
		sum := 0.0
		for rmid := range 4 {
			sum += m.RMIDOccupancy(rmid, 0)
		}
		return sum
	}
	check := func(what string) {
		t.Helper()
		if a, b := filled(), occupied(); math.Abs(a-b) > 1e-6*m.cfg.LLCBytes {
			t.Errorf("%s: tasks fill %v bytes, RMIDs %v", what, a, b)
		}
	}
	check("one RMID")
	for num := range m.live {
		if err := m.SetRMID(num, 1); err != nil {
			t.Fatal(err)
		}
	}
	old := m.RMIDOccupancy(0, 0)
	if old < m.cfg.LLCBytes/100 || m.RMIDOccupancy(1, 0) > 1e-6*old {
		t.Fatalf("just moved: %v bytes stay with RMID 0, %v are RMID 1's", old, m.RMIDOccupancy(1, 0))
	}
	check("moved")
	m.Advance(20e6)
	if now := m.RMIDOccupancy(0, 0); now >= old {
		t.Errorf("RMID 0 has %v bytes after %v", now, old)
	}
	check("a little later")
	m.Advance(60e9)
	if now := m.RMIDOccupancy(0, 0); now > old/100 {
		t.Errorf("RMID 0 still has %v of %v bytes", now, old)
	}
	// Those that go leave theirs to whoever fills them next.
	before := m.RMIDOccupancy(1, 0)
	for num := range m.tasks {
		if err := m.Remove(num); err != nil {
			t.Fatal(err)
		}
	}
	m.Advance(5e9)
	if now := m.RMIDOccupancy(1, 0); math.Abs(now-before) > 1e-6*before {
		t.Errorf("with nobody left, %v of %v bytes", now, before)
	}
}
