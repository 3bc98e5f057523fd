package cpuset

import (
	"math"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// Machine is a topology of caches a socket, cores a cache and CPUs a core, numbered as Linux on
// x86 does: the first CPU of every core, then the second.
func Machine(sockets, llcs, cores, threads int) *model.Topology {
	t := &model.Topology{}
	all := sockets * llcs * cores
	for th := range threads {
		for c := range all {
			t.CPUs = append(t.CPUs, model.CPU{ID: th*all + c, Core: c, Socket: c / (llcs * cores), LLC: c / cores})
		}
	}
	t.Possible = t.Online()
	return t
}

// Without takes CPUs offline.
func Without(t *model.Topology, ids ...int) *model.Topology {
	n := &model.Topology{Possible: t.Possible}
	for _, c := range t.CPUs {
		if !slices.Contains(ids, c.ID) {
			n.CPUs = append(n.CPUs, c)
		}
	}
	return n
}

// CPUs reads a list of CPUs.
func CPUs(t testing.TB, list string) model.CPUSet {
	t.Helper()
	s, err := model.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What the tests on a node ask of the policy.

// Size returns the cores that LC is given for a mean load, Least those under which it gets more.
func (s *State) Size(p *Params, cpus float64) int  { return s.size(p, cpus) }
func (s *State) Least(p *Params, cpus float64) int { return s.least(p, cpus) }

// Parked reports whether BE has no core of its own.
func (s *State) Parked() bool { return s.parked() }

// perSocket counts BE's first n cores by socket.
func perSocket(m *machine, order []int, n int) []int {
	list := make([]int, m.sockets)
	for _, id := range order[:n] {
		at, _ := m.find(id)
		list[m.cores[at].socket]++
	}
	return list
}

func TestOrderOfCores(t *testing.T) {
	m := machineOf(Machine(2, 2, 4, 2)) // 16 cores, caches of 4
	spread := m.order(nil, nil, Spread)
	for n := 2; n <= 16; n += 2 {
		if got := perSocket(m, spread, n); got[0] != got[1] {
			t.Errorf("spread, %d cores: %v", n, got)
		}
	}
	// Within a socket one cache is filled before the next: the first eight are two caches.
	llcs := map[int]int{}
	for _, id := range spread[:8] {
		at, _ := m.find(id)
		llcs[m.cores[at].llc]++
	}
	if len(llcs) != 2 {
		t.Errorf("the first eight cores are of caches %v", llcs)
	}
	gather := m.order(nil, nil, Gather)
	if got := perSocket(m, gather, 8); got[0] != 0 || got[1] != 8 {
		t.Errorf("gathered: %v", got)
	}
	// The socket with the fewest exclusive cores comes first.
	gather = m.order(nil, []Own{{Task: 1, Cores: []int{8, 9}}, {Task: 2, Cores: []int{0}}}, Gather)
	if got := perSocket(m, gather, 7); got[0] != 7 || len(gather) != 13 {
		t.Errorf("gathered beside exclusive cores: %v of %d", got, len(gather))
	}
	// What BE has stays first, and evens out by what it gets next.
	kept := m.order([]int{0, 1, 2}, nil, Spread)
	if !slices.Equal(kept[:3], []int{0, 1, 2}) || perSocket(m, kept, 6)[1] != 3 {
		t.Errorf("order after three kept cores: %v", kept)
	}
}

func TestUnevenMachine(t *testing.T) {
	m := machineOf(Without(Machine(1, 1, 4, 2), 1, 6, 2)) // core 1 has one CPU, core 2 none
	if len(m.cores) != 3 || m.threads != 2 {
		t.Fatalf("%d cores of at most %d CPUs", len(m.cores), m.threads)
	}
	if at, ok := m.find(1); !ok || m.cores[at].threads != 1 || m.cores[at].cpus != CPUs(t, "5") {
		t.Errorf("core 1 is %+v", m.cores[at])
	}
	if _, ok := m.find(2); ok {
		t.Error("core 2 has no CPU online and is there")
	}
	s := State{Order: []int{3, 1, 0}}
	p := Defaults()
	pl := s.derive(&p, m)
	for i, want := range []float64{0, 0.9, 1.9, 2.8} {
		if d := pl.holds[i] - want; d > 1e-9 || d < -1e-9 {
			t.Errorf("%d cores hold %g CPUs, expected %g", i, pl.holds[i], want)
		}
	}
	for _, c := range []struct {
		load, wait, room float64
		need             int
	}{
		{0, 0.02, 1, 0}, {0.5, 1, 1, 1}, {0.9, 1, 1, 1}, {0.9, 1, 1.1, 2}, {1.8, 1, 1, 2}, {1.8, 1, 1.1, 3}, {1.95, 1, 1, 3}, {99, 1, 1, 3},
		{0.5, 0.2, 1, 1}, {0.5, 0.02, 1, 2}, {0.5, 0.002, 1, 3},
	} {
		if got := pl.need(c.load, c.wait, c.room); got != c.need {
			t.Errorf("a load of %g, of which %g may wait, with room for %g times that needs %d cores, expected %d", c.load, c.wait, c.room, got, c.need)
		}
	}
}

// Erlang C against figures from elsewhere: the chance to wait with n CPUs is known in closed
// form for few, and by tables for more.
func TestQueue(t *testing.T) {
	for _, c := range []struct {
		cpus, wait float64
		want       int
	}{
		{0, 0.01, 0},
		{0.3, 0.3001, 1}, {0.3, 0.2999, 2}, // one: the load itself
		{1, 1.0/3 + 1e-9, 2}, {1, 1.0/3 - 1e-9, 3}, // two at a load of 1: a third
		{2, 4.0/9 + 1e-9, 3}, {2, 4.0/9 - 1e-9, 4}, // three at a load of 2: 4/9
		{2, 0.18, 4}, {2, 0.17, 5}, // 4: 0.174, 5: 0.0597
		{2, 0.06, 5}, {2, 0.059, 6},
		{1000, 0.01, 64},
	} {
		if got := queue(c.cpus, c.wait, 64); got != c.want {
			t.Errorf("a load of %g, of which %g may wait: %d CPUs, expected %d", c.cpus, c.wait, got, c.want)
		}
	}
	// Halfin and Whitt: with beta roots of a large load beyond it the chance is
	// 1 / (1 + beta Phi(beta)/phi(beta)), which is 0.2231 for 1 and 0.0269 for 2.
	for beta, chance := range map[float64]float64{1: 0.2231, 2: 0.0269} {
		load := 10_000.0
		if got := (float64(queue(load, chance, 20_000)) - load) / 100; math.Abs(got-beta) > 0.02 {
			t.Errorf("a chance of %g takes %.3f roots of a large load, expected %g", chance, got, beta)
		}
	}
}
