package antagonist

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/commensal-io/commensal/model"
)

var usual = GroupParams{MaxMembers: 4, Explained: 0.5, Gain: 0.05, Chance: 0.02, Threshold: 0.2}

// searchGroup looks for a group among tasks 2, 3, ... of a history that fill has made.
func searchGroup(h *History, g GroupParams, first model.TaskNum, flags ...func(*Candidate)) *Group {
	p := &Params{Threshold: 0.35}
	var a Analysis
	h.Correlate(p, 1, 1.2, &a)
	var cands, rivals []Candidate
	for _, s := range a.Scores {
		c := Candidate{Score: s}
		for _, f := range flags {
			f(&c)
		}
		if s.Num >= model.NumUnmanaged {
			rivals = append(rivals, c)
			continue
		}
		cands = append(cands, c)
	}
	var out Group
	h.Group(p, &g, 1, 1.2, cands, rivals, first, &out)
	return &out
}

func members(g *Group) []model.TaskNum {
	var nums []model.TaskNum
	for _, m := range g.Members {
		nums = append(nums, m.Num)
	}
	slices.Sort(nums)
	return nums
}

// world makes a victim hurt by the first `guilty` of n tasks that burst on their own, and a
// steady task at the end.
func world(seed uint64, windows, n, guilty int, each, noise float64) ([]float64, [][]float64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	usages := make([][]float64, n+1)
	on := make([]bool, n)
	signal := make([]float64, windows)
	for i := range usages {
		usages[i] = make([]float64, windows)
	}
	for k := range windows {
		signal[k] = 1 + noise*rng.NormFloat64()
		for i := range n {
			if rng.Float64() < 0.35 {
				on[i] = !on[i]
			}
			usages[i][k] = 0.05
			if on[i] {
				usages[i][k] = 2
			}
			if i < guilty {
				signal[k] += each * usages[i][k]
			}
		}
		usages[n][k] = 1.5
	}
	return signal, usages
}

func TestGroupOfThree(t *testing.T) {
	signal, usages := world(1, 120, 8, 3, 0.15, 0.02)
	h := fill(signal, usages...)
	var a Analysis
	h.Correlate(&Params{Threshold: 0.35}, 1, 1.2, &a)
	for _, s := range a.Scores {
		if s.Value >= 0.35 {
			t.Fatalf("task %d reaches the threshold alone: %+v", s.Num, a.Scores)
		}
	}
	g := searchGroup(h, usual, NoTask)
	if got := members(g); !slices.Equal(got, []model.TaskNum{2, 3, 4}) {
		t.Fatalf("members %v, want 2, 3, 4: %+v", got, g.Members)
	}
	if g.Explained < 0.9 {
		t.Errorf("explains %.2f", g.Explained)
	}
	for _, m := range g.Members {
		if m.Gain < usual.Gain || m.Alike {
			t.Errorf("member %+v", m)
		}
	}
}

