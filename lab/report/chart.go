package report

import (
	"fmt"
	"io"
	"math"
	"sort"
)

// Series is one line. X is in seconds, not decreasing for a sensible picture; Y
// is in the unit of the panel. A NaN in Y is an absent value and breaks the line;
// a point between two gaps is drawn as a dot. What else cannot be drawn (an
// infinity, a value ≤ 0 on a log axis) breaks the line too and is counted in a
// note under the chart.
type Series struct {
	Name string
	Role Role
	X, Y []float64
}

// Shade marks a time, in seconds, in all panels. To may be +Inf, From −Inf: as
// far as the data goes. An empty Label stands for the role's own words.
type Shade struct {
	From, To float64
	Label    string
	Role     ShadeRole
}

// Panel is one plot with its own value axis.
type Panel struct {
	YLabel         string // quantity and unit; stands above the panel
	Series         []Series
	Threshold      *float64 // a dashed level; nil: none
	ThresholdLabel string   // empty: "threshold"
	LogY           bool
}

// Chart is one panel or, with Lower, two above each other that share the x axis
// and the shading. The zero Width is 900, the zero Height what the panels need,
// both in CSS pixels.
type Chart struct {
	Title, Subtitle string

	// XLabel is empty for time: the axis then reads "time" in s, min:s or h:min as
	// the length asks for. Any other label makes it an axis of plain numbers.
	XLabel string

	YLabel         string // of the (upper) panel, as in Panel
	Series         []Series
	Threshold      *float64
	ThresholdLabel string
	LogY           bool

	Lower *Panel // nil: none

	Shades        []Shade
	Width, Height float64
}

const (
	defaultWidth = 900
	leastWidth   = 360
	mostPixels   = 4000 // of either side

	heightSingle = 240
	heightUpper  = 210
	heightLower  = 150
	heightLeast  = 60

	// maxSeries bounds what a panel draws, most important roles first: more lines
	// cannot be told apart and make the page large. The rest is counted in a note.
	maxSeries = 48
	// maxShades bounds the shaded times of a chart likewise.
	maxShades = 200
	maxNotes  = 6
)

// WriteSVG writes the chart as an SVG document of its own, on a white ground.
func (c Chart) WriteSVG(w io.Writer) error {
	if _, err := w.Write(c.draw("c", true)); err != nil {
		return fmt.Errorf("write chart %q: %w", c.Title, err)
	}
	return nil
}

// panels returns the panels from top to bottom.
func (c Chart) panels() []Panel {
	panels := []Panel{{
		YLabel: c.YLabel, Series: c.Series,
		Threshold: c.Threshold, ThresholdLabel: c.ThresholdLabel, LogY: c.LogY,
	}}
	if c.Lower != nil {
		panels = append(panels, *c.Lower)
	}
	return panels
}

// point is a place that can be drawn, in the data's units.
type point struct{ x, y float64 }

// trace is a series ready to be drawn: its unbroken runs, none of them empty.
type trace struct {
	name   string
	role   Role
	stroke stroke
	runs   [][]point
}

// last is the point at which the line ends.
func (t trace) last() point {
	run := t.runs[len(t.runs)-1]
	return run[len(run)-1]
}

// plot is a panel with its data sorted out and, once placed, its frame.
type plot struct {
	Panel
	traces      []trace // most important first
	threshold   float64 // NaN: none
	values      axis
	head        float64 // y of the lowest line of text above the plot
	top, height float64

	direct bool     // names stand at the lines' ends; else in rows above the panel
	keys   []legend // those rows' entries, where not direct
	rows   int      // and how many rows they need
}

