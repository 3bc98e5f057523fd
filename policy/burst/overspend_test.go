package burst_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
	"github.com/commensal-io/commensal/policy/burst"
)

// adversary asks for what hurts most. It knows the kernel's state and spends at random
// moments, or at the worst ones: just before and after a raise is written, and at the end.
func adversary(rng *rand.Rand) work {
	mode, left := 0, int64(0)
	was := int64(0)
	return func(_ int64, g *group) float64 {
		if left--; left <= 0 {
			mode, left = rng.IntN(6), 20+rng.Int64N(3000)
		}
		raised := g.now().QuotaUsec > g.found.QuotaUsec
		changed := g.now().QuotaUsec != was
		was = g.now().QuotaUsec
		all := math.Inf(1)
		switch mode {
		case 0:
			return 0
		case 1:
			return all
		case 2: // hoard, and spend all at each write
			if changed {
				return all
			}
			return 0
		case 3: // as much as it can while raised, and something to look hot else
			if raised || rng.IntN(400) == 0 {
				return all
			}
			return 0
		case 4: // spikes
			if rng.IntN(150) == 0 {
				return all
			}
			return rng.Float64() * 1500
		}
		return rng.Float64() * 4000 // about the quota, unevenly
	}
}

// oracle sees all that the policy sees. It gets itself raised, brings its savings down to the
// reserve while the kernel's bucket stays full, and when a pulse has just found it at the
// reserve, it spends all that it gets until the raise is over and beyond.
func oracle(h *host) work {
	attack := int64(0)
	return func(ms int64, g *group) float64 {
		if len(h.s.Tasks) == 0 {
			return 0
		}
		t, all := &h.s.Tasks[0], math.Inf(1)
		switch {
		case ms < attack:
			return all
		case t.RaisedUsec == 0 || g.now().QuotaUsec == g.found.QuotaUsec:
			if !t.Hot(h.p, ms*1e6) { // be seen
				return all
			}
			return 0 // hoard
		}
		q := float64(g.found.QuotaUsec)
		reserve := t.Reserve(h.p, h.s.Bound.K, float64(t.RaisedUsec)/q)
		full := g.runtime >= float64(g.now().QuotaUsec+g.now().BurstUsec)-1
		if t.SeenNsec/1e6 == ms && t.Level < reserve+q/4 && full {
			attack = ms + 400
			return all
		}
		// What the kernel gives back before the next pulse may go.
		if last := (ms+1+g.phase)%(g.now().PeriodUsec/1000) == 0; last {
			return max(0, min(g.level-reserve-q/10, float64(g.now().QuotaUsec)))
		}
		return 0
	}
}

// play lets an adversary at the policy and returns the greatest debt, in quotas.
func play(p burst.Params, bound float64, seed uint64, period int64) (debt float64, raises int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	g := newGroup(1, 2*period, period)
	g.phase = rng.Int64N(period / 1000)
	h := newHost(p, bound, g)
	late := p.LateNsec / 1e6
	delay := func() int64 { return rng.Int64N(late / 5) }
	gap := func() int64 { return 1 + rng.Int64N(late-late/5-1) } // pulse to pulse, and then the next landing
	if rng.IntN(2) == 0 {
		gap = every(late - late/5)
	}
	ask := adversary(rng)
	if seed%2 == 0 {
		ask = oracle(h)
	}
	h.run(120_000, gap, delay, ask)
	return -g.least / float64(g.found.QuotaUsec), h.Count(model.DecideRaise)
}

// The bound of the package comment holds whatever the task does; and it is no idle one: where
// it is not 0, some adversary gets a good part of the way.
func TestWorstOverspend(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		bound, over float64
		period      int64
		near        float64
	}{{1, 4, 100_000, 1.5}, {1, 0, 100_000, 0}, {0, 4, 100_000, 2.5}, {1, 4, 20_000, 0}, {0, 1, 250_000, 0}} {
		t.Run(fmt.Sprintf("bound %g, overspend %g, period %d us", tc.bound, tc.over, tc.period), func(t *testing.T) {
			t.Parallel()
			p := burst.Defaults()
			p.MaxOverspend, p.RestNsec, p.QuietNsec = tc.over, 200e6, 2e9
			worst, raises := 0.0, 0
			for seed := range uint64(40) {
				debt, n := play(p, tc.bound, seed, tc.period)
				worst, raises = max(worst, debt), raises+n
				// The ideal bucket is followed by the millisecond.
				if slop := 1000 / float64(tc.period); debt > tc.over+slop {
					t.Fatalf("overspent %.3f quotas, want at most %g (replay: play(p, %g, %d, %d))", debt, tc.over, tc.bound, seed, tc.period)
				}
			}
			if tc.near > worst {
				t.Errorf("worst overspend %.2f quotas: these adversaries are tame", worst)
			}
			t.Logf("worst overspend %.2f of %g quotas over %d raises", worst, tc.over, raises)
		})
	}
}

// Without the reserve the same adversaries break the bound: the test can fail.
func TestWorstOverspendWithoutReserve(t *testing.T) {
	t.Parallel()
	p := burst.Defaults()
	p.MaxOverspend, p.RestNsec, p.QuietNsec = 1e3, 200e6, 2e9
	worst := 0.0
	for seed := range uint64(20) {
		debt, _ := play(p, 1, seed, 100_000)
		worst = max(worst, debt)
	}
	if worst < 4 {
		t.Errorf("worst overspend without a reserve %.2f quotas: these adversaries are tame", worst)
	}
	t.Logf("worst overspend without a reserve: %.2f quotas", worst)
}
