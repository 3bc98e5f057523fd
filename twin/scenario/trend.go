package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// defaultSlack is how much a figure may go the other way from one value to the next.
const defaultSlack = 0.02

// checkTrend checks an expectation on a sweep.
func (p *Plan) checkTrend(at string, t *Trend) error {
	if err := p.checkFigureOf(at, t.Task, t.Window, t.Figure); err != nil {
		return err
	}
	if (t.RisesWith == "") == (t.FallsWith == "") {
		return p.doc.Errorf(at, "expected one of rises_with and falls_with")
	}
	key := ".rises_with"
	if t.FallsWith != "" {
		key = ".falls_with"
	}
	if !slices.ContainsFunc(p.Scenario.Sweep, func(s Sweep) bool { return s.Key == t.key() }) {
		return p.doc.Errorf(at+key, "is %q; expected a key under sweep", short(t.key()))
	}
	if t.Slack == nil {
		slack := defaultSlack
		t.Slack = &slack
	}
	if !(*t.Slack >= 0 && *t.Slack < 1) {
		return p.doc.Errorf(at+".slack", "is %g; expected a share of the figure from 0 to below 1", *t.Slack)
	}
	return nil
}

// key is the sweep's key.
func (t *Trend) key() string { return t.RisesWith + t.FallsWith }

// line is the runs that differ only in one sweep's value, in the order of the values.
type line struct {
	rest string // the other sweeps' values
	runs []*Run
}

// linesOf takes runs apart by all values but those of a key.
func linesOf(runs []Run, key string) []line {
	var lines []line
	for i := range runs {
		var rest []string
		for _, s := range runs[i].Settings {
			if s.Key != key {
				rest = append(rest, s.Key+" = "+s.Value)
			}
		}
		name := strings.Join(rest, ", ")
		k := slices.IndexFunc(lines, func(l line) bool { return l.rest == name })
		if k < 0 {
			k = len(lines)
			lines = append(lines, line{rest: name})
		}
		lines[k].runs = append(lines[k].runs, &runs[i])
	}
	return lines
}

// checkTrends holds the runs of a sweep against what is expected across them.
func (p *Plan) checkTrends(runs []Run) []Check {
	var out []Check
	for i := range p.Scenario.Expect.Trends {
		t := &p.Scenario.Expect.Trends[i]
		w, get := p.window(t.Window), figures[t.Figure]
		for _, l := range linesOf(runs, t.key()) {
			for _, k := range p.find(t.Task) {
				var values []float64
				for _, run := range l.runs {
					values = append(values, float64(get(&run.Windows[w].Tasks[k])))
				}
				out = append(out, t.check(p.actors[k].name, l.rest, values))
			}
		}
	}
	return out
}

func (t *Trend) check(task, rest string, values []float64) Check {
	verb := "rises"
	if t.FallsWith != "" {
		verb = "falls"
	}
	c := Check{What: fmt.Sprintf("%s of %s %s with %s", t.Figure, task, verb, t.key()), Passed: t.holds(values)}
	if rest != "" {
		c.What += " at " + rest
	}
	var got []string
	for _, v := range values {
		got = append(got, fmt.Sprintf("%.4g", v))
	}
	c.Got = strings.Join(got, ", ")
	return c
}

// holds says whether values go the way they should: none goes back by more than the slack,
// and the last is beyond the first.
func (t *Trend) holds(values []float64) bool {
	sign := 1.0
	if t.FallsWith != "" {
		sign = -1
	}
	for i, v := range values {
		if math.IsNaN(v) || i > 0 && sign*(v-values[i-1]) < -*t.Slack*math.Abs(values[i-1]) {
			return false
		}
	}
	return len(values) > 1 && sign*(values[len(values)-1]-values[0]) > 0
}
