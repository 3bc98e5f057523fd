package antagonist

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/model"
)

// formula is the dumb twin: CPI² §4.2, transcribed line by line.
func formula(c, u []float64, threshold float64) float64 {
	sum := 0.0
	for i := range u {
		sum += u[i]
	}
	correlation := 0.0
	for i := range c {
		ui := u[i] / sum
		if c[i] > threshold {
			correlation += ui * (1 - threshold/c[i])
		} else if c[i] < threshold {
			correlation += ui * (c[i]/threshold - 1)
		}
	}
	return correlation
}

// fill writes a victim (task 1) and suspects (2, 3, ...) into a history.
func fill(signal []float64, usages ...[]float64) *History {
	h := NewHistory(len(signal))
	h.Ensure(1)
	for i := range usages {
		h.Ensure(model.TaskNum(2 + i))
	}
	for k, c := range signal {
		h.Begin(int64(k) * 1e9)
		h.Put(1, 1, c)
		for i, u := range usages {
			h.Put(model.TaskNum(2+i), u[k], NoEvidence)
		}
		h.End()
	}
	return h
}

func scoreOf(t *testing.T, a *Analysis, num model.TaskNum) float64 {
	t.Helper()
	for _, s := range a.Scores {
		if s.Num == num {
			return s.Value
		}
	}
	t.Fatalf("task %d was not scored: %+v", num, a.Scores)
	return 0
}

