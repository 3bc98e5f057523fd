package report

import (
	"math"
	"sort"
	"strconv"
	"strings"
)

// draw returns the chart as an svg element. id begins the ids of its elements,
// so that several charts can share a page. standalone adds the namespace that a
// file of its own needs.
func (c Chart) draw(id string, standalone bool) []byte {
	s := c.layOut(id)
	out := &canvas{}
	root := attrs{}
	if standalone {
		root = append(root, "xmlns", "http://www.w3.org/2000/svg")
	}
	name := strings.Join(append(append([]string{}, s.title...), s.subtitle...), " ")
	root = append(root, "viewBox", "0 0 "+num(s.width)+" "+num(s.height),
		"width", num(s.width), "height", num(s.height),
		"role", "img", "aria-label", name, "font-family", fontStack)
	out.open("svg", root)
	out.WriteByte('\n')
	s.drawHatch(out)
	out.rect(0, 0, s.width, s.height, "#ffffff")
	s.drawHead(out)
	for _, p := range s.panels {
		s.drawWashes(out, p)
		s.drawValueAxis(out, p)
		s.drawThreshold(out, p)
		for i := len(p.traces) - 1; i >= 0; i-- { // the most important on top
			s.drawTrace(out, p, p.traces[i])
		}
		s.drawNames(out, p)
		if len(p.traces) == 0 {
			out.text(label{
				x: (s.left + s.right) / 2, y: p.top + p.height/2 + 4, text: "no data",
				size: sizeText, anchor: "middle", fill: colourMuted,
			})
		}
	}
	s.drawTabs(out)
	s.drawTimeAxis(out)
	s.drawFoot(out)
	out.shut("svg")
	return out.Bytes()
}

func (s *sheet) hatchID(role ShadeRole) string { return s.id + "-hatch" + strconv.Itoa(int(role)) }

// drawHatch defines the hatching of caps, when there are any.
func (s *sheet) drawHatch(out *canvas) {
	for _, t := range s.tabs {
		w := washOf(t.Role)
		if w.hatch == "" {
			continue
		}
		size := strconv.Itoa(hatchSpacing)
		out.open("defs", nil)
		out.open("pattern", attrs{
			"id", s.hatchID(t.Role), "width", size, "height", size,
			"patternUnits", "userSpaceOnUse", "patternTransform", "rotate(45)",
		})
		out.rect(0, 0, hatchSpacing, hatchSpacing, w.fill)
		out.line(0, 0, 0, hatchSpacing, w.hatch, 2, "")
		out.shut("pattern")
		out.shut("defs")
		return
	}
}

func (s *sheet) drawHead(out *canvas) {
	y := edge
	for _, line := range s.title {
		y += lineTitle
		out.text(label{x: edge, y: y - 5, text: line, size: sizeTitle, fill: colourInk, bold: true})
	}
	for _, line := range s.subtitle {
		y += lineText
		out.text(label{x: edge, y: y - 3, text: line, size: sizeText, fill: colourMuted})
	}
	for _, p := range s.panels {
		y := p.head
		for _, k := range p.keys {
			base := y - float64(p.rows-1-k.row)*lineText
			out.line(k.x, base-4, k.x+swatch, base-4, k.stroke.line, k.stroke.width, k.stroke.dash)
			out.text(label{x: k.x + swatch + 6, y: base, text: k.text, size: sizeText, fill: k.stroke.text})
		}
		full := visible(p.YLabel)
		text := shorten(full, (s.width-2*edge)/sizeText/1.06, emWidth) // bold is wider
		out.text(label{
			x: edge, y: y - float64(p.rows)*lineText, text: text, hint: full,
			size: sizeText, fill: colourInk, bold: true,
		})
	}
}

