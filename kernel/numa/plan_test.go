package numa

import (
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestShares(t *testing.T) {
	for _, bad := range [][]Share{nil, {{0, 0}, {1, 0}}, {{0, 1}, {0, 1}}, {{-1, 1}}, {{MaxNodes, 1}}, {{0, math.MaxUint64}, {1, 1}}} {
		if err := checkShares(bad); !errors.Is(err, ErrBadShares) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if err := checkShares([]Share{{0, 0}, {MaxNodes - 1, math.MaxUint64}}); err != nil {
		t.Error(err)
	}
	back := SharesOf(Counts{{0, 4065}, {2, 0}, {5, 1100}})
	if diff := cmp.Diff([]Share{{0, 4065}, {2, 0}, {5, 1100}}, back); diff != "" {
		t.Error(diff)
	}
}

func TestApportion(t *testing.T) {
	for _, c := range []struct {
		total  uint64
		shares []Share
		want   Counts
	}{
		{1000, []Share{{0, 90}, {1, 10}}, Counts{{0, 900}, {1, 100}}},
		{1001, []Share{{0, 90}, {1, 10}}, Counts{{0, 901}, {1, 100}}},
		{1006, []Share{{0, 90}, {1, 10}}, Counts{{0, 905}, {1, 101}}},
		{5, []Share{{0, 1}, {1, 1}}, Counts{{0, 3}, {1, 2}}}, // equal remainders: the lower number
		{2, []Share{{3, 1}, {1, 1}, {2, 1}}, Counts{{1, 1}, {2, 1}, {3, 0}}},
		{0, []Share{{0, 1}}, Counts{{0, 0}}},
		{7, []Share{{0, 0}, {1, 3}}, Counts{{0, 0}, {1, 7}}},
		// Parts as large as pages of a huge machine: no overflow.
		{1 << 40, []Share{{0, 1 << 62}, {1, 1 << 62}}, Counts{{0, 1 << 39}, {1, 1 << 39}}},
	} {
		got := apportion(c.total, c.shares)
		if diff := cmp.Diff(c.want, got); diff != "" || got.Total() != c.total {
			t.Errorf("%d by %v: %s", c.total, c.shares, diff)
		}
	}
}

// TestPlanSpread: a tenth, exactly and evenly: every stretch of pages has its tenth of it.
func TestPlanSpread(t *testing.T) {
	for _, pages := range []uint64{10, 1000, 1003, 99991} {
		for _, percent := range []uint64{1, 10, 33, 50, 90, 100} {
			have := Counts{{0, pages}}
			p := newPlan(have, []Share{{0, 100 - percent}, {1, percent}})
			from, taken := p.source(0), uint64(0)
			if from < 0 {
				if p.total != 0 {
					t.Errorf("%d %%of %d: %d to move and no source", percent, pages, p.total)
				}
				continue
			}
			for n := uint64(1); n <= pages; n++ {
				p.pass(from)
				if p.due(from, 1) {
					to := p.target(1, func(int) uint64 { return 1 })
					p.take(from, to, 1)
					taken++
				}
				if ideal := float64(n) * float64(p.total) / float64(pages); math.Abs(float64(taken)-ideal) > 0.5000001 {
					t.Fatalf("%d %% of %d: %d of the first %d are taken", percent, pages, taken, n)
				}
			}
			if taken != p.total || p.remaining() != 0 {
				t.Errorf("%d %% of %d: %d taken of %d, %d remain", percent, pages, taken, p.total, p.remaining())
			}
		}
	}
}

// TestPlanShift: another pass takes as many pages, and others.
func TestPlanShift(t *testing.T) {
	for _, move := range []uint64{1, 10, 333} {
		chosen := map[uint64]int{}
		for pass := range maxPasses {
			p := newPlan(Counts{{0, 1000}}, []Share{{0, 1000 - move}, {1, move}})
			p.shift(pass)
			for n := range uint64(1000) {
				if p.pass(0); p.due(0, 1) {
					p.take(0, p.target(1, func(int) uint64 { return 1 }), 1)
					chosen[n]++
				}
			}
			if p.remaining() != 0 {
				t.Errorf("pass %d: %d of %d remain", pass, p.remaining(), move)
			}
		}
		if move == 1 && len(chosen) < maxPasses-1 {
			t.Errorf("the same page again: %v", chosen)
		}
	}
}

// TestPlanHuge: huge pages go whole, and the share is kept to half of one.
func TestPlanHuge(t *testing.T) {
	for _, pages := range []uint64{1, 2, 10, 97} {
		for percent := uint64(0); percent <= 100; percent += 5 {
			have := Counts{{0, pages * 512}}
			p := newPlan(have, []Share{{0, 100 - percent}, {1, percent}})
			want := p.total
			got, _ := walk(&p, have, 512).Get(1)
			if math.Abs(float64(got)-float64(want)) > 256 {
				t.Errorf("%d %% of %d huge pages: %d small pages moved, want %d", percent, pages, got, want)
			}
		}
	}
}

// TestPlanMixed: small pages pay what huge ones left.
func TestPlanMixed(t *testing.T) {
	have := Counts{{0, 512*8 + 2000}}
	p := newPlan(have, []Share{{0, 90}, {1, 10}})
	got := uint64(0)
	for _, unit := range []struct{ pages, times uint64 }{{512, 8}, {1, 2000}} {
		for range unit.times {
			for range unit.pages {
				p.pass(0)
			}
			if p.due(0, unit.pages) {
				if to := p.target(unit.pages, func(int) uint64 { return 512 }); to >= 0 {
					p.take(0, to, unit.pages)
					got += unit.pages
				}
			}
		}
	}
	if want := uint64(610); got != want || p.total != want {
		t.Errorf("%d moved of %d planned, want %d", got, p.total, want)
	}
}

// TestPlanFailures: a page that does not move is owed, and the next one goes instead.
func TestPlanFailures(t *testing.T) {
	p := newPlan(Counts{{0, 1000}}, []Share{{0, 90}, {1, 10}})
	moved := 0
	for n := range 1000 {
		p.pass(0)
		if !p.due(0, 1) {
			continue
		}
		to := p.target(1, func(int) uint64 { return 1 })
		p.take(0, to, 1)
		if n < 300 { // the first 300 are pinned
			p.giveBack(0, to, 1)
			continue
		}
		moved++
	}
	if moved != 100 || p.remaining() != 0 {
		t.Errorf("%d moved, %d remain", moved, p.remaining())
	}
}

// TestPlanTargets: two targets get their parts by turns; one without room is passed over
// and its part stays to be done.
func TestPlanTargets(t *testing.T) {
	have := Counts{{0, 900}, {1, 90}, {7, 10}}
	shares := []Share{{0, 50}, {1, 30}, {2, 20}} // node 7 is to be left
	p := newPlan(have, shares)
	if p.total != 410 || p.nodes[3].out != 10 {
		t.Errorf("%+v", p)
	}
	if diff := cmp.Diff(Counts{{0, 500}, {1, 300}, {2, 200}, {7, 0}}, walk(&p, have, 1)); diff != "" {
		t.Error(diff)
	}
	p = newPlan(have, shares)
	arrived := map[int]int{}
	for n := range 900 {
		p.pass(0)
		if p.due(0, 1) {
			d := p.target(1, func(int) uint64 { return 1 })
			p.take(0, d, 1)
			arrived[p.nodes[d].node]++
			if one, two := arrived[1], arrived[2]; math.Abs(float64(one)-float64(one+two)*210/410) > 1 {
				t.Fatalf("after %d pages %d went to node 1 and %d to node 2", n, one, two)
			}
		}
	}
	p = newPlan(have, shares)
	p.pass(0)
	if d := p.target(1, func(node int) uint64 { return uint64(node) - 1 }); p.nodes[d].node != 2 {
		t.Errorf("node 1 is full: target %d", d)
	}
	if d := p.target(1, func(int) uint64 { return 0 }); d != noRoom {
		t.Errorf("all are full: target %d", d)
	}
	if d := p.target(1000, func(int) uint64 { return 1000 }); d != noTarget {
		t.Errorf("a unit twice as large as what is to arrive: target %d", d)
	}
}

func TestPlanNothingToDo(t *testing.T) {
	for _, have := range []Counts{nil, {{0, 0}}, {{0, 90}, {1, 10}}} {
		p := newPlan(have, []Share{{0, 90}, {1, 10}})
		if p.total != 0 || p.remaining() != 0 || p.source(0) != -1 || p.source(5) != -1 {
			t.Errorf("%v: %+v", have, p)
		}
	}
}

// TestRest: what copies fast rests until its rate is met, and what is slow as long as it took.
func TestRest(t *testing.T) {
	pages := uint64(BytesPerSecond / 8 / os.Getpagesize())
	for _, c := range []struct {
		pages      uint64
		took, want time.Duration
	}{{0, 20 * time.Millisecond, 20 * time.Millisecond}, {pages, 25 * time.Millisecond, 100 * time.Millisecond}, {pages, 100 * time.Millisecond, 100 * time.Millisecond}} {
		r := Report{}
		r.Outcomes[Moved] = c.pages
		if got := r.Rest(c.took); got.Round(time.Millisecond) != c.want {
			t.Errorf("%d pages in %s: a rest of %s; expected %s", c.pages, c.took, got, c.want)
		}
	}
}
