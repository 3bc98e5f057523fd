package linux

import (
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/kernel/numa"
	"github.com/commensal-io/commensal/model"
)

// However its processes' pages lie, a task has as many per mille on the nodes afterwards as was asked for, to the page; no page goes onto them, none is lost, and
// asked again nothing is to move.
func TestSharesOfATask(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		nodes := 2 + rng.IntN(4)
		var off model.CPUSet
		off.Add(0)
		if nodes > 2 && rng.IntN(2) == 0 {
			off.Add(1)
		}
		var onto []int
		for n := range nodes {
			if !off.Has(n) && (len(onto) == 0 || n < nodes-1 || rng.IntN(2) == 0) { // the last may have no CPUs
				onto = append(onto, n)
			}
		}
		list := make([]numa.TargetState, 1+rng.IntN(5))
		for i := range list {
			for n := range nodes {
				if rng.IntN(3) > 0 {
					list[i].Before = list[i].Before.Add(n, uint64(rng.Int64N(1<<(3+rng.IntN(36)))))
				}
			}
		}
		ask := model.Pages(int64(rng.IntN(1001)), off.Members()...)
		var there, sum uint64
		for i := range list {
			on, of := onNodes(list[i].Before, off)
			there, sum = there+on, sum+of
		}
		keep := min(there, times(sum, uint64(ask.Amount), 1000))
		left := uint64(0)
		for i, shares := range wanted(list, ask, onto) {
			before := list[i].Before
			if shares == nil {
				on, _ := onNodes(before, off)
				left += on
				continue
			}
			var after numa.Counts
			for _, s := range shares {
				was, _ := before.Get(s.Node)
				if after = after.Add(s.Node, s.Parts); off.Has(s.Node) && s.Parts > was || !off.Has(s.Node) && s.Parts < was {
					t.Fatalf("seed %d: process %d had %v, is to have %v", seed, i, before, shares)
				}
			}
			if after.Total() != before.Total() {
				t.Fatalf("seed %d: process %d had %v, is to have %v", seed, i, before, shares)
			}
			on, _ := onNodes(after, off)
			left, list[i].Before = left+on, after
		}
		if left != keep {
			t.Fatalf("seed %d: %d pages are left, asked for %d of %d", seed, left, keep, sum)
		}
		for i, shares := range wanted(list, ask, onto) {
			if shares != nil {
				t.Fatalf("seed %d: asked again process %d is to have %v", seed, i, shares)
			}
		}
	}
}
