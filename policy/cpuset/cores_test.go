package cpuset

import (
	"math"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

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
	m := machineOf(shape{2, 2, 4, 2}.topology()) // 16 cores, caches of 4
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
	m := machineOf(without(shape{1, 1, 4, 2}.topology(), 1, 6, 2)) // core 1 has one CPU, core 2 none
	if len(m.cores) != 3 || m.threads != 2 {
		t.Fatalf("%d cores of at most %d CPUs", len(m.cores), m.threads)
	}
	if at, ok := m.find(1); !ok || m.cores[at].threads != 1 || m.cores[at].cpus != cpus(t, "5") {
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

func TestExclusive(t *testing.T) {
	narrow := exclusive(1, 2, 0)
	narrow.Knobs[model.CPUPlace].Found.CPUs = cpus(t, "0-1,16-17")
	half := exclusive(1, 1, 0)
	half.Knobs[model.CPUPlace].Found.CPUs = cpus(t, "0-15") // no core whole
	void := exclusive(1, 2, 0)
	void.Knobs[model.CPUPlace].Void = true
	be, lc := task(8, model.BE), task(9, model.LC)
	for _, c := range []struct {
		name      string
		tasks     []model.TaskView
		want      []int // cores by exclusive task that has some
		llcs      int   // caches that the first one's cores are of
		uncounted int
		said      int
	}{
		{"by rule", []model.TaskView{exclusive(1, 3, 0)}, []int{3}, 1, 0, 0},
		{"by quota", []model.TaskView{exclusive(1, 0, 4.5)}, []int{3}, 1, 0, 0},
		{"by quota that fits", []model.TaskView{exclusive(1, 0, 4)}, []int{2}, 1, 0, 0},
		{"a whole cache", []model.TaskView{exclusive(1, 4, 0)}, []int{4}, 1, 0, 0},
		{"a whole socket", []model.TaskView{exclusive(1, 8, 0)}, []int{8}, 2, 0, 0},
		{"more than a socket", []model.TaskView{exclusive(1, 10, 0)}, []int{10}, 3, 0, 0},
		{"no quota, no rule", []model.TaskView{exclusive(1, 0, 0)}, nil, 0, 1, 1},
		{"too many", []model.TaskView{exclusive(1, 15, 0)}, nil, 0, 15, 1},
		{"the second finds too few", []model.TaskView{exclusive(1, 8, 0), exclusive(2, 8, 0)}, []int{8}, 2, 8, 1},
		{"within what was found", []model.TaskView{narrow}, []int{2}, 1, 0, 0},
		{"no whole core in what was found", []model.TaskView{half}, nil, 0, 1, 1},
		{"a stranger's", []model.TaskView{void}, nil, 0, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, shape{2, 2, 4, 2}.topology(), append(slices.Clone(c.tasks), be, lc)...)
			r.step(50*msec, 1)
			var got []int
			for _, o := range r.s.Exclusive {
				got = append(got, len(o.Cores))
			}
			if !slices.Equal(got, c.want) || r.s.UncountedCores != c.uncounted {
				t.Errorf("exclusive cores %v, uncounted %d, expected %v and %d", got, r.s.UncountedCores, c.want, c.uncounted)
			}
			if c.llcs > 0 {
				m, llcs := machineOf(r.v.Topology), map[int]bool{}
				for _, id := range r.s.Exclusive[0].Cores {
					at, _ := m.find(id)
					llcs[m.cores[at].llc] = true
				}
				if len(llcs) != c.llcs {
					t.Errorf("cores %v are of %d caches, expected %d", r.s.Exclusive[0].Cores, len(llcs), c.llcs)
				}
			}
			if got := r.heard(model.DecideLimit); got != c.said {
				t.Errorf("%d limits were said, expected %d: %+v", got, c.said, r.said)
			}
			r.run(30*sec, 1)
			r.v.Changed = true
			n := len(r.said)
			r.run(sec, 1)
			if len(r.said) != n {
				t.Errorf("said again: %+v", r.said[n:])
			}
		})
	}
}

// An exclusive task's cores do not move while others come and go; a core that goes offline
// is replaced by a near one.
func TestExclusiveStays(t *testing.T) {
	r := newRig(t, shape{2, 2, 4, 2}.topology(), exclusive(1, 2, 0), exclusive(2, 3, 0), task(8, model.BE), task(9, model.LC))
	r.run(30*sec, 1)
	first, second := slices.Clone(r.s.Exclusive[0].Cores), slices.Clone(r.s.Exclusive[1].Cores)
	r.v.Tasks = append(r.v.Tasks, exclusive(10, 2, 0), task(11, model.BE))
	r.v.Changed = true
	r.run(5*sec, 20)
	r.v.Tasks = slices.Delete(r.v.Tasks, 0, 1)
	r.v.Changed = true
	r.run(5*sec, 1)
	if len(r.s.Exclusive) != 2 || !slices.Equal(r.s.Exclusive[0].Cores, second) {
		t.Fatalf("task 2 had %v, the exclusive cores are %+v", second, r.s.Exclusive)
	}
	if slices.Contains(r.s.Order, second[0]) || !slices.Contains(r.s.Order, first[0]) {
		t.Errorf("the free cores are %v", r.s.Order)
	}
	m := machineOf(r.v.Topology)
	at, _ := m.find(second[0])
	near := m.cores[at].socket
	r.v.Topology = without(r.v.Topology, second[0], second[0]+16)
	r.v.Changed = true
	r.step(50*msec, 1)
	now := r.s.Exclusive[0].Cores
	if len(now) != 3 || slices.Contains(now, second[0]) || !slices.Contains(now, second[1]) || !slices.Contains(now, second[2]) {
		t.Fatalf("the cores went from %v to %v", second, now)
	}
	for _, id := range now {
		if at, _ = m.find(id); m.cores[at].socket != near {
			t.Errorf("core %d is of another socket", id)
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
