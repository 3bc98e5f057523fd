package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/commensal-io/commensal/kernel/hostfs"
	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/lab/openloop"
)

// logOf is what a service says whose requests take a millisecond, and by a factor more while pages move.
func logOf(m *Moves, factor func(window int) float64) *openloop.Log {
	log := &openloop.Log{}
	for w := range moveKinds * m.Rounds {
		for i := range 200 {
			at := int64(w)*moveWindow.Nanoseconds() + int64(i)*moveWindow.Nanoseconds()/200
			took := 1e6 * float64(1+i%7)
			if kindOf(w) == moving {
				took *= factor(w)
			}
			log.Answers = append(log.Answers, openloop.Answer{AtNsec: at, DoneNsec: at + int64(took)})
		}
	}
	return log
}

// What is higher in each pair fails, and neither what is not nor what may be chance; windows without moves or requests say nothing.
func TestMovesAreJudged(t *testing.T) {
	for _, test := range []struct {
		factor func(window int) float64
		higher float64
		met    bool
	}{
		{func(int) float64 { return 1 }, 0, true},
		{func(int) float64 { return 1.1 }, 10, false},
		{func(w int) float64 { return []float64{2, 0.51}[w/moveKinds%2] }, 1, true},
	} {
		m := &Moves{MiB: 1, MovedMiB: 2, Rounds: moveRounds}
		if err := m.take(logOf(m, test.factor), 0); err != nil {
			t.Fatal(err)
		}
		r := &Result{Moves: m}
		r.Goals = goals(r)
		if len(r.Goals) != 2 || r.Goals[1].Met != test.met || r.Goals[0].Met != test.met || r.Goals[0].Measured < test.higher-0.5 || r.Goals[0].Measured > test.higher+0.5 {
			t.Errorf("%+v, %+v", m, r.Goals)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "p99") {
			t.Errorf("%v\n%s", err, b.String())
		}
	}
	m := &Moves{MiB: 1, Rounds: 1}
	if err := m.take(logOf(m, func(int) float64 { return 1 }), 0); err == nil {
		t.Error("nothing was moved, and something was measured")
	}
	m.MovedMiB = 1
	if err := m.take(&openloop.Log{}, 0); err == nil {
		t.Error("there were no requests")
	}
}

// On a machine of one memory node nothing is measured, and that is said.
func TestMovesWithoutNodes(t *testing.T) {
	m, err := measureMoves(t.Context(), hostfs.NewRoot(t.TempDir()), nil, &Options{})
	if err != nil || m.Why == "" {
		t.Fatalf("%+v, %v", m, err)
	}
	r := &Result{Moves: m}
	r.Goals = goals(r)
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "NOT MEASURED HERE") || len(r.Goals) != 0 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Pages go to the node that is asked for, and not beyond the time that there is.
func TestMoveAll(t *testing.T) {
	fsys := hostfs.NewRoot("/")
	top, err := numa.ReadTopology(fsys)
	if err != nil || len(top.MemoryNodes()) < 2 {
		t.Skip("this machine has no two memory nodes")
	}
	st := openStage(t)
	_, pids, err := startIdle(st, 1, 16)
	if err == nil {
		err = filled(t.Context(), pids, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &Moves{}
	if err := m.moveAll(t.Context(), fsys, pids[0], top.MemoryNodes()[1], 0); m.MovedMiB != 0 || err != nil {
		t.Errorf("%v MiB after the time, %v", m.MovedMiB, err)
	}
	for _, node := range top.MemoryNodes()[:2] {
		if err := m.moveAll(t.Context(), fsys, pids[0], node, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
	}
	if m.MovedMiB < 8 {
		t.Errorf("%v MiB moved", m.MovedMiB)
	}
}
