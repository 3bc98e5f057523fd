package burst

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func small() Params {
	p := Defaults()
	p.Seconds, p.Draws = 20, 1
	return p
}

// One request at a time, counted by hand: a quota of 10 ms in 100, and 25 ms of work at
// once.
func TestSimulateByHand(t *testing.T) {
	p := Params{Applications: 1, PeriodMsec: 100, QuotaMsec: 10, Width: 1, PoolCPUs: 1, Seconds: 1, Source: fixed{{100, 25}, {900, 5}}, Seed: 1}
	for _, c := range []struct{ k, avg, most, throttled float64 }{
		// Without a bucket: 10 ms in each of 100-110, 200-210, then 5: done at 305, which
		// is 180 ms later than alone.
		{0, 90, 180, 0.2},
		// The quota of the first period was kept: 20 at once, then 5 from 200 on: done at
		// 205.
		{1, 40, 80, 0.1},
		{10, 40, 80, 0.1}, // there was no more to keep
	} {
		got := Simulate(&p, 0.03, c.k)
		want := Point{Utilisation: 0.03, K: c.k, Measured: got.Measured, DelayAvgMsec: c.avg, DelayMaxMsec: c.most, UMax: got.UMax, Throttled: c.throttled, ThrottledApp: 1}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("k = %g (-want +got):\n%s", c.k, d)
		}
		if math.Abs(got.Measured-0.03) > 1e-9 || math.Abs(got.UMax-0.05) > 1e-9 {
			t.Errorf("k = %g: used %g of the pool, at most %g", c.k, got.Measured, got.UMax)
		}
	}
}

// fixed is the same requests whatever is asked for.
type fixed []Request

func (f fixed) Requests(*rand.Rand, float64, int) []Request { return f }

// Both sources ask for what they were told to ask for.
func TestSources(t *testing.T) {
	trace := make(Trace, 5000)
	for i := range trace {
		if i%500 < 20 {
			trace[i] = 3
		}
	}
	for _, s := range []Source{Drawn{}, trace} {
		sum, last := 0.0, 0
		for _, r := range s.Requests(rand.New(rand.NewPCG(1, 1)), 0.9, 600_000) {
			if r.AtMsec < last || r.AtMsec >= 600_000 || !(r.CPU >= 0) {
				t.Fatalf("%T: %+v after %d", s, r, last)
			}
			last = r.AtMsec
			sum += r.CPU
		}
		if got := sum / 600_000; math.Abs(got-0.9) > 0.09 {
			t.Errorf("%T asks for %.3f CPUs, not 0.9", s, got)
		}
	}
	if got := (Trace{0, 0}).Requests(rand.New(rand.NewPCG(1, 1)), 1, 1000); len(got) != 0 {
		t.Errorf("an idle trace asks for %v", got)
	}
}

// What figure 14 shows: a larger bucket lowers both delays and hardly raises U_max; more
// load raises everything.
func TestFigure14(t *testing.T) {
	r := mustRun(t, small(), "drawn")
	for i := range gridU {
		for j := 1; j < len(gridK); j++ {
			if a, b := r.at(i, j-1), r.at(i, j); b.DelayAvgMsec > a.DelayAvgMsec+1e-9 || b.Throttled > a.Throttled+1e-9 {
				t.Errorf("at %.0f %% k = %g delays %.2f ms, and k = %g %.2f", gridU[i]*100, a.K, a.DelayAvgMsec, b.K, b.DelayAvgMsec)
			}
		}
		if none, ten := r.at(i, 0), r.at(i, len(gridK)-1); ten.DelayMaxMsec > none.DelayMaxMsec || ten.UMax > 1 {
			t.Errorf("at %.0f %%: %+v and %+v", gridU[i]*100, none, ten)
		}
	}
	if low, high := r.at(0, 0), r.at(len(gridU)-1, 0); high.DelayAvgMsec < low.DelayAvgMsec || high.UMax < low.UMax {
		t.Errorf("more load, and yet: %+v and %+v", low, high)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "figure 14c") || r.Recommended < 1 {
		t.Errorf("recommends %g, %v\n%s", r.Recommended, err, b.String())
	}
	p := small()
	if d := cmp.Diff(*r.at(5, 2), Simulate(&p, gridU[5], gridK[2])); d != "" {
		t.Errorf("the same point once more (-first +second):\n%s", d)
	}
}

func TestReadTrace(t *testing.T) {
	got, err := ReadTrace("a", strings.NewReader("# 1 ms\n0\n2.5\n\n 1 \n"))
	if err != nil || cmp.Diff(Trace{0, 2.5, 1}, got) != "" {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "a: no CPU use in 0 lines", "0\n0\n": "a: no CPU use in 2 lines", "1\nx\n": `a:2: "x": expected`,
		"1\n-1\n": `a:2: "-1": expected`, "NaN": `a:1: "NaN": expected`, "1\nInf": `a:2: "Inf": expected`,
	} {
		if _, err := ReadTrace("a", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestFacts(t *testing.T) {
	trace := make(Trace, 1000)
	for i := range 10 {
		trace[500+i] = 2
	}
	if got := trace.Facts(100); got.Seconds != 1 || got.MeanCPU != 0.02 || math.Abs(got.Largest-10) > 1e-9 || math.Abs(got.Idle-0.99) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if got := (Trace{1, 1}).Facts(100); got.Largest != 1 {
		t.Errorf("shorter than a period: %+v", got)
	}
	if got := (Trace{}).Facts(100); got != (Facts{}) {
		t.Errorf("empty: %+v", got)
	}
}

// A recommendation says what it is for, and what to mind.
func TestNotes(t *testing.T) {
	trace := make(Trace, 5000)
	for i := range trace {
		if i%1000 < 60 {
			trace[i] = 2
		}
	}
	p := small()
	p.Source = trace
	r := mustRun(t, p, "trace.txt")
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"what trace.txt recorded", "5 s, 0.12 CPU on average", "Recommended: k = ", "of 5 s only", "quota of 0.267 CPU"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, b.String())
		}
	}
	if r.Recommended < 1 {
		t.Errorf("k = %g for an application that works 60 ms at a time", r.Recommended)
	}
	for i := range trace {
		trace[i] = 0.1
	}
	if steady := mustRun(t, p, "steady"); steady.Recommended != 0 || !strings.Contains(strings.Join(steady.Notes, " "), "No bucket is needed") {
		t.Errorf("k = %g for one that works evenly: %v", steady.Recommended, steady.Notes)
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add("# 1 ms\n0\n2.5\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadTrace("a", strings.NewReader(text))
		for _, v := range got {
			if err != nil || !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%v in %v, %v", v, got, err)
			}
		}
	})
}

// mustRun plays the grid, which fails only when it is interrupted.
func mustRun(t *testing.T, p Params, source string) *Result {
	t.Helper()
	r, err := Run(t.Context(), p, source)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
