package remedy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/remedy"
)

// newSockets is a world of two sockets, with the service on the first one, where pages go where they are sent.
func newSockets() *world {
	have := xeon(8)
	have.Caches, have.Memory = []int32{0, 1}, []int32{0, 1}
	have.Domains = []model.Domain{{ID: 0, CPUs: model.FullSet(4)}, {ID: 1, CPUs: model.FullSet(8).Without(model.FullSet(4))}}
	return socketsWith(have)
}

// socketsWith are two sockets with other classes of service.
func socketsWith(have *model.Classes) *world {
	near := model.FullSet(4)
	w := newWorld(model.ModeEnforce, have)
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].Node, w.Topology.CPUs[i].LLC, w.Topology.CPUs[i].Socket = i/4, i/4, i/4
	}
	w.Tasks[0].Knobs[model.CPUPlace].Value = model.Setting{Knob: model.CPUPlace, CPUs: near}
	w.List(service)
	w.gone = map[model.TaskNum]float64{}
	for _, t := range w.Tasks {
		t.Knobs[model.MemoryPages].Write = func(ask model.Setting) string {
			if left := float64(ask.Amount) / 1000; ask.CPUs.Has(0) {
				w.gone[t.Num] = max(w.gone[t.Num], 1-left)
			} else {
				w.gone[t.Num] = min(w.gone[t.Num], left)
			}
			return ""
		}
	}
	return w
}

// Pages go where ways and levels do not help: by halves, and no more once the service is well. Nothing is held then.
func TestPages(t *testing.T) {
	w := newSockets()
	w.seconds(10)
	w.harms[2] = harm{pages: 0.9, misses: 100}
	w.seconds(200)
	if w.gone[2] != 0.75 || w.gone[3] != 0 {
		t.Errorf("gone of 2: %v, of 3: %v", w.gone[2], w.gone[3])
	}
	w.expect(t, "well by pages", free)
	red := w.red
	w.seconds(100)
	if w.red != red || w.Count(model.DecidePages) != 2 || len(w.state().Holds) != 0 {
		t.Errorf("%d seconds late after that, %d moves, holds %+v", w.red-red, w.Count(model.DecidePages), w.state().Holds)
	}
}

// Pages need no class of service, and CPU time neither: they are what is left where all are taken, and without resctrl. Who runs on the
// other socket only is not beside the service.
func TestWithoutAClass(t *testing.T) {
	taken := newSockets().Topology.Classes
	taken.Taken = 8
	for name, have := range map[string]*model.Classes{"all are taken": taken, "no resctrl": {}} {
		w := socketsWith(have)
		w.Tasks[2].Knobs[model.CPUPlace].Value = model.Setting{Knob: model.CPUPlace, CPUs: model.FullSet(8).Without(model.FullSet(4))}
		w.List(3)
		w.seconds(10)
		w.harms[2], w.harms[3] = harm{pages: 0.9, misses: 100}, harm{misses: 500}
		if w.seconds(200); w.gone[2] != 0.75 || name == "no resctrl" && w.gone[3] != 0 || w.Count(model.DecideCap) > 0 {
			t.Errorf("%s: gone of 2: %v, of 3: %v; %d caps", name, w.gone[2], w.gone[3], w.Count(model.DecideCap))
		}
		w.harms[2] = harm{cpu: 0.8, misses: 100}
		if w.seconds(150); w.cpus(2) >= 2 || len(w.Wide) > 0 {
			t.Errorf("%s: %s; %d writes to classes", name, w.holds(), len(w.Wide))
		}
		if n := w.Count(model.DecideLeftAlone); n == 0 {
			t.Errorf("%s: nobody says that there is no class", name)
		}
	}
	// Where nothing at all is left nothing is begun.
	w := newWorld(model.ModeEnforce, &model.Classes{})
	w.params().CPULeast, w.params().Demote, w.params().Pool, w.harms[2] = 1, false, false, harm{cpu: 0.8, misses: 100}
	if w.seconds(60); w.Writes > 0 || w.state().Working() || len(w.state().Victims) > 0 {
		t.Errorf("%d writes, %+v", w.Writes, w.state())
	}
}

