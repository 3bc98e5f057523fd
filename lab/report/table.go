package report

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Align says to which side of its column a text goes.
type Align int

// Left is for names and words, Right for numbers.
const (
	Left Align = iota
	Right
)

// String returns the name of the side, as the page's style sheet spells it.
func (a Align) String() string {
	if a == Right {
		return "right"
	}
	return "left"
}

// Emphasis sets a cell apart. It is drawn on the page only, so the text has to
// say what matters by itself.
type Emphasis int

// A cell is plain unless it says otherwise.
const (
	Plain Emphasis = iota
	Good
	Bad
	Muted
)

// String returns the name of the emphasis, as the page's style sheet spells it.
func (e Emphasis) String() string { return entry(e, "plain", "good", "bad", "muted") }

// Column is the head of one column. The unit belongs here and not in the cells.
type Column struct {
	Name  string
	Unit  string // "ms", "CPU"; empty for names and ratios
	Align Align
}

// Figures is the head of a column of numbers.
func Figures(name, unit string) Column { return Column{Name: name, Unit: unit, Align: Right} }

// Heads are those of a table whose first column has names and all others numbers, each
// "name" or "name|unit".
func Heads(names ...string) []Column {
	list := make([]Column, len(names))
	for i, n := range names {
		name, unit, _ := strings.Cut(n, "|")
		list[i] = Figures(name, unit)
	}
	list[0].Align = Left
	return list
}

func (c Column) head() string {
	switch {
	case c.Unit == "":
		return visible(c.Name)
	case c.Name == "":
		return "(" + visible(c.Unit) + ")"
	}
	return visible(c.Name) + " (" + visible(c.Unit) + ")"
}

// Cell is one text of a table. An absent value is a word ("absent", "no
// interference seen"), not an empty text and never a zero.
type Cell struct {
	Text     string
	Emphasis Emphasis
}

// Dash is the cell of a figure that is not there, where a word would crowd the table.
func Dash() Cell { return Cell{Text: "-", Emphasis: Muted} }

// Figure is the cell of a figure, a dash for NaN.
func Figure(format string, v float64) Cell {
	if math.IsNaN(v) {
		return Dash()
	}
	return Cell{Text: fmt.Sprintf(format, v)}
}

// Some is Figure for figures that say nothing when they are 0.
func Some(format string, v float64) Cell {
	if v == 0 {
		return Dash()
	}
	return Figure(format, v)
}

// Cells makes a row of plain cells.
func Cells(texts ...string) []Cell {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i] = Cell{Text: text}
	}
	return row
}

// Table is a title, columns, rows and notes. Rows may be shorter than the
// columns (the rest stays empty) or longer (the rest has an empty head).
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]Cell
	Notes   []string
}

const (
	// textWidth is the width that WriteText keeps to where the figures allow it,
	// in terminal columns.
	textWidth = 100
	// narrowestWords is the least width to which a column of words is wrapped;
	// below it paths fall into syllables and the table is better too wide.
	narrowestWords = 14
	textIndent     = 2
	textGap        = 2
)

// columns returns the columns, with empty ones added for rows that are longer.
func (t Table) columns() []Column {
	columns := append([]Column(nil), t.Columns...)
	for _, row := range t.Rows {
		for len(columns) < len(row) {
			columns = append(columns, Column{})
		}
	}
	return columns
}

// WriteText writes the table aligned for a terminal, in at most 100 columns
// where the numbers allow it: words and heads are wrapped, numbers never are.
// It reports the first write error.
func (t Table) WriteText(w io.Writer) error {
	var out strings.Builder
	t.writeText(&out)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write table %q: %w", t.Title, err)
	}
	return nil
}