func TestSection42_CorrelationFormula(t *testing.T) {
	tests := []struct {
		name      string
		signal    []float64
		usage     []float64
		threshold float64
		want      float64
	}{
		{"runs only in the bad window, twice the threshold", []float64{4, 1}, []float64{3, 0}, 2, 0.5},
		{"runs only in the good window, half the threshold", []float64{4, 1}, []float64{0, 3}, 2, -0.5},
		{"steady", []float64{4, 1}, []float64{2, 2}, 2, 0},
		{"three quarters of its usage in the bad window", []float64{4, 1}, []float64{3, 1}, 2, 0.25},
		{"a window exactly at the threshold adds nothing", []float64{2, 4}, []float64{1, 1}, 2, 0.25},
		{"never bad", []float64{1, 1}, []float64{1, 1}, 2, -0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var a Analysis
			fill(tt.signal, tt.usage).Correlate(&Params{Threshold: 0.35}, 1, tt.threshold, &a)
			if got := scoreOf(t, &a, 2); math.Abs(got-tt.want) > 1e-12 {
				t.Errorf("score %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSection42_DumbTwin(t *testing.T) {
	const seed = 42
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 2000 {
		n := 1 + rng.IntN(60)
		threshold := 0.1 + 3*rng.Float64()
		c, u := make([]float64, n), make([]float64, n)
		var cc, uu []float64 // those of windows with evidence
		for i := range c {
			c[i], u[i] = 6*rng.Float64(), 8*rng.Float64()
			if rng.IntN(10) == 0 {
				c[i] = threshold
			}
			if rng.IntN(5) == 0 {
				c[i] = NoEvidence
				continue
			}
			cc, uu = append(cc, c[i]), append(uu, u[i])
		}
		var a Analysis
		fill(c, u).Correlate(&Params{Threshold: 0.35}, 1, threshold, &a)
		if len(cc) == 0 {
			if len(a.Scores) != 0 {
				t.Fatalf("seed %d run %d: scores without evidence", seed, run)
			}
			continue
		}
		got, want := scoreOf(t, &a, 2), formula(cc, uu, threshold)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("seed %d run %d: score %v, the formula gives %v", seed, run, got, want)
		}
		if got < -1 || got > 1 {
			t.Fatalf("seed %d run %d: score %v is outside [-1, 1]", seed, run, got)
		}
		if a.Windows != len(cc) {
			t.Fatalf("seed %d run %d: %d windows, want %d", seed, run, a.Windows, len(cc))
		}
	}
}

// The numbers of the package comment: 60 % antagonist duty, a signal of 7 against 1.1,
// a threshold of 1.3, an innocent that is steady.
func TestSlowdownOffsetAndBound(t *testing.T) {
	var signal, guilty, innocent []float64
	for i := range 100 {
		c, g := 1.1, 0.0
		if i%10 < 6 {
			c, g = 7, 2
		}
		signal, guilty, innocent = append(signal, c), append(guilty, g), append(innocent, 1)
	}
	tests := []struct {
		p                Params
		guilty, innocent float64
	}{
		{Params{}, 0.81, 0.43},
		{Params{Offset: 1}, 0.95, 0.30},
		{Params{Offset: 1, Bound: 2}, 0.5, 0.03},
	}
	for _, tt := range tests {
		var a Analysis
		fill(signal, guilty, innocent).Correlate(&tt.p, 1, 1.3, &a)
		if g, i := scoreOf(t, &a, 2), scoreOf(t, &a, 3); math.Abs(g-tt.guilty) > 0.006 || math.Abs(i-tt.innocent) > 0.006 {
			t.Errorf("%+v: guilty %.3f, innocent %.3f; want %.2f and %.2f", tt.p, g, i, tt.guilty, tt.innocent)
		}
		if a.Bad != 60 || a.Windows != 100 || a.Scores[0].Usage != 2 {
			t.Errorf("%d of %d windows bad, usage %v", a.Bad, a.Windows, a.Scores[0].Usage)
		}
	}
}

func TestNeeded(t *testing.T) {
	scores := func(v ...float64) *Analysis {
		a := &Analysis{}
		for i, x := range v {
			a.Scores = append(a.Scores, Score{Num: model.TaskNum(i), Value: x})
		}
		a.Median = median(a.Scores)
		return a
	}
	tests := []struct {
		name     string
		p        Params
		a        *Analysis
		want     float64
		byMargin bool
	}{
		{"section 4.2: 0.35", Params{Threshold: 0.35}, scores(0.9, 0.8, 0.7), 0.35, false},
		{"too few for a median", Params{Threshold: 0.25, Margin: 0.15}, scores(0.9, 0.8), 0.25, false},
		{"a crowd that correlates", Params{Threshold: 0.25, Margin: 0.15}, scores(0.6, 0.5, 0.4), 0.65, true},
		{"a crowd that does not", Params{Threshold: 0.25, Margin: 0.15}, scores(0.6, 0.05, 0), 0.25, false},
		{"even number", Params{Threshold: 0.25, Margin: 0.15}, scores(0.9, 0.6, 0.4, 0.1), 0.65, true},
		{"never more than 1", Params{Threshold: 0.25, Margin: 0.5}, scores(0.9, 0.9, 0.9), 1, true},
		{"nobody", Params{Threshold: 0.25, Margin: 0.15}, scores(), 0.25, false},
	}
	for _, tt := range tests {
		got, by := tt.p.Needed(tt.a)
		if math.Abs(got-tt.want) > 1e-12 || by != tt.byMargin {
			t.Errorf("%s: %v, %v; want %v, %v", tt.name, got, by, tt.want, tt.byMargin)
		}
	}
}

// Whatever is put in, what comes out can be written as JSON and scores stay in [-1, 1].
func TestAdversarialInputs(t *testing.T) {
	odd := []float64{0, 1, -1, -5, 1e-308, 5e-324, 1e19, 1e300, math.MaxFloat64, -math.MaxFloat64, math.NaN(), math.Inf(1), math.Inf(-1), NoEvidence, 1.3, 2}
	params := []Params{{Threshold: 0.35}, {Offset: 1, Bound: 2, Margin: 0.15, MinSuspectCPU: 0.1}, {Offset: 1}, {Bound: 2}}
	rng := rand.New(rand.NewPCG(7, 0))
	for run := range 5000 {
		n := 1 + rng.IntN(12)
		rows := make([][]float64, 4)
		for i := range rows {
			for range n {
				rows[i] = append(rows[i], odd[rng.IntN(len(odd))])
			}
		}
		h := fill(rows[0], rows[1:]...)
		p := params[rng.IntN(len(params))]
		threshold := odd[rng.IntN(len(odd))]
		var a Analysis
		h.Correlate(&p, 1, threshold, &a)
		what := fmt.Sprintf("run %d: %+v, threshold %v, rows %v", run, p, threshold, rows)
		for i, s := range a.Scores {
			if !(s.Value >= -1 && s.Value <= 1) || math.IsNaN(s.Usage) || math.IsInf(s.Usage, 0) || s.Usage < 0 {
				t.Fatalf("%s: %+v", what, s)
			}
			if i > 0 && s.Value > a.Scores[i-1].Value {
				t.Fatalf("%s: out of order", what)
			}
		}
		for _, v := range []any{&a, h} {
			if _, err := json.Marshal(v); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

func TestHistoryWrapsAndForgets(t *testing.T) {
	h := NewHistory(3)
	h.Ensure(5)
	h.Ensure(2)
	for i := range 5 {
		h.Begin(int64(i))
		h.Put(2, float64(i), float64(10+i))
		h.Put(9, 1, 1) // unknown: ignored
		h.End()
	}
	r := h.Rows[0]
	if r.Num != 2 || h.Filled != 3 || h.Next != 2 {
		t.Fatalf("%+v", h)
	}
	if r.Usage[0] != 3 || r.Usage[1] != 4 || r.Usage[2] != 2 || r.Signal[1] != 14 || h.AtNsec[0] != 3 {
		t.Errorf("ring %v %v %v", r.Usage, r.Signal, h.AtNsec)
	}
	if u := h.Rows[1]; u.Num != 5 || u.Signal[0] != NoEvidence || u.Usage[0] != 0 {
		t.Errorf("a task that was not put: %+v", u)
	}
	h.Forget(2)
	h.Forget(2)
	if err := h.Check(); err != nil || len(h.Rows) != 3 || h.Rows[0].Num != 5 {
		t.Errorf("%v %+v", err, h.Rows)
	}
}

func TestCheck(t *testing.T) {
	good := func() *History { h := NewHistory(4); h.Ensure(1); return h }
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	breaks := map[string]func(*History){
		"capacity":     func(h *History) { h.Cap = 0 },
		"next":         func(h *History) { h.Next = 4 },
		"next below":   func(h *History) { h.Next = -1 },
		"filled":       func(h *History) { h.Filled = 5 },
		"times":        func(h *History) { h.AtNsec = nil },
		"usage":        func(h *History) { h.Rows[0].Usage = h.Rows[0].Usage[:3] },
		"signal":       func(h *History) { h.Rows[2].Signal = nil },
		"order":        func(h *History) { h.Rows[0], h.Rows[1] = h.Rows[1], h.Rows[0] },
		"number twice": func(h *History) { h.Rows[0].Num = h.Rows[1].Num },
	}
	for name, f := range breaks {
		h := good()
		f(h)
		if h.Check() == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func crowd(windows, suspects int) *History {
	rng := rand.New(rand.NewPCG(1, 1))
	h := NewHistory(windows)
	for i := range suspects + 1 {
		h.Ensure(model.TaskNum(1 + i))
	}
	for k := range windows {
		h.Begin(int64(k))
		for i := range suspects + 1 {
			h.PutAt(i, rng.Float64(), 1+rng.Float64())
		}
		h.End()
	}
	return h
}

func TestCorrelateDoesNotAllocate(t *testing.T) {
	h := crowd(60, 20)
	var a Analysis
	p := &Params{Threshold: 0.35, Margin: 0.15}
	h.Correlate(p, 1, 1.5, &a)
	if n := testing.AllocsPerRun(100, func() { h.Correlate(p, 1, 1.5, &a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// CPI² §4.2: "A single correlation-analysis typically takes about 100 us".
func BenchmarkCorrelate(b *testing.B) {
	for _, windows := range []int{10, 120, 600} {
		b.Run(fmt.Sprintf("windows=%d/suspects=50", windows), func(b *testing.B) {
			h := crowd(windows, 50)
			var a Analysis
			p := &Params{Threshold: 0.35}
			b.ReportAllocs()
			for b.Loop() {
				h.Correlate(p, 1, 1.5, &a)
			}
		})
	}
}
