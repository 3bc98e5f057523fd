package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/commensal-io/commensal/cmd/cli"
	"github.com/commensal-io/commensal/lab/calibrate"
	"github.com/commensal-io/commensal/lab/firstlight"
	"github.com/commensal-io/commensal/lab/partition"
	"github.com/commensal-io/commensal/lab/report"
	"github.com/commensal-io/commensal/lab/throttle"
)

// The pages' headlines are the figures of their labs' goals. `results` plays the runs behind them again and holds what comes
// out to what was written down, with its commit, in docs/results.json.

// headline is a goal's figure and its interval. Where the lab gives no interval, it may move by a tenth of itself and
// by one of the last digit that is shown; where it gives a wide one, by mostSlack or a tenth of itself.
type headline struct {
	Name string  `json:"name"`
	Text string  `json:"text"`
	Got  float64 `json:"got"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// mostSlack is how far a figure may move whatever its interval is, where a tenth of itself is less.
const mostSlack = 10

// pageRun is a run behind a page and its headlines.
type pageRun struct {
	Page      string     `json:"page"`
	Command   string     `json:"command"`
	Size      string     `json:"size"` // quick or full
	Commit    string     `json:"commit"`
	Headlines []headline `json:"headlines"`
}

// rerun is a run behind a page: on the twin, so that it can be had anywhere.
type rerun struct {
	page, command string
	experiment    experiment
	seed          uint64
	flags         map[string]string
	one           bool // it has one size, which is full
}

func reruns() []rerun {
	return []rerun{
		{page: "docs/TWIN.md", command: "twin calibrate", experiment: calibrateExperiment(), one: true},
		{page: "docs/policies/cache.md", command: "run cache --seed 2001", experiment: cacheExperiment(), seed: 2001},
		{page: "docs/THROTTLE.md", command: "run throttle --twin-only --seed 1", experiment: throttleExperiment(), seed: 1},
		{page: "docs/PARTITION.md", command: "run partition --twin-only --seed 1", experiment: partitionExperiment(), seed: 1},
		{page: "docs/FIRST-LIGHT.md", command: "run first-light --twin-only --first-seed 11000 --seeds 16", experiment: firstLightExperiment(), flags: map[string]string{"first-seed": "11000", "seeds": "16"}, one: true},
		{page: "docs/EVALUATION.md", command: "run cpi2 --seed 4", experiment: cpi2Experiment(), seed: 4},
		{page: "docs/EVALUATION.md", command: "run cpi2 --relief --seed 3", experiment: cpi2Experiment(), seed: 3, flags: map[string]string{"relief": "true"}},
		{page: "docs/policies/balm.md", command: "run balm --seed 2301", experiment: balmExperiment(), seed: 2301},
		{page: "docs/policies/bandwidth.md", command: "run drc --seed 1001", experiment: drcExperiment(), seed: 1001},
		{page: "docs/policies/cache.md", command: "run rdt --seed 2001", experiment: rdtExperiment(), seed: 2001},
		{page: "docs/policies/coldpages.md", command: "run coldpages --seed 1001", experiment: coldPagesExperiment(), seed: 1001},
		{page: "docs/policies/io.md", command: "run io --seed 1004", experiment: diskExperiment(), seed: 1004},
		{page: "docs/policies/memory.md", command: "run memory --seed 1007", experiment: thrashExperiment(), seed: 1007},
		{page: "docs/policies/pressure.md", command: "run pressure --seed 1002", experiment: pressureExperiment(), seed: 1002},
		{page: "docs/policies/remedy.md", command: "run oracle --seed 3001", experiment: oracleExperiment(), seed: 3001},
		{page: "docs/HEADROOM.md", command: "run headroom --seed 4000", experiment: headroomExperiment(), seed: 4000},
	}
}

// goalsOf returns the goals of a lab's result.
func goalsOf(res result) []report.Goal {
	switch r := res.(type) {
	case interface{ Told() []report.Goal }:
		return r.Told()
	case *calibrate.Result:
		return r.Goals()
	case *throttle.Result:
		return r.Goals
	case firstLight:
		return firstlight.TwinGoals(r.Twin)
	case *partition.Result:
		var list []report.Goal
		for _, g := range r.Goals {
			list = append(list, report.Goal{What: g.What, Got: g.Got})
		}
		return list
	}
	return nil
}

var figure = regexp.MustCompile(`(-?\d+(?:\.(\d+))?)(?:[^\d\[(]*\[(-?\d+(?:\.\d+)?), (-?\d+(?:\.\d+)?)\])?`)

// headlineOf reads a goal's figure: "86.2 % [82.0, 90.1]"; not ok when it has none.
func headlineOf(g *report.Goal) (h headline, ok bool) {
	m := figure.FindStringSubmatch(g.Got)
	if m == nil {
		return h, false
	}
	number := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v }
	h = headline{Name: strings.TrimSpace(g.Where + " " + g.What), Text: g.Got, Got: number(m[1])}
	h.Low, h.High = number(m[3]), number(m[4]) // 0 where there is none
	slack := math.Abs(h.Got)/10 + math.Pow10(-len(m[2]))
	low, high := math.Round(1000*(h.Got-slack))/1000, math.Round(1000*(h.Got+slack))/1000
	if h.Low == h.High { // none, or all catalogues alike
		h.Low, h.High = low, high
	}
	// Two catalogues can have an interval that nothing leaves.
	h.Low, h.High = max(h.Low, min(low, h.Got-mostSlack)), min(h.High, max(high, h.Got+mostSlack))
	return h, true
}

// play runs it through its own command's flags.
func (r *rerun) play(ctx context.Context, quick bool) (*pageRun, error) {
	o := options{Quick: quick, Seed: r.seed, TwinOnly: true}
	if r.experiment.flags != nil {
		cmd := &cobra.Command{}
		r.experiment.flags(cmd)
		for name, value := range r.flags {
			if err := cmd.Flags().Set(name, value); err != nil {
				return nil, err
			}
		}
	}
	res, err := r.experiment.run(ctx, &o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.command, err)
	}
	p := &pageRun{Page: r.page, Command: "commensal-lab " + r.command, Size: "full", Commit: version}
	if quick && !r.one {
		p.Size, p.Command = "quick", p.Command+" --quick"
	}
	for _, g := range goalsOf(res) {
		if h, ok := headlineOf(&g); ok {
			p.Headlines = append(p.Headlines, h)
		}
	}
	if len(p.Headlines) == 0 {
		return nil, fmt.Errorf("%s: no headline came of it", r.command)
	}
	return p, nil
}

// moved says which headlines are outside of the interval that was written down, which are new, and which are gone.
func moved(was, is *pageRun) []string {
	var list []string
	for _, h := range is.Headlines {
		i := slices.IndexFunc(was.Headlines, func(o headline) bool { return o.Name == h.Name })
		if i < 0 {
			list = append(list, fmt.Sprintf("%s: %q is new", is.Command, h.Name))
		} else if o := was.Headlines[i]; h.Got < o.Low || h.Got > o.High {
			list = append(list, fmt.Sprintf("%s: %q is %s; at %s it was %s", is.Command, h.Name, h.Text, was.Commit, o.Text))
		}
	}
	for _, o := range was.Headlines {
		if !slices.ContainsFunc(is.Headlines, func(h headline) bool { return h.Name == o.Name }) {
			list = append(list, fmt.Sprintf("%s: %q is gone", is.Command, o.Name))
		}
	}
	return list
}

// readResults reads what was written down; of a file that is not there, nothing.
func readResults(path string) (list []pageRun, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	return list, err
}

func writeResults(path string, list []pageRun) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(list); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func resultsCommand(p *cli.Printer) *cobra.Command {
	quick, update, path, only := false, false, "docs/results.json", ""
	cmd := &cobra.Command{
		Use: "results", Short: "Play the runs behind the pages' headlines again, and fail when one moved by more than its interval", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := readResults(path)
			if err != nil {
				return err
			}
			var now []pageRun
			var bad []string
			for _, r := range reruns() {
				if !strings.Contains(r.command, only) {
					continue
				}
				is, err := r.play(cmd.Context(), quick)
				if err != nil {
					return err
				}
				now = append(now, *is)
				i := slices.IndexFunc(known, func(o pageRun) bool { return o.Command == is.Command })
				switch {
				case i >= 0 && update:
					known[i] = *is
				case i >= 0:
					bad = append(bad, moved(&known[i], is)...)
				case update:
					known = append(known, *is)
				default:
					bad = append(bad, is.Command+": nothing was written down of it; --update does")
				}
				if update { // after each: runs are long
					if err := writeResults(path, known); err != nil {
						return err
					}
				}
			}
			if err := p.Print(now, func(w io.Writer) error { return writeRuns(w, now, len(bad)) }); err != nil {
				return err
			}
			if len(bad) > 0 {
				return errors.New("headlines moved:\n  " + strings.Join(bad, "\n  "))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "the small sizes, minutes instead of hours")
	f.BoolVar(&update, "update", false, "write down what came out, instead of comparing")
	f.StringVar(&path, "into", path, "the file of headlines")
	f.StringVar(&only, "only", "", "only commands that contain this")
	return cmd
}

func writeRuns(w io.Writer, list []pageRun, bad int) error {
	r := report.Report{Title: "Headlines of the pages, played again", Verdict: report.Verdict{Outcome: report.Pass, Text: "Nothing moved by more than its interval."}}
	if bad > 0 {
		r.Verdict = report.Verdict{Outcome: report.Fail, Text: fmt.Sprintf("%d moved, or are new or gone.", bad)}
	}
	for _, p := range list {
		t := report.Table{Columns: report.Heads("headline", "got")}
		for _, h := range p.Headlines {
			t.Rows = append(t.Rows, report.Cells(h.Name, h.Text))
		}
		r.Sections = append(r.Sections, report.Section{Title: p.Page + ": " + p.Command, Tables: []report.Table{t}})
	}
	return r.WriteText(w)
}
