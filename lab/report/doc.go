// Package report writes what a lab run found: one self-contained HTML page with
// tables and inline SVG charts, and the same tables as aligned text for a
// terminal. The page loads nothing: no script, no font, no style sheet and no
// picture from anywhere, so that it can be mailed, archived and printed.
//
// # The figures it serves
//
// The charts follow CPI2 (EuroSys 2013). Figure 8(b): the victim's signal over
// time and, on the same time axis, the CPU usage of the suspects. Figure 9: the
// same pair with the time of the hard cap shaded. Hence a [Chart] may carry a
// second panel ([Chart.Lower]) that shares its time axis and its shading.
//
// # Why the SVG is written here and not by gonum.org/v1/plot
//
// gonum/plot v0.17.0 was tried and looked at. It was rejected because:
//
//   - vgsvg names the font family "Liberation Serif" in every text element and
//     places each text by its left edge, computed from that font's metrics. With
//     the reader's own sans-serif font, right-aligned and centred texts drift.
//   - plotter.NewLine refuses a series that holds a NaN, while a gap ("absent")
//     is an ordinary thing in our series and has to break the line.
//   - Its legend lies inside the plot area, on top of the data. Two plots
//     stacked with plot.Align repeat title, axis and label and share no shading.
//   - It adds nine modules (fonts, a TeX parser and a PDF writer among them) and
//     8 MB to a stripped binary, for what is a few hundred lines here.
//
// # Hostile names
//
// Task names come from cgroup directories, which tenants may name as they like.
// Every text is escaped for the place it goes to, and control characters, which
// could drive a terminal, and direction marks, which could make a name read as
// another, are spelled out (`\x1b`, `\u202e`).
package report
