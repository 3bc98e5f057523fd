package spec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/commensal-io/commensal/fleet/wire"
	"github.com/commensal-io/commensal/model"
)

// A job is kept alike in its own room and in that of any other job: with more or fewer signals, nodes and tasks, with and without a spec.
func TestKeepIn(t *testing.T) {
	s, p, rng := New(), Defaults(), rand.New(rand.NewPCG(5, 5))
	p.MinTasks, p.MinSamplesPerTask = 1, 1
	for i := range 60 {
		if i == 30 {
			s.Calculate(&p, 1_790_000_000e9)
		}
		b := &wire.Batch{Node: fmt.Sprint("n", i%7), Platform: "cpu"}
		for tasks := range 1 + rng.IntN(4) {
			b.Tasks = append(b.Tasks, wire.Task{Path: fmt.Sprint("/", i, "-", tasks), Job: fmt.Sprint("job-", rng.IntN(40))})
		}
		for src := range model.Source(1 + rng.IntN(4)) {
			b.Samples.Signals = append(b.Samples.Signals, wire.Signal{Source: src, Definition: "d"})
		}
		x := &b.Samples
		for range 1 + rng.IntN(50) {
			x.Task, x.CPU, x.WallMsec, x.Flags = append(x.Task, uint32(rng.IntN(len(b.Tasks)))), append(x.CPU, 1), append(x.WallMsec, 0), append(x.Flags, wire.Usable) //nolint:gosec // few
			for k := range x.Signals {
				x.Signals[k].Values = append(x.Signals[k].Values, rng.Float32())
			}
		}
		s.Add(&p, b)
	}
	var room KeptJob
	with, without := 0, 0
	for range 3 {
		for k, j := range s.Jobs {
			j.KeepIn(&room, k)
			if diff := cmp.Diff(j.Keep(k), &room, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", k, diff)
			}
			for i := range room.Signals {
				if room.Signals[i].Spec != nil {
					with++
				} else {
					without++
				}
			}
		}
	}
	if with < 50 || without < 50 {
		t.Errorf("%d signals with a spec and %d without: this tests nothing", with, without)
	}
}
