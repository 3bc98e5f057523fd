package report

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// element is one element of a parsed picture.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(e.attrs[name], 64)
	if err != nil {
		t.Fatalf("%s: attribute %s: %v", e.name, name, err)
	}
	return v
}

func drawn(t *testing.T, c Chart) []element {
	t.Helper()
	var out bytes.Buffer
	if err := c.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	return parseSVG(t, out.Bytes())
}

func parseSVG(t *testing.T, svg []byte) []element {
	t.Helper()
	var all []element
	var open []int
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%.2000s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			open = append(open, len(all))
			all = append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
	return all
}

var (
	svgElements = map[string]bool{
		"svg": true, "defs": true, "pattern": true, "rect": true, "line": true, "path": true, "circle": true, "text": true, "title": true,
	}
	pathShape = regexp.MustCompile(`^(M-?[0-9.]+ -?[0-9.]+(L-?[0-9.]+ -?[0-9.]+)+)+$`)
)

// checkPicture holds for every chart, whatever its data: known elements only,
// finite coordinates inside the picture, well-formed paths.
func checkPicture(t *testing.T, all []element) {
	t.Helper()
	if len(all) == 0 || all[0].name != "svg" {
		t.Fatal("no svg element")
	}
	width, height := all[0].number(t, "width"), all[0].number(t, "height")
	if want := "0 0 " + all[0].attrs["width"] + " " + all[0].attrs["height"]; all[0].attrs["viewBox"] != want {
		t.Errorf("viewBox %q, want %q", all[0].attrs["viewBox"], want)
	}
	across := map[string]bool{"x": true, "x1": true, "x2": true, "cx": true}
	down := map[string]bool{"y": true, "y1": true, "y2": true, "cy": true}
	for _, e := range all {
		if !svgElements[e.name] {
			t.Errorf("element %s", e.name)
		}
		for name, value := range e.attrs {
			limit := 0.0
			switch {
			case across[name]:
				limit = width
			case down[name]:
				limit = height
			case name == "d":
				if !pathShape.MatchString(value) {
					t.Errorf("path %.200q", value)
				}
				continue
			default:
				if strings.Contains(value, "NaN") && name != "aria-label" {
					t.Errorf("%s %s=%q", e.name, name, value)
				}
				continue
			}
			if v := e.number(t, name); !(v >= 0 && v <= limit) {
				t.Errorf("%s %s=%s lies outside of %g × %g", e.name, name, value, width, height)
			}
		}
		for _, name := range []string{"width", "height", "r"} {
			if e.attrs[name] != "" && !(e.number(t, name) >= 0) {
				t.Errorf("%s %s=%q", e.name, name, e.attrs[name])
			}
		}
	}
}

func find(all []element, name string) []element {
	var found []element
	for _, e := range all {
		if e.name == name {
			found = append(found, e)
		}
	}
	return found
}

func textOf(t *testing.T, all []element, text string) element {
	t.Helper()
	for _, e := range find(all, "text") {
		if e.text == text {
			return e
		}
	}
	t.Fatalf("no text %q", text)
	return element{}
}

func TestStackedPair(t *testing.T) {
	chart := newSampleRun(1, 4).pair()
	all := drawn(t, chart)
	checkPicture(t, all)

	s := chart.layOut("c")
	if len(s.panels) != 2 || s.panels[0].top+s.panels[0].height >= s.panels[1].top {
		t.Fatal("the panels are not one above the other")
	}
	for _, name := range []string{"web-search", "threshold 1.80", "video-encode", "log-shipper"} {
		if x := textOf(t, all, name).number(t, "x"); x <= s.right {
			t.Errorf("%q starts at %g, over the data that ends at %g", name, x, s.right)
		}
	}
	// Each shaded time is drawn in both panels, over the same stretch of time.
	hatched := 0
	for _, e := range find(all, "rect") {
		if e.attrs["fill"] == "url(#c-hatch0)" {
			hatched++
		}
	}
	if hatched != 4 {
		t.Errorf("%d hatched rectangles, want two caps in two panels", hatched)
	}
	// The absent window breaks the victim's line: two runs.
	for _, e := range find(all, "path") {
		runs := strings.Count(e.attrs["d"], "M")
		want := 1
		if e.attrs["stroke"] == strokeOf(Victim, 0).line {
			want = 2
		}
		if runs != want {
			t.Errorf("%d runs of the line in %s, want %d", runs, e.attrs["stroke"], want)
		}
	}
}