// Pages need no class of service: where others have them all pages go all the same.
func TestPagesWithoutAClass(t *testing.T) {
	w := newSockets()
	w.Topology.Classes.Taken = w.Topology.Classes.IDs
	w.seconds(10)
	w.harms[2] = harm{pages: 0.9, misses: 100}
	w.seconds(200)
	if w.gone[2] != 0.75 || w.gone[3] != 0 || w.Count(model.DecideDivide) != 0 {
		t.Errorf("gone of 2: %v, of 3: %v; divided %d times", w.gone[2], w.gone[3], w.Count(model.DecideDivide))
	}
	w.expect(t, "well by pages", free)
}

// Pages stay where they do not help (once), where they cannot be moved, where there is one memory, and where the service runs at both.
func TestPagesStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		moves  int
		said   string
	}{
		"in vain":    {func(*world) {}, 3, "no best-effort task is left"},
		"one memory": {one, 0, "no best-effort task is left"},
		"at both":    {func(w *world) { w.Tasks[0].Knobs[model.CPUPlace].Value.CPUs = model.CPUSet{}; w.List(service) }, 0, "no best-effort task is left"},
		"refused": {func(w *world) {
			for _, t := range w.Tasks {
				t.Refuse(model.MemoryPages, "no room")
			}
		}, 3, "no room"},
	} {
		w := newSockets()
		c.change(w)
		w.seconds(10)
		w.own, w.harms[4] = 0.5, harm{misses: 20}
		w.seconds(400)
		w.expect(t, name, free)
		if n := w.Count(model.DecidePages); n < c.moves || c.moves == 0 && n > 0 || n > 2*c.moves {
			t.Errorf("%s: %d moves, expected %d", name, n, c.moves)
		}
		if !slices.ContainsFunc(w.Said, func(d model.Decision) bool { return strings.Contains(d.Reason, c.said) }) {
			t.Errorf("%s: nobody says %q", name, c.said)
		}
	}
}

// one makes the machine's memory one node.
func one(w *world) {
	for i := range w.Topology.CPUs {
		w.Topology.CPUs[i].Node = 0
	}
}

// Where giving a level back brings trouble the task's pages make room, and then it has everything again.
func TestPagesMakeRoom(t *testing.T) {
	for _, room := range []bool{false, true} {
		w := newSockets()
		if !room {
			one(w)
		}
		w.seconds(10)
		w.harms[2] = harm{level: 0.8, misses: 100}
		w.seconds(900)
		if free := w.has(2, model.MemoryBandwidth, 100) == 100; free != room || w.gone[2] > 0.9 {
			t.Errorf("another memory: %v: %s, %.0f %% of its pages are gone", room, w.holds(), 100*w.gone[2])
		}
		if room {
			w.expect(t, "room", free)
		}
	}
}

// Room is made for the task's own good: no more of it where the last move cost the task more than its holds do.
func TestPagesMakeRoomNoDearer(t *testing.T) {
	for _, far := range []float64{0, 2} {
		w := newSockets()
		w.seconds(10)
		w.harms[2] = harm{level: 1.6, misses: 100, far: far}
		w.seconds(2500)
		if dear := far > 0; (w.gone[2] <= 0.75) != dear || (w.has(2, model.MemoryBandwidth, 100) < 100) != dear {
			t.Errorf("its CPI goes up by %v: %v of its pages are gone; %s", far, w.gone[2], w.holds())
		}
	}
}

