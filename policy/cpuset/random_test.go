package cpuset

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

var seed = flag.Uint64("seed", 0, "play one seed of TestRandom only")

// TestRandom plays random lives: machines even and uneven, tasks that come and go, CPUs
// that go offline and come back, loads that wander and jump, pulses that are missing,
// strangers, refusals and operators. After each step everything that the package promises
// must hold (rig.check), and a policy whose state is written out and read back before each
// step must wish for the same.
func TestRandom(t *testing.T) {
	first, last := uint64(1), uint64(150)
	if *seed > 0 {
		first, last = *seed, *seed
	}
	if testing.Short() {
		last = min(last, first+20)
	}
	divided := 0
	for n := first; n <= last; n++ {
		l := newLife(t, n)
		for range 400 {
			l.tick()
			if t.Failed() {
				t.Fatalf("seed %d; replay with: go test ./policy/cpuset -run TestRandom -seed %d", n, n)
			}
			if l.r.s.Status == Divided {
				divided++
			}
		}
	}
	if *seed == 0 && divided < int(last-first)*100 {
		t.Errorf("the machine was divided in %d steps only", divided)
	}
}

// life is one random life, with a second policy that forgets whatever a state does not say.
type life struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	r    *rig
	full *model.Topology
	next int
	want float64
	twin State
	w    model.Wishes
}

func newLife(t *testing.T, n uint64) *life {
	rng := rand.New(rand.NewPCG(n, 0))
	s := shape{1 + rng.IntN(4), 1 + rng.IntN(2), 1 + rng.IntN(6), 1 + rng.IntN(2)}
	l := &life{t: t, seed: n, rng: rng, full: s.topology()}
	l.r = newRig(failer{t, n, s}, l.full)
	l.r.p.Sockets = []string{Spread, Gather}[rng.IntN(2)]
	l.r.p.FloorCores, l.r.p.Wait, l.r.p.ReturnsPerMin = rng.IntN(3), 0.2*rng.Float64(), 1+rng.IntN(20)
	l.r.p.FloorShare = 0.2 * rng.Float64()
	if rng.IntN(4) == 0 {
		l.r.p.FloorCores, l.r.p.FloorShare = 0, 0
	}
	for range 1 + rng.IntN(6) {
		l.newcomer()
	}
	return l
}

// failer names the seed where the rig gives up.
type failer struct {
	testing.TB
	seed  uint64
	shape shape
}

func (f failer) Fatalf(format string, args ...any) {
	f.Helper()
	f.Logf("seed %d, %+v; replay with: go test ./policy/cpuset -run TestRandom -seed %d", f.seed, f.shape, f.seed)
	f.TB.Fatalf(format, args...)
}

func (l *life) newcomer() {
	l.next++
	var v model.TaskView
	switch l.rng.IntN(8) {
	case 0:
		v = task(l.next, model.System)
	case 1, 2, 3:
		v = task(l.next, model.BE)
	case 4:
		v = exclusive(l.next, l.rng.IntN(4), 5*l.rng.Float64())
	default:
		v = task(l.next, model.LC)
	}
	place := &v.Knobs[model.CPUPlace]
	if l.rng.IntN(4) == 0 {
		for i := range l.full.CPUs {
			if l.rng.IntN(2) == 0 {
				place.Found.CPUs.Add(l.full.CPUs[i].ID)
			}
		}
	}
	place.Known = l.rng.IntN(20) > 0
	l.r.v.Tasks = append(l.r.v.Tasks, v)
	l.r.v.Changed = true
}

// event lets something happen.
func (l *life) event() {
	v := &l.r.v
	at := -1
	if len(v.Tasks) > 0 {
		at = l.rng.IntN(len(v.Tasks))
	}
	switch k := l.rng.IntN(12); {
	case k == 0:
		l.newcomer()
	case k == 1 && at >= 0:
		delete(l.r.claims, v.Tasks[at].Task.Num)
		delete(l.r.caps, v.Tasks[at].Task.Num)
		v.Tasks = append(v.Tasks[:at:at], v.Tasks[at+1:]...)
	case k == 2:
		var off []int
		for i := range l.full.CPUs {
			if l.rng.IntN(6) == 0 && len(off)+1 < len(l.full.CPUs) {
				off = append(off, l.full.CPUs[i].ID)
			}
		}
		v.Topology = without(l.full, off...)
	case k == 3:
		v.Topology = l.full
	case k == 4 && at >= 0:
		v.Tasks[at].Exempt = !v.Tasks[at].Exempt
	case k == 5 && at >= 0:
		k := &v.Tasks[at].Knobs[model.CPUPlace]
		k.Void, k.Ours = !k.Void, false
		delete(l.r.claims, v.Tasks[at].Task.Num)
	case k == 6 && at >= 0:
		k := &v.Tasks[at].Knobs[model.CPUPlace]
		k.Refused, k.Why = !k.Refused, "no space left on device"
	case k == 7:
		v.Mode = []model.Mode{model.ModeEnforce, model.ModeObserve}[l.rng.IntN(2)]
		clear(l.r.claims)
		clear(l.r.caps)
		for i := range v.Tasks {
			v.Tasks[i].Knobs[model.CPUPlace].Ours = false
			v.Tasks[i].Knobs[model.CPUBandwidth].Ours = false
		}
	case k == 8:
		l.r.pulse.LCUsage.Outcome = model.Outcome(l.rng.IntN(4))
	default:
		l.r.pulse.LCUsage.Outcome = model.OK
		v.Mode = model.ModeEnforce
	}
	v.Changed = true
}

func (l *life) tick() {
	if l.rng.IntN(10) == 0 {
		l.event()
	}
	if l.rng.IntN(10) == 0 {
		l.want = l.rng.Float64() * l.rng.Float64() * 1.5 * float64(len(l.full.CPUs))
	}
	seen := l.r.v
	tasks := append([]model.TaskView{}, l.r.v.Tasks...)
	dt := 50 * msec
	switch l.rng.IntN(12) {
	case 0:
		dt = l.rng.Int64N(20) * sec
	case 1:
		dt = l.rng.Int64N(20) * msec
	}
	l.r.step(dt, max(0, l.want*(1+0.2*l.rng.NormFloat64())))
	// The twin sees what the policy saw, not what came of it.
	seen.NowNsec, seen.Pulse, seen.Tasks = l.r.v.NowNsec, l.r.v.Pulse, tasks
	b, err := json.Marshal(&l.twin)
	if err != nil {
		l.t.Fatal(err)
	}
	l.twin = State{}
	if err := json.Unmarshal(b, &l.twin); err != nil {
		l.t.Fatal(err)
	}
	l.w.Reset()
	l.twin.Step(&l.r.p, &seen, &l.w)
	if !sameWishes(&l.w, &l.r.w) {
		l.t.Errorf("the policy wishes\n%+v\nafter a checkpoint\n%+v", l.r.w, l.w)
	}
}