// A level is drawn where the axis says: the threshold's dashed line and a series
// of the same value coincide, halfway between the ticks around them.
func TestValuesLieOnTheirAxis(t *testing.T) {
	level := 2.5
	all := drawn(t, Chart{
		Series:    []Series{{Name: "v", Role: Victim, X: []float64{0, 10}, Y: []float64{0, 5}}, {Name: "flat", X: []float64{0, 10}, Y: []float64{2.5, 2.5}}},
		Threshold: &level,
	})
	var y float64
	for _, e := range find(all, "line") {
		if e.attrs["stroke-dasharray"] == "5 4" {
			y = e.number(t, "y1")
		}
	}
	two, three := textOf(t, all, "2").number(t, "y")-4, textOf(t, all, "3").number(t, "y")-4
	if math.Abs(y-(two+three)/2) > 0.05 {
		t.Errorf("2.5 at %g, between 2 at %g and 3 at %g", y, two, three)
	}
	found := false
	for _, e := range find(all, "path") {
		found = found || strings.Count(e.attrs["d"], " "+num(y)) == 2
	}
	if !found {
		t.Errorf("no series lies at %g", y)
	}
}

func TestManySeriesGetKeysAboveThePanel(t *testing.T) {
	chart := newSampleRun(2, 20).pair()
	all := drawn(t, chart)
	checkPicture(t, all)
	s := chart.layOut("c")
	for _, name := range []string{"video-encode", "20 bystanders"} {
		e := textOf(t, all, name)
		if y := e.number(t, "y"); y >= s.panels[1].top || y <= s.panels[0].top+s.panels[0].height {
			t.Errorf("key %q at %g is not between the panels", name, y)
		}
	}
	chart.Lower.Series = append(chart.Lower.Series, make([]Series, 2*maxSeries)...)
	for i := range chart.Lower.Series {
		chart.Lower.Series[i].X, chart.Lower.Series[i].Y = []float64{0, 1}, []float64{0, 1}
	}
	all = drawn(t, chart)
	checkPicture(t, all)
	textOf(t, all, strconv.Itoa(21+2*maxSeries-maxSeries)+" more series are not drawn.")
}