// WriteTables writes tables as WriteText does, each with an empty line behind it.
func WriteTables(w io.Writer, tables ...Table) error {
	for _, t := range tables {
		if err := t.WriteText(w); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}

func (t Table) writeText(out *strings.Builder) {
	if t.Title != "" {
		writeParagraph(out, t.Title, 0)
		fmt.Fprintln(out)
	}
	columns := t.columns()
	widths := textWidths(columns, t.Rows)
	if len(columns) > 0 {
		heads := make([]string, len(columns))
		rule := 0
		for i, c := range columns {
			heads[i] = c.head()
			rule += widths[i] + textGap
		}
		writeTextRow(out, columns, widths, heads, true)
		fmt.Fprintf(out, "%*s%s\n", textIndent, "", strings.Repeat("-", rule-textGap))
	}
	for _, row := range t.Rows {
		texts := make([]string, len(columns))
		for i, cell := range row {
			texts[i] = visible(cell.Text)
		}
		writeTextRow(out, columns, widths, texts, false)
	}
	if len(t.Rows) == 0 {
		fmt.Fprintf(out, "%*s(no rows)\n", textIndent, "")
	}
	if len(t.Notes) > 0 {
		fmt.Fprintln(out)
	}
	for _, note := range t.Notes {
		writeParagraph(out, note, textIndent)
	}
}

// textWidths starts from the natural widths. While the table is too wide, it
// first wraps heads that are wider than their cells, then the widest words.
func textWidths(columns []Column, rows [][]Cell) []int {
	widths := make([]int, len(columns))
	cells := make([]int, len(columns))  // of the widest cell, and of the head's longest word
	floors := make([]int, len(columns)) // below which nothing can be wrapped
	for i, c := range columns {
		head := c.head()
		for _, word := range strings.Fields(head) {
			floors[i] = max(floors[i], cellWidth(word))
		}
		cells[i] = floors[i]
		for _, row := range rows {
			if i < len(row) {
				cells[i] = max(cells[i], cellWidth(visible(row[i].Text)))
			}
		}
		if c.Align == Right {
			floors[i] = cells[i]
		} else {
			floors[i] = max(floors[i], narrowestWords)
			cells[i] = min(cells[i], max(floors[i], textWidth))
		}
		widths[i] = max(cells[i], cellWidth(head))
	}
	narrow(widths, cells)
	narrow(widths, floors)
	return widths
}

// narrow takes from the widest columns, down to their floors, until the table
// fits a terminal page.
func narrow(widths, floors []int) {
	total := textIndent - textGap
	for _, width := range widths {
		total += width + textGap
	}
	for ; total > textWidth; total-- {
		widest := -1
		for i := range widths {
			if widths[i] > floors[i] && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

func cellWidth(s string) int { return int(measure(s, columnWidth)) }

// writeTextRow writes one row, as many lines high as its highest cell. Heads
// stand on the bottom line, cells hang from the top.
func writeTextRow(out *strings.Builder, columns []Column, widths []int, texts []string, head bool) {
	lines := make([][]string, len(columns))
	height := 1
	for i, text := range texts {
		lines[i] = wrap(text, float64(widths[i]), columnWidth)
		height = max(height, len(lines[i]))
	}
	for y := range height {
		var b strings.Builder
		b.WriteString(strings.Repeat(" ", textIndent))
		for i, c := range columns {
			at := y
			if head {
				at -= height - len(lines[i])
			}
			text := ""
			if at >= 0 && at < len(lines[i]) {
				text = lines[i][at]
			}
			pad := strings.Repeat(" ", max(0, widths[i]-cellWidth(text)))
			if c.Align == Right {
				b.WriteString(pad + text)
			} else {
				b.WriteString(text + pad)
			}
			if i < len(columns)-1 {
				b.WriteString(strings.Repeat(" ", textGap))
			}
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
}

// writeParagraph writes text wrapped to the width of a terminal page.
func writeParagraph(out *strings.Builder, text string, indent int) {
	for _, line := range wrap(visible(text), float64(textWidth-indent), columnWidth) {
		fmt.Fprintf(out, "%*s%s\n", indent, "", line)
	}
}
