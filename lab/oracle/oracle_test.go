package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/internal/labtest"
	"github.com/commensal-io/commensal/model"
)

// A short run is the same twice; no fixed arm that misses no target does more than the oracle by much.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute")
	}
	r := labtest.Twice(t, func() (*Result, error) { return Run(context.Background(), Options{Seed: 3, Quick: true}) })
	for i := range r.Mixes {
		m := &r.Mixes[i]
		if off := &m.Arms[Off]; off.Work != 1 || len(m.Best) < 2 {
			t.Errorf("%+v", m)
		}
		for _, arm := range []Arm{Off, TwoWays, Level10} {
			if a := &m.Arms[arm]; m.Feasible && a.Missed == 0 && a.Work > 1.05*m.Arms[Oracle].Work {
				t.Errorf("%s does %.2f of the work and misses nothing; the oracle %.2f: %+v", arm, a.Work, m.Arms[Oracle].Work, m)
			}
		}
		if m.Arms[Level10].Work >= 1 || m.Arms[Heracles].Work <= 0 || m.Arms[Parties].Work <= 0 {
			t.Errorf("%+v", m.Arms)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "oracle") {
		t.Errorf("%v\n%s", err, &text)
	}
}

// Every mix has services with targets to come and somebody who does harm; mixes differ.
func TestDraw(t *testing.T) {
	var names []string
	for i := range 20 {
		w := draw(7, i, 1)
		lc, be, text := 0, 0, ""
		for _, x := range w.list {
			if text += x.cfg.Name + " "; x.class == model.LC {
				lc++
			} else {
				be++
			}
		}
		if lc < 1 || lc > 2 || be < 2 || be > 3 {
			t.Errorf("mix %d: %s", i, text)
		}
		if !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	if len(names) < 15 {
		t.Errorf("%d different mixes of 20", len(names))
	}
}

// On two sockets there is a service on each, and somebody who does harm beside the first; a place is where a task then runs, with its pages as asked for.
func TestPlaces(t *testing.T) {
	w := draw(7, 0, 2)
	var on []string
	for _, x := range w.list {
		on = append(on, fmt.Sprintf("%s %s", x.class, x.cfg.CPUs))
	}
	if got := strings.Join(on, ", "); got != "LC 0-5, LC 20-25, BE 6-12, BE 13-19, BE 26-32" {
		t.Fatal(got)
	}
	r, err := w.start(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.divide(w.shares(Share{2, 10, 1})), r.place([]Place{{}, {Pages: 0.5}, {Away: true, Pages: 1}})); err != nil {
		t.Fatal(err)
	}
	m := r.host.Machine()
	for k, want := range []string{"6-12 [1 0]", "13-19 [0.5 0.5]", "6-19 [1 0]"} {
		cpus, err := m.CPUs(r.nums[k+2])
		pages, other := m.Pages(r.nums[k+2])
		if got := fmt.Sprint(cpus, " ", pages); got != want || err != nil || other != nil {
			t.Errorf("task %d: %s, %v, %v", k, got, err, other)
		}
	}
	for cache := range 2 {
		if mask, level, err := m.Class(r.class[0], cache); mask != 3 || level != 10 || err != nil {
			t.Errorf("cache %d: %x, %d, %v", cache, mask, level, err)
		}
	}
	whole := Share{allWays, 100, 1}
	steps := w.around([]Share{{2, 100, 1}, whole}, []Place{{}, {Away: true}}, 0)
	if n := len(near(Share{2, 100, 1})) + 2*5; len(steps) != n {
		t.Errorf("%d steps, want %d", len(steps), n)
	}
	for _, s := range steps {
		if s.shares[1] != whole || s.places[1] != (Place{Away: true}) || s.shares[0] == (Share{2, 100, 1}) && s.places[0] == (Place{}) {
			t.Errorf("%+v", s)
		}
	}
}

// PRM's controllers take all but the least at once, and give it back by steps after quiet windows; a fence is four deviations, or the most seen.
func TestPRM(t *testing.T) {
	p := prm{now: Share{allWays, 100, 1}}
	if got := p.step(0, true, allWays, 2, allWays, 1); got != 2 {
		t.Errorf("%d ways in contention", got)
	}
	for want := 2; want <= 4; want++ {
		for range prmQuiet - 1 {
			if got := p.step(0, false, want, 2, allWays, 1); got != want {
				t.Errorf("%d ways after too few quiet windows, not %d", got, want)
			}
		}
		if got := p.step(0, false, want, 2, allWays, 1); got != want+1 {
			t.Errorf("%d ways after quiet windows, not %d", got, want+1)
		}
	}
	list := []fence{{cpi: 1}, {cpi: 1}, {cpi: 1.1}, {cpi: 1}}
	if got := bound(list, func(f fence) float64 { return f.cpi }); got != 1.1 {
		t.Errorf("a fence of %v, not the most that was seen", got)
	}
	for range 100 {
		list = append(list, fence{cpi: 1})
	}
	if got := bound(append(list, fence{cpi: 3}), func(f fence) float64 { return f.cpi }); got < 1.5 || got > 2 {
		t.Errorf("a fence of %v for one window far out", got)
	}
}

func TestNear(t *testing.T) {
	got := near(Share{2, 100, 0.5})
	want := []Share{{5, 100, 0.5}, {2, 60, 0.5}, {2, 100, 0.25}, {2, 100, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// The goals can be missed, each by itself.
func TestGoals(t *testing.T) {
	for sockets, oracle := range map[int]Arm{1: Oracle, 2: Placed} {
		for i, ours := range []Outcome{{Work: 0.9, Missed: 0.01}, {Work: 1, Missed: 0.05}, {Work: 1, Missed: 0.01}} {
			m := Mix{Feasible: true}
			m.Arms[Remedy], m.Arms[oracle] = ours, Outcome{Work: 1, Missed: 0.01}
			r := &Result{Sockets: sockets, Mixes: []Mix{m, {}}}
			r.sum()
			for k := range r.Goals {
				if r.Goals[k].Met == (k == i) {
					t.Errorf("%d sockets, goal %d with %+v: %+v", sockets, k, ours, r.Goals[k])
				}
			}
		}
	}
}