// prepare sorts out what of a panel can be drawn, and says what cannot.
func prepare(p Panel, times *extent) (*plot, []string) {
	out := &plot{Panel: p, threshold: math.NaN()}
	var notes []string
	series := append([]Series(nil), p.Series...)
	sort.SliceStable(series, func(i, j int) bool { return series[i].Role.rank() < series[j].Role.rank() })
	if extra := len(series) - maxSeries; extra > 0 {
		notes = append(notes, fmt.Sprintf("%d more series are not drawn.", extra))
		series = series[:maxSeries]
	}
	nth := map[Role]int{}
	for _, s := range series {
		t, note := trailOf(s, p.LogY)
		if note != "" {
			notes = append(notes, note)
		}
		t.stroke = strokeOf(s.Role, nth[s.Role])
		nth[s.Role]++
		if len(t.runs) > 0 {
			out.traces = append(out.traces, t)
		}
	}
	if p.Threshold != nil {
		switch {
		case drawable(*p.Threshold, p.LogY):
			out.threshold = *p.Threshold
		case p.LogY && *p.Threshold <= 0:
			notes = append(notes, "The threshold is not positive and cannot be drawn on a log axis.")
		default:
			notes = append(notes, "The threshold is no number that can be drawn.")
		}
	}
	for _, t := range out.traces {
		for _, run := range t.runs {
			for _, pt := range run {
				times.add(pt.x)
			}
		}
	}
	return out, notes
}

// trailOf cuts a series into unbroken runs and counts what was left out.
func trailOf(s Series, log bool) (trace, string) {
	t := trace{name: visible(s.Name), role: s.Role}
	points := min(len(s.X), len(s.Y))
	unequal := len(s.X) != len(s.Y)
	lost := 0
	var run []point
	for i := range points {
		x, y := s.X[i], s.Y[i]
		if drawable(x, false) && drawable(y, log) {
			run = append(run, point{x, y})
			continue
		}
		if !math.IsNaN(y) {
			lost++
		}
		if len(run) > 0 {
			t.runs = append(t.runs, run)
			run = nil
		}
	}
	if len(run) > 0 {
		t.runs = append(t.runs, run)
	}
	name := shorten(t.name, 30, columnWidth)
	switch {
	case lost > 0 && log:
		return t, fmt.Sprintf("%s: %d values that a log axis cannot show (zero, negative or not finite).", name, lost)
	case lost > 0:
		return t, fmt.Sprintf("%s: %d values that are not finite.", name, lost)
	case unequal:
		return t, fmt.Sprintf("%s: times and values differ in number; the longer end is left out.", name)
	case len(t.runs) == 0:
		return t, fmt.Sprintf("%s: no values.", name)
	}
	return t, ""
}

// scale gives the panel its value axis, now that its height is known.
func (p *plot) scale() {
	var values extent
	for _, t := range p.traces {
		for _, run := range t.runs {
			for _, pt := range run {
				values.add(pt.y)
			}
		}
	}
	if !math.IsNaN(p.threshold) {
		values.add(p.threshold)
	}
	p.values = valueAxis(values, p.LogY, int(p.height/42))
	if !values.any {
		p.values.ticks = nil // no data: figures on the axis would be made up
	}
}

// y is the height at which a value is drawn.
func (p *plot) y(v float64) float64 { return p.top + p.height*(1-p.values.at(v)) }

// shadesToDraw drops what has no extent and bounds the number.
func shadesToDraw(shades []Shade) (kept []Shade, notes []string) {
	wrong := 0
	for _, s := range shades {
		if !(s.From <= s.To) { // also NaN
			wrong++
			continue
		}
		s.Label = visible(s.Label)
		if s.Label == "" {
			s.Label = s.Role.String()
		}
		kept = append(kept, s)
	}
	if wrong > 0 {
		notes = append(notes, fmt.Sprintf("%d shaded times end before they begin and are not drawn.", wrong))
	}
	if extra := len(kept) - maxShades; extra > 0 {
		notes = append(notes, fmt.Sprintf("%d more shaded times are not drawn.", extra))
		kept = kept[:maxShades]
	}
	// A cap lies on top of the longer times.
	sort.SliceStable(kept, func(i, j int) bool {
		if (kept[i].Role == Capped) != (kept[j].Role == Capped) {
			return kept[j].Role == Capped
		}
		return kept[i].From < kept[j].From
	})
	return kept, notes
}
