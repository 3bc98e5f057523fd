// Package reliability measures how long it takes until all is put back: under one fault after
// the other, over many short rounds, on the twin and with real agents on this host.
package reliability

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/commensal-io/commensal/twin/soak"
)

// Row is what the rounds of one fault came to.
type Row struct {
	Fault  string        `json:"fault"`
	Where  string        `json:"where"` // "twin" or "host"
	Rounds int           `json:"rounds"`
	Knobs  int           `json:"knobs"` // looked at once all should be back
	Wrong  int           `json:"wrong"` // of these, not as they should be
	Median time.Duration `json:"median_nsec"`
	Worst  time.Duration `json:"worst_nsec"`
	Failed []string      `json:"failed,omitempty"` // the first rounds with something wrong
	// NotPlayed says why there were no rounds.
	NotPlayed string `json:"not_played,omitempty"`
}

// maxFailed is how many failed rounds a row names.
const maxFailed = 10

// sum adds rounds up: how long each took, in any order.
func (r *Row) sum(took []time.Duration) {
	slices.Sort(took)
	if r.Rounds = len(took); len(took) > 0 {
		r.Median, r.Worst = took[len(took)/2], took[len(took)-1]
	}
}

// Table is all rows.
type Table []Row

// Wrong is how many knobs were not as they should be.
func (t Table) Wrong() (n int) {
	for i := range t {
		n += t[i].Wrong
	}
	return n
}

// Twin plays so many rounds of each fault on the twin, on so many workers. Rounds in which
// nothing was held when the fault came do not count. done is told of each row.
func Twin(rounds, workers int, done func(r *Row)) (Table, error) {
	var table Table
	for f := range soak.NumFaults {
		row, err := twinRow(f, rounds, workers)
		if err != nil {
			return nil, err
		}
		table = append(table, *row)
		done(row)
	}
	return table, nil
}

func twinRow(f soak.Fault, rounds, workers int) (*Row, error) {
	row := &Row{Fault: f.String(), Where: "twin"}
	var took []time.Duration
	for first := uint64(1); len(took) < rounds; {
		// Whole batches, in the order of their seeds: what comes out does not depend on the workers.
		list := make([]*soak.Round, rounds-len(took))
		var g errgroup.Group
		g.SetLimit(max(1, workers))
		for i := range list {
			g.Go(func() (err error) {
				list[i], err = soak.PlayRound(f, first+uint64(i))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		first += uint64(len(list))
		for _, r := range list {
			if r.Held == 0 && r.Wrong == 0 {
				continue
			}
			took = append(took, time.Duration(r.BackNsec))
			row.Knobs += r.Knobs
			row.Wrong += r.Wrong
			if r.Wrong > 0 && len(row.Failed) < maxFailed {
				why := ""
				if r.Failure != nil {
					why = ": " + r.Failure.Check + ": " + r.Failure.What
				}
				row.Failed = append(row.Failed, fmt.Sprintf("seed %d%s", r.Seed, why))
			}
		}
		if first > 100*uint64(rounds) {
			return nil, fmt.Errorf("reliability: %s: nothing is held in %d of %d rounds", f, first-uint64(len(took)), first)
		}
	}
	row.sum(took)
	return row, nil
}

// text is a row's cells.
func (r *Row) text() []string {
	if r.NotPlayed != "" {
		return []string{r.Fault, r.Where, "not played", "", "", "", ""}
	}
	round := func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return []string{r.Fault, r.Where, strconv.Itoa(r.Rounds), strconv.Itoa(r.Knobs), strconv.Itoa(r.Wrong), round(r.Median), round(r.Worst)}
}

// String is the row in a line.
func (r *Row) String() string { return strings.Join(r.text(), "  ") }

var head = []string{"fault", "where", "rounds", "knobs checked", "not as they should be", "put back after, median", "worst"}

// WriteText writes the table for people.
func (t Table) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for i := range t {
		fmt.Fprintln(tw, strings.Join(t[i].text(), "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, t.notes())
	return err
}

// notes are a line for each row that was not played, and for each round that failed.
func (t Table) notes() string {
	var b strings.Builder
	for i := range t {
		if t[i].NotPlayed != "" {
			fmt.Fprintf(&b, "- %s, %s: not played: %s\n", t[i].Fault, t[i].Where, t[i].NotPlayed)
		}
		for _, f := range t[i].Failed {
			fmt.Fprintf(&b, "- %s, %s: %s\n", t[i].Fault, t[i].Where, f)
		}
	}
	return b.String()
}

// markdown is the table as it stands in a document.
func (t Table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for i := range t {
		line(t[i].text())
	}
	if notes := t.notes(); notes != "" {
		b.WriteString("\n" + notes)
	}
	return b.String()
}

// Between what a table stands in a document; each names the table.
const (
	begin = "<!-- make reliability: %s -->\n"
	end   = "<!-- end of make reliability: %s -->\n"
)

// WriteInto puts the table into a document, in place of the one of the same name.
func (t Table) WriteInto(path, name string) error {
	doc, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reliability: %w", err)
	}
	first, last := fmt.Sprintf(begin, name), fmt.Sprintf(end, name)
	before, rest, ok := bytes.Cut(doc, []byte(first))
	_, after, closed := bytes.Cut(rest, []byte(last))
	if !ok || !closed {
		return errors.New("reliability: " + path + " has no place for the table: " + strings.TrimSpace(first))
	}
	text := string(before) + first + t.markdown() + last + string(after)
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a document
}
