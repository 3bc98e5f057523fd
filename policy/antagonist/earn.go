package antagonist

// lanes is how many suspects the hot loop takes at once: their sums do not wait for one
// another, which is twice as fast as one after the other.
const lanes = 8

// earnings are what some suspects used in some windows, in CPU-sec/sec summed over the
// windows, and what that earns them.
type earnings struct{ used, earned [lanes]float64 }

// earnPortable is the hot loop in Go. Four suspects go through together: for more the
// compiler has too few registers. earn is the same to the last bit.
func earnPortable(ws []weighted, usage *[lanes][]float64, out *earnings) {
	for k := 0; k < lanes; k += 4 {
		a := usage[k]
		b, c, d := usage[k+1][:len(a)], usage[k+2][:len(a)], usage[k+3][:len(a)]
		var usedA, usedB, usedC, usedD, earnedA, earnedB, earnedC, earnedD float64
		for _, w := range ws {
			i := w.window
			if uint(i) >= uint(len(a)) {
				break // never; it spares a check for each of the four
			}
			ua, ub, uc, ud := a[i], b[i], c[i], d[i]
			usedA += ua
			earnedA += ua * w.weight
			usedB += ub
			earnedB += ub * w.weight
			usedC += uc
			earnedC += uc * w.weight
			usedD += ud
			earnedD += ud * w.weight
		}
		copy(out.used[k:], []float64{usedA, usedB, usedC, usedD})
		copy(out.earned[k:], []float64{earnedA, earnedB, earnedC, earnedD})
	}
}