// Pages go to no memory of a service that is near its target, neither for another service's sake nor to make room.
func TestPagesStayOffOtherServices(t *testing.T) {
	for what, h := range map[string]harm{"trouble": {pages: 0.9, misses: 100}, "room": {level: 0.8, misses: 100}} {
		for _, beside := range []float64{0.5, 0.99} {
			w := newSockets()
			w.Tasks[3].Class, w.Snapshot().Added[3].Class = model.LC, model.LC
			w.Tasks[3].Knobs[model.CPUPlace].Value = model.Setting{Knob: model.CPUPlace, CPUs: model.FullSet(8).Without(model.FullSet(4))}
			w.List(4)
			w.beside = beside
			w.seconds(10)
			w.harms[2] = h
			if w.seconds(900); (w.gone[2] > 0) != (beside < 0.9) {
				t.Errorf("%s: the other service at %v of its target: %v of the pages are gone", what, beside, w.gone[2])
			}
		}
	}
}

// Who runs on the other socket, and has pages on the service's memory, reaches it from there: he is named by what resctrl counts to go to other memories, and his pages move. With hardly
// any, or where nobody tells how much, he is not beside the service.
func TestPagesOfWhoRunsElsewhere(t *testing.T) {
	for _, c := range []struct {
		away  float64 // -1: not told
		named bool
	}{{0.9, true}, {0.05, false}, {-1, false}} {
		w := newSockets()
		w.counts, w.away = map[model.TaskNum][2]float64{2: {1e6, 3e9}}, map[model.TaskNum]float64{2: c.away}
		for num := model.TaskNum(2); num <= 4; num++ {
			w.Tasks[num-1].Knobs[model.CPUPlace].Value = model.Setting{Knob: model.CPUPlace, CPUs: model.FullSet(8).Without(model.FullSet(4))}
			w.List(num)
		}
		w.seconds(10)
		w.harms[2] = harm{pages: 0.9, misses: 100}
		w.seconds(200)
		ways := slices.ContainsFunc(w.Said, func(d model.Decision) bool { return strings.Contains(d.Reason, "ways of the cache") })
		if (w.gone[2] == 0.75) != c.named || w.gone[3] != 0 || ways || (w.Count(model.DecideCannotFix) > 0) == c.named {
			t.Errorf("%.2g of it goes away: gone of 2: %v, of 3: %v; ways: %t\n%+v", c.away, w.gone[2], w.gone[3], ways, w.Said)
		}
	}
}

// Trouble while pages make room ends their move, and the ladder goes on.
func TestPagesInterrupted(t *testing.T) {
	w := newSockets()
	w.seconds(8)
	s := &remedy.State{
		Holds: []remedy.Hold{{Task: 2, Victim: service, Means: remedy.Pages, Amount: 0.5, Was: 1, Full: 1, Off: model.FullSet(1)}},
		Trial: &remedy.Trial{Task: 2, Means: remedy.Pages, Well: true},
	}
	w.copying = 2
	if out := step(w, s, 1, false); len(s.Holds) != 1 || s.Trial == nil || !out.AsBefore {
		t.Fatalf("well: %+v, %+v", s, out.Claims)
	}
	if out := step(w, s, 3, false); len(s.Holds) != 0 || s.Trial != nil || len(out.Claims) != 0 {
		t.Errorf("in trouble: %+v, %+v", s, out.Claims)
	}
}

