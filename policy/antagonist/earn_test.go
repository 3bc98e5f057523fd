package antagonist

import (
	"math/rand/v2"
	"testing"
)

// The hot loop in assembly adds in the same order as the one in Go: no bit may differ.
func TestEarnIsTheSameInAssembly(t *testing.T) {
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 200 {
		n := rng.IntN(700)
		var usage [lanes][]float64
		for k := range usage {
			usage[k] = make([]float64, n)
			for i := range usage[k] {
				usage[k][i] = rng.ExpFloat64() * float64(rng.IntN(3))
			}
		}
		var ws []weighted
		for i := range n {
			if rng.IntN(3) > 0 {
				ws = append(ws, weighted{i, 2*rng.Float64() - 1})
			}
		}
		var got, want earnings
		earn(ws, &usage, &got)
		earnPortable(ws, &usage, &want)
		if got != want {
			t.Fatalf("seed %d, round %d, %d windows:\n got %v\nwant %v", seed, round, len(ws), got, want)
		}
	}
}
