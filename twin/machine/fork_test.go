package machine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/commensal-io/commensal/model"
)

// forkable is a machine in whose every part there is something to copy.
func forkable(t *testing.T) *Machine {
	t.Helper()
	m := server(t, 8, 6).Fork() // and a fork of a fork
	_ = m.AddCLOS()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(m.SetCLOS(1, 1))
	check(m.SetWays(1, 0, 0b11))
	check(m.Watch(2, true))
	check(m.Take(SoftIRQ, model.FullSet(3), 0.2))
	check(m.SetMBA(1, 1, 30))
	check(m.SetCPUMax(1, CPUMax{QuotaUsec: 20_000, PeriodUsec: 100_000, BurstUsec: 5_000}))
	check(m.SetCPUMax(2, CPUMax{QuotaUsec: 1_000, PeriodUsec: 100_000})) // so that requests wait
	check(m.Remove(3))
	_, err := m.Add(withMemory(spinner(1)))
	check(err)
	split := spinner(2)
	split.Work, split.Requests = nil, &Requests{PerSecond: 100, Instructions: 5e6, Variation: 1, FanOut: 4}
	_, err = m.Add(split)
	check(err)
	m.Advance(3e9)
	check(m.SetRMID(1, 5)) // leaves lines of RMID 0
	check(m.MovePages(0, []float64{0.1, 0.9}))
	return m
}

func state(t *testing.T, m *Machine) string {
	t.Helper()
	s := fmt.Sprint(m.NowNsec(), m.BusyNsec(), m.SystemPressure(), m.Memory(0), m.Memory(1))
	for n := range m.tasks {
		if m.tasks[n] == nil {
			continue
		}
		c, err := m.Counters(n)
		if err != nil {
			t.Fatal(err)
		}
		s += fmt.Sprintf("\n%d %+v", n, c)
		if h, lost, err := m.Latencies(n); err != nil {
			t.Fatal(err)
		} else if h != nil {
			s += fmt.Sprint(" ", h.TotalCount(), h.Mean(), h.Max(), lost)
		}
	}
	return s
}

// A fork and its original evolve alike; what one is told does not reach the other.
func TestForkEvolvesAlike(t *testing.T) {
	m := forkable(t)
	f, g := m.Fork(), m.Fork()
	for _, x := range []*Machine{m, f} {
		x.Advance(5e9)
		if _, err := x.Add(stream(3)); err != nil { // draws from the machine's generator
			t.Fatal(err)
		}
		x.Advance(5e9)
	}
	if diff := cmp.Diff(state(t, m), state(t, f)); diff != "" {
		t.Errorf("the fork went another way (-original +fork):\n%s", diff)
	}
	if g.NowNsec() != 3e9 || len(g.live) != len(m.live)-1 {
		t.Errorf("an idle fork moved: %d ns, %d tasks", g.NowNsec(), len(g.live))
	}
	// Whatever is done to one fork, the other goes on as the original did.
	a, b := g.Fork(), g.Fork()
	rng := rand.New(rand.NewPCG(4, 2))
	for range 50 {
		disturb(t, a, rng)
		a.Advance(100e6)
	}
	b.Advance(10e9)
	g.Advance(10e9)
	if diff := cmp.Diff(state(t, g), state(t, b)); diff != "" {
		t.Errorf("a fork felt what another one was told (-original +fork):\n%s", diff)
	}
}

// Nothing that can be written is shared, whatever fields come to be: every pointer, slice
// and map that is reached from a machine must differ from that of its fork, and must be
// there to be compared in the first place.
//
// Not verified: closures and interfaces, of which there are none, and what two fields
// share inside one machine.
func TestForkSharesNothing(t *testing.T) {
	m := forkable(t)
	f := m.Fork()
	w := walker{t: t, seen: map[string]bool{}, filled: map[string]bool{}}
	w.walk("Machine", reflect.ValueOf(m).Elem(), reflect.ValueOf(f).Elem())
	for path := range w.seen {
		if !w.filled[path] {
			t.Errorf("%s is empty everywhere in the machine of this test: fill it, so that a fork of it can be judged", path)
		}
	}
}

// sharedOnPurpose is what a fork shares: it never changes once a task has started. So is scratch,
// which a fork begins without.
var sharedOnPurpose = map[string]bool{
	"Machine.cfg.Turbo": true, "Machine.cfg.LoadCurve": true, "Machine.live.cfg": true, "Machine.live.phase.cur": true,
	"Machine.flows": true, "Machine.fillers": true, "Machine.throttled": true, "Machine.ran": true,
	// The same tasks once more, in another order.
	"Machine.tasks": true,
	// hdrhistogram's own Export and Import copy; TestForkEvolvesAlike compares what they say.
	"Machine.live.queue.taken": true,
	// The generator over the source, which is compared.
	"Machine.rng.Rand": true, "Machine.live.rng.Rand": true,
}

type walker struct {
	t            *testing.T
	seen, filled map[string]bool
}

func (w *walker) walk(path string, a, b reflect.Value) {
	if sharedOnPurpose[path] {
		return
	}
	switch a.Kind() {
	case reflect.Pointer:
		w.seen[path] = true
		if a.IsNil() {
			return
		}
		w.filled[path] = true
		if a.Pointer() == b.Pointer() {
			w.t.Errorf("%s is shared", path)
			return
		}
		w.walk(path, a.Elem(), b.Elem())
	case reflect.Slice:
		w.seen[path] = true
		if a.Len() != b.Len() {
			w.t.Errorf("%s has %d elements, the fork's %d", path, a.Len(), b.Len())
			return
		}
		if a.Len() == 0 {
			return
		}
		w.filled[path] = true
		if a.Pointer() == b.Pointer() {
			w.t.Errorf("%s is shared", path)
			return
		}
		for i := range a.Len() {
			w.walk(path, a.Index(i), b.Index(i))
		}
	case reflect.Array:
		for i := range a.Len() {
			w.walk(path, a.Index(i), b.Index(i))
		}
	case reflect.Struct:
		for i := range a.NumField() {
			w.walk(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	case reflect.Map, reflect.Chan, reflect.Func, reflect.Interface, reflect.UnsafePointer:
		w.t.Errorf("%s is a %s: say here how it is forked", path, a.Kind())
	default:
		if !a.Equal(b) {
			w.t.Errorf("%s is %v, the fork's %v", path, a, b)
		}
	}
}