func TestDegenerateCharts(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	series := func(x, y []float64) []Series { return []Series{{Name: "s", Role: Victim, X: x, Y: y}} }
	for _, c := range []struct {
		name  string
		chart Chart
		want  string // a text that must be there
	}{
		{"nothing", Chart{}, "no data"},
		{"no points", Chart{Series: series(nil, nil)}, "s: no values."},
		{"all absent", Chart{Series: series([]float64{1, 2}, []float64{nan, nan})}, "s: no values."},
		{"one point", Chart{Series: series([]float64{3}, []float64{2})}, "s"},
		{"one point at zero", Chart{Series: series([]float64{0}, []float64{0})}, "s"},
		{"infinite", Chart{Series: series([]float64{1, 2, inf, 4}, []float64{1, inf, 1, -inf})}, "s: 3 values that are not finite."},
		{"no time", Chart{Series: series([]float64{1, nan, 3}, []float64{1, 2, 3})}, "s: 1 values that are not finite."},
		{"huge", Chart{Series: series([]float64{0, 1e300}, []float64{-1e300, 1e300})}, "1e300"},
		{"beyond", Chart{Series: series([]float64{0, 1}, []float64{math.MaxFloat64, 1})}, "s: 1 values that are not finite."},
		{"subnormal", Chart{Series: series([]float64{0, 5e-324}, []float64{0, 5e-324})}, "s"},
		{"log of zero", Chart{LogY: true, Series: series([]float64{0, 1, 2}, []float64{0, 1, -1})}, "s: 2 values that a log axis cannot show (zero, negative or not finite)."},
		{"log of nothing", Chart{LogY: true}, "no data"},
		{"lengths differ", Chart{Series: series([]float64{0, 1, 2}, []float64{1})}, "s: times and values differ in number; the longer end is left out."},
		{"times go back", Chart{Series: series([]float64{2, 1, 3, 0}, []float64{1, 2, 3, 4})}, "s"},
		{"threshold NaN", Chart{Threshold: &nan}, "The threshold is no number that can be drawn."},
		{"threshold alone", Chart{Threshold: new(float64)}, "threshold 0"},
		{"threshold on log", Chart{LogY: true, Threshold: new(float64)}, "The threshold is not positive and cannot be drawn on a log axis."},
		{"shades only", Chart{Shades: []Shade{{From: 0, To: 9}}}, "capped"},
		{"shades without ends", Chart{Shades: []Shade{{From: -inf, To: inf, Role: ControlOn}}}, "policies on"},
		{"shade backwards", Chart{Shades: []Shade{{From: 9, To: 0}, {From: nan, To: 1}}}, "2 shaded times end before they begin and are not drawn."},
		{"sizes", Chart{Width: nan, Height: inf}, "no data"},
		{"tiny", Chart{Width: 1, Height: 1, Title: "t", Lower: &Panel{}}, "t"},
		{"negative size", Chart{Width: -5, Height: -5}, "no data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := drawn(t, c.chart)
			checkPicture(t, all)
			textOf(t, all, c.want)
		})
	}
}

func TestOnePointBetweenGapsIsADot(t *testing.T) {
	nan := math.NaN()
	all := drawn(t, Chart{Series: []Series{{Name: "s", X: []float64{0, 1, 2, 3, 4, 5}, Y: []float64{1, 2, nan, 3, nan, 1}}}})
	if dots, lines := len(find(all, "circle")), len(find(all, "path")); dots != 2 || lines != 1 {
		t.Errorf("%d dots and %d lines, want 2 and 1", dots, lines)
	}
}

// Long series are thinned: the picture stays small and keeps every peak.
func TestLongSeriesStaySmall(t *testing.T) {
	const n = 200_000
	s := Series{Name: "s", Role: Victim, X: make([]float64, n), Y: make([]float64, n)}
	gaps := Series{Name: "gaps", X: s.X, Y: make([]float64, n)}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		s.X[i], s.Y[i], gaps.Y[i] = float64(i)*0.02, rng.Float64(), 0.5
		if i%2 == 0 {
			gaps.Y[i] = math.NaN()
		}
	}
	s.Y[n/3] = 9
	chart := Chart{Series: []Series{s, gaps}}
	var out bytes.Buffer
	if err := chart.WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 200_000 {
		t.Errorf("%d bytes for %d points", out.Len(), n)
	}
	sheet := chart.layOut("c")
	peak := " " + num(sheet.panels[0].y(9)) + "L"
	if !strings.Contains(out.String(), peak) {
		t.Errorf("the peak of 9 at y=%s is gone", peak)
	}
}

// A narrow shaded time whose label finds no room is explained by a key below.
func TestShadesWithoutRoomGetAKey(t *testing.T) {
	chart := Chart{
		Series: []Series{{Name: "s", X: []float64{0, 1000}, Y: []float64{1, 2}}},
		Shades: []Shade{
			{From: 500, To: 502, Role: Quiet, Label: "a quiet time with a long name"},
			{From: 502, To: 504, Role: ControlOff, Label: "policies off"}, {From: 504, To: 1000, Role: ControlOn},
			{From: 2000, To: 3000, Role: Capped, Label: "after the end"},
		},
	}
	all := drawn(t, chart)
	checkPicture(t, all)
	textOf(t, all, "policies on")
	bottom := chart.layOut("c").panels[0]
	for _, key := range []string{"quiet", "policies off"} {
		if y := textOf(t, all, key).number(t, "y"); y < bottom.top+bottom.height {
			t.Errorf("key %q at %g, in or above the panel", key, y)
		}
	}
	for _, e := range find(all, "text") {
		if e.text == "after the end" {
			t.Error("a shaded time outside of the axis is named")
		}
	}
}

