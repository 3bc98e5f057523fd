package bandwidth_test

import (
	"testing"

	"github.com/commensal-io/commensal/model"
)

// bursts plays hours of batch work that works for some windows and rests for as many, and does to LC's CPI what it does without a limit only (helps),
// or whatever its limit is.
func (b *bench) bursts(on int, helps bool) {
	for i := range 300 {
		be, of, latency, cpu := 0.0, 1.0, 130.0, 0.02
		if i/on%2 == 0 {
			if be, cpu = min(90, 2.6*float64(b.level)), 4; be > 70 || !helps {
				latency, of = 250, 1.3
			}
		}
		b.ran = cpu
		b.window(be+5, latency, of)
	}
}

// While batch work rests no service is disturbed, limit or none: such windows say nothing of the limit, though its level takes a while to go up.
func TestComparesWhileBatchWorks(t *testing.T) {
	for _, on := range []int{3, 6, 12, 30} {
		for _, helps := range []bool{true, false} {
			wrong := 0
			for seed := range uint64(100) {
				b := newBench(seed)
				b.bursts(on, helps)
				kept, back := b.count(model.DecideKept), b.count(model.DecideTakenBack)
				if helps && (kept == 0 || back > 0) || !helps && (back == 0 || kept > 0) {
					wrong++
				}
			}
			if wrong > 3 { // of 100, by chance
				t.Errorf("bursts of %d windows, the limit helps %t: wrong in %d of 100", on, helps, wrong)
			}
		}
	}
}

// A machine that is so busy that most readings of memory come late, for as long as batch work is let go to compare: such windows are no part of the trial.
func TestTrialWaitsForReadings(t *testing.T) {
	for seed := range uint64(20) {
		b := newBench(seed)
		for i := range 200 {
			of, latency, be := 1.0, 130.0, min(90, 2.6*float64(b.level))
			if be > 70 {
				of, latency = 1.3, 250
			}
			b.late = b.s.Probing > 0 && i%5 != 0
			b.window(be, latency, of)
		}
		if trials, kept := b.count(model.DecideTrial), b.count(model.DecideKept); trials != 1 || kept != 1 {
			t.Errorf("seed %d: %d trials, %d times kept", seed, trials, kept)
		}
	}
}
