package machine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// What an MBA level lets through is a bound on a core, and no delay to one that asks less.
func TestGateBounds(t *testing.T) {
	move := func(threads, percent int, apki float64) float64 {
		c := oneSocket()
		c.ThreadsPerCore = 1
		m := newMachine(t, c)
		s := stream(threads)
		s.Overlap, s.Prefetched, s.WriteShare = 16, 0.9, 0
		s.APKI, s.Curve = apki, MissCurve{StepBytes: 2 << 20, MPKI: []float64{apki}}
		n := add(t, m, s)
		must(t, m.SetMBA(0, 0, percent))
		m.Advance(2e9)
		return float64(over(t, m, n, 1).MemBytes) / 1e9
	}
	for _, percent := range []int{10, 20, 30} {
		got, want := move(4, percent, 40), 4*2.2*float64(percent)/10
		if got > want || got < 0.8*want {
			t.Errorf("4 cores at %d %% move %.1f GB/s, let through are %.1f", percent, got, want)
		}
	}
	if low, high := move(4, 10, 2), move(4, 100, 2); low < 0.98*high {
		t.Errorf("little traffic is held back: %.2f GB/s at 10 %%, %.2f at 100", low, high)
	}
	if a, b := move(4, 70, 40), move(4, 90, 40); a != b {
		t.Errorf("70 %% is applied as 90: %.3f and %.3f GB/s", a, b)
	}
}

// One core takes from memory what it can have in flight, both of its threads no more.
func TestInFlight(t *testing.T) {
	c := oneSocket()
	c.CoresPerSocket = 1
	move := func(threads int) float64 {
		m := newMachine(t, c)
		s := stream(threads)
		s.Overlap, s.Prefetched, s.WriteShare, s.CPI = 16, 1, 0, 0.2
		n := add(t, m, s)
		m.Advance(2e9)
		return float64(over(t, m, n, 1).MemBytes) / 1e9
	}
	most := defaultInFlight * cacheLine / c.MemLatencyNsec
	if one, two := move(1), move(2); one > most || one < 0.85*most || two > most || two < 0.9*most {
		t.Errorf("%.1f and %.1f GB/s with one and two threads, in flight are at most %.1f", one, two, most)
	}
}

// The latency that meet finds is one at which what is asked for is delivered, or the
// highest there is.
func TestMeet(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		peak := math.Exp(20 + 6*rng.Float64())
		curve := skylakeDRAM.at(rng.Float64())
		var flows []flow
		for range 1 + rng.IntN(8) {
			f := flow{rate: peak * math.Exp(4*rng.NormFloat64()), fixed: math.Exp(2 * rng.NormFloat64()), slope: math.Exp(2 * rng.NormFloat64()), floorSlope: math.Exp(2 * rng.NormFloat64())}
			if rng.IntN(3) == 0 {
				f.gate = math.Exp(3 * rng.NormFloat64())
			}
			flows = append(flows, f)
		}
		asked := func(l float64) float64 {
			sum := 0.0
			for i := range flows {
				sum += flows[i].rate / gated(flows[i].ungated(l), flows[i].gate)
			}
			return sum
		}
		last := 1 + 70*rng.Float64()*rng.Float64()*rng.Float64()
		latency := meet(flows, peak, &curve, last)
		if !(latency >= 1 && latency <= maxLatency) || latency < maxLatency && asked(latency) > peak*1.0001 {
			t.Fatalf("latency %v, %v bytes asked for of a peak of %v", latency, asked(latency), peak)
		}
		off := asked(latency) - peak*curve.deliveredAt(latency)
		below := latency * (1 - 1.0/1000)
		switch {
		case latency >= maxLatency, off <= 0 && below < 1, off <= 1e-3*peak && asked(below) >= peak*curve.deliveredAt(below):
		default:
			t.Fatalf("at latency %v %v are asked for and %v delivered; a thousandth less: %v and %v; from %v",
				latency, asked(latency), peak*curve.deliveredAt(latency), asked(below), peak*curve.deliveredAt(below), last)
		}
	}
}

// A measured curve rises, and its inverse falls nowhere below the peak.
func TestLoadCurves(t *testing.T) {
	for _, d := range []DRAM{DDR4, DDR5} {
		for writes := 0.0; writes <= 1; writes += 0.1 {
			c := d.measured().at(writes)
			last := -1.0
			for l := 1.0; l < c.latency[loadPoints-1]; l += 0.001 {
				u := c.deliveredAt(l)
				if !(u >= last && u <= 1) {
					t.Fatalf("kind %d, %.1f writes: %v of the peak at latency %v, after %v", d, writes, u, l, last)
				}
				last = u
			}
			if u := c.deliveredAt(c.bent + 1); u >= 1 || u < 0.9 {
				t.Errorf("kind %d: beyond the bend %v of the peak", d, u)
			}
		}
	}
}

// A machine's own curve goes through its points, however few, and one that falls or ends early is refused.
func TestOwnLoadCurve(t *testing.T) {
	c := oneSocket()
	c.LoadCurve = []LoadPoint{{0, 1}, {0.5, 1.2}, {1, 3}}
	must(t, c.Check())
	d := c.curve()
	at := d.at(0.3)
	for latency, u := range map[float64]float64{1.1: 0.25, 1.2: 0.5, 2.1: 0.75, 3: 1} {
		if got := at.deliveredAt(latency); math.Abs(got-u) > 1e-9 {
			t.Errorf("at latency %v %v of the peak, wanted %v", latency, got, u)
		}
	}
	for _, bad := range [][]LoadPoint{{{0, 1}}, {{0.1, 1}, {1, 3}}, {{0, 1}, {0.9, 3}}, {{0, 1}, {0.5, 3}, {1, 2}}, {{0, 1}, {0.5, math.NaN()}, {1, 2}}, make([]LoadPoint, loadPoints+1)} {
		if c.LoadCurve = bad; c.Check() == nil {
			t.Errorf("%v is a curve", bad)
		}
	}
}

// On a core of whose threads one belongs to a throttled class, both are (intel-cmt-cat issue
// 219: nine times slower), unless MBA is per thread; a core apart is not.
func TestStricterSibling(t *testing.T) {
	cpi := func(sibling, percent int, perThread bool) float64 {
		c := oneSocket()
		c.CoresPerSocket, c.MBAPerThread = 4, perThread
		m := newMachine(t, c)
		a, b := stream(1), stream(1)
		a.Prefetched, b.Prefetched = 0.9, 0.9
		a.CPUs, _ = model.ParseCPUSet("0")
		b.CPUs = model.CPUSet{}
		b.CPUs.Add(sibling)
		n, be := add(t, m, a), add(t, m, b)
		k := m.AddCLOS()
		must(t, m.SetCLOS(be, k))
		must(t, m.SetMBA(k, 0, percent))
		m.Advance(2e9)
		got := over(t, m, n, 1)
		return got.cpi()
	}
	free, held := cpi(4, 100, false), cpi(4, 10, false)
	if held < 4*free {
		t.Errorf("beside a throttled sibling CPI %.2f, beside a free one %.2f", held, free)
	}
	if own := cpi(4, 10, true); own > 1.05*free {
		t.Errorf("with levels per thread CPI %.2f, free %.2f", own, free)
	}
	if far, near := cpi(1, 10, false), cpi(1, 100, false); far > 1.02*near {
		t.Errorf("a throttled neighbour on another core: CPI %.2f, free %.2f", far, near)
	}
}