// drawWashes fills the shaded times behind everything else of a panel.
func (s *sheet) drawWashes(out *canvas, p *plot) {
	for _, t := range s.tabs {
		w := washOf(t.Role)
		fill := w.fill
		if w.hatch != "" {
			fill = "url(#" + s.hatchID(t.Role) + ")"
		}
		out.rect(t.left, p.top, t.right-t.left, p.height, fill)
		for _, x := range []float64{t.left, t.right} {
			if x > s.left+1 && x < s.right-1 {
				out.line(x, p.top, x, p.top+p.height, w.tab, 1, "")
			}
		}
	}
}

func (s *sheet) drawTabs(out *canvas) {
	for _, t := range s.tabs {
		y := s.stripTop + float64(t.row)*stripHeight
		out.rect(t.left, y, t.right-t.left, stripHeight-2, washOf(t.Role).tab)
	}
	for _, t := range s.tabs { // texts may be wider than their tabs: over all of them
		y := s.stripTop + float64(t.row)*stripHeight
		out.text(label{x: t.textX, y: y + 11.5, text: t.text, size: sizeSmall, anchor: "middle", fill: colourInk})
	}
}

func (s *sheet) drawValueAxis(out *canvas, p *plot) {
	for _, t := range p.values.ticks {
		y := p.y(t.value)
		out.line(s.left, y, s.right, y, colourGrid, 1, "")
		out.text(label{x: s.left - tickGap, y: y + 4, text: t.text, size: sizeSmall, anchor: "end", fill: colourMuted})
	}
	bottom := p.top + p.height
	out.line(s.left, bottom, s.right, bottom, colourAxis, 1, "")
	for _, t := range s.times.ticks {
		x := s.x(t.value)
		out.line(x, bottom, x, bottom+4, colourAxis, 1, "")
	}
}

func (s *sheet) drawThreshold(out *canvas, p *plot) {
	if math.IsNaN(p.threshold) {
		return
	}
	y := p.y(p.threshold)
	out.line(s.left, y, s.right, y, colourThreshold, 1.3, "5 4")
}

func (s *sheet) drawTrace(out *canvas, p *plot, t trace) {
	var path strings.Builder
	dots := map[[2]int]bool{} // by pixel, so that a series full of gaps stays small
	for _, run := range t.runs {
		if len(run) == 1 {
			x, y := s.x(run[0].x), p.y(run[0].y)
			if pixel := [2]int{int(x), int(y)}; !dots[pixel] {
				dots[pixel] = true
				out.leaf("circle", attrs{"cx", num(x), "cy", num(y), "r", num(t.stroke.width + 0.4), "fill", t.stroke.line})
			}
			continue
		}
		letter := "M"
		for _, pt := range s.thin(p, run) {
			path.WriteString(letter + num(pt.x) + " " + num(pt.y))
			letter = "L"
		}
	}
	if path.Len() == 0 {
		return
	}
	a := attrs{
		"d", path.String(), "fill", "none", "stroke", t.stroke.line,
		"stroke-width", num(t.stroke.width), "stroke-linejoin", "round",
	}
	if t.stroke.dash == "" {
		a = append(a, "stroke-linecap", "round")
	} else { // round ends would fill the gaps
		a = append(a, "stroke-dasharray", t.stroke.dash)
	}
	out.leaf("path", a)
}

// thin places a run on the page. Of more than four points in a row within one
// pixel column it keeps the first, the lowest, the highest and the last: the
// picture is the same, the page stays small.
func (s *sheet) thin(p *plot, run []point) []point {
	var out []point
	for from := 0; from < len(run); {
		column := math.Floor(s.x(run[from].x))
		to := from + 1
		for to < len(run) && math.Floor(s.x(run[to].x)) == column {
			to++
		}
		keep := make([]int, 0, 4)
		if to-from <= 4 {
			for i := from; i < to; i++ {
				keep = append(keep, i)
			}
		} else {
			low, high := from, from
			for i := from; i < to; i++ {
				if run[i].y < run[low].y {
					low = i
				}
				if run[i].y > run[high].y {
					high = i
				}
			}
			keep = append(keep, from, min(low, high), max(low, high), to-1)
		}
		for _, i := range keep {
			out = append(out, point{s.x(run[i].x), p.y(run[i].y)})
		}
		from = to
	}
	return out
}

