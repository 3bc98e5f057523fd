package report

import (
	"math"
	"slices"
	"sort"
	"strconv"
)

// Distances of the layout, in user units.
const (
	edge        = 10.0 // around everything
	headGap     = 8.0  // under title and subtitle
	panelGap    = 14.0 // between the panels
	stripHeight = 17.0 // a row of tabs over the shaded times
	topTickGap  = 7.0  // between a panel's head and its highest tick's text
	tickGap     = 7.0  // between an axis and its texts
	nameGap     = 10.0 // between the plot and the names at its right
	swatch      = 22.0 // the sample line of a key
	keyGap      = 18.0 // between keys
	leastLeft   = 44.0
	namesShare  = 0.24 // of the width, at most, for the names at the right
	mostKeys    = 18   // of a panel; more cannot be told apart
	// bystandersApart is how many bystanders get keys of their own; beyond that
	// they are one crowd, since their greys repeat.
	bystandersApart = 6
)

// legend is one key in the rows above a panel.
type legend struct {
	text   string
	stroke stroke
	x      float64
	row    int
}

// tab is the coloured head of a shaded time in the strip over the top panel.
type tab struct {
	Shade
	left, right float64
	row         int
	text        string // empty: no room
	textX       float64
}

// sheet is a chart with everything in its place.
type sheet struct {
	id                     string // prefix of the element ids, unique within a page
	chart                  Chart
	width, height          float64
	left, right            float64 // of the plots
	title, subtitle, notes []string
	panels                 []*plot
	times                  axis
	timesLabel             string
	tabs                   []tab
	tabRows                int
	washKeys               []ShadeRole // roles for whose label there was no room
	stripTop               float64
}

func (c Chart) layOut(id string) *sheet {
	s := &sheet{id: id, chart: c, width: clampOr(c.Width, defaultWidth, leastWidth)}
	var span extent
	for _, p := range c.panels() {
		prepared, notes := prepare(p, &span)
		s.panels = append(s.panels, prepared)
		s.notes = append(s.notes, notes...)
	}
	shades, notes := shadesToDraw(c.Shades)
	s.notes = append(s.notes, notes...)
	if !span.any {
		for _, shade := range shades {
			for _, x := range []float64{shade.From, shade.To} {
				if drawable(x, false) {
					span.add(x)
				}
			}
		}
	}
	inner := s.width - 2*edge
	s.title = atMost(2, wrap(visible(c.Title), inner/sizeTitle, emWidth))
	s.subtitle = atMost(4, wrap(visible(c.Subtitle), inner/sizeText, emWidth))
	if extra := len(s.notes) - maxNotes; extra > 0 {
		s.notes = append(s.notes[:maxNotes-1], strconv.Itoa(extra+1)+" more notes of this kind are left out.")
	}

	s.shareHeight(0)
	s.nameAndScale()
	s.placeAcross(span, shades)
	s.placeDown()
	if c.Height > 0 {
		s.shareHeight(clampOr(c.Height, 0, 1) - s.height)
		s.nameAndScale()
		s.placeAcross(span, shades)
		s.placeDown()
	}
	return s
}

// clampOr returns v within least…mostPixels, or fallback when v says nothing.
func clampOr(v, fallback, least float64) float64 {
	if !(v > 0) { // also NaN
		return fallback
	}
	return math.Min(mostPixels, math.Max(least, v))
}

// atMost cuts lines to n and marks the cut.
func atMost(n int, lines []string) []string {
	if len(lines) > n {
		lines = lines[:n]
		lines[n-1] += " …"
	}
	return lines
}

// shareHeight gives the panels their own heights, or, when these are known to
// miss the chart's height by extra, shares that out.
func (s *sheet) shareHeight(extra float64) {
	wish := []float64{heightSingle}
	if len(s.panels) == 2 {
		wish = []float64{heightUpper, heightLower}
	}
	var sum float64
	for _, h := range wish {
		sum += h
	}
	for i, p := range s.panels {
		p.height = math.Max(heightLeast, wish[i]*(1+extra/sum))
	}
}

// nameAndScale settles for each panel whether its names find room at the lines'
// ends, and the value axes.
func (s *sheet) nameAndScale() {
	for _, p := range s.panels {
		names := len(p.traces)
		if !math.IsNaN(p.threshold) {
			names++
		}
		p.direct = float64(names)*labelPitch <= p.height
		p.keys, p.rows = nil, 0
		if !p.direct {
			p.keys, p.rows = keysOf(p.traces, s.width-2*edge)
		}
		p.scale()
	}
}

// keysOf places the keys of a panel in rows of the given width.
func keysOf(traces []trace, width float64) (keys []legend, rows int) {
	bystanders := 0
	for _, t := range traces {
		if t.role == Bystander {
			bystanders++
		}
	}
	for i, t := range traces {
		if t.role == Bystander && bystanders > bystandersApart {
			keys = append(keys, legend{text: strconv.Itoa(bystanders) + " bystanders", stroke: t.stroke})
			break // bystanders come last
		}
		if len(keys) == mostKeys {
			keys = append(keys, legend{text: "and " + strconv.Itoa(len(traces)-i) + " more", stroke: t.stroke})
			break
		}
		keys = append(keys, legend{text: shorten(t.name, 0.4*width/sizeText, emWidth), stroke: t.stroke})
	}
	x, row := 0.0, 0
	for i := range keys {
		span := swatch + 6 + textSpan(keys[i].text, sizeText)
		if x > 0 && x+span > width {
			x, row = 0, row+1
		}
		keys[i].x, keys[i].row = edge+x, row
		x += span + keyGap
	}
	return keys, row + 1
}

