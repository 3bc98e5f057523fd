package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/commensal-io/commensal/lab/report"
)

// Seeds of repeated demos are drawn from firstSeed on: those below are for choosing parameters (docs/FIRST-LIGHT.md).
const (
	firstSeed = 1000
	seedRange = 32768
)

// Series is the verdicts of several demos.
type Series struct {
	Seed     uint64       `json:"seed"` // from which those of the demos were drawn
	Outcomes []*Outcome   `json:"demos"`
	Failed   []FailedDemo `json:"failed"` // that came to no verdict
	Asked    int          `json:"asked"`
}

// FailedDemo is one that could not be played to its end.
type FailedDemo struct {
	Seed uint64 `json:"seed"`
	Why  string `json:"why"`
}

// Seeds draws the seeds of n demos, all different.
func Seeds(seed uint64, n int) []uint64 {
	r, seen, list := rand.New(rand.NewPCG(seed, 0x64656d6f)), map[uint64]bool{}, make([]uint64, 0, n)
	for len(list) < n {
		s := firstSeed + r.Uint64N(seedRange)
		if !seen[s] {
			seen[s] = true
			list = append(list, s)
		}
	}
	return list
}

// MaxRepeat bounds the demos of a series: a day of them.
const MaxRepeat = 300

// Repeat plays n demos, one after the other, with seeds that are drawn from the options' one. One that cannot be played
// is counted, and the next is played. Each has a page, and a record where one is kept, of its own.
func Repeat(ctx context.Context, o Options, n int) (*Series, error) {
	s := &Series{Seed: o.Seed, Asked: n}
	page, records := o.Report, o.Record
	for i, seed := range Seeds(o.Seed, n) {
		o.Seed = seed
		ext := filepath.Ext(page)
		o.Report = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(page, ext), seed, ext)
		if records != "" {
			o.Record = filepath.Join(records, fmt.Sprintf("seed-%d", seed))
		}
		fmt.Fprintf(o.Log, "demo %d of %d\n", i+1, n)
		out, err := Run(ctx, o)
		switch {
		case ctx.Err() != nil:
			if len(s.Outcomes)+len(s.Failed) == 0 {
				return nil, errors.Join(context.Canceled, err)
			}
			return s, nil // what was played is still worth printing
		case err != nil:
			s.Failed = append(s.Failed, FailedDemo{seed, err.Error()})
			fmt.Fprintf(o.Log, "seed %d: %v\n", seed, err)
		default:
			s.Outcomes = append(s.Outcomes, out)
			fmt.Fprintf(o.Log, "seed %d: %s: %s\n", seed, out.Verdict, out.Why)
		}
	}
	return s, nil
}

// Outcome is failed where one of them failed, or could not be played; passed where one passed; else it cannot tell.
func (s *Series) Outcome() report.Outcome {
	count := s.count()
	switch {
	case count[report.Fail] > 0 || len(s.Failed) > 0 || len(s.Outcomes) < s.Asked:
		return report.Fail
	case count[report.Pass] > 0:
		return report.Pass
	}
	return report.CouldNotTell
}

func (s *Series) count() map[report.Outcome]int {
	count := map[report.Outcome]int{}
	for _, o := range s.Outcomes {
		count[o.outcome]++
	}
	return count
}

// WriteText prints the verdicts in one table.
func (s *Series) WriteText(w io.Writer) error {
	count := s.count()
	t := report.Table{
		Title: fmt.Sprintf("%d demos: %d passed, %d failed, %d could not tell", len(s.Outcomes), count[report.Pass], count[report.Fail], count[report.CouldNotTell]),
		Columns: append(report.Heads("seed", "exit", "p99 quiet|ms", "no control|ms", "commensal|ms", "cpu.idle|ms", "of quiet|times", "of no control|times", "BE work of cpu.idle's|%"),
			report.Column{Name: "held"}),
		Notes: []string{fmt.Sprintf("Seeds drawn from %d. Of quiet: p99 with policies on, of that of the first quiet block.", s.Seed)},
	}
	for _, o := range s.Outcomes {
		quiet, none, ours, idle := o.find(wayQuiet), o.find(wayNone), o.find(wayOurs), o.find(wayIdle)
		t.Rows = append(t.Rows, report.Cells(fmt.Sprint(o.Seed), fmt.Sprint(o.Code), figure(quiet.P99, 1), figure(none.P99, 1), figure(ours.P99, 1), figure(idle.P99, 1),
			figure(ours.P99, quiet.P99), figure(ours.P99, none.P99), figure(100*ours.BEWork, idle.BEWork), o.who()))
	}
	for _, f := range s.Failed {
		t.Rows = append(t.Rows, report.Cells(fmt.Sprint(f.Seed), "-", "-", "-", "-", "-", "-", "-", "-", "not played"))
	}
	if err := report.WriteTables(w, t); err != nil {
		return err
	}
	for _, o := range s.Outcomes {
		fmt.Fprintf(w, "%d: %s: %s\n", o.Seed, o.Verdict, o.Why)
	}
	for _, f := range s.Failed {
		fmt.Fprintf(w, "%d: %s\n", f.Seed, f.Why)
	}
	return nil
}

// figure is a quotient with three digits, "-" where there is none.
func figure(over, under float64) string {
	if under <= 0 || over <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", over/under)
}

// who was held.
func (o *Outcome) who() string {
	right, innocent := o.held()
	if right {
		innocent = append([]string{"the antagonist"}, innocent...)
	}
	if len(innocent) == 0 {
		return "nobody"
	}
	return strings.Join(innocent, ", ")
}