// endName is a name at the right of a plot, at the height of its line's end.
type endName struct {
	text, full string
	colour     string
	line       string  // colour of the stroke between the line's end and the name
	at, y      float64 // where the line is, where the text is
}

// endNames returns the names that stand at the right of the panel, each at most
// limit ems wide, before the panel has its place (at and y are then wrong).
func (p *plot) endNames(limit float64) []endName {
	var names []endName
	if p.direct {
		for _, t := range p.traces {
			text := shorten(t.name, limit, emWidth)
			if text == "" {
				continue
			}
			y := p.y(t.last().y)
			names = append(names, endName{text: text, full: t.name, colour: t.stroke.text, line: t.stroke.line, at: y, y: y})
		}
	}
	if !math.IsNaN(p.threshold) {
		full := visible(p.ThresholdLabel)
		if full == "" {
			full = "threshold " + minus(strconv.FormatFloat(p.threshold, 'g', 3, 64))
		}
		y := p.y(p.threshold)
		names = append(names, endName{
			text: shorten(full, limit, emWidth), full: full, colour: colourThreshold, line: colourThreshold, at: y, y: y,
		})
	}
	return names
}

func (s *sheet) drawNames(out *canvas, p *plot) {
	names := p.endNames(s.namesLimit())
	spreadNames(names, p.top+2, p.top+p.height-2)
	for _, n := range names {
		out.line(s.right+1.5, n.at, s.right+nameGap-2.5, n.y, n.line, 1, "")
		out.text(label{x: s.right + nameGap, y: n.y + 4, text: n.text, hint: n.full, size: sizeText, fill: n.colour})
	}
}

// spreadNames moves names apart to the pitch of a line, in the order of their
// lines' ends, within top…bottom as far as they fit.
func spreadNames(names []endName, top, bottom float64) {
	sort.SliceStable(names, func(i, j int) bool { return names[i].at < names[j].at })
	floor := top
	for i := range names {
		names[i].y = math.Max(names[i].at, floor)
		floor = names[i].y + labelPitch
	}
	ceiling := bottom
	for i := len(names) - 1; i >= 0; i-- {
		names[i].y = math.Min(names[i].y, ceiling)
		ceiling = names[i].y - labelPitch
	}
}

func (s *sheet) drawTimeAxis(out *canvas) {
	last := s.panels[len(s.panels)-1]
	y := last.top + last.height + tickGap + sizeSmall
	for _, t := range s.times.ticks {
		out.text(label{x: s.x(t.value), y: y, text: t.text, size: sizeSmall, anchor: "middle", fill: colourMuted})
	}
	out.text(label{
		x: (s.left + s.right) / 2, y: y + lineText, text: s.timesLabel, size: sizeText, anchor: "middle", fill: colourMuted,
	})
}

// drawFoot writes what the picture cannot show: keys of shadings that found no
// room for a label, and notes.
func (s *sheet) drawFoot(out *canvas) {
	y := s.height - edge - float64(len(s.notes))*lineSmall
	x := s.left
	for _, role := range s.washKeys {
		out.rect(x, y-14, 14, 10, washOf(role).tab)
		out.text(label{x: x + 19, y: y - 5, text: role.String(), size: sizeSmall, fill: colourMuted})
		x += 19 + textSpan(role.String(), sizeSmall) + keyGap
	}
	for _, note := range s.notes {
		y += lineSmall
		text := shorten(note, (s.width-s.left-edge)/sizeSmall, emWidth)
		out.text(label{x: s.left, y: y - 3, text: text, hint: note, size: sizeSmall, fill: colourMuted})
	}
}