// placeAcross settles everything along x: the plots' sides, the time axis, the
// tabs of the shaded times.
func (s *sheet) placeAcross(span extent, shades []Shade) {
	s.left = leastLeft
	names := 0.0
	for _, p := range s.panels {
		for _, t := range p.values.ticks {
			s.left = math.Max(s.left, edge+textSpan(t.text, sizeSmall)+tickGap)
		}
		for _, n := range p.endNames(s.namesLimit()) {
			names = math.Max(names, textSpan(n.text, sizeText))
		}
	}
	s.right = s.width - edge - 14 // room for half a tick's text
	if names > 0 {
		s.right = s.width - edge - nameGap - names
	}
	want := int((s.right - s.left) / 85)
	unit := ""
	if s.chart.XLabel == "" {
		s.times, unit = timeAxis(span, want)
		s.timesLabel = "time, " + unit
	} else {
		s.times = plainAxis(span, want)
		s.timesLabel = shorten(visible(s.chart.XLabel), (s.right-s.left)/sizeText, emWidth)
	}
	if !span.any {
		s.times.ticks = nil // no data: figures on the axis would be made up
	}
	for s.ticksCollide() {
		kept := s.times.ticks[:0]
		for i, t := range s.times.ticks {
			if i%2 == 0 {
				kept = append(kept, t)
			}
		}
		s.times.ticks = kept
	}
	s.placeTabs(shades)
}

func (s *sheet) ticksCollide() bool {
	for i := 1; i < len(s.times.ticks); i++ {
		a, b := s.times.ticks[i-1], s.times.ticks[i]
		room := (textSpan(a.text, sizeSmall) + textSpan(b.text, sizeSmall)) / 2
		if s.x(b.value)-s.x(a.value) < room+4 {
			return true
		}
	}
	return false
}

func (s *sheet) namesLimit() float64 { return namesShare * s.width / sizeText }

// x is where a time is drawn.
func (s *sheet) x(v float64) float64 { return s.left + (s.right-s.left)*s.times.at(v) }

// placeTabs puts the caps in one row and the longer times in another, and
// writes each label where no other stands in the way.
func (s *sheet) placeTabs(shades []Shade) {
	s.tabs, s.washKeys, s.tabRows = nil, nil, 0
	hasLong, hasCap := false, false
	for _, shade := range shades {
		t := tab{Shade: shade, left: s.x(shade.From), right: s.x(shade.To)}
		if t.right-t.left < 1 && (shade.To < s.times.low || shade.From > s.times.high) {
			continue // wholly outside
		}
		t.right = math.Max(t.right, t.left+1)
		hasCap = hasCap || shade.Role == Capped
		hasLong = hasLong || shade.Role != Capped
		s.tabs = append(s.tabs, t)
	}
	if hasLong {
		s.tabRows++
	}
	if hasCap {
		s.tabRows++
	}
	named := map[ShadeRole]bool{}
	ends := []float64{s.left, s.left} // of the texts so far, by row
	for i := range s.tabs {
		t := &s.tabs[i]
		if t.Role == Capped && hasLong {
			t.row = 1
		}
		span := textSpan(t.Label, sizeSmall)
		x := math.Min(math.Max((t.left+t.right)/2, s.left+span/2), s.right-span/2)
		if x-span/2 < ends[t.row] || s.otherTabUnder(i, x-span/2, x+span/2) {
			continue
		}
		t.text, t.textX = t.Label, x
		ends[t.row] = x + span/2 + 6
		named[t.Role] = true
	}
	for _, t := range s.tabs {
		if !named[t.Role] {
			named[t.Role] = true
			s.washKeys = append(s.washKeys, t.Role)
		}
	}
	sort.Slice(s.washKeys, func(i, j int) bool { return s.washKeys[i] < s.washKeys[j] })
}

// otherTabUnder reports whether the text of tab i would lie on a tab of another
// role in its row and so name the wrong time.
func (s *sheet) otherTabUnder(i int, from, to float64) bool {
	own := s.tabs[i]
	return slices.ContainsFunc(s.tabs, func(t tab) bool {
		sameRow := (t.Role == Capped) == (own.Role == Capped)
		return sameRow && (t.Role != own.Role || t.Label != own.Label) && t.left < to-1 && t.right > from+1
	})
}

// placeDown settles everything along y.
func (s *sheet) placeDown() {
	y := edge + float64(len(s.title))*lineTitle + float64(len(s.subtitle))*lineText
	if len(s.title)+len(s.subtitle) > 0 {
		y += headGap
	}
	for i, p := range s.panels {
		if i > 0 {
			y += panelGap
		}
		if p.YLabel != "" {
			y += lineText + 4
		}
		y += float64(p.rows) * lineText
		p.head = y - 7
		if p.rows > 0 {
			y += 4
		}
		if i == 0 {
			s.stripTop = y
			y += float64(s.tabRows) * stripHeight
		}
		if i > 0 || s.tabRows == 0 {
			y += topTickGap
		}
		p.top = y
		y += p.height
		p.scale()
	}
	y += tickGap + lineSmall + lineText + 4 // tick texts and label of the time axis
	if len(s.washKeys) > 0 {
		y += lineText + 4
	}
	y += float64(len(s.notes)) * lineSmall
	s.height = y + edge
}
