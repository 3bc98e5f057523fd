package cpuset_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/engine/enginetest"
	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/cpuset"
)

var seed = flag.Uint64("seed", 0, "play one seed of TestRandom only")

// TestRandom plays random lives: machines even and uneven, tasks that come and go, CPUs
// that go offline and come back, loads that wander and jump, pulses that are missing,
// strangers, refusals and operators. After each step everything that the package promises
// must hold (rig.check), and an engine that is made anew from a checkpoint again and again must
// do the same.
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
			if l.r.s.Status == cpuset.Divided {
				divided++
			}
		}
	}
	if *seed == 0 && divided < int(last-first)*100 {
		t.Errorf("the machine was divided in %d steps only", divided)
	}
}

// life is one random life.
type life struct {
	rng  *rand.Rand
	r    *rig
	full *model.Topology
	next int
	want float64
}

func newLife(t *testing.T, n uint64) *life {
	rng := rand.New(rand.NewPCG(n, 0))
	l := &life{rng: rng, full: cpuset.Machine(1+rng.IntN(4), 1+rng.IntN(2), 1+rng.IntN(6), 1+rng.IntN(2))}
	tb := failer{t, fmt.Sprintf("seed %d, %d CPUs; replay with: go test ./policy/cpuset -run TestRandom -seed %d", n, len(l.full.CPUs), n)}
	l.r = newRig(tb, l.full)
	l.r.Shadow(tb, 20)
	l.r.Engine.Params.Hardcap.DurationNsec = 20 * sec
	l.r.p.Sockets = []string{cpuset.Spread, cpuset.Gather}[rng.IntN(2)]
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

// failer says how to replay where the rig gives up.
type failer struct {
	testing.TB
	replay string
}

func (f failer) Fatalf(format string, args ...any) {
	f.Helper()
	f.Log(f.replay)
	f.TB.Fatalf(format, args...)
}

func (l *life) newcomer() {
	l.next++
	var v *enginetest.Task
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
	if l.rng.IntN(4) == 0 {
		v.CPUs(l.some())
	}
	v.Knobs[model.CPUPlace].Unreadable = l.rng.IntN(20) == 0
	l.r.Add(v)
}

// some draws a set of CPUs.
func (l *life) some() (set model.CPUSet) {
	for i := range l.full.CPUs {
		if l.rng.IntN(2) == 0 {
			set.Add(l.full.CPUs[i].ID)
		}
	}
	return set
}

// event lets something happen.
func (l *life) event() {
	if k := l.rng.IntN(12); len(l.r.Tasks) > 0 && k < 5 {
		l.happen(k, l.r.Tasks[l.rng.IntN(len(l.r.Tasks))])
		return
	}
	switch l.rng.IntN(6) {
	case 0:
		l.newcomer()
	case 1:
		var off []int
		for i := range l.full.CPUs {
			if l.rng.IntN(6) == 0 && len(off)+1 < len(l.full.CPUs) {
				off = append(off, l.full.CPUs[i].ID)
			}
		}
		l.r.Plug(cpuset.Without(l.full, off...))
	case 2:
		l.r.Plug(l.full)
	case 3:
		l.r.mode([]model.Mode{model.ModeEnforce, model.ModeObserve}[l.rng.IntN(2)])
	case 4:
		l.r.pulse.LCUsage.Outcome = model.Outcome(l.rng.IntN(4))
	default:
		l.r.pulse.LCUsage.Outcome = model.OK
		l.r.mode(model.ModeEnforce)
	}
}

// happen lets something happen to a task.
func (l *life) happen(what int, t *enginetest.Task) {
	switch k := &t.Knobs[model.CPUPlace]; what {
	case 0:
		l.r.Remove(t.Num)
	case 1, 2: // also how a stranger's knob becomes ours again
		l.r.Tell(model.Command{Kind: model.CommandUncap, Task: t.Num})
	case 3:
		l.r.Stranger(t.Num, model.Place(l.some()))
	case 4:
		if k.Write != nil {
			k.Write = nil
		} else {
			t.Refuse(model.CPUPlace, "no space left on device")
		}
	}
}

func (l *life) tick() {
	if l.rng.IntN(10) == 0 {
		l.event()
	}
	if l.rng.IntN(10) == 0 {
		l.want = l.rng.Float64() * l.rng.Float64() * 1.5 * float64(len(l.full.CPUs))
	}
	dt := 50 * msec
	switch l.rng.IntN(12) {
	case 0:
		dt = l.rng.Int64N(20) * sec
	case 1:
		dt = l.rng.Int64N(20) * msec
	}
	l.r.step(dt, max(0, l.want*(1+0.2*l.rng.NormFloat64())))
}
