package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func texts(ticks []tick) string {
	var all []string
	for _, t := range ticks {
		all = append(all, t.text)
	}
	return strings.Join(all, " ")
}

func TestValueAxis(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high float64
		log       bool
		want      string
	}{
		{"from zero", 1.0, 4.5, false, "0 1 2 3 4 5"},
		{"narrow band keeps its own base", 1.02, 1.04, false, "1.020 1.025 1.030 1.035 1.040"},
		{"one level", 2, 2, false, "0 0.5 1.0 1.5 2.0 2.5"},
		{"all zero", 0, 0, false, "0 0.2 0.4 0.6 0.8 1.0"},
		{"negative", -3, -1, false, "−3.0 −2.5 −2.0 −1.5 −1.0"},
		{"across zero", -40, 60, false, "−40 −20 0 20 40 60"},
		{"thousands", 0, 48000, false, "0 10,000 20,000 30,000 40,000 50,000"},
		{"millions", 0, 4.4e6, false, "0 1e6 2e6 3e6 4e6 5e6"},
		{"tiny", 0, 3e-7, false, "0 1e−7 2e−7 3e−7"},
		{"huge", -1e300, 1e300, false, "−1e300 −5e299 0 5e299 1e300"},
		{"digits beyond a float", 1e15, 1e15 + 1, false, "0 2.5e14 5e14 7.5e14 1e15 1.25e15 1.5e15"},
		{"log, under two decades", 2.2, 38, true, "2 5 10 20 50"},
		{"log, on the steps", 1, 100, true, "1 2 5 10 20 50 100"},
		{"log, many decades", 1e-3, 1e6, true, "0.001 0.1 10 1,000 100,000 1e7"},
		{"log, one level", 3, 3, true, "1 2 5 10"},
		{"log, fractions", 0.0012, 0.04, true, "0.001 0.002 0.005 0.01 0.02 0.05"},
		{"log, extreme", 1e-290, 1e300, true, "1e−290 1e−172 1e−54 1e64 1e182 1e300"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := valueAxis(extent{c.low, c.high, true}, c.log, 5)
			if got := texts(a.ticks); got != c.want {
				t.Errorf("ticks %s, want %s", got, c.want)
			}
		})
	}
}

func TestTimeAxis(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high float64
		want      string
		unit      string
	}{
		{"a minute", 0, 60, "0 10 20 30 40 50 60", "s"},
		{"six minutes", 0, 360, "0 60 120 180 240 300 360", "s"},
		{"25 minutes", 0, 1500, "0:00 5:00 10:00 15:00 20:00 25:00", "min:s"},
		{"a day", 0, 86400, "0:00 4:00 8:00 12:00 16:00 20:00 24:00", "h:min"},
		{"before zero", -120, 900, "0:00 5:00 10:00 15:00", "min:s"},
		{"parts of a second", 0, 0.9, "0 0.2 0.4 0.6 0.8", "s"},
		{"one moment", 5, 5, "4.6 4.8 5.0 5.2 5.4", "s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, unit := timeAxis(extent{c.low, c.high, true}, 6)
			if got := texts(a.ticks); got != c.want || unit != c.unit {
				t.Errorf("ticks %s in %s, want %s in %s", got, unit, c.want, c.unit)
			}
		})
	}
}

// Any two drawable ends give an axis that covers them, with finite, rising ticks
// whose texts differ.
func TestAxisHoldsForAnyEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	value := func() float64 {
		v := math.Pow(10, rng.Float64()*590-290) * (1 + rng.Float64())
		if rng.IntN(2) == 0 {
			v = -v
		}
		return math.Max(-largest, math.Min(largest, v))
	}
	for range 20000 {
		var e extent
		log := rng.IntN(3) == 0
		a, b := value(), value()
		if rng.IntN(3) == 0 { // close together
			b = a * (1 + rng.NormFloat64()*math.Pow(10, -float64(rng.IntN(16))))
			b = math.Max(-largest, math.Min(largest, b))
		}
		if log {
			a, b = math.Max(smallest, math.Abs(a)), math.Max(smallest, math.Abs(b))
		}
		e.add(a)
		e.add(b)
		value := valueAxis(e, log, 1+rng.IntN(8))
		checkAxis(t, e, value, "value")
		if len(value.ticks) < 2 {
			t.Errorf("%+v: %d ticks", e, len(value.ticks))
		}
		times, _ := timeAxis(e, 1+rng.IntN(10))
		checkAxis(t, e, times, "time")
		if t.Failed() {
			t.FailNow()
		}
	}
}

func checkAxis(t *testing.T, e extent, a axis, kind string) {
	t.Helper()
	low, high := e.low, e.high
	if a.log {
		low, high = math.Log10(low), math.Log10(high)
	}
	slack := 1e-6 * (a.high - a.low)
	if !(a.high > a.low) || math.IsInf(a.high-a.low, 0) || a.low > low+slack || a.high < high-slack {
		t.Errorf("%s axis of %+v spans %g…%g", kind, e, a.low, a.high)
	}
	for i, tick := range a.ticks {
		if at := a.at(tick.value); math.IsNaN(at) {
			t.Errorf("%s axis of %+v: tick %v at NaN", kind, e, tick)
		}
		if strings.Contains(tick.text, "NaN") || strings.Contains(tick.text, "Inf") || len(tick.text) > 24 {
			t.Errorf("%s axis of %+v: tick text %q", kind, e, tick.text)
		}
		if i > 0 && (tick.value <= a.ticks[i-1].value || tick.text == a.ticks[i-1].text) {
			t.Errorf("%s axis of %+v: ticks %v and %v", kind, e, a.ticks[i-1], tick)
		}
	}
}