// Where a move can be ended, trouble ends it, and what had come by then is known: of pages that went, and of those on their way home. One that had moved nothing is forgotten.
func TestPagesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		home  bool
		came  model.Result
		left  float64 // beside the task
		known bool    // that they are not all there
	}{
		"away":     {false, model.Result{Now: model.Pages(800, 0)}, 0.8, true},
		"home":     {true, model.Result{Now: model.Pages(300, 1)}, 0.7, true},
		"not yet":  {false, model.Result{Kind: model.Refused, Now: model.Ask(model.MemoryPages)}, 1, false},
		"home not": {true, model.Result{Kind: model.Refused, Now: model.Ask(model.MemoryPages)}, 0.5, true},
	} {
		w := newSockets()
		w.seconds(8)
		off, was := model.FullSet(1), 1.0
		if c.home {
			off, was = model.FullSet(2).Without(off), 0.5
		}
		s := &remedy.State{
			Holds: []remedy.Hold{{Task: 2, Victim: service, Means: remedy.Pages, Amount: 1 - was/2, Was: was, Full: 1, Off: off, Home: c.home}},
			Trial: &remedy.Trial{Task: 2, Means: remedy.Pages, Well: !c.home, Back: c.home}, AskedNsec: w.NowNsec,
		}
		if c.home {
			s.Batch = []remedy.Batch{{Task: 2, Off: model.FullSet(1), Left: 0.5}}
		}
		w.copying, w.ends = 2, true
		if out := step(w, s, 1, false); len(s.Holds) != 1 || s.Trial == nil || !out.AsBefore {
			t.Fatalf("%s, well: %+v, %+v", name, s, out.Claims)
		}
		if out := step(w, s, 3, false); out.AsBefore || len(out.Claims) != 0 || s.Trial != nil || len(s.Holds) != 1 {
			t.Errorf("%s, in trouble: %+v, %+v", name, s, out.Claims)
		}
		c.came.Target = model.OfTask(2)
		w.copying, w.came = 0, []model.Result{c.came}
		out := step(w, s, 3, false)
		i := slices.IndexFunc(s.Batch, func(b remedy.Batch) bool { return b.Task == 2 })
		if len(s.Holds) != 0 || len(out.Claims) != 0 || len(s.Tried) != 0 || c.known != (i >= 0 && s.Batch[i].Off == model.FullSet(1) && s.Batch[i].Left == c.left) {
			t.Errorf("%s, when it had ended: %+v", name, s)
		}
	}
}

// Pages on their way are part of a checkpoint.
func TestPagesCheckpoints(t *testing.T) {
	w := newSockets()
	w.Shadow(t, 7)
	w.seconds(10)
	w.harms[2] = harm{pages: 0.9, misses: 100}
	w.seconds(100)
	if w.Count(model.DecidePages) == 0 {
		w.Dump(t)
	}
}

// Pages go off the memory that the service's own lie on, wherever it runs, which is said; and nowhere where it fills that by itself.
func TestPagesByWhereTheServicesAre(t *testing.T) {
	for name, c := range map[string]struct {
		homes []uint64
		own   float64 // GB/s that the service moves, by resctrl
		off   int     // node; -1: none
	}{
		"local": {[]uint64{100, 0}, 0, 0}, "on the other memory": {[]uint64{0, 100}, 0, 1}, "on both": {[]uint64{50, 50}, 0, -1}, "local, and alone": {[]uint64{100, 0}, 50e9, -1},
	} {
		w := newSockets()
		w.homes = []model.PageHomes{{Num: service, Bytes: c.homes}}
		if c.own > 0 {
			w.counts = map[model.TaskNum][2]float64{service: {1e6, c.own}}
			w.fetched = map[model.TaskNum]float64{2: c.own}
		}
		asked := []model.CPUSet{}
		for _, k := range w.Tasks {
			k.Knobs[model.MemoryPages].Write = func(ask model.Setting) string {
				asked = append(asked, ask.CPUs)
				return ""
			}
		}
		w.seconds(10)
		w.harms[2] = harm{pages: 0.9, misses: 100}
		w.seconds(100)
		if far := c.homes[1] > c.homes[0]; (c.off >= 0) != (len(asked) > 0) || len(asked) > 0 && !asked[0].Has(c.off) || (w.Count(model.DecideBasis) > 0) != (far || c.homes[1] > 0) {
			t.Errorf("%s: pages were asked off %v, said %d times what does not hold; %+v", name, asked, w.Count(model.DecideBasis), w.state().Loads)
		}
	}
}
