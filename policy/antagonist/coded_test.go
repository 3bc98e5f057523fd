package antagonist_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/commensal-io/commensal/policy/antagonist"
)

// TestDesign: in a whole design everybody is held in half of the windows, and any two together in a quarter.
func TestDesign(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 7, 8, 50, antagonist.MaxCoded} {
		d := antagonist.Design{Suspects: n}
		order := d.Windows() + 1
		if order <= n || order > 2*n {
			t.Fatalf("%d suspects: %d windows", n, d.Windows())
		}
		together := make([][]int, n)
		for j := range together {
			together[j] = make([]int, n)
		}
		for w := range d.Windows() {
			held := d.Held(w)
			if held == 0 || bits.Len64(held) > n {
				t.Fatalf("%d suspects: window %d holds %b", n, w, held)
			}
			for j := range n {
				for k := range n {
					together[j][k] += int(held >> j & (held >> k) & 1)
				}
			}
		}
		for j := range n {
			for k := range n {
				want := order / 4
				if j == k {
					want = order / 2
				}
				if together[j][k] != want {
					t.Fatalf("%d suspects: %d and %d are held together in %d windows, want %d", n, j, k, together[j][k], want)
				}
			}
		}
	}
	for _, n := range []int{-1, 0} {
		if d := (antagonist.Design{Suspects: n}); d.Windows() != 0 || d.Looks() != 0 || d.Held(0) != 0 {
			t.Errorf("%d suspects: %d windows", n, d.Windows())
		}
	}
}

// TestEffects: without noise the effects are what was put in, for each cell at each look.
func TestEffects(t *testing.T) {
	truth := []float64{1, 0, -2, 0.5, 0, 3, 0.25}
	d := antagonist.Design{Suspects: len(truth)}
	var windows []antagonist.Coded
	for w := range d.Windows() {
		held, fell := d.Held(w), 0.0
		for j, e := range truth {
			fell += e * float64(held>>j&1)
		}
		windows = append(windows, antagonist.Coded{Held: held, Fell: fell})
		effects, ok := antagonist.Effects(windows, 3)
		if ok != d.Look(w+1) {
			t.Fatalf("after %d windows: %v", w+1, ok)
		}
		for _, e := range effects {
			want := 0.0
			for j := range truth {
				want += truth[j] * float64(e.Cell>>j&1)
			}
			if w+1 == d.Windows() && math.Abs(e.Fell-want) > 1e-9 { // before, cells that were not held are in the others' way
				t.Errorf("cell %b has %v, want %v", e.Cell, e.Fell, want)
			}
		}
	}
	effects, _ := antagonist.Effects(windows, 3)
	if len(effects) != len(truth) || math.Abs(effects[0].Error-math.Sqrt(17.0/32)) > 0.2 {
		t.Errorf("%d effects, the first with an error of %v", len(effects), effects[0].Error)
	}
}

