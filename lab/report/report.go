package report

import (
	"bytes"
	_ "embed" // page.html
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
)

// Outcome is the result of a run in one word.
type Outcome int

// A run that says nothing could not tell: silence is no success.
const (
	CouldNotTell Outcome = iota
	Pass
	Fail
)

// String returns the words for the outcome.
func (o Outcome) String() string { return entry(o, "Could not tell", "Passed", "Failed") }

// Code is the exit code of a run with this outcome (docs/DESIGN.md, "Contracts"): 0 done, 1 the
// run's own check failed, 3 could not tell.
func (o Outcome) Code() int { return entry(o, 3, 0, 1) }

// class is the outcome's name in the page's style sheet.
func (o Outcome) class() string { return entry(o, "unknown", "pass", "fail") }

// Verdict is the outcome and one or two sentences on why.
type Verdict struct {
	Outcome Outcome
	Text    string
}

// Section is a part of the report. Its texts come first, then its charts, then
// its tables.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Tables []Table
	Charts []Chart
}

// Report is a run's result, ready to be written.
type Report struct {
	Title    string
	Summary  []string // short paragraphs; the first says in one sentence what happened
	Verdict  Verdict
	Sections []Section
	Facts    [][2]string // name, value: machine, kernel, seed, profile, versions
}

//go:embed page.html
var pageSource string

// pageFuncs are what page.html calls. visible is applied to every text;
// html/template escapes what is left.
func pageFuncs() template.FuncMap {
	charts := 0
	return template.FuncMap{
		"visible": visible,
		"chart": func(c Chart) template.HTML {
			charts++
			// Safe: draw escapes every text and writes no other element than its own.
			return template.HTML(c.draw("c"+strconv.Itoa(charts), false)) //nolint:gosec // see above
		},
		"outcome": Outcome.class,
		// cells pairs a row's cells with their columns and fills the row up.
		"cells": func(t Table, row []Cell) []pageCell {
			columns := t.columns()
			cells := make([]pageCell, len(columns))
			for i, c := range columns {
				cells[i].Align = c.Align
				if i < len(row) {
					cells[i].Cell = row[i]
					cells[i].Long = c.Align == Left && cellWidth(row[i].Text) > longCell
				}
			}
			return cells
		},
		"columns": Table.columns,
		"span":    func(t Table) int { return max(1, len(t.columns())) },
	}
}

// longCell is the width, in characters, from which words may be wrapped
// anywhere on the page: paths and names without spaces would else push the
// table out of it.
const longCell = 28

type pageCell struct {
	Cell
	Align Align
	Long  bool
}

// WriteHTML writes the report as one page that loads nothing from anywhere. It
// reports the first write error; w may then hold a part of the page.
func (r Report) WriteHTML(w io.Writer) error {
	page, err := template.New("page.html").Funcs(pageFuncs()).Parse(pageSource)
	if err != nil {
		return fmt.Errorf("parse page.html: %w", err)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, r); err != nil {
		return fmt.Errorf("fill page.html: %w", err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write report %q: %w", r.Title, err)
	}
	return nil
}

// WriteText writes the report for a terminal: everything but the charts, whose
// titles are named so that a reader knows what the page has to offer. It reports
// the first write error.
func (r Report) WriteText(w io.Writer) error {
	var out strings.Builder
	if r.Title != "" {
		writeParagraph(&out, r.Title, 0)
		out.WriteString(strings.Repeat("=", min(textWidth, cellWidth(visible(r.Title)))) + "\n\n")
	}
	verdict := r.Verdict.Outcome.String() + "."
	if r.Verdict.Text != "" {
		verdict += " " + r.Verdict.Text
	}
	writeParagraph(&out, verdict, 0)
	for _, text := range r.Summary {
		out.WriteByte('\n')
		writeParagraph(&out, text, 0)
	}
	for _, section := range r.Sections {
		section.writeText(&out)
	}
	if len(r.Facts) > 0 {
		out.WriteByte('\n')
		width := 0
		for _, fact := range r.Facts {
			width = max(width, cellWidth(visible(fact[0])))
		}
		for _, fact := range r.Facts {
			name := visible(fact[0])
			out.WriteString(name + strings.Repeat(" ", width-cellWidth(name)+textGap) + visible(fact[1]) + "\n")
		}
	}
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write report %q: %w", r.Title, err)
	}
	return nil
}

func (s Section) writeText(out *strings.Builder) {
	out.WriteByte('\n')
	if s.Title != "" {
		writeParagraph(out, s.Title, 0)
		out.WriteString(strings.Repeat("-", min(textWidth, cellWidth(visible(s.Title)))) + "\n")
	}
	for i, text := range s.Text {
		if i > 0 {
			out.WriteByte('\n')
		}
		writeParagraph(out, text, 0)
	}
	for _, chart := range s.Charts {
		if chart.Title != "" {
			writeParagraph(out, "[chart on the page: "+chart.Title+"]", 0)
		}
	}
	for _, table := range s.Tables {
		out.WriteByte('\n')
		table.writeText(out)
	}
}