func TestSpreadNames(t *testing.T) {
	names := []endName{{text: "c", at: 50}, {text: "a", at: 48}, {text: "b", at: 49}, {text: "d", at: 99}}
	spreadNames(names, 0, 100)
	order := ""
	for i, n := range names {
		order += n.text
		if n.y < 0 || n.y > 100 || i > 0 && n.y-names[i-1].y < labelPitch {
			t.Errorf("%s at %g, after %+v", n.text, n.y, names[max(0, i-1)])
		}
	}
	if order != "abcd" {
		t.Errorf("order %s", order)
	}
}

const hostile = "</text><script>alert('x')</script>\"><img src=http://evil.example/x onerror=alert(1)>]]>&amp;\x00\x1b[31m\u202e\xff"

func hostileChart() Chart {
	level := 1.0
	c := newSampleRun(1, 2).pair()
	c.Title, c.Subtitle, c.XLabel, c.YLabel, c.ThresholdLabel = hostile, hostile, hostile, hostile, hostile
	c.Series[0].Name, c.Lower.Series[0].Name, c.Lower.YLabel = hostile, hostile, hostile
	c.Lower.Threshold, c.Lower.ThresholdLabel = &level, hostile
	c.Lower.Series = append(c.Lower.Series, Series{Name: hostile})
	for i := range c.Shades {
		c.Shades[i].Label = hostile
	}
	return c
}

func TestHostileNamesInSVG(t *testing.T) {
	all := drawn(t, hostileChart())
	checkPicture(t, all) // fails on any foreign element
	for _, e := range all {
		for name := range e.attrs {
			if strings.HasPrefix(name, "on") || name == "href" || name == "src" {
				t.Errorf("%s has %s", e.name, name)
			}
		}
		if strings.ContainsAny(e.text, "\x00\x1b\u202e") {
			t.Errorf("%s: %q", e.name, e.text)
		}
	}
}

// floats reads eight bytes a value, so that the fuzzer reaches every one.
func floats(b []byte) []float64 {
	var all []float64
	for ; len(b) >= 8 && len(all) < 4000; b = b[8:] {
		all = append(all, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return all
}

func bits(all ...float64) []byte {
	var b []byte
	for _, v := range all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

func FuzzChart(f *testing.F) {
	inf, nan := math.Inf(1), math.NaN()
	f.Add("web", bits(0, 1, 2), bits(1, 2, 3), 1.8, false, 0.0, 1.0, 0.0, 0.0, 1)
	f.Add("", bits(), bits(), nan, true, inf, -inf, nan, inf, 0)
	f.Add(hostile, bits(nan, inf, 0, math.Copysign(0, -1)), bits(5e-324, math.MaxFloat64, nan, -inf), 0.0, true, -inf, inf, 1.0, 1e9, 60)
	f.Add("x", bits(1e300, -1e300), bits(1e300, -1e300), 1e308, false, 0.0, 0.0, 300.0, 100.0, 3)
	f.Fuzz(func(t *testing.T, name string, x, y []byte, level float64, log bool, from, to, width, height float64, n int) {
		n = 1 + max(0, n)%80
		c := Chart{
			Title: name, Subtitle: name, YLabel: name, Threshold: &level, LogY: log, Width: width, Height: height,
			Shades: []Shade{{From: from, To: to, Label: name}, {From: from, To: inf, Role: ControlOn}, {From: to, To: from, Role: ShadeRole(n)}},
			Lower:  &Panel{LogY: !log, ThresholdLabel: name},
		}
		if n%2 == 0 {
			c.XLabel = name
		}
		for i := range n {
			c.Lower.Series = append(c.Lower.Series, Series{Name: name, Role: Role(i % 5), X: floats(x), Y: floats(y)})
		}
		c.Series = c.Lower.Series[:1]
		checkPicture(t, drawn(t, c))
	})
}