// TestEffectsOdd: what cannot be told apart, or is no number, gives no effects; a hold that was refused is no harm.
func TestEffectsOdd(t *testing.T) {
	one := func(fell float64) []antagonist.Coded { return []antagonist.Coded{{Held: 1, Fell: fell}} }
	for name, c := range map[string]struct {
		windows []antagonist.Coded
		free    int
		ok      bool
	}{
		"none": {nil, 3, false}, "nobody held": {make([]antagonist.Coded, 3), 3, false}, "nothing before": {one(1), 0, false},
		"NaN": {one(math.NaN()), 3, false}, "Inf": {one(math.Inf(1)), 3, false}, "huge": {one(math.MaxFloat64), 3, false}, "zero": {one(0), 3, true},
		"two cells in one window and a half": {[]antagonist.Coded{{Held: 3}, {Held: 1}}, 3, true},
		"three cells in two windows":         {[]antagonist.Coded{{Held: 3}, {Held: 5}}, 3, false},
		"one refused":                        {[]antagonist.Coded{{Held: 1, Fell: 1}, {Held: 2}, {Held: 1, Fell: 1}}, 3, true},
	} {
		effects, ok := antagonist.Effects(c.windows, c.free)
		if ok != c.ok {
			t.Errorf("%s: %v, %v", name, ok, effects)
		}
		for _, e := range effects {
			if math.IsNaN(e.Fell) || !(e.Error > 0) {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	for _, doubt := range []float64{math.NaN(), 0, -1} {
		if b := antagonist.Beyond(doubt, 3, 3); !math.IsInf(b, 1) {
			t.Errorf("doubt %v: %v standard errors are enough", doubt, b)
		}
	}
	if b := antagonist.Beyond(0.025, 1, 1); math.Abs(b-1.96) > 0.01 {
		t.Errorf("of 2.5 %%: %v", b)
	}
}

// coin is a dumb twin: effects are drawn, some suspects hurt as a group, and a window says their sum with noise.
type coin struct {
	rng     *rand.Rand
	effects []float64
}

func toss(rng *rand.Rand, suspects, guilty int, sum float64) *coin {
	c := &coin{rng: rng, effects: make([]float64, suspects)}
	for _, j := range rng.Perm(suspects)[:guilty] {
		c.effects[j] = sum / float64(guilty)
	}
	return c
}

func (c *coin) window(held uint64) float64 {
	fell := c.rng.NormFloat64()
	for j, e := range c.effects {
		fell += e * float64(held>>j&1)
	}
	return fell
}

// before is what the mean of so many windows without a hold is off.
func (c *coin) before(free int) float64 { return c.rng.NormFloat64() / math.Sqrt(float64(free)) }

const tossFree, tossDoubt = 3, 0.05

// coded plays an experiment, to its end or until a look convicts somebody, and returns who is convicted, and for how many windows suspects
// were held in all.
func (c *coin) coded(toTheEnd bool) (convicted uint64, cost float64) {
	d := antagonist.Design{Suspects: len(c.effects)}
	level := c.before(tossFree)
	var windows []antagonist.Coded
	for w := range d.Windows() {
		held := d.Held(w)
		windows = append(windows, antagonist.Coded{Held: held, Fell: c.window(held) + level})
		cost += float64(bits.OnesCount64(held))
		if !d.Look(w+1) || toTheEnd && w+1 < d.Windows() {
			continue
		}
		effects, _ := antagonist.Effects(windows, tossFree)
		for _, e := range effects {
			if e.Fell > antagonist.Beyond(tossDoubt, len(effects), d.Looks())*e.Error {
				convicted |= e.Cell
			}
		}
		if convicted != 0 {
			break
		}
	}
	return convicted, cost
}

// oneByOne nudges one suspect after the other, over and over, for so many windows.
func (c *coin) oneByOne(windows float64) (convicted uint64) {
	level := c.before(tossFree)
	each := max(1, int(windows)/len(c.effects))
	for j := range c.effects {
		sum := 0.0
		for range each {
			sum += c.window(1<<j) + level
		}
		noise := math.Sqrt(1/float64(each) + 1/float64(tossFree))
		if sum/float64(each) > antagonist.Beyond(tossDoubt, len(c.effects), 1)*noise {
			convicted |= 1 << j
		}
	}
	return convicted
}

// TestCodedDoubt: where nobody hurts, whoever is convicted is so falsely, and that is no more often than the doubt allows.
func TestCodedDoubt(t *testing.T) {
	const n = 4000
	rng := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for range n {
		c := toss(rng, 3+rng.IntN(10), 0, 0)
		if convicted, _ := c.coded(false); convicted != 0 {
			wrong++
		}
	}
	if most := tossDoubt + 3*math.Sqrt(tossDoubt/n); float64(wrong)/n > most {
		t.Errorf("of %d experiments among innocents %d convict: more than %.3f", n, wrong, most)
	}
}

// TestCodedAgainstOneByOne: at equal cost, in windows that suspects are held, who hurts is found about as often as one by one, and in
// a quarter of the time; in equal time more than twice as often.
func TestCodedAgainstOneByOne(t *testing.T) {
	const n = 1000
	for _, guilty := range []int{1, 2, 4} {
		rng := rand.New(rand.NewPCG(3, uint64(guilty)))
		var coded, single, quick, wrong int
		for range n {
			c := toss(rng, 7, guilty, 2.5*float64(guilty))
			of := uint64(0)
			for j, e := range c.effects {
				if e > 0 {
					of |= 1 << j
				}
			}
			convicted, cost := c.coded(true)
			coded += bits.OnesCount64(convicted & of)
			if convicted&^of != 0 {
				wrong++
			}
			single += bits.OnesCount64(c.oneByOne(cost) & of)
			quick += bits.OnesCount64(c.oneByOne(float64(antagonist.Design{Suspects: 7}.Windows())) & of)
		}
		t.Logf("%d guilty: found by coded nudges %d, one by one %d at equal cost, %d in equal time, wrong %d of %d", guilty, coded, single, quick, wrong, n*guilty)
		if float64(coded) < 0.97*float64(single) || coded < 2*quick || float64(wrong)/n > tossDoubt+0.01 {
			t.Errorf("%d guilty: coded %d, one by one %d and %d, wrong %d", guilty, coded, single, quick, wrong)
		}
	}
}

func BenchmarkCoded(b *testing.B) {
	for _, n := range []int{7, 50} {
		b.Run(fmt.Sprint(n, " suspects"), func(b *testing.B) {
			windows := make([]antagonist.Coded, antagonist.Design{Suspects: n}.Windows())
			for b.Loop() {
				d := antagonist.Design{Suspects: n}
				for w := range windows {
					windows[w] = antagonist.Coded{Held: d.Held(w), Fell: float64(w % 5)}
				}
				if _, ok := antagonist.Effects(windows, 3); !ok {
					b.Fatal("no effects")
				}
			}
		})
	}
}