// Why not CPI²'s score: that of a summed usage lies between the members' scores.
func TestSummedUsageScoresBetween(t *testing.T) {
	signal, usages := world(2, 120, 3, 3, 0.15, 0.02)
	sum := make([]float64, len(signal))
	for k := range sum {
		sum[k] = usages[0][k] + usages[1][k] + usages[2][k]
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, u := range usages[:3] {
		s := formula(signal, u, 1.2)
		lo, hi = min(lo, s), max(hi, s)
	}
	if s := formula(signal, sum, 1.2); s < lo-1e-9 || s > hi+1e-9 {
		t.Errorf("the sum scores %v, the members %v to %v", s, lo, hi)
	}
}

// Two that take turns all the time, beside a steady innocent.
func TestTurns(t *testing.T) {
	signal, a, b, s := make([]float64, 80), make([]float64, 80), make([]float64, 80), make([]float64, 80)
	for k := range signal {
		signal[k], a[k], b[k], s[k] = 1+0.01*float64(k%3), 0.02, 0.02, 1.5
		switch k % 12 {
		case 0, 1, 2, 3:
			a[k], signal[k] = 2, 1.9+0.01*float64(k%3)
		case 6, 7, 8, 9:
			b[k], signal[k] = 2, 1.9+0.01*float64(k%3)
		}
	}
	h := fill(signal, a, b, s)
	if got := members(searchGroup(h, usual, NoTask)); !slices.Equal(got, []model.TaskNum{2, 3}) {
		t.Errorf("members %v", got)
	}
	if got := members(searchGroup(h, usual, 3)); !slices.Equal(got, []model.TaskNum{2, 3}) {
		t.Errorf("with a first member: %v", got)
	}
}

// One onset proves nothing: whoever starts with it explains it.
func TestOneOnsetIsNoGroup(t *testing.T) {
	signal, a, b := make([]float64, 60), make([]float64, 60), make([]float64, 60)
	for k := range signal {
		signal[k], a[k], b[k] = 1, 0.1, 0.1+0.001*float64(k%5)
		if k >= 50 {
			signal[k], a[k], b[k] = 2, 2, 3
		}
	}
	if g := searchGroup(fill(signal, a, b), usual, NoTask); len(g.Members) > 0 {
		t.Errorf("members %+v", g.Members)
	}
}

// Two of the same rhythm are both members and share what they explain; the larger is first.
func TestAlike(t *testing.T) {
	signal, usages := world(3, 120, 1, 1, 0.3, 0.02)
	twin := make([]float64, len(signal))
	for k, u := range usages[0] {
		twin[k] = u / 2
	}
	g := searchGroup(fill(signal, usages[0], twin, usages[1]), usual, NoTask)
	if len(g.Members) != 2 || g.Members[0].Num != 2 || g.Members[1].Num != 3 || g.Members[0].Alike == g.Members[1].Alike {
		t.Fatalf("members %+v", g.Members)
	}
	if r := g.Members[0].Gain / g.Members[1].Gain; math.Abs(r-2) > 0.1 {
		t.Errorf("gains %+v", g.Members)
	}
}

// A suspect that nobody can hold and that explains as much voids the group; one that was
// found guilty is a group by itself; what is held explains, and is no news.
func TestGroupOfOthers(t *testing.T) {
	signal, usages := world(4, 120, 4, 2, 0.2, 0.02)
	h := fill(signal, usages...)
	if len(searchGroup(h, usual, NoTask).Members) != 2 {
		t.Fatal("no group to begin with")
	}
	for k, i := 0, 0; k < h.Cap; k, i = k+1, i+1 {
		h.Rows[len(h.Rows)-2].Usage[i] = usages[0][k] + usages[1][k]
	}
	if g := searchGroup(h, usual, NoTask); len(g.Members) > 0 {
		t.Errorf("unmanaged CPU explains it as well: %+v", g.Members)
	}
	signal, usages = world(5, 120, 4, 1, 0.3, 0.02)
	h = fill(signal, usages...)
	if g := searchGroup(h, usual, NoTask); len(g.Members) > 0 {
		t.Errorf("one is no group: %+v", g.Members)
	}
	guilty := func(c *Candidate) { c.Guilty = c.Num == 2 }
	if got := members(searchGroup(h, usual, NoTask, guilty)); !slices.Equal(got, []model.TaskNum{2}) {
		t.Errorf("found guilty before: %v", got)
	}
	held := func(c *Candidate) { c.Guilty, c.Held = c.Num == 2, c.Num == 2 }
	if g := searchGroup(h, usual, NoTask, held); len(g.Members) > 0 {
		t.Errorf("nobody new: %+v", g.Members)
	}
}

// Where nobody is guilty a group is found as seldom as Chance says, by and large, for ten
// windows and for many, in steps and in noise.
func TestGroupByChance(t *testing.T) {
	for _, windows := range []int{10, 30, 120} {
		found := 0
		const worlds = 400
		for seed := range uint64(worlds) {
			signal, usages := world(100+seed, windows, 30, 0, 0, 0.02)
			other, _ := world(9000+seed, windows, 2, 2, 0.4, 0.02)
			copy(signal, other) // distress from somewhere else
			g := usual
			g.Explained, g.Gain, g.Threshold = 0, 0, 0.001
			if len(searchGroup(fill(signal, usages...), g, NoTask).Members) > 0 {
				found++
			}
		}
		t.Logf("%d windows: %d of %d worlds without a guilty one show a group", windows, found, worlds)
		if found > worlds/20 {
			t.Errorf("%d windows: %d of %d", windows, found, worlds)
		}
	}
}

// Whatever is in the history, the result is finite, within bounds, sorted, the same twice.
func TestGroupStaysSound(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := 1 + rng.IntN(40)
		odd := func() float64 {
			return []float64{0, 1, 1e-300, 1e30, math.NaN(), math.Inf(1), -1, rng.Float64(), rng.ExpFloat64(), 1.2}[rng.IntN(10)]
		}
		signal := make([]float64, n)
		usages := make([][]float64, 1+rng.IntN(12))
		for k := range signal {
			signal[k] = odd()
		}
		for i := range usages {
			usages[i] = make([]float64, n)
			for k := range usages[i] {
				usages[i][k] = odd()
			}
		}
		h := fill(signal, usages...)
		g := usual
		g.Explained, g.Gain, g.Chance, g.Threshold = 0, 0, 0.5, 0
		first := model.TaskNum(2 + rng.IntN(6))
		a, b := searchGroup(h, g, first), searchGroup(h, g, first)
		if !slices.Equal(a.Members, b.Members) || len(a.Members) > g.MaxMembers {
			t.Fatalf("seed %d: %+v, %+v", seed, a.Members, b.Members)
		}
		for i, m := range a.Members {
			if !(m.Gain >= 0 && m.Gain <= 1) || !(m.Score >= -1 && m.Score <= 1) || (i > 0 && m.Gain > a.Members[i-1].Gain) {
				t.Fatalf("seed %d: %+v", seed, a.Members)
			}
		}
		if !(a.Explained >= 0 && a.Explained <= 1) || !(a.Score >= -1 && a.Score <= 1) {
			t.Fatalf("seed %d: explained %v, score %v", seed, a.Explained, a.Score)
		}
	}
}

// A steady suspect's score follows the victim, and a margin over it keeps it out.
func TestMarginOverSteady(t *testing.T) {
	signal, flat, guilty := make([]float64, 20), make([]float64, 20), make([]float64, 20)
	for k := range signal {
		signal[k], flat[k], guilty[k] = 3, 1, 2
		if k < 3 {
			signal[k], guilty[k] = 1, 0
		}
	}
	h := fill(signal, flat, guilty)
	var a Analysis
	p := &Params{Threshold: 0.35, Steady: 0.05}
	h.Correlate(p, 1, 1.2, &a)
	if s := scoreOf(t, &a, 2); math.Abs(s-a.Steady) > 1e-9 || s < 0.35 {
		t.Errorf("a steady suspect scores %v, not %v", s, a.Steady)
	}
	needed, byMargin := p.Needed(&a)
	if byMargin || needed <= scoreOf(t, &a, 2) || needed > scoreOf(t, &a, 3) {
		t.Errorf("asked for %v; steady %v, guilty %v", needed, scoreOf(t, &a, 2), scoreOf(t, &a, 3))
	}
}
