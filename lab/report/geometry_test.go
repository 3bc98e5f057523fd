package report

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// These tests read a chart as a person does: positions are measured against the
// texts on the axes, not against the code that placed both.

// near holds two positions equal up to the rounding of coordinates.
func near(a, b float64) bool { return math.Abs(a-b) < 0.05 }

// vertices returns the points of the first path of a colour.
func vertices(t *testing.T, all []element, stroke string) []point {
	t.Helper()
	for _, e := range find(all, "path") {
		if e.attrs["stroke"] != stroke {
			continue
		}
		var points []point
		for _, pair := range strings.FieldsFunc(e.attrs["d"], func(r rune) bool { return r == 'M' || r == 'L' }) {
			x, y, _ := strings.Cut(pair, " ")
			px, errX := strconv.ParseFloat(x, 64)
			py, errY := strconv.ParseFloat(y, 64)
			if errX != nil || errY != nil {
				t.Fatalf("path point %q", pair)
			}
			points = append(points, point{px, py})
		}
		return points
	}
	t.Fatalf("no path in %s", stroke)
	return nil
}

// tickY is the height of a value's grid line, by its text.
func tickY(t *testing.T, all []element, text string) float64 {
	t.Helper()
	return textOf(t, all, text).number(t, "y") - 4
}

func TestLinearValuesAgainstTicks(t *testing.T) {
	all := drawn(t, Chart{Series: []Series{{Name: "v", Role: Victim, X: []float64{0, 40, 120}, Y: []float64{0, 4, 1}}}})
	zero, one, four := tickY(t, all, "0"), tickY(t, all, "1"), tickY(t, all, "4")
	if !(four < one && one < zero) {
		t.Errorf("4 at %g, 1 at %g, 0 at %g: larger values must lie higher", four, one, zero)
	}
	if !near(zero-four, 4*(zero-one)) {
		t.Errorf("four steps take %g, one takes %g", zero-four, zero-one)
	}
	got := vertices(t, all, strokeOf(Victim, 0).line)
	for i, y := range []float64{zero, four, one} {
		if !near(got[i].y, y) {
			t.Errorf("point %d at %g, its tick at %g", i, got[i].y, y)
		}
	}
	at15, at120 := textOf(t, all, "15").number(t, "x"), textOf(t, all, "120").number(t, "x")
	if x := at15 + (at120-at15)*(40.0-15)/(120-15); !near(got[1].x, x) {
		t.Errorf("second 40 at %g, by the ticks at %g", got[1].x, x)
	}
}

func TestLogValuesAgainstTicks(t *testing.T) {
	all := drawn(t, Chart{LogY: true, Series: []Series{{Name: "v", Role: Victim, X: []float64{0, 1, 2, 3}, Y: []float64{1, 10, 3, 100}}}})
	one, ten, hundred := tickY(t, all, "1"), tickY(t, all, "10"), tickY(t, all, "100")
	if !(hundred < ten) || !near(one-ten, ten-hundred) {
		t.Errorf("1 at %g, 10 at %g, 100 at %g: decades must be equal", one, ten, hundred)
	}
	got := vertices(t, all, strokeOf(Victim, 0).line)
	for i, y := range []float64{one, ten, one - math.Log10(3)*(one-ten), hundred} {
		if !near(got[i].y, y) {
			t.Errorf("point %d at %g, by the ticks at %g", i, got[i].y, y)
		}
	}
}

// Both panels of the pair read off the same times, and each shaded time covers
// what it says in both, over their whole height.
func TestShadesAgainstTicks(t *testing.T) {
	chart := newSampleRun(1, 4).pair()
	all := drawn(t, chart)
	at60, at300 := textOf(t, all, "60").number(t, "x"), textOf(t, all, "300").number(t, "x")
	x := func(seconds float64) float64 { return at60 + (at300-at60)*(seconds-60)/240 }

	type span struct{ from, to float64 }
	var caps []span
	for _, e := range find(all, "rect") {
		if e.attrs["fill"] == "url(#c-hatch0)" {
			left := e.number(t, "x")
			caps = append(caps, span{left, left + e.number(t, "width")})
		}
	}
	want := []span{{196, 256}, {274, 334}, {196, 256}, {274, 334}}
	if len(caps) != len(want) {
		t.Fatalf("%d caps drawn, want %d", len(caps), len(want))
	}
	for i, w := range want {
		if !near(caps[i].from, x(w.from)) || !near(caps[i].to, x(w.to)) {
			t.Errorf("cap %d spans %g…%g, by the ticks %g…%g", i, caps[i].from, caps[i].to, x(w.from), x(w.to))
		}
	}
	victim := vertices(t, all, strokeOf(Victim, 0).line)
	antagonist := vertices(t, all, strokeOf(Antagonist, 0).line)
	for name, line := range map[string][]point{"victim": victim, "antagonist": antagonist} {
		if !near(line[0].x, x(0)) || !near(line[len(line)-1].x, x(360)) {
			t.Errorf("%s runs from %g to %g, by the ticks %g to %g", name, line[0].x, line[len(line)-1].x, x(0), x(360))
		}
	}
	labels := 0
	for _, e := range find(all, "text") {
		if e.text == "capped 0.10 CPU" {
			middle := (want[labels].from + want[labels].to) / 2
			if !near(e.number(t, "x"), x(middle)) {
				t.Errorf("label %d at %g, the middle of its cap at %g", labels, e.number(t, "x"), x(middle))
			}
			labels++
		}
	}
	if labels != 2 {
		t.Errorf("%d caps are named, want 2", labels)
	}
}
